"""What `showtell doctor` says: the machine, and why a score may be low."""

from showtell.doctor.causes import Cause, Diagnosis, diagnose_checkpoint, diagnose_scores, split_to_score
from showtell.doctor.machine import Machine, look_at_machine

__all__ = [
    "Cause",
    "Diagnosis",
    "Machine",
    "diagnose_checkpoint",
    "diagnose_scores",
    "look_at_machine",
    "split_to_score",
]

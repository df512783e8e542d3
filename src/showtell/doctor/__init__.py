"""Diagnosis behind `showtell doctor`: the machine, and why a score may be low."""

from showtell.doctor.causes import Cause, Diagnosis, diagnose_checkpoint, diagnose_scores, split_to_score
from showtell.doctor.machine import Machine, inspect_machine

__all__ = [
    "Cause",
    "Diagnosis",
    "Machine",
    "diagnose_checkpoint",
    "diagnose_scores",
    "inspect_machine",
    "split_to_score",
]

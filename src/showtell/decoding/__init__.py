"""Decoding: every walk over time, for any decoder, batched."""

from showtell.decoding.beam import beam
from showtell.decoding.rollout import Captions, TeacherForcedOutput, teacher_forced
from showtell.decoding.sampling import greedy, sample
from showtell.decoding.scheduled import scheduled
from showtell.decoding.searches import search
from showtell.decoding.stages import StageView
from showtell.decoding_config import SEARCHES, DecodingConfig, Rules, Search

__all__ = [
    "SEARCHES", "Captions", "DecodingConfig", "Rules", "Search", "StageView", "TeacherForcedOutput", "beam", "greedy",
    "sample", "scheduled", "search", "teacher_forced",
]  # fmt: skip

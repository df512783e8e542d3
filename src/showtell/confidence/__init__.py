"""Confidence: the chance that a caption is good, fitted on a validation split and kept with the checkpoint."""

from showtell.confidence.calibration import Calibration, Reliability, describe
from showtell.confidence.fit import calibrate
from showtell.confidence.storage import load_calibration, save_calibration

__all__ = ["Calibration", "Reliability", "calibrate", "describe", "load_calibration", "save_calibration"]

"""Confidence: the chance that a caption is good, fitted on a validation split and kept with the checkpoint."""

from showtell.confidence.calibration import Calibration, Reliability
from showtell.confidence.figure import check_figure_name, describe, plot_reliability
from showtell.confidence.fit import calibrate
from showtell.confidence.storage import load_calibration, save_calibration

__all__ = [
    "Calibration",
    "Reliability",
    "calibrate",
    "check_figure_name",
    "describe",
    "load_calibration",
    "plot_reliability",
    "save_calibration",
]

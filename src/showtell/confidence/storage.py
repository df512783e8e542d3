"""Where a calibration is kept: beside the weights of its checkpoint, with the fingerprint of those weights."""

from __future__ import annotations

from pathlib import Path

from showtell.confidence.calibration import Calibration
from showtell.errors import notify
from showtell.files import read_json, write_json

CALIBRATION = "calibration.json"  # in the folder of a checkpoint


def save_calibration(folder: Path, weights: str, calibration: Calibration) -> Path:
    """Keep a calibration in the folder of its checkpoint, whose weights have this fingerprint."""
    write_json(folder / CALIBRATION, {"weights": weights, "calibration": calibration.to_json()})
    return folder / CALIBRATION


def load_calibration(folder: Path, weights: str) -> Calibration | None:
    """The calibration in a folder whose weights have this fingerprint; None, with a notice, if it is of other weights.

    Raises:
        DataError: its file is damaged.
    """
    file = folder / CALIBRATION
    content = read_json(file)
    calibration = Calibration.from_json(content.get("calibration") if isinstance(content, dict) else content, file)
    if content.get("weights") == weights:
        return calibration
    notify(f"{file} was made for other weights and is not used; make it again: showtell calibrate {folder} DATASET.")
    return None

"""Where a calibration is kept: beside the weights of its checkpoint, with the search and the weights it belongs to."""

from __future__ import annotations

from pathlib import Path

from showtell.checkpoint import CALIBRATION
from showtell.confidence.calibration import Calibration
from showtell.decoding import DecodingConfig
from showtell.errors import CheckpointError
from showtell.files import read_json, write_json

# Settings that change which captions accompany the first, or the random draw, but not how sure the model is.
_IRRELEVANT = {"num_return_sequences", "seed"}


def save_calibration(folder: Path, weights: str, calibration: Calibration, settings: DecodingConfig) -> Path:
    """Keep a calibration in the folder of its checkpoint, with its search and the fingerprint of its weights."""
    about = {"decoding": _search(settings), "weights": weights}
    write_json(folder / CALIBRATION, {**about, "calibration": calibration.to_json()}, indent=1)
    return folder / CALIBRATION


def load_calibration(folder: Path, weights: str, settings: DecodingConfig) -> Calibration:
    """The calibration of a checkpoint with these weights, for captions of this search.

    Raises:
        CheckpointError: it has none, or one of other weights or of another search.
        DataError: its file is damaged.
    """
    file = folder / CALIBRATION
    if not file.is_file():
        raise CheckpointError(
            f"{folder} has no {CALIBRATION}; make one on a validation split: showtell calibrate {folder} DATASET."
        )
    content = read_json(file)
    calibration = Calibration.from_json(content.get("calibration") if isinstance(content, dict) else content, file)
    if content.get("weights") != weights:
        raise CheckpointError(
            f"{file} was made for other weights than those beside it; make it again: showtell calibrate {folder} "
            "DATASET."
        )
    before, now = content.get("decoding") or {}, _search(settings)
    changed = [
        f"{name}={_describe(before.get(name))}, not {_describe(now[name])}"
        for name in now
        if before.get(name) != now[name]
    ]
    if changed:
        raise CheckpointError(
            f"{file} was made for another search ({'; '.join(changed)}); use that search, or calibrate for this one: "
            f"showtell calibrate {folder} DATASET, with the same options."
        )
    return calibration


def is_same_search(settings: DecodingConfig, other: DecodingConfig) -> bool:
    """Whether a calibration of the captions of one search is about those of another."""
    return _search(settings) == _search(other)


def _search(settings: DecodingConfig) -> dict[str, object]:
    return settings.model_dump(mode="json", exclude=_IRRELEVANT) | {"search": settings.kind}


def _describe(value: object) -> str:
    return ",".join(map(str, value)) or "none" if isinstance(value, list) else str(value).lower()

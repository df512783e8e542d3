"""A checkpoint's confidence: fitted on the captions of a validation split, kept beside its weights."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from showtell.captioner import Captioner
from showtell.datasets.records import Record
from showtell.decoding import DecodingConfig
from showtell.decoding.calibration import Calibration
from showtell.errors import CheckpointError
from showtell.evaluation import evaluate
from showtell.files import read_json, write_json
from showtell.scenes import Scene

CALIBRATION = "calibration.json"


def calibrate(
    captioner: Captioner,
    records: Sequence[Record],
    settings: DecodingConfig | None = None,
    *,
    scenes: dict[str, Scene] | None = None,
    good_cider: float = 1.0,
    progress: Callable[[int], None] | None = None,
) -> Calibration:
    """Caption a validation split and fit the chance that a caption is good.

    Args:
        captioner: the model.
        records: images that it was not trained on, with their captions as references.
        settings: how to search; None is the checkpoint's own. Another search needs a calibration of its own.
        scenes: image id to scene, where the images were drawn: a good caption is then one that is wholly true.
        good_cider: elsewhere a good caption has at least this CIDEr-D, of at most 10, with the document frequencies of
            the split.
        progress: called with the number of images done since the last call.

    Raises:
        DataError: there are too few captions, or they are all good or all bad.
    """
    name, least = ("cider", good_cider) if scenes is None else ("truth", 1.0)
    meaning = f"CIDEr-D of {good_cider:g} or more" if scenes is None else "every statement is true"
    found = evaluate(captioner, records, settings, metrics=[name], scenes=scenes, progress=progress)
    is_good = [(found.report.per_image[image][name] or 0.0) >= least for image in found.captions]
    return Calibration.fit(list(found.captions.values()), is_good, meaning)


def save_calibration(folder: Path, calibration: Calibration) -> None:
    """Keep a calibration in the folder of its checkpoint."""
    write_json(folder / CALIBRATION, calibration.to_json(), indent=1)


def load_calibration(folder: Path) -> Calibration:
    """The calibration of a checkpoint.

    Raises:
        CheckpointError: it has none.
        DataError: its file is damaged.
    """
    file = folder / CALIBRATION
    if not file.is_file():
        raise CheckpointError(f"{folder} has no {CALIBRATION}; calibrate the checkpoint on a validation split first.")
    return Calibration.from_json(read_json(file), file)

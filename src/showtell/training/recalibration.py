"""The chance that a caption is good, of a captioner that began as a calibrated one: its marks do not vanish.

It is fitted to photos kept apart where they are enough; otherwise it is the start's own, and a line tells which.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from showtell.captioners import Captioner
from showtell.confidence.calibration import CALIBRATION, save_calibration
from showtell.errors import CheckpointError, DataError, ShowtellError
from showtell.evaluation import calibrate
from showtell.features.store import FeatureStore
from showtell.hub import find_checkpoint
from showtell.training.data import kept_apart
from showtell.training.recipe import Recipe

MIN_PHOTOS = 40  # to which a calibration is fitted; with fewer that of the start is nearer to the truth


def keep_calibration(checkpoint: Path, recipe: Recipe, say: Callable[[str], None]) -> None:
    """Calibrate a checkpoint whose run started from a calibrated captioner, and say how; not where it is already."""
    start = str(recipe.training.start_from)
    try:
        is_calibrated = (find_checkpoint(start) / CALIBRATION).is_file()
    except CheckpointError:  # a run that resumes does not need it any more
        is_calibrated = False
    if not is_calibrated or (captioner := Captioner.from_pretrained(checkpoint)).calibration is not None:
        return
    if (before := Captioner.from_pretrained(start, "cpu").calibration) is None:
        return
    calibration, how = before, f"is that of {start}, as "
    try:
        split, records = kept_apart(recipe.data)
        if len(records) < MIN_PHOTOS:
            raise DataError(f"{len(records)} photos of {split} are too few, and it takes {MIN_PHOTOS}")
        store = None if recipe.data.features is None else FeatureStore(recipe.data.features)
        if store is not None and store.missing([record.image_id for record in records]):
            store = None  # training extracted its own splits alone
        known = None if recipe.encoder.trained else before.familiarity  # by features that have changed nothing is known
        calibration = calibrate(captioner, records, store=store, familiarity=known)
        how = f"was fitted to the {len(records)} photos of {split}"
    except ShowtellError as error:
        how += str(error)
    save_calibration(checkpoint, captioner.about.fingerprints["weights"], calibration)
    say(f"the chance of a good caption, by which captions are marked, {how}")

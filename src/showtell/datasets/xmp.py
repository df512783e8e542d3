"""Descriptions of a photo library: of dog.jpg in dog.jpg.xmp, in dog.xmp or in the photo itself, in all subfolders.

Descriptions that a person wrote or edited are drawn into train and val; those of a captioner are "unchecked".
"""

from __future__ import annotations

from itertools import islice
from pathlib import Path

from showtell.datasets.image_files import as_text
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import UNCHECKED, VAL_SHARE, draw_splits
from showtell.errors import DataError
from showtell.images.photo_files import files_below, has_sidecars, is_image_file, natural_order

EXAMPLE = "dog.jpg beside dog.jpg.xmp with the description A dog runs."

_LOOKED_AT = 500  # photos of a folder, to tell whether any has a description


def recognises(path: Path) -> bool:
    """Whether a folder has any sidecar, or photos alone of which one of the first has a description in itself."""
    if not path.is_dir():
        return False
    if has_sidecars(path):
        return True
    others = (file for file in path.iterdir() if not is_image_file(file.name) and not file.name.startswith("."))
    if not all(map(Path.is_dir, others)):
        return False
    from showtell.images.descriptions import description_of  # other formats need no reader of XML

    return any(map(description_of, islice(files_below(path), _LOOKED_AT)))


def read(path: Path) -> CaptionDataset:
    """Read the photos that have a description; an image's id is its path from the folder."""
    from showtell.images.descriptions import description_of

    issues = DatasetIssues(path)
    unreadable, texts, checked = [], {}, []
    for photo in sorted(files_below(path), key=natural_order):
        try:
            description = description_of(photo)
        except DataError as error:
            unreadable.append(str(error).rstrip("."))
            continue
        if description is not None:
            texts[photo] = description.text
            checked += [photo] if description.is_of_person else []
    issues.warning(unreadable, "sidecar is|sidecars are", "left out")
    if not texts:
        issues.problems.append(f"No photo has a description: showtell caption CHECKPOINT {path} --xmp writes them.")
    ids = {photo: as_text(photo.relative_to(path).as_posix()) for photo in texts}
    splits = draw_splits((ids[photo] for photo in checked), val=VAL_SHARE, test=0)
    records = [CaptionRecord(id, photo, splits.get(id, UNCHECKED), (texts[photo],)) for photo, id in ids.items()]
    return issues.dataset("xmp", records)

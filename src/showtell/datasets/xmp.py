"""XMP sidecars of a photo library: dog.jpg with its description in dog.jpg.xmp or dog.xmp, in all subfolders.

Descriptions that a person wrote or edited are drawn into train and val; those of a captioner are "unchecked".
"""

from __future__ import annotations

import os
from pathlib import Path

from showtell.datasets.image_files import as_text
from showtell.datasets.issues import DatasetIssues
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.datasets.splits import UNCHECKED, VAL_SHARE, draw_splits
from showtell.errors import DataError
from showtell.images.photo_files import find_photos

EXAMPLE = "dog.jpg beside dog.jpg.xmp with the description A dog runs."


def recognises(path: Path) -> bool:
    """Whether there is any sidecar in a folder or below it."""
    return path.is_dir() and any(name.lower().endswith(".xmp") for *_, names in os.walk(path) for name in names)


def read(path: Path) -> CaptionDataset:
    """Read the photos that have a description; an image's id is its path from the folder."""
    from showtell.images.xmp import DESCRIPTION, Sidecar, sidecar_of  # other formats need no reader of XML

    issues = DatasetIssues(path)
    unreadable, texts, checked = [], {}, []
    for photo in find_photos([str(path)]):
        file = sidecar_of(photo)
        if not file.is_file():
            continue
        try:
            sidecar = Sidecar(file)
        except DataError as error:
            unreadable.append(str(error).rstrip("."))
            continue
        if text := sidecar[DESCRIPTION]:
            texts[photo] = text
            checked += [photo] if sidecar.is_of_person else []
    issues.warning(unreadable, "sidecar is|sidecars are", "left out")
    if not texts:
        issues.problems.append(f"No photo has a description: showtell caption CHECKPOINT {path} --xmp writes them.")
    ids = {photo: as_text(photo.relative_to(path).as_posix()) for photo in texts}
    splits = draw_splits((ids[photo] for photo in checked), val=VAL_SHARE, test=0)
    records = [
        CaptionRecord(ids[photo], photo, splits.get(ids[photo], UNCHECKED), (text,)) for photo, text in texts.items()
    ]
    return issues.dataset("xmp", records)

"""Images of a store by what people call them: their ids, or photos that are named after these."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from showtell.datasets.records import CaptionRecord
from showtell.errors import DataError, summarise
from showtell.features.store import FeatureStore, StoredImage
from showtell.images.photo_files import find_photos, images_by_name, match_photos, natural_order


@dataclass(frozen=True)
class ChosenImages:
    """The images of a store that arguments name."""

    images: tuple[StoredImage, ...]
    missing: tuple[str, ...] = ()  # a sentence for each photo or id of which the store has no features
    note: str | None = None  # how photos were matched, a sentence


def photo_or_stored(record: CaptionRecord, store: FeatureStore | None) -> Path | StoredImage:
    """The photo of an image of a dataset, or where there is a store its features in there."""
    return record.path if store is None else StoredImage(store, record.image_id, record.path)


def choose_images(store: FeatureStore, arguments: Sequence[str], stdin: BinaryIO | None = None) -> ChosenImages:
    """The images of a store by ids or `find_photos`' arguments, each once; without arguments all, 2 before 10."""
    known = store.ids()
    if not arguments:
        in_order = sorted(known, key=lambda image_id: natural_order(Path(image_id)))
        return ChosenImages(tuple(StoredImage(store, image_id) for image_id in in_order))
    ids = [argument for argument in dict.fromkeys(arguments) if argument in store]
    photos = [photo for name in arguments if name not in ids for photo in find_photos([name], stdin)]
    matched, kind = match_photos(photos, images_by_name({image_id: [image_id] for image_id in known}))
    if not ids and not matched:
        raise DataError(
            f"{store.path} has features of {summarise(known, 3)}, and none of {summarise(photos, 3)}: name images by "
            "their ids, or by photos whose path, file name, file name without suffix or the number at its end is an "
            "id."
        )
    paths = {image_id: Path(image_id) if os.path.isfile(image_id) else None for image_id in ids}  # noqa: PTH113
    for photo, image_id in matched.items():
        before = paths.setdefault(image_id, None)
        if not os.path.isfile(photo):  # noqa: PTH113 (any name)
            continue
        if before is not None and not photo.samefile(before):
            raise DataError(
                f"By {kind}, {before} and {photo} are both image {image_id} of {store.path}; name one of them."
            )
        paths[image_id] = before or photo
    missing = [f"{store.path} has no features of {photo}" for photo in photos if photo not in matched]
    count = "1 photo is" if len(matched) == 1 else f"{len(matched)} photos are"
    note = f"{count} matched to images of {store.path} by {kind}." if matched else None
    images = tuple(StoredImage(store, image_id, path) for image_id, path in paths.items())
    return ChosenImages(images, tuple(missing), note)

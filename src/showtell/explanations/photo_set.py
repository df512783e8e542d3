"""The photos to explain, with what is known of them: references, annotated objects, scenes and boxes.

Photos of a dataset bring all that their dataset has; for other photos `add_references` looks it up in a dataset or in a
JSON file of captions.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from torch import Tensor

from showtell.datasets import READERS, CaptionDataset, hub, read_dataset
from showtell.errors import DataError, summarise
from showtell.features.store import FeatureStore, StoredImage
from showtell.features.stored_images import choose_images
from showtell.files import read_json
from showtell.images.boxes import corners
from showtell.images.photo_files import find_photos, is_image_file, photo_names
from showtell.scores import ImageFacts, image_facts, read_references


@dataclass(frozen=True)
class PhotoToExplain:
    """A photo with what is known of it."""

    path: Path  # of the file; of a stored image that came without one its id
    facts: ImageFacts = field(default_factory=ImageFacts)
    boxes: Tensor | None = None  # (n, 4) of the dataset, in pixels of the upright photo; None outside datasets
    stored: StoredImage | None = None  # in place of the photo

    @property
    def source(self) -> Path | StoredImage:
        """What is captioned."""
        return self.stored or self.path


@dataclass(frozen=True)
class PhotoSet:
    """The photos to explain, with what their datasets know of all images."""

    photos: tuple[PhotoToExplain, ...]
    references: tuple[tuple[str, ...], ...] = ()  # of all images of the datasets, for the weights of CIDEr
    categories: frozenset[str] = frozenset()  # of all objects that are annotated in the datasets
    num_skipped: int = 0  # photos of datasets beyond the limit
    missing: tuple[str, ...] = ()  # a sentence for each of which a store has no features
    note: str | None = None  # how photos were matched to images of a store


def choose_photos(
    arguments: Sequence[str],
    split: str,
    limit: int | None = None,
    stdin: BinaryIO | None = None,
    store: FeatureStore | None = None,
) -> PhotoSet:
    """The photos that arguments name, each once, in order.

    Args:
        arguments: datasets, in any form that `datasets/` reads; and photos, as `find_photos` takes them, or with a
            store as `choose_images` takes them.
        split: of datasets.
        limit: maximum number of photos of each dataset; without arguments, of the store.
        stdin: read for the argument `-`.
        store: features that stand for the photos; images of datasets have the same ids there.

    Raises:
        DataError: a dataset without images or without that split, a folder or a pattern without photos, or a store with
            none of them.
    """
    chosen: dict[str, PhotoToExplain] = {}
    references: list[tuple[str, ...]] = []
    categories: set[str] = set()
    num_skipped = 0
    missing: tuple[str, ...] = ()
    note = None
    of_datasets = [
        argument for argument in arguments if (store is None or argument not in store) and _is_dataset(argument)
    ]
    for argument in arguments:
        if argument in of_datasets:
            dataset = _read_dataset(Path(argument))
            kept = {record.image_id for record in dataset.limited(limit).split(split)}
            known = _photos_of(replace(dataset, records=dataset.split(split)))
            photos = [photo for image_id, photo in known.items() if image_id in kept]
            num_skipped += len(known) - len(photos)
            references += [photo.facts.references for photo in known.values()]
            categories |= _categories(known.values())
            if store is not None:
                missing += tuple(f"{store.path} has no features of image {one}" for one in store.missing(list(kept)))
                photos = [
                    replace(photo, stored=StoredImage(store, image_id, photo.path))
                    for image_id, photo in known.items()
                    if image_id in kept and image_id in store
                ]
        elif store is not None:
            continue
        else:
            photos = [PhotoToExplain(path) for path in find_photos([argument], stdin)]
        for photo in photos:
            chosen.setdefault(_absolute(photo.path), photo)
    others = [argument for argument in arguments if argument not in of_datasets]
    if store is not None and (others or not arguments):
        images = choose_images(store, others, stdin)
        kept_images = images.images if arguments else images.images[:limit]
        num_skipped += len(images.images) - len(kept_images)
        missing, note = (*missing, *images.missing), images.note
        for image in kept_images:
            photo = PhotoToExplain(image.path or Path(image.image_id), stored=image)
            chosen.setdefault(image.image_id if image.path is None else _absolute(image.path), photo)
    if store is not None and not chosen:
        raise DataError(f"There is no image to explain: {summarise(missing, 3)}.")
    return PhotoSet(tuple(chosen.values()), tuple(references), frozenset(categories), num_skipped, missing, note)


def add_references(photo_set: PhotoSet, path: Path) -> PhotoSet:
    """The same photos with what a dataset, or a JSON file of captions, knows of them.

    Photos are looked up in a dataset by path or else by file name. In JSON as `{id: [texts]}` the id is the path of the
    photo as given, its file name, that without its suffix, or the number at the end of that.

    Raises:
        DataError: the file cannot be read, or knows none of the photos.
    """
    by_name: dict[str, PhotoToExplain]
    by_id: dict[str, PhotoToExplain] = {}
    if _is_dataset(str(path)):
        by_id = _photos_of(_read_dataset(path))
        known = list(by_id.values())
        by_name = {photo.path.name: photo for photo in known}
        by_name |= {_absolute(photo.path): photo for photo in known}
    else:
        texts = read_references(read_json(path))
        known = [PhotoToExplain(Path(image), ImageFacts(captions)) for image, captions in texts.items()]
        by_name = {str(photo.path): photo for photo in known}
    photos = []
    for photo in photo_set.photos:
        match = by_id.get(photo.stored.image_id) if photo.stored is not None else None
        match = match or next((by_name[name] for name in photo_names(photo.path).values() if name in by_name), None)
        photos.append(photo if match is None else _merge(photo, match))
    if not any(photo.facts.references for photo in photos):
        given = summarise((photo.path.name for photo in photos), 3)
        raise DataError(
            f"{path} has captions of {summarise((photo.path.name for photo in known), 3)}, but of none of the photos "
            f"({given}); use a dataset that contains them, or captions by their file names."
        )
    return replace(
        photo_set,
        photos=tuple(photos),
        references=tuple(photo.facts.references for photo in known),
        categories=photo_set.categories | _categories(known),
    )


def _is_dataset(argument: str) -> bool:
    path = Path(argument)
    if not path.exists():
        return hub.recognises(path)
    if path.is_file() and is_image_file(path.name):
        return False
    return any(reader.recognises(path) for reader in READERS.values())


def _read_dataset(path: Path) -> CaptionDataset:
    """A dataset, whose photos may be broken or missing: those are reported one by one."""
    dataset = read_dataset(path)
    if not dataset.records:
        raise DataError(f"{path} has no images: {summarise(dataset.problems, 1)}")
    return dataset


def _photos_of(dataset: CaptionDataset) -> dict[str, PhotoToExplain]:
    """The images of a dataset by id."""
    facts = image_facts(dataset)
    return {
        record.image_id: PhotoToExplain(record.path, facts[record.image_id], corners(record.boxes))
        for record in dataset.records
    }


def _merge(photo: PhotoToExplain, match: PhotoToExplain) -> PhotoToExplain:
    """A photo with the references of its match, and whatever else is known of that."""
    known, new = photo.facts, match.facts
    facts = ImageFacts(
        new.references,
        known.objects if new.objects is None else new.objects,
        known.scene if new.scene is None else new.scene,
        photo.path,
    )
    return replace(photo, facts=facts, boxes=photo.boxes if match.boxes is None else match.boxes)


def _categories(photos: Iterable[PhotoToExplain]) -> frozenset[str]:
    return frozenset(category for photo in photos for category in photo.facts.objects or ())


def _absolute(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 (resolve() would follow links)

"""The photos to explain, with what is known of them: references, annotated objects and scenes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import BinaryIO

from showtell.datasets import READERS, read_dataset
from showtell.errors import DataError, summarise
from showtell.features.store import FeatureStore, StoredImage
from showtell.features.stored_images import choose_images
from showtell.files import listed_paths
from showtell.images.photo_files import find_photos, is_image_file
from showtell.scores import ImageFacts, image_facts


@dataclass(frozen=True)
class PhotoToExplain:
    """A photo with what is known of it."""

    path: Path  # of the file, or the id of a stored image without a file
    facts: ImageFacts = field(default_factory=ImageFacts)
    stored: StoredImage | None = None  # in place of the photo

    @property
    def source(self) -> Path | StoredImage:
        """The image to caption."""
        return self.stored or self.path


@dataclass(frozen=True)
class PhotoSet:
    """The photos to explain, with what their datasets know of all images."""

    photos: tuple[PhotoToExplain, ...]
    references: tuple[tuple[str, ...], ...] = ()  # of all images of the datasets, for the weights of CIDEr
    num_skipped: int = 0  # photos of datasets beyond the limit
    missing: tuple[str, ...] = ()  # a sentence for each that a store has no features of
    note: str | None = None  # how photos were matched to images of a store


def choose_photos(
    arguments: Sequence[str],
    split: str,
    limit: int | None = None,  # of photos of each dataset; without arguments, of the store
    stdin: BinaryIO | None = None,  # read for the argument `-`
    store: FeatureStore | None = None,  # has features in place of the photos, by the ids that datasets have
) -> PhotoSet:
    """The photos that arguments name, each once, in order; without arguments all of the store."""
    photos: list[PhotoToExplain] = []
    references: list[tuple[str, ...]] = []
    num_skipped, missing, note = 0, [], None
    stored: list[str] = []  # arguments for the store
    for argument in arguments:
        if (store is not None and argument in store) or not _is_dataset(argument):
            if store is None:
                photos += map(PhotoToExplain, find_photos([argument], stdin))
            else:
                stored.append(argument)
            continue
        dataset = read_dataset(argument)  # broken or missing photos are reported one by one later
        part = dataset[split]
        facts = image_facts(part)
        known = {record.image_id: PhotoToExplain(record.path, facts[record.image_id]) for record in part}
        kept = [record.image_id for record in dataset.limited(limit)[split]]
        num_skipped += len(known) - len(kept)
        references += [photo.facts.references for photo in known.values()]
        if store is None:
            photos += [known[image_id] for image_id in kept]
        else:
            missing += [f"{store.path} has no features of image {image_id}" for image_id in store.missing(kept)]
            images = [StoredImage(store, image_id, known[image_id].path) for image_id in kept if image_id in store]
            photos += [replace(known[image.image_id], stored=image) for image in images]
    if store is not None and (stored or not arguments):
        of_store = choose_images(store, stored, stdin)
        limited = of_store.images if arguments else of_store.images[:limit]
        num_skipped += len(of_store.images) - len(limited)
        missing, note = [*missing, *of_store.missing], of_store.note
        photos += [PhotoToExplain(image.path or Path(image.image_id), stored=image) for image in limited]
    if store is not None and not photos:
        raise DataError(f"There is no image to explain: {summarise(missing, 3)}.")
    once: dict[str, PhotoToExplain] = {}
    for photo in photos:
        once.setdefault(os.path.abspath(photo.path), photo)  # noqa: PTH100 (resolve() would follow links)
    return PhotoSet(tuple(once.values()), tuple(references), num_skipped, tuple(missing), note)


def _is_dataset(argument: str) -> bool:
    path, parts = Path(argument), listed_paths(argument)
    if parts != [argument]:  # several, "[a, b]"
        return all(map(_is_dataset, parts))
    if not path.exists() or (path.is_file() and is_image_file(path.name)):
        return False
    readers = (reader for name, reader in READERS.items() if name != "xmp")  # sidecars make no dataset of an album
    return any(reader.recognises(path) for reader in readers)

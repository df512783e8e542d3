"""What a run reads: the splits of its dataset, as photos or as features of a store, which is filled before."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accelerate import Accelerator

from showtell.captioners import EncoderDecoderCaptioner
from showtell.datasets import open_dataset
from showtell.datasets.download import SOURCES
from showtell.datasets.records import CaptionDataset, CaptionRecord
from showtell.errors import DataError, summarise
from showtell.features import Encoder
from showtell.features.extraction import fill_store
from showtell.features.store import FeatureStore
from showtell.files import listed_paths
from showtell.images.loading import PreparedPhotos
from showtell.progress import counting
from showtell.training.batches import TrainingSet
from showtell.training.launch import wait_for_hours
from showtell.training.recipe import DataConfig, Recipe
from showtell.types import NamingWords


def open_dataset_of(data: DataConfig, *, with_photos: bool = True) -> CaptionDataset:
    """The dataset of a recipe, with its photos, or for features of other tools without; or a DataError."""
    missing = [path for path in map(Path, listed_paths(data.path)) if not path.exists()]
    if not missing:
        return open_dataset(data.path, with_photos=with_photos)
    path = missing[0]
    remedy = "set data.path to a folder or file of yours"
    if path.parent == Path("data") and path.name in SOURCES:
        remedy = f"fetch it with `showtell data get {path.name}`, or {remedy}"
    elif path == Path("runs/scenes"):
        remedy = f"draw it with `showtell data scenes {path}`, or {remedy}"
    of = "the data.path of the recipe" if str(path) == data.path else f"of data.path={data.path} in the recipe"
    raise DataError(f"There is no file or folder {' or '.join(map(str, missing))}, {of}: {remedy}.")


def split_of(dataset: CaptionDataset, name: str) -> CaptionDataset:
    """The records of a split; a DataError if some have no caption."""
    records = dataset[name]
    if bare := [record.image_id for record in records if not record.captions]:
        raise DataError(f'{len(bare)} images of split "{name}" in {dataset.root} have no caption: {summarise(bare)}.')
    return records


def kept_apart(data: DataConfig) -> tuple[str, CaptionDataset]:
    """A split that nothing is learned from, and its photos: that of validation, else val or test; or a DataError."""
    dataset = open_dataset_of(data, with_photos=data.features is None)
    for split in (data.validation_split, "val", "test"):
        if split in dataset.splits and split != "train":
            return split, split_of(dataset, split)
    raise DataError('no photo was kept apart; give some the split "val", one in ten or more')


def open_store(
    name: str | None, encoder: Encoder, records: Sequence[CaptionRecord], accelerator: Accelerator, quiet: bool
) -> FeatureStore | None:
    """The store of a recipe, or None; what it lacks is extracted into it by the first process."""
    if name is None:
        return None
    if accelerator.is_main_process:
        with counting("extracting features", len(records), quiet) as progress:
            fill_store(name, encoder, records, progress=progress)
    wait_for_hours(accelerator)
    return FeatureStore(name)


def training_set(
    recipe: Recipe, records: Sequence[CaptionRecord], captioner: EncoderDecoderCaptioner, store: FeatureStore | None,
    text: str, quiet: bool, naming: NamingWords | None = None,
) -> TrainingSet:  # fmt: skip
    """Records with their photos or, where there is a store, their features; `text` labels the progress bar."""
    images: PreparedPhotos | FeatureStore | None = store
    if images is None:
        paths = [record.path for record in records]
        with counting(text, len(records), quiet) as progress:
            images = PreparedPhotos(paths, captioner.encoder.preprocessing, recipe.data.memory_megabytes, progress)
    return TrainingSet(
        records, images, captioner.vocabulary, captions_per_image=recipe.data.captions_per_image,
        max_length=recipe.data.max_length, seed=recipe.training.seed, naming=naming,
    )  # fmt: skip

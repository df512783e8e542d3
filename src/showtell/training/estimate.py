"""How long a run will take here, with how much memory and disk: a few steps and photos of it, and the arithmetic."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import count, islice
from pathlib import Path

import torch

from showtell.errors import DataError
from showtell.features.extraction import extract
from showtell.features.precomputed import PrecomputedConfig
from showtell.features.store import FeatureStore
from showtell.progress import counting
from showtell.training.batches import epoch_batches
from showtell.training.loop import Trainer
from showtell.training.recipe import Recipe
from showtell.training.step import on_device
from showtell.types import Batch

STEPS, UNCOUNTED = 20, 3  # measured, and before them: the first steps allocate and capture
PHOTOS = 32  # encoded and captioned


@dataclass(frozen=True)
class Estimate:
    """What a run takes; times in seconds, sizes in bytes."""

    steps: int
    seconds_per_step: float
    captions_per_second: float
    extraction: float  # of the features that the store lacks
    training: float
    validation: float  # of all epochs
    memory: int  # of the process that was measured, at most
    gpu_memory: int | None
    store: int  # of the features that the store lacks
    checkpoints: int  # best/ and last/
    where: str  # what it was measured on

    @property
    def total(self) -> float:
        """Seconds of the whole run, if it is not stopped early."""
        return self.extraction + self.training + self.validation

    def __str__(self) -> str:
        lines = [
            f"{STEPS} steps on {self.where}: {self.seconds_per_step:.3g} s each, {self.captions_per_second:,.0f} "
            "captions/s",
            f"features    {_time(self.extraction)}",
            f"training    {_time(self.training)} for {self.steps:,} steps",
            f"validation  {_time(self.validation)}",
            f"together    {_time(self.total)}, if it is not stopped early",
            f"memory      {_size(self.memory)}"
            + ("" if self.gpu_memory is None else f", and {_size(self.gpu_memory)} of the GPU"),
            f"disk        {_size(self.store)} for features, {_size(self.checkpoints)} for the run",
        ]
        return "\n".join(lines)


def estimate(recipe: Recipe, *, quiet: bool = False) -> Estimate:
    """Time some steps of a recipe, one validation and the encoding of some photos on this machine; nothing is kept.

    Raises:
        As `train` does before its first step.
    """
    training, name = recipe.training, recipe.data.features
    sample = max(2 * training.batch_size * training.gradient_accumulation, PHOTOS)
    with tempfile.TemporaryDirectory() as temporary:
        store = Path(temporary) / "store"
        here = recipe.model_copy(update={"data": recipe.data.model_copy(update={"features": name and str(store)})})
        trainer = _SampleTrainer(here, Path(temporary) / "run", sample, name)
        trainer.model.train()
        batches = on_device(
            (batch for epoch in count() for batch in trainer.sample_batches(epoch)), trainer.accelerator.device
        )

        def step(progress: Callable[[int], None]) -> None:
            group = list(islice(batches, training.gradient_accumulation))
            counts = trainer._counts(group)
            trainer._step([replace(batch, counts=counts) for batch in group])
            progress(1)

        with counting("timing steps", STEPS, quiet) as progress:
            _seconds(lambda: step(lambda _: None), UNCOUNTED)
            per_step = _seconds(lambda: step(progress), STEPS)
        validation = 0.0
        if trainer.validation_data is not None:
            data = trainer.validation_data
            per_photo = _seconds(lambda: trainer._validate(data), 1) / len(data)
            validation = per_photo * trainer.photos[1] * (training.epochs // training.validate_every)
        trainer.folder.begin(here)
        trainer.checkpoints.save_best(None)
        with trainer.folder.logging(0):
            trainer.checkpoints.save_last(trainer.progress)
        captions = sum(min(len(record.captions), recipe.data.captions_per_image) for record in trainer.training_records)
        of_batch = captions / len(trainer.training_records) * training.batch_size * training.gradient_accumulation
        on_gpu = trainer.accelerator.device.type == "cuda"
        unit = 1024 if sys.platform != "darwin" else 1
        return Estimate(
            steps=trainer.whole_steps,
            seconds_per_step=per_step,
            captions_per_second=of_batch / per_step,
            extraction=trainer.seconds_per_photo * trainer.missing,
            training=per_step * trainer.whole_steps,
            validation=validation,
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit + trainer.memory_of_photos,
            gpu_memory=torch.cuda.max_memory_allocated() if on_gpu else None,
            store=round(trainer.bytes_per_photo * trainer.missing),
            checkpoints=_bytes_of(trainer.folder.path),
            where=str(trainer.accelerator.device),
        )


class _SampleTrainer(Trainer):
    """A run of some of the images, with the vocabulary and the number of steps of all."""

    def __init__(self, recipe: Recipe, folder: Path, sample: int, store: str | None) -> None:
        self._sample, self._store = sample, store
        self.seconds_per_photo = self.bytes_per_photo = 0.0
        self.missing = 0  # photos whose features the store lacks
        super().__init__(recipe, folder, resume=False, quiet=True)

    def _prepare_batches(self) -> None:
        records = (self.training_records, self.validation_records)
        self.photos = tuple(map(len, records))
        self.training_records, self.validation_records = (
            some[:: max(1, len(some) // size)][:size]
            for some, size in zip(records, (self._sample, PHOTOS), strict=True)
        )
        self.facts = {record.image_id: self.facts[record.image_id] for record in self.validation_records}
        both = (*self.training_records, *self.validation_records)
        ids = {record.image_id for some in records for record in some}
        if self._store is not None:
            self._fill_sample(Path(self._store), ids)
        batch = self.recipe.training.batch_size * self.recipe.training.gradient_accumulation
        self.whole_steps = -(-self.photos[0] // batch) * self.recipe.training.epochs
        super()._prepare_batches()
        images, size = sum(self.photos), self.start.encoder.preprocessing.max_bytes
        keeps = self._store is None and images * size <= self.recipe.data.memory_megabytes * 2**20
        self.memory_of_photos = (images - len(both)) * size if keeps else 0

    def _fill_sample(self, store: Path, ids: set[str]) -> None:
        """Use the store if it has everything; else encode the sample into one of its own, and time it."""
        exists = (store / "data.mdb").exists()
        self.missing = len(FeatureStore(store).missing(sorted(ids))) if exists else len(ids)
        data = self.recipe.data
        if not self.missing:
            self.recipe = self.recipe.model_copy(update={"data": data.model_copy(update={"features": str(store)})})
            return
        if isinstance(self.recipe.encoder, PrecomputedConfig):
            raise DataError(f"{store} lacks the features of {self.missing} images, which other programs make.")
        assert data.features is not None, "a store in the temporary folder"
        both = (*self.training_records, *self.validation_records)
        records = list({record.image_id: record for record in both}.values())
        self.start.encoder.to(self.accelerator.device)
        extract(self.start.encoder, records[:1], data.features)  # what the first photo alone costs
        began = time.perf_counter()
        extract(self.start.encoder, records, data.features)
        self.seconds_per_photo = (time.perf_counter() - began) / max(1, len(records) - 1)
        self.bytes_per_photo = _bytes_of(Path(data.features)) / len(records)

    def sample_batches(self, epoch: int) -> Iterator[Batch]:
        """The batches of an epoch over the sample."""
        training = self.recipe.training
        return epoch_batches(
            self.data, epoch=epoch, skip=0, batch_size=training.batch_size, bucket=training.bucket, seed=training.seed,
            workers=self.recipe.data.workers, for_gpu=self.accelerator.device.type == "cuda",
        )  # fmt: skip


def _seconds(run: Callable[[], object], times: int) -> float:
    """The mean time of a run, what it started on a GPU included."""
    began = time.perf_counter()
    for _ in range(times):
        run()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return (time.perf_counter() - began) / times


def _bytes_of(folder: Path) -> int:
    return sum(file.stat().st_blocks * 512 for file in folder.rglob("*") if file.is_file())


def _time(seconds: float) -> str:
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"

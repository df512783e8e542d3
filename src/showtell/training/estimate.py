"""How long a run will take here, with how much memory and disk: a few steps and photos of it, and the arithmetic."""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import chain, count, islice
from pathlib import Path

import torch

from showtell.features.extraction import extract
from showtell.features.store import FeatureStore
from showtell.progress import counting
from showtell.training.loop import Trainer
from showtell.training.recipe import Recipe
from showtell.training.step import on_device

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
    gpu_memory: int
    store: int  # of the features that the store lacks
    checkpoints: int  # best/ and last/
    device: str

    @property
    def total(self) -> float:
        """Seconds of the whole run, if it is not stopped early."""
        return self.extraction + self.training + self.validation

    def __str__(self) -> str:
        gpu = f", and {_size(self.gpu_memory)} of the GPU" if self.gpu_memory else ""
        return (
            f"{STEPS} steps on {self.device}: {self.seconds_per_step:.3g} s each, {self.captions_per_second:,.0f} "
            f"captions/s\n"
            f"features    {_time(self.extraction)}\n"
            f"training    {_time(self.training)} for {self.steps:,} steps\n"
            f"validation  {_time(self.validation)}\n"
            f"together    {_time(self.total)}, if it is not stopped early\n"
            f"memory      {_size(self.memory)}{gpu}\n"
            f"disk        {_size(self.store)} for features, {_size(self.checkpoints)} for the run"
        )


def estimate(recipe: Recipe, *, quiet: bool = False) -> Estimate:
    """Time some steps of a recipe, one validation and the encoding of some photos on this machine; nothing is kept.

    Raises:
        As `train` does before its first step.
    """
    training = recipe.training
    with tempfile.TemporaryDirectory() as temporary, counting("timing steps", STEPS, quiet) as progress:
        trainer = _SampleTrainer(recipe, Path(temporary))
        trainer.model.train()
        device, group = trainer.accelerator.device, training.gradient_accumulation
        batches = on_device(chain.from_iterable(map(trainer.batches, count())), device)

        def step(progress: Callable[[int], None]) -> None:
            of_step = list(islice(batches, group))
            counts = trainer._counts(of_step)
            trainer._step([replace(batch, counts=counts) for batch in of_step])
            progress(1)

        _seconds(lambda: step(lambda _: None), UNCOUNTED)
        per_step = _seconds(lambda: step(progress), STEPS)
        validation = 0.0
        if (data := trainer.validation_data) is not None:
            per_photo = _seconds(lambda: trainer._validate(data), 1) / len(data)
            validation = per_photo * trainer.photos[1] * (training.epochs // training.validate_every)
        trainer.folder.begin(trainer.recipe)
        with trainer.folder.logging(0):
            trainer.checkpoints.save_best(None)
            trainer.checkpoints.save_last(trainer.progress)
        captions = sum(min(len(record.captions), recipe.data.captions_per_image) for record in trainer.training_records)
        images = training.batch_size * group
        steps = -(-trainer.photos[0] // images) * training.epochs
        return Estimate(
            steps=steps, seconds_per_step=per_step,
            captions_per_second=captions / len(trainer.training_records) * images / per_step,
            extraction=trainer.missing * trainer.seconds_per_photo, training=per_step * steps, validation=validation,
            memory=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1024 if sys.platform == "linux" else 1),
            gpu_memory=torch.cuda.max_memory_allocated() if device.type == "cuda" else 0,
            store=round(trainer.missing * trainer.bytes_per_photo), checkpoints=_bytes_of(trainer.folder.path),
            device=str(device),
        )  # fmt: skip


class _SampleTrainer(Trainer):
    """A run of some of the images, with the vocabulary of all; features that the store lacks go into one of its own."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        self._own_store = folder / "store"
        self.missing, self.seconds_per_photo, self.bytes_per_photo = 0, 0.0, 0.0
        super().__init__(recipe, folder / "run", resume=False, quiet=True)

    def _prepare_batches(self) -> None:
        every, training = (self.training_records, self.validation_records), self.recipe.training
        self.photos = len(every[0]), len(every[1])
        sizes = max(2 * training.batch_size * training.gradient_accumulation, PHOTOS), PHOTOS
        self.training_records, self.validation_records = (
            some[:: max(1, len(some) // size)][:size] for some, size in zip(every, sizes, strict=True)
        )
        self.facts = {record.image_id: self.facts[record.image_id] for record in self.validation_records}
        if (name := self.recipe.data.features) is not None:
            ids = {record.image_id for record in chain(*every)}
            exists = (Path(name) / "data.mdb").exists()
            self.missing = len(FeatureStore(name).missing(sorted(ids)) if exists else ids)
        if self.missing:
            self._extract_sample()
        super()._prepare_batches()

    def _extract_sample(self) -> None:
        records = {record.image_id: record for record in (*self.training_records, *self.validation_records)}
        encoder = self.start.encoder.to(self.accelerator.device)
        extract(encoder, list(records.values())[:1], self._own_store)  # what the first photo costs alone
        took = _seconds(lambda: extract(encoder, list(records.values()), self._own_store), 1)
        self.seconds_per_photo = took / max(1, len(records) - 1)
        self.bytes_per_photo = _bytes_of(self._own_store) / len(records)
        data = self.recipe.data.model_copy(update={"features": str(self._own_store)})
        self.recipe = self.recipe.model_copy(update={"data": data})


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
    minutes = round(seconds / 60)
    if seconds < 60:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 60 else f"{minutes // 60} h {minutes % 60} min"


def _size(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.0f} MB"

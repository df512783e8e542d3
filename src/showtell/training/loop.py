"""The one loop: batch, terms, step; validate; keep the best; stop and resume anywhere.

A run folder holds `recipe.yaml` (as resolved), `log.jsonl`, `last/` and `best/` (checkpoints) and `last/training/`.
Whatever is random is a function of (seed, epoch or step, image id) and the learning rate is one of the step, so that
the state between steps is the weights, the optimiser and a few counts. A run that was killed and resumed ends with the
same bits, log and checkpoints included; the log holds no times for that reason (they are in TensorBoard).

Several processes (`accelerate launch`, `torchrun`) share each batch, image by image, and each validation, batch by
batch. All of them know all numbers and captions and come to the same decisions; the first one alone writes.
Batch norm of an encoder that learns sees the images of its own process, and the means and variances that are kept are
those of the first: torch has a batch norm over processes for GPUs alone.
"""

from __future__ import annotations

import contextlib
import copy
import json
import math
import os
import signal
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather_object
from torch import Tensor, nn

from showtell import noise
from showtell.captioner import Captioner
from showtell.config import flat
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionDataset, Record
from showtell.errors import (
    DataError,
    RecipeError,
    TrainingError,
    UsageError,
    summarise,
)
from showtell.features import Encoder
from showtell.features.extraction import fill_store
from showtell.features.store import FeatureStore
from showtell.files import recover_folder, write_folder, write_whole
from showtell.images.loading import PreparedPhotos
from showtell.models import Decoder
from showtell.objectives import Objective, build_objective
from showtell.objectives.contract import counts_of, of_one_step
from showtell.objectives.processes import summed
from showtell.progress import counting
from showtell.text.tokenizer import tokenize
from showtell.training.average import Average
from showtell.training.batches import TrainingSet, epoch_batches
from showtell.training.breakdowns import in_words
from showtell.training.console import TrainingConsole
from showtell.training.launch import find_trackers, make_accelerator, only_writer
from showtell.training.optimizers import build_optimizer
from showtell.training.pilot import Pilot, Verdict, validation_record
from showtell.training.recipe import Recipe, load_recipe, make_recipe
from showtell.training.schedule import learning_rate_factor
from showtell.training.start import start
from showtell.training.state import load_state, named, of_part, save_state
from showtell.training.validation import Validation, Validator, check_selection, fingerprint
from showtell.types import Batch, Counts, Terms

EXPLODED = 1e6  # losses lie between -10 and 100
MAY_CHANGE = (
    "data.path",
    "data.features",
    "data.workers",
    "data.memory_megabytes",
    "training.save_every",
    "training.trackers",
)


@dataclass
class Memory:
    """What a run remembers between steps, weights and optimiser aside."""

    step: int = 0  # of the optimiser, finished
    best: float | None = None  # validation score of best/
    best_epoch: int | None = None
    stale: int = 0  # validations since the best one
    stopped: bool = False  # by patience
    log_bytes: int = 0  # length of log.jsonl
    scaler: dict[str, float] = field(default_factory=dict)  # of mixed precision in fp16


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended."""

    folder: Path
    epochs: int  # finished
    best: float | None  # validation score of best/, the one of training.selection
    best_epoch: int | None
    interrupted: bool = False


class TrainingModel(nn.Module):
    """Encoder, decoder and objective as one module, so that one forward call is one loss."""

    def __init__(self, encoder: Encoder, decoder: Decoder, objective: Objective) -> None:
        super().__init__()
        self.encoder = encoder
        self.decoder = decoder
        self.objective = objective
        self.encoder_learns = True  # false: as if it were frozen

    def train(self, mode: bool = True) -> TrainingModel:
        """An encoder that does not learn yet stays in eval mode, batch norm included."""
        super().train(mode)
        self.encoder.train(mode and self.encoder_learns)
        return self

    def forward(self, batch: Batch) -> Terms:
        """The terms of one batch: of its photos, or of the features that a store has of them."""
        if batch.features is None:
            with torch.set_grad_enabled(torch.is_grad_enabled() and self.encoder_learns):
                features = self.encoder(batch.images)
        else:
            features = batch.features
        return self.objective(batch, features, self.decoder)


def train(
    recipe: Recipe | Path | str | dict[str, Any],
    out: Path | str | None = None,
    *,
    resume: bool = False,
    overrides: Sequence[str] = (),
    quiet: bool = False,
) -> TrainingResult:
    """Train a captioner.

    Args:
        recipe: a YAML file, its content, or a checked `Recipe`.
        out: the run folder; None is runs/ and the recipe's name.
        resume: go on where the run in that folder stopped; with nothing there, start at the beginning.
        overrides: "section.key=value" each, for a recipe from a file.
        quiet: show nothing.

    Raises:
        RecipeError: a key or a value is wrong, or is not what the run to resume began with.
        DataError: the dataset is unusable.
        UsageError: the folder holds a run and `resume` was not asked for.
        TrainingError: the loss is no number any more, or a process of the run was lost.
    """
    if isinstance(recipe, dict):
        recipe = make_recipe(recipe)
    elif not isinstance(recipe, Recipe):
        out = out or Path("runs") / _run_name(Path(recipe))
        recipe = load_recipe(Path(recipe), overrides)
    folder = Path(out or "runs/run")
    with only_writer(folder), in_words(folder):
        return Trainer(recipe, folder, resume=resume, quiet=quiet).run()


def _run_name(path: Path) -> str:
    return f"{path.parent.name}-{path.stem}" if path.parent.name else path.stem


class Trainer:
    """One run, read from top to bottom: set up, train, validate, save."""

    def __init__(self, recipe: Recipe, folder: Path, *, resume: bool, quiet: bool = False) -> None:
        self.recipe = recipe
        self.folder = folder
        find_trackers(recipe.training.trackers)
        self.accelerator = make_accelerator(recipe, folder)
        self.quiet = quiet or not self.accelerator.is_main_process
        with self.accelerator.main_process_first():
            self._claim_folder(resume)
        dataset = open_dataset(recipe.data.path).limited(recipe.data.limit, recipe.data.max_captions)
        training = self._split(dataset, recipe.data.train_split)
        split = recipe.data.validation_split
        validation = self._split(dataset, split) if split else ()
        torch.manual_seed(noise.key_of(recipe.training.seed, "weights"))
        words = [tokenize(caption) for record in training for caption in record.captions]
        start_from = recipe.training.start_from
        # A run that goes on has taken over the checkpoint's words and weights already.
        self.start = start(recipe, words, folder / "last" if start_from and self.resuming else start_from)
        vocabulary, encoder, decoder = self.start.vocabulary, self.start.encoder, self.start.decoder
        sizes = {"feature_size": encoder.feature_size, "vocabulary_size": len(vocabulary)}
        model = TrainingModel(encoder, decoder, build_objective(recipe.objective, **sizes))
        self.captioner = Captioner(
            encoder=encoder, decoder=decoder, vocabulary=vocabulary, decoding=recipe.decoding,
            about={
                "data": recipe.data.path, "train_images": len(training), "captions": len(words),
                **({"start_from": start_from} if start_from else {}),
            },
        )  # fmt: skip
        optimizer = build_optimizer(model, recipe)
        self.raw_model = model
        self.average: Average | None = None
        self.model, self.optimizer = self.accelerator.prepare(model, optimizer)
        if recipe.training.ema_decay is not None:
            self.average = Average({"encoder": encoder, "decoder": decoder}, recipe.training.ema_decay)
        check_selection(recipe.training.selection)
        self.store = self._open_store([*training, *validation])
        self.data = self._training_set(training, "reading training photos")
        model.objective.prepare(dict(self.data.contents()), recipe.decoding.max_length)
        self.validation_records = validation
        self.validator: Validator | None = None
        if validation:
            data = self._training_set(validation, "reading validation photos")
            self.validator = Validator(
                self.captioner, model.objective, data, validation, recipe.training, self.accelerator
            )
        self.unknown = vocabulary.unknown_rate(
            tokenize(caption) for record in validation for caption in record.captions
        )
        self.batches_per_epoch = math.ceil(len(training) / recipe.training.batch_size)
        self.steps_per_epoch = math.ceil(self.batches_per_epoch / recipe.training.gradient_accumulation)
        self.steps = self.steps_per_epoch * recipe.training.epochs
        self.memory = Memory()
        self.pilot = self._find_pilot()
        self.console = TrainingConsole(self.quiet)
        self.signals: set[int] = set()  # that asked this process to stop
        self.interrupted = False  # all processes agree to stop

    # ---- setting up

    def _claim_folder(self, resume: bool) -> None:
        """Make sure that nothing is overwritten, and that what is resumed is the same run."""
        last, kept = self.folder / "last", self.folder / "recipe.yaml"
        for checkpoint in (last, self.folder / "best"):
            if checkpoint.parent.exists():
                recover_folder(checkpoint)
        if not resume:
            if any(place.exists() for place in (kept, last, self.folder / "best", self.folder / "log.jsonl")):
                raise UsageError(
                    f"{self.folder} already holds a run; add --resume to go on with it, or choose another --out."
                )
        elif kept.exists() and last.exists() and (changed := changes(load_recipe(kept), self.recipe)):
            raise RecipeError(
                f"The run in {self.folder} began with another recipe: {summarise(changed)}; resume with the old "
                "values, or choose another --out."
            )
        self.resuming = resume and last.exists()

    def _split(self, dataset: CaptionDataset, name: str) -> tuple[Record, ...]:
        """The records of a split that have captions."""
        records = dataset.split(name)
        bare = [record.image_id for record in records if not record.captions]
        if bare:
            raise DataError(
                f'{len(bare)} images of split "{name}" in {dataset.root} have no caption: {summarise(bare)}.'
            )
        return records

    def _open_store(self, records: Sequence[Record]) -> FeatureStore | None:
        """The store of the recipe, with what it does not have yet extracted into it, or None."""
        name, encoder = self.recipe.data.features, self.captioner.encoder
        if name is None and encoder.takes_boxes:
            raise RecipeError(
                "This encoder looks at the boxes of the dataset, which training has in a store alone: set "
                "data.features to a folder for it, and let the encoder be frozen."
            )
        if name is None:
            return None
        if self.accelerator.is_main_process:
            with counting("extracting features", len(records), self.quiet) as progress:
                fill_store(name, encoder, records, progress=progress)
        self._wait_for_hours()
        return FeatureStore(name)

    def _wait_for_hours(self) -> None:
        """Wait for the first process longer than torch waits by default, which takes half an hour for a failure."""
        if self.accelerator.num_processes > 1:
            group: Any = torch.distributed.new_group(timeout=timedelta(days=7), backend="gloo")
            torch.distributed.barrier(group)
            torch.distributed.destroy_process_group(group)

    def _training_set(self, records: Sequence[Record], text: str) -> TrainingSet:
        data = self.recipe.data
        images: PreparedPhotos | FeatureStore
        if self.store is not None:
            images = self.store
        else:
            with counting(text, len(records), self.quiet) as progress:
                images = PreparedPhotos(
                    [record.path for record in records],
                    self.captioner.encoder.preprocessing,
                    data.memory_megabytes,
                    progress,
                )
        return TrainingSet(
            records, images, self.captioner.vocabulary, captions_per_image=data.captions_per_image,
            max_length=data.max_length, seed=self.recipe.training.seed,
        )  # fmt: skip

    def _find_pilot(self) -> Pilot | None:
        """Who watches the run, if it is one under a reward."""
        training = self.recipe.training
        if training.pilot is None or not self.raw_model.objective.optimises_reward:
            return None
        lengths = [len(tokenize(caption)) for record in self.validation_records for caption in record.captions]
        return Pilot(
            training.pilot, selection=training.selection, reference_words=statistics.fmean(lengths),
            best=str(self.folder / "best"), limits=self.raw_model.objective.limits,
        )  # fmt: skip

    # ---- training

    def run(self) -> TrainingResult:
        """Train to the end, to the patience's end, or to the first interrupt."""
        if self.resuming:
            self._restore()
        self._introduce()
        start = self._validate_start()
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.accelerator.is_main_process:
            self.recipe.save(self.folder / "recipe.yaml")
        self.accelerator.init_trackers("tensorboard")
        with self.console, self._interrupts(), self._log_file() as self.log:
            if start is not None:
                self._judge(0, start)
            self.console.begin(self.steps, self.memory.step)
            while self.memory.step < self.steps and not (self.memory.stopped or self.interrupted):
                self._epoch(self.memory.step // self.steps_per_epoch)
        for tracker in self.accelerator.trackers:
            tracker.finish()  # accelerate's own end would part the processes too, and a program may train again
        return TrainingResult(
            self.folder,
            self.memory.step // self.steps_per_epoch,
            self.memory.best,
            self.memory.best_epoch,
            self.interrupted,
        )

    def _introduce(self) -> None:
        weights = sum(parameter.numel() for parameter in self.raw_model.parameters() if parameter.requires_grad)
        captions = self.captioner.about["captions"]
        self.console.say(
            f"{len(self.data)} images with {captions} captions, vocabulary {len(self.captioner.vocabulary)} "
            f"({100 * self.unknown:.1f}% of validation words unknown), {weights / 1e6:.1f} million weights to train, "
            f"{self.steps} steps on {self.accelerator.device}"
        )
        if self.recipe.training.start_from and not self.resuming:
            self.console.say(self.start.in_words(self.recipe.training.start_from))
        if self.memory.step:
            self.console.say(f"going on at step {self.memory.step} of {self.steps}")

    def _epoch(self, epoch: int) -> None:
        """The rest of one epoch, and what comes at its end."""
        training = self.recipe.training
        done = self.memory.step % self.steps_per_epoch
        batches = epoch_batches(
            self.data, epoch=epoch, skip=done * training.gradient_accumulation, batch_size=training.batch_size,
            bucket=training.bucket, seed=training.seed, workers=0 if self.data.in_memory else self.recipe.data.workers,
            process=self.accelerator.process_index, processes=self.accelerator.num_processes,
        )  # fmt: skip
        self.raw_model.encoder_learns = epoch >= self.recipe.encoder.start_epoch
        self.raw_model.objective.begin_epoch(epoch)
        self.model.train()
        for group in _groups(batches, training.gradient_accumulation):
            began = time.perf_counter()
            counts = self._counts(group)
            terms = self._step(of_one_step(group, counts))
            self.memory.step += 1
            self._report(terms, counts, epoch, time.perf_counter() - began)
            ended = self.memory.step % self.steps_per_epoch == 0
            if ended:
                self._end_of_epoch(epoch + 1)
            every = training.save_every
            if ended or self.interrupted or (every and self.memory.step % every == 0):
                self._save()
            if self.interrupted:
                self.console.say(f"stopped at step {self.memory.step} of {self.steps}; go on with --resume")
                return

    def _counts(self, group: Sequence[Batch]) -> Counts:
        """The counts of the batches of a step on all processes."""
        own = counts_of(*group)
        if self.accelerator.num_processes == 1:
            return own
        every = summed(torch.tensor([own.words, own.captions, own.images], device=self.accelerator.device))
        return Counts(*every.tolist())

    def _step(self, group: Sequence[Batch]) -> dict[str, float]:
        """One step of the optimiser over one or several batches, which have their common counts."""
        training = self.recipe.training
        factor = learning_rate_factor(
            self.memory.step, self.steps, training.warmup_steps, training.schedule,
            decay_steps=training.decay_every * self.steps_per_epoch, decay_factor=training.decay_factor,
        )  # fmt: skip
        for settings in self.optimizer.param_groups:
            settings["lr"] = settings["initial_lr"] * factor * (self.pilot.rate if self.pilot is not None else 1)
        own_seed = noise.key_of(training.seed, "torch", self.memory.step) + self.accelerator.process_index
        torch.manual_seed(own_seed)  # for dropout inside a backbone
        parts: dict[str, Tensor] = {}
        for index, batch in enumerate(group):
            batch = batch.to(self.accelerator.device)
            last = index == len(group) - 1
            with (
                noise.use(noise.Noise(training.seed, self.memory.step, batch.image_ids)),
                contextlib.nullcontext() if last else self.accelerator.no_sync(self.model),
            ):
                terms = self.model(batch)
                # The terms of all processes add up, and what they make of their gradients is the mean.
                weight = self.accelerator.num_processes if batch.is_counted else 0
                self.accelerator.backward(terms.total * weight)
            for name, value in {"loss": terms.total.detach(), **terms.parts}.items():
                parts[name] = parts.get(name, 0) + (value if batch.is_counted else torch.zeros_like(value))
        numbers = self._add_up(parts)
        if training.clip_value:
            self.accelerator.clip_grad_value_(self.model.parameters(), training.clip_value)
        if training.clip_norm:
            norm = self.accelerator.clip_grad_norm_(self.model.parameters(), training.clip_norm)
            numbers["gradient_norm"] = float(norm)
        scales = self.accelerator.scaler is not None  # it leaves out a step whose gradient is too large for 16 bits
        if not abs(numbers["loss"]) < EXPLODED or not (scales or math.isfinite(numbers.get("gradient_norm", 0.0))):
            raise self._diverged(numbers, group)
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.average is not None:
            self.average.update(self.memory.step)
        return numbers

    def _add_up(self, parts: Mapping[str, Tensor]) -> dict[str, float]:
        """The parts of all processes, and whether one of them was asked to stop, which then all do after this step."""
        asked = torch.tensor(float(bool(self.signals)), device=self.accelerator.device)
        *numbers, asked_anywhere = summed(torch.stack([*(part.float() for part in parts.values()), asked])).tolist()
        self.interrupted = asked_anywhere > 0
        return dict(zip(parts, numbers, strict=True))

    def _diverged(self, numbers: Mapping[str, float], group: Sequence[Batch]) -> TrainingError:
        finite = math.isfinite(numbers["loss"]) and "gradient_norm" in numbers
        shown = f"loss is {numbers['loss']:g}" + (f", its gradient {numbers['gradient_norm']:g}," if finite else "")
        images = gather_object([image for batch in group if batch.is_counted for image in batch.image_ids])
        last = self.folder / "last"
        kept = f"{last} is the last good checkpoint" if last.exists() else "there is no checkpoint yet"
        return TrainingError(
            f"The {shown} at step {self.memory.step + 1}, over the images {summarise(images)}: training has "
            f"diverged; lower training.learning_rate (now {self.recipe.training.learning_rate}) or training.clip_norm, "
            f"or look at these images and their captions; {kept}."
        )

    def _report(self, numbers: dict[str, float], counts: Counts, epoch: int, seconds: float) -> None:
        speed = counts.captions / seconds
        self.console.step(self.memory.step, epoch + 1, numbers["loss"], speed)
        if self.pilot is not None:
            self.pilot.watch(numbers)
        if self.memory.step % self.recipe.training.log_every == 0:
            rate = self.optimizer.param_groups[0]["lr"]
            self._log({"step": self.memory.step, "epoch": epoch + 1, "learning_rate": rate, **numbers})
            if self.pilot is not None:
                means, warnings = self.pilot.close_window()
                self._track("pilot", means)
                for warning in warnings:
                    self._pilot_says(epoch + 1, "warns", warning)
            tracked = {f"train/{name}": value for name, value in numbers.items()}
            tracked |= {"train/learning_rate": rate, "speed/captions_per_second": speed}
            self.accelerator.log(tracked, step=self.memory.step)

    def _track(self, section: str, numbers: Mapping[str, float]) -> None:
        """Numbers over time, for the trackers."""
        self.accelerator.log({f"{section}/{name}": value for name, value in numbers.items()}, step=self.memory.step)

    # ---- validation

    def _end_of_epoch(self, epoch: int) -> None:
        """Validate, keep the best weights, and see whether it is time to stop."""
        training = self.recipe.training
        is_last = epoch == training.epochs
        if self.validator is None:
            if is_last:
                self._save_best()
            return
        if epoch % training.validate_every and not is_last:
            return
        with self._averaged():
            validation = self.validator.validate()
        self._judge(epoch, validation)

    def _validate_start(self) -> Validation | None:
        """What is to be said of the weights that a run under a pilot begins with; None where there is no such run."""
        if self.pilot is None or self.validator is None or self.memory.step:
            return None
        validation = self.validator.validate()
        self.pilot.check_start(str(self.recipe.training.start_from), validation.numbers)
        return validation

    def _judge(self, epoch: int, validation: Validation) -> None:
        """Say what a validation found, keep the weights if they are the best, and see whether it is time to stop."""
        training, memory, numbers = self.recipe.training, self.memory, validation.numbers
        chosen = numbers[training.selection]
        verdict = self._ask_pilot(epoch, validation)
        is_best = memory.best is None or (chosen > memory.best and not verdict.harm)
        if is_best:
            memory.best, memory.best_epoch, memory.stale = chosen, epoch, 0
        else:
            memory.stale += 1
            patience = None if verdict.goes_back else training.patience
            memory.stopped = patience is not None and memory.stale >= patience
        warnings = validation.warnings
        self._log({"step": memory.step, "epoch": epoch, "validation": numbers, "warnings": warnings})
        self._track("validation", numbers)
        self.console.validation(epoch, training.epochs, numbers, is_best)
        samples = self.validation_records[: training.samples]
        for record in samples:
            self.console.say(f"  {record.path.name}: {validation.captions[record.image_id].text}")
        self._picture(samples)
        for warning in warnings:
            self.console.say(f"  warning: {warning}")
        if memory.stopped:
            self.console.say(
                f"no better {training.selection} for {training.patience} validations: stopping "
                "(training.patience; null never stops)"
            )
        if is_best:
            self._save_best(numbers)
        self._follow(epoch, verdict)

    def _picture(self, records: Sequence[Record]) -> None:
        """Show in TensorBoard, where it is a tracker, where each word of a few captions looked."""
        tracker = next((tracker for tracker in self.accelerator.trackers if tracker.name == "tensorboard"), None)
        if tracker is None or not records or not self.accelerator.is_main_process:
            return
        from showtell.training.pictures import add_pictures  # only here: it brings matplotlib

        with self._averaged():
            add_pictures(tracker.tracker, self.captioner, records, self.memory.step)

    # ---- the pilot of a run under a reward

    def _ask_pilot(self, epoch: int, validation: Validation) -> Verdict:
        if self.pilot is None:
            return Verdict()
        if self.memory.best is None:
            return self.pilot.begin(
                validation, self.start.about.get("validation"), fingerprint(self.validation_records)
            )
        return self.pilot.judge(validation, self.memory.best, is_last=epoch == self.recipe.training.epochs)

    def _follow(self, epoch: int, verdict: Verdict) -> None:
        """Say what the pilot found, and go back to the best weights if it says so."""
        for kind, sentence in verdict.says:
            self._pilot_says(epoch, kind, sentence)
        self._track("pilot", verdict.numbers)
        if verdict.goes_back:
            self._go_back()
            self.memory.stale, self.memory.stopped = 0, verdict.stops

    def _pilot_says(self, epoch: int, kind: str, sentence: str) -> None:
        self._log({"step": self.memory.step, "epoch": epoch, "pilot": kind, "sentence": sentence})
        self.console.say(f"  pilot {kind}: {sentence}")

    def _go_back(self) -> None:
        """Take the weights of best/ and let the optimiser forget what it knows of others; the steps count on."""
        self.accelerator.wait_for_everyone()
        self._load_weights(self.folder / "best")
        self.optimizer.state.clear()
        if self.average is not None:
            self.average.restart()

    # ---- what is kept

    def _save(self) -> None:
        """`last/`: the weights and everything that is needed to go on."""
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process:
            return
        os.fsync(self.log.fileno())
        self.memory.log_bytes = self.log.tell()
        scaler = self.accelerator.scaler
        self.memory.scaler = scaler.state_dict() if scaler is not None else {}

        def fill(folder: Path) -> None:
            self.captioner.save_pretrained(folder)
            save_state(
                folder / "training", self.optimizer, named("objective", self.raw_model.objective.state_dict())
                | named("average", self.average.tensors if self.average is not None else {}),
                {"memory": asdict(self.memory), "data": self._data_fingerprint()}
                | ({"pilot": self.pilot.state_dict()} if self.pilot is not None else {}),
            )  # fmt: skip

        write_folder(self.folder / "last", fill)

    def _averaged(self) -> contextlib.AbstractContextManager[None]:
        """A block in which the captioner has the averaged weights, where they are averaged."""
        return contextlib.nullcontext() if self.average is None else self.average.in_place()

    def _save_best(self, numbers: Mapping[str, float] | None = None) -> None:
        """`best/`: the weights that captioned the validation split, with the numbers that they reached."""
        if not self.accelerator.is_main_process:
            return
        best = copy.copy(self.captioner)
        if numbers is not None:
            split = str(self.recipe.data.validation_split)
            record = validation_record(split, fingerprint(self.validation_records), numbers)
            best.about = {**best.about, "validation": record}
        with self._averaged():
            write_folder(self.folder / "best", best.save_pretrained)

    def _restore(self) -> None:
        """Go back to where `last/` was written."""
        last = self.folder / "last"
        extra, numbers = load_state(last / "training", self.optimizer)
        if numbers["data"] != self._data_fingerprint():
            raise DataError(
                f"The images or captions of {self.recipe.data.path} have changed since the run in {self.folder} began; "
                "restore them, or begin anew with another --out."
            )
        self._load_weights(last)
        self.raw_model.objective.load_state_dict(of_part("objective", extra))
        if self.average is not None:
            self.average.load(of_part("average", extra))
        self.memory = Memory(**numbers["memory"])
        if self.pilot is not None:
            self.pilot.load_state_dict(numbers["pilot"])
        if self.accelerator.scaler is not None and self.memory.scaler:
            self.accelerator.scaler.load_state_dict(self.memory.scaler)

    def _load_weights(self, checkpoint: Path) -> None:
        """Take the weights of one of the run's own checkpoints."""
        kept = Captioner.from_pretrained(checkpoint, device="cpu")
        self.raw_model.encoder.load_state_dict(kept.encoder.state_dict())
        self.raw_model.decoder.load_state_dict(kept.decoder.state_dict())

    def _data_fingerprint(self) -> str:
        return f"{noise.key_of(self.captioner.vocabulary.fingerprint, *self.data.contents()):016x}"

    @contextlib.contextmanager
    def _log_file(self) -> Iterator[Any]:
        """log.jsonl, cut back to what the checkpoint knew of it."""
        path = self.folder / "log.jsonl"
        if not self.accelerator.is_main_process:
            path = Path(os.devnull)
        elif path.exists():
            os.truncate(path, min(self.memory.log_bytes, path.stat().st_size))
        with path.open("ab", buffering=0) as stream:  # for whoever follows it
            yield stream

    def _log(self, line: dict[str, Any]) -> None:
        try:
            write_whole(self.log, json.dumps(line, ensure_ascii=False).encode("utf-8") + b"\n")
        except OSError as error:
            raise DataError(
                f"Cannot write {self.folder / 'log.jsonl'}: {error.strerror or error}; make room, then go on with "
                "--resume."
            ) from error

    @contextlib.contextmanager
    def _interrupts(self) -> Iterator[None]:
        """The first Ctrl-C or SIGTERM ends the run after its step, with everything saved; the second kills it."""

        def ask(number: int, frame: object) -> None:
            if number in self.signals:  # SIGTERM behind a Ctrl-C is what launchers pass on
                signal.default_int_handler(number, None)
            self.signals.add(number)
            self.console.say("finishing this step, then saving; press Ctrl-C again to stop at once")

        before = {}
        try:
            for number in (signal.SIGINT, signal.SIGTERM):
                before[number] = signal.signal(number, ask)
        except ValueError:  # not the main thread: somebody else handles signals
            before = {}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _groups(batches: Iterator[Batch], size: int) -> Iterator[list[Batch]]:
    """So many batches at a time; the last group of an epoch may be smaller."""
    group: list[Batch] = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def changes(before: Recipe, now: Recipe) -> list[str]:
    """The keys in which two recipes of one run differ, with both values; those that a run may change are left out."""
    was, is_now = (flat(recipe.model_dump(mode="json")) for recipe in (before, now))
    return [
        f"{key} (was {was.get(key)!r}, now {is_now.get(key)!r})"
        for key in sorted(was.keys() | is_now.keys())
        if was.get(key) != is_now.get(key) and key not in MAY_CHANGE
    ]

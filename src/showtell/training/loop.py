"""The training loop: batch, terms, step; validate; keep the best; stop and resume anywhere.

Whatever is random is a function of (seed, epoch or step, image id), so that a run that was killed and resumed ends with
the same bits, log and checkpoints included; the log holds no times for that reason (they are in TensorBoard).

Several processes (`accelerate launch`, `torchrun`) share each batch, image by image, and each validation, batch by
batch. All of them know all numbers and captions and come to the same decisions; the first one alone writes.
Batch norm sees the images of its own process; the statistics that are kept are those of the first.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast, gather_object
from torch import Tensor, nn

from showtell import counter_rng
from showtell.captioners import Captioner
from showtell.cores import describe_threads
from showtell.errors import TrainingError, UsageError, summarise
from showtell.features.precomputed import PrecomputedConfig
from showtell.features.store import require_settings
from showtell.files import read_log
from showtell.objectives import build_objective
from showtell.objectives.contract import counts_of
from showtell.objectives.processes import sum_over_processes
from showtell.processes import is_first_process, lock_folder
from showtell.scores import image_facts
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import SPECIAL
from showtell.training.batches import TrainingSet, epoch_batches
from showtell.training.checkpoints import RunCheckpoints
from showtell.training.console import TrainingConsole
from showtell.training.data import open_dataset_of, open_store, split_of, training_set
from showtell.training.health import MIN_CIDER, few_photos, harms, rates_of
from showtell.training.launch import Interrupts, make_accelerator, rounds_products, translate_errors
from showtell.training.optimizers import build_optimizer
from showtell.training.recalibration import keep_calibration
from showtell.training.recipe import Recipe
from showtell.training.recipe_loading import load_recipe
from showtell.training.run_folder import LOG, RECIPE, RunFolder, is_run
from showtell.training.schedule import learning_rate_factor
from showtell.training.start import StartAverage, start
from showtell.training.state import Progress
from showtell.training.step import TrainingModel, TrainingStep, on_device, sum_gradients
from showtell.training.validation import Validation, check_selection_metric, validate
from showtell.types import Batch, Counts

SHOWN = 3  # captions of each validation
MAX_LOSS = 1e6  # losses lie between -10 and 100; above this, training has diverged


@dataclass(frozen=True)
class TrainingResult:
    """The result of a run."""

    folder: Path
    epochs: int  # finished
    best: float | None  # validation score of best/
    best_epoch: int | None
    interrupted: bool = False
    selection_metric: str = "cider"  # the score of `best`

    def __repr__(self) -> str:
        best = "" if self.best is None else f", best {self.selection_metric} {self.best:.3f} at epoch {self.best_epoch}"
        end = ", interrupted" if self.interrupted else ""
        return f"<TrainingResult {self.folder}: {self.epochs} epochs{best}{end}>"

    @cached_property
    def captioner(self) -> Captioner:
        """What was trained: the checkpoint best/, or last/ of a run that has none yet."""
        best = self.folder / "best"
        return Captioner.from_pretrained(best if best.exists() else self.folder / "last")

    @cached_property
    def history(self) -> list[dict[str, Any]]:
        """The lines of log.jsonl: losses every few steps, and each validation with its scores."""
        return read_log(self.folder / LOG)

    @property
    def scores(self) -> dict[str, float]:
        """The scores of `captioner` on the validation split, its loss among them; empty without one."""
        rows = (line for line in self.history if "validation" in line and line["epoch"] == self.best_epoch)
        return next(rows, {}).get("validation", {})  # type: ignore[no-any-return]


def train(
    recipe: Recipe | Path | str | Mapping[str, Any],
    out: Path | str | None = None,
    *,
    resume: bool = False,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    quiet: bool = False,
    **sections: Mapping[str, Any],
) -> TrainingResult:
    """Train a captioner.

    Args:
        recipe: as `load_recipe` takes it; or the folder of a run to resume.
        out: the run folder; None is runs/ and the recipe's name.
        resume: resume the run in that folder; if there is none, start at the beginning. `training.epochs` and
            `training.patience` may be greater than before.
        overrides: of the recipe, {"training.epochs": 1} or ["training.epochs=1"].
        quiet: show nothing.
        sections: overrides by section, such as training={"epochs": 1}.

    Raises:
        RecipeError: a key or a value is wrong, or is not what the run to resume began with.
        DataError: the dataset is unusable.
        UsageError: the folder holds a run and `resume` is false, or other files.
        TrainingError: the loss is no number any more, or a process of the run was lost.
    """
    if isinstance(recipe, Path | str):
        path = Path(recipe)
        if is_run(path) and not resume:
            raise UsageError(
                f"{path} is the folder of a run: add --resume (in Python resume=True) to resume it, or train by "
                f"{path}/{RECIPE} with another --out."
            )
        out = out or (path if is_run(path) else Path("runs") / f"{path.parent.name}-{path.stem}".lstrip("-"))
        recipe = path / RECIPE if is_run(path) else recipe
    recipe = load_recipe(recipe, overrides, **sections)
    folder = Path(out or "runs/run")
    if recipe.data.features is not None:
        require_settings(recipe.data.features, recipe.encoder)
    lock = lock_folder(folder, "training in", "another --out") if is_first_process() else contextlib.nullcontext()
    with lock, translate_errors(folder):
        trainer = Trainer(recipe, folder, resume=resume, quiet=quiet)
        result = trainer.fit()
        if recipe.training.start_from and not result.interrupted and is_first_process():
            keep_calibration(trainer.folder.best, recipe, trainer.console.say)
        return result


@dataclass(frozen=True)
class StepNumbers:
    """The numbers of a step, which the GPU may not have computed yet."""

    step: int  # counted from 1
    names: tuple[str, ...]  # of the loss, its parts, and "asked" (to stop, if above 0), "captions", "gradient_norm"
    values: Tensor
    learning_rate: float
    image_ids: tuple[str, ...]  # of this process


class _InterruptedError(Exception):
    """A person asked to stop during a validation."""


class Trainer:
    """One run, read from top to bottom: set up, fit, validate, save."""

    def __init__(self, recipe: Recipe, folder: Path, *, resume: bool, quiet: bool = False) -> None:
        self.recipe = recipe
        self.accelerator = make_accelerator(recipe, folder)
        self.quiet = quiet or not self.accelerator.is_main_process
        self.console = TrainingConsole(self.quiet)
        self.interrupts = Interrupts(self.console.say)
        self.interrupted = False  # all processes agree to stop
        self.progress = Progress()
        self.unread: list[StepNumbers] = []  # of the last steps; reading them waits for a GPU
        with self.accelerator.main_process_first():
            self.folder = RunFolder(folder, writes=self.accelerator.is_main_process)
            self.resuming = self.folder.claim(recipe, resume=resume)
        self._open_dataset()
        self._build_model()
        self._prepare_batches()
        self._prepare_validation()

    # ---- set up

    def _open_dataset(self) -> None:
        data = self.recipe.data
        with_photos = not isinstance(self.recipe.encoder, PrecomputedConfig)
        dataset = open_dataset_of(data, with_photos=with_photos).limited(data.limit, data.max_captions)
        for sentence in dataset.warnings:
            self.console.say(f"warning: {sentence}")
        self.training_records = split_of(dataset, "train")
        self.validation_records = split_of(dataset, data.validation_split) if data.validation_split else dataset[:0]
        self.facts = image_facts(self.validation_records)
        check_selection_metric(self.recipe.training.selection_metric, self.facts)

    def _build_model(self) -> None:
        """Vocabulary, encoder, decoder and objective, and their optimiser."""
        recipe, checkpoint = self.recipe, self.recipe.training.start_from
        torch.manual_seed(counter_rng.key_of(recipe.training.seed, "weights"))
        words = [tokenize(caption) for record in self.training_records for caption in record.captions]
        # A run that resumes has taken over the checkpoint's words and weights already.
        self.start = start(recipe, words, self.folder.last if checkpoint and self.resuming else checkpoint)
        vocabulary, encoder, decoder = self.start.vocabulary, self.start.encoder, self.start.decoder
        origin = {
            "data": recipe.data.path, "train_images": len(self.training_records), "captions": len(words),
            "trained": date.today().isoformat(),
        }  # fmt: skip
        if checkpoint:
            origin["start_from"] = checkpoint
            about = self.start.about
            is_other = not self.resuming and about.get("data") != recipe.data.path
            if before := about if is_other else about.get("before"):
                origin["before"] = {key: value for key, value in before.items() if key != "validation"}
        origin |= {key: self.start.about[key] for key in ("licence", "imported") if key in self.start.about}
        self.captioner = self.start.kind(
            encoder=encoder, decoder=decoder, vocabulary=vocabulary, decoding=recipe.decoding, origin=origin
        )
        self.objective = build_objective(
            recipe.objective, feature_size=encoder.feature_size, vocabulary_size=len(vocabulary)
        )
        self.model = TrainingModel(encoder, decoder, self.objective)
        self.model.to(self.accelerator.device)
        if self.accelerator.num_processes > 1:
            broadcast([tensor.detach() for tensor in (*self.model.parameters(), *self.model.buffers())])
        self.average = StartAverage(self.model, recipe.training.start_share)
        self.optimizer = self.accelerator.prepare(build_optimizer(self.model, recipe))
        self.step = TrainingStep(self.model, self.accelerator, rounds_products=rounds_products(recipe))

    def _prepare_batches(self) -> None:
        """Features or photos, what the objective learns of all captions, checkpoints, and the number of steps."""
        recipe, training = self.recipe, self.recipe.training
        records = [*self.training_records, *self.validation_records]
        self.store = open_store(recipe.data.features, self.start.encoder, records, self.accelerator, self.quiet)
        self.data = training_set(
            recipe, self.training_records, self.captioner, self.store, "reading training photos", self.quiet,
            self.objective.supervised_words,
        )  # fmt: skip
        self.objective.prepare(dict(self.data.contents()), recipe.decoding.max_length)
        fingerprint = f"{counter_rng.key_of(self.start.vocabulary.fingerprint, *self.data.contents()):016x}"
        self.checkpoints = RunCheckpoints(
            self.folder, self.captioner, self.model, self.average, self.optimizer, self.accelerator, fingerprint
        )
        batches = math.ceil(len(self.training_records) / training.batch_size)  # of an epoch
        self.steps_per_epoch = math.ceil(batches / training.gradient_accumulation)
        self.steps = self.steps_per_epoch * training.epochs

    def _prepare_validation(self) -> None:
        self.validation_data: TrainingSet | None = None
        if records := self.validation_records:
            self.validation_data = training_set(
                self.recipe, records, self.captioner, self.store, "reading validation photos", self.quiet
            )

    # ---- training

    def fit(self) -> TrainingResult:
        """Train to the end, to the patience's end, or to the first interrupt."""
        for _ in self.iterate():
            pass
        return self.result

    @property
    def result(self) -> TrainingResult:
        """The result so far."""
        progress = self.progress
        return TrainingResult(
            self.folder.path, progress.epochs, progress.best, progress.best_epoch, self.interrupted,
            self.recipe.training.selection_metric,
        )  # fmt: skip

    def iterate(self) -> Iterator[StepNumbers]:
        """`fit` step by step: after each its numbers, whose reading waits for a GPU; a run that is left can resume."""
        if self.resuming:
            self.progress = self.checkpoints.restore()
            self.progress.stopped = self.progress.stopped and self._patience_has_ended()
        progress = self.progress
        self._introduce()
        first = self._validate_start()
        self.folder.begin(self.recipe)
        of_run = {"name": self.folder.path.name, "dir": str(self.folder.path)}  # W&B writes into the run's folder
        self.accelerator.init_trackers("showtell", init_kwargs={"wandb": of_run})
        with self.console.bar, self.interrupts, self.folder.logging(progress.log_bytes):
            if not self.resuming:
                self.checkpoints.save_last(progress)  # before best/ and the log, so that a run without it has lost it
            if first is not None:
                self._judge(0, first)
            self.console.begin(self.steps, progress.step)
            while progress.epochs < self.recipe.training.epochs and not (progress.stopped or self.interrupted):
                yield from self._train_epoch()
                if not self.interrupted:
                    with self.average.applied():
                        self._end_epoch()
                self.checkpoints.save_last(progress)
            if self.interrupted:
                self.console.say(f"stopped at step {progress.step} of {self.steps}; resume with --resume")
        for tracker in self.accelerator.trackers:
            tracker.finish()  # accelerate's own end would part the processes too, and a program may train again

    def _introduce(self) -> None:
        say, progress, training = self.console.say, self.progress, self.recipe.training
        processes = self.accelerator.num_processes
        weights = sum(parameter.numel() for parameter in self.model.parameters() if parameter.requires_grad)
        validation_words = (tokenize(caption) for record in self.validation_records for caption in record.captions)
        vocabulary = self.captioner.vocabulary
        unknown = vocabulary.unknown_rate(validation_words)
        say(
            f"{len(self.data)} images with {self.captioner.origin['captions']} captions, "
            f"{len(vocabulary) - len(SPECIAL)} {vocabulary.unit} ({100 * unknown:.1f}% of validation words unknown), "
            f"{weights:,} weights to train, {self.steps} steps on {self.accelerator.device}, {describe_threads()}"
            + (f" in each of {processes} processes" if processes > 1 else "")
        )
        if training.start_from and not self.resuming:
            say(self.start.describe(training.start_from))
        elif not progress.step and (few := few_photos(len(self.data), self.recipe.encoder)):
            say(f"warning: {len(self.data)} photos are {few}")
        if self.objective.optimises_reward and training.start_from is None:
            say(
                "warning: a reward teaches only a model that says something already; train with "
                "objective.name=cross_entropy first, and set training.start_from to that run's best/"
            )
        if progress.stopped:
            say("the run has stopped early; a greater training.patience continues it")
        elif progress.epochs == training.epochs:
            say("the run is finished; a greater training.epochs trains it for longer")
        elif progress.step:
            say(f"resuming at step {progress.step} of {self.steps}")

    def batches(self, epoch: int, skip: int = 0) -> Iterator[Batch]:
        """The batches of an epoch for this process, but for the first ones."""
        training = self.recipe.training
        return epoch_batches(
            self.data, epoch=epoch, skip=skip, batch_size=training.batch_size, bucket=training.bucket,
            seed=training.seed, workers=self.recipe.data.workers, process=self.accelerator.process_index,
            processes=self.accelerator.num_processes, for_gpu=self.accelerator.device.type == "cuda",
        )  # fmt: skip

    def _train_epoch(self) -> Iterator[StepNumbers]:
        """The steps of the epoch that are left."""
        training, epoch = self.recipe.training, self.progress.epochs
        done = self.progress.step - epoch * self.steps_per_epoch
        batches = on_device(self.batches(epoch, done * training.gradient_accumulation), self.accelerator.device)
        self.model.encoder_learns = epoch >= self.recipe.encoder.start_epoch
        self.model.train()
        self.read_at = time.perf_counter()
        while group := list(islice(batches, training.gradient_accumulation)):
            counts = self._counts(group)
            numbers = self._step([replace(batch, counts=counts) for batch in group])
            self.unread.append(numbers)
            self.progress.step += 1
            step = self.progress.step
            is_last = step == (epoch + 1) * self.steps_per_epoch  # which is saved when it is validated
            saves = training.save_every and step % training.save_every == 0 and not is_last
            if self.accelerator.device.type == "cpu" or step % training.log_every == 0 or is_last or saves:
                self._read_numbers()
            if self.interrupted:
                return
            if saves:
                self.checkpoints.save_last(self.progress)
            yield numbers

    def _counts(self, group: Sequence[Batch]) -> Counts:
        """The counts of the batches of a step on all processes."""
        own = counts_of(*group)
        every = torch.stack([own.words, own.captions, own.images]).to(self.accelerator.device)
        return Counts(*sum_over_processes(every).unbind())

    def _step(self, group: Sequence[Batch]) -> StepNumbers:
        """One step of the optimiser over one or several batches, which have their common counts."""
        training, step = self.recipe.training, self.progress.step
        self.objective.begin_step(step, self.progress.epochs)
        self._set_learning_rate()
        key = counter_rng.key_of(training.seed, "torch", step)  # of dropout inside a backbone
        torch.manual_seed(key + self.accelerator.process_index)
        parts: dict[str, Tensor] = {}
        for batch in group:
            of_batch = self.step(batch, counter_rng.CounterRNG(training.seed, step, batch.image_ids))
            parts = {name: value + parts.get(name, 0) for name, value in of_batch.items()}
        if self.accelerator.num_processes > 1:
            sum_gradients(self.model.parameters())
        self.accelerator.unscale_gradients()  # once: accelerate's own functions would each do it
        if training.clip_value:
            nn.utils.clip_grad_value_(self.model.parameters(), training.clip_value)
        if training.clip_norm:
            norm = nn.utils.clip_grad_norm_(self.model.parameters(), training.clip_norm)
        self.optimizer.step()
        self.optimizer.zero_grad()
        # The parts of all processes, and whether one of them was asked to stop, which then all do.
        asked = torch.full((), float(self.interrupts.asked), device=self.accelerator.device)
        values = sum_over_processes(torch.stack([asked, *(part.float() for part in parts.values())]))
        counts = group[0].counts
        assert counts is not None, "every batch has those of its step"
        known = {"captions": counts.captions.float()} | ({"gradient_norm": norm} if training.clip_norm else {})
        return StepNumbers(
            step + 1, ("asked", *parts, *known), torch.cat([values, torch.stack([*known.values()])]),
            self.optimizer.param_groups[0]["lr"],
            tuple(image for batch in group if not batch.is_dummy for image in batch.image_ids),
        )  # fmt: skip

    def _set_learning_rate(self) -> None:
        training = self.recipe.training
        factor = learning_rate_factor(
            self.progress.step, self.steps, training.warmup_steps, training.schedule,
            decay_steps=training.decay_epochs * self.steps_per_epoch, decay_factor=training.decay_factor,
        )  # fmt: skip
        for settings in self.optimizer.param_groups:
            settings["lr"] = settings["initial_lr"] * factor

    def _read_numbers(self) -> None:
        """Read the numbers of the steps since the last time, and report them; a TrainingError if one has diverged."""
        steps, self.unread = self.unread, []
        every = [dict(zip(step.names, step.values.tolist(), strict=True)) for step in steps]
        before, self.read_at = self.read_at, time.perf_counter()
        speed = sum(numbers.pop("captions") for numbers in every) / (self.read_at - before)
        for step, numbers in zip(steps, every, strict=True):
            self.interrupted = numbers.pop("asked") > 0 or self.interrupted
            scales = self.accelerator.scaler is not None  # it leaves out a step whose gradient is too large for 16 bits
            if not abs(numbers["loss"]) < MAX_LOSS or not (scales or math.isfinite(numbers.get("gradient_norm", 0.0))):
                raise self._diverged(numbers, step)
            self._report(step, numbers, speed)

    def _diverged(self, numbers: Mapping[str, float], step: StepNumbers) -> TrainingError:
        finite = math.isfinite(numbers["loss"]) and "gradient_norm" in numbers
        gradient = f", its gradient {numbers['gradient_norm']:g}," if finite else ""
        images = gather_object(list(step.image_ids))
        return TrainingError(
            f"The loss is {numbers['loss']:g}{gradient} at step {step.step}, over the images "
            f"{summarise(images)}: training has diverged; lower training.learning_rate (now "
            f"{self.recipe.training.learning_rate}) or training.clip_norm, or look at these images and their captions; "
            f"{self.folder.last} is the last good checkpoint."
        )

    def _report(self, of: StepNumbers, numbers: dict[str, float], speed: float) -> None:
        """The numbers of a step: on the console, and every few steps and at an epoch's end in the log."""
        step, epoch = of.step, self.progress.epochs + 1
        self.console.step(step, epoch, numbers["loss"], speed)
        if step % self.recipe.training.log_every == 0 or step == epoch * self.steps_per_epoch:
            self.folder.log({"step": step, "epoch": epoch, "learning_rate": of.learning_rate, **numbers})
            self._track("train", {**numbers, "learning_rate": of.learning_rate})
            self._track("speed", {"captions_per_second": speed})

    def _track(self, section: str, numbers: Mapping[str, float]) -> None:
        """Numbers over time, for the trackers."""
        self.accelerator.log({f"{section}/{name}": value for name, value in numbers.items()}, step=self.progress.step)

    # ---- validation

    def _end_epoch(self) -> None:
        """Validate, keep the best weights, and see whether it is time to stop; not if a person asks to stop now."""
        training, epoch = self.recipe.training, self.progress.epochs + 1
        is_last = epoch == training.epochs
        if self.validation_data is None:
            if is_last:
                self.checkpoints.save_best(None)
        elif is_last or epoch % training.validate_every == 0:
            try:
                self._judge(epoch, self._validate(self.validation_data))
            except _InterruptedError:
                self.interrupted = True
                return
        self.progress.epochs = epoch

    def _validate(self, data: TrainingSet) -> Validation:
        with self.console.counting("validating", len(data)) as progress:

            def advance(done: int) -> None:
                progress(done)
                if self.interrupts.asked and self.accelerator.num_processes == 1:  # several agree after a step
                    raise _InterruptedError

            return validate(
                self.captioner, self.objective, data, self.facts, self.recipe.training, self.accelerator, advance
            )

    def _validate_start(self) -> Validation | None:
        """The validation of a checkpoint that the run starts from: the first of which the best may be."""
        start = self.recipe.training.start_from
        if start is None or self.validation_data is None or self.progress.step:
            return None
        validation = self._validate(self.validation_data)
        if self.objective.optimises_reward:
            if (cider := validation.scores["cider"]) < MIN_CIDER:
                self.console.say(
                    f"warning: training.start_from={start} has CIDEr-D {cider:.3f} on the validation split, and below "
                    f"{MIN_CIDER:g} a reward tells nothing apart; train longer with objective.name=cross_entropy first"
                )
            self.progress.start_rates = rates_of(validation.captions)
        return validation

    def _judge(self, epoch: int, validation: Validation) -> None:
        """Report a validation, keep the weights if they are the best, and decide whether to stop."""
        training, progress, numbers = self.recipe.training, self.progress, validation.scores
        chosen = numbers[training.selection_metric]
        is_best = progress.best is None or chosen > progress.best
        if is_best:
            progress.best, progress.best_epoch, progress.stale = chosen, epoch, 0
        else:
            progress.stale += 1
            progress.stopped = self._patience_has_ended()
        self._report_validation(epoch, validation, is_best=is_best)
        if is_best:
            split = self.recipe.data.validation_split
            self.checkpoints.save_best({"split": split, "search": "greedy", "scores": dict(numbers)})

    def _report_validation(self, epoch: int, validation: Validation, *, is_best: bool) -> None:
        training, progress, numbers = self.recipe.training, self.progress, validation.scores
        warnings = [*validation.warnings, *harms(validation.captions, progress.start_rates)]
        self.folder.log({"step": progress.step, "epoch": epoch, "validation": numbers, "warnings": warnings})
        self._track("validation", numbers)
        scores = "  ".join(f"{name} {value:.3f}" for name, value in numbers.items())
        self.console.say(f"epoch {epoch}/{training.epochs}  {scores}{'  (best so far)' if is_best else ''}")
        for record in self.validation_records[:SHOWN]:
            self.console.say(f"  {record.path.name}: {validation.captions[record.image_id].text}")
        for warning in warnings:
            self.console.say(f"  warning: {warning}")
        if progress.stopped:
            self.console.say(
                f"no better {training.selection_metric} for {training.patience} validations: stopping "
                "(training.patience; null never stops)"
            )

    def _patience_has_ended(self) -> bool:
        """Whether no score was better for `patience` validations and `patience_steps` steps."""
        training, progress = self.recipe.training, self.progress
        steps = progress.step - self.steps_per_epoch * (progress.best_epoch or 0)
        is_stale = training.patience is not None and progress.stale >= training.patience
        return is_stale and steps >= training.patience_steps

"""Validation: loss, scores and greedy captions of a split, the same on all processes, which share the work."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast, gather_object

from showtell.captioners import EncoderDecoderCaptioner
from showtell.captions import Caption
from showtell.errors import RecipeError
from showtell.models.contract import eval_mode
from showtell.objectives import Objective
from showtell.scores import ImageFacts, metric_of, score, validation_numbers
from showtell.training import health
from showtell.training.batches import TrainingSet, collate
from showtell.training.recipe import TrainingConfig

MAX_BATCH_SIZE = 64  # images; the same for any number of processes, so that captions are too


@dataclass(frozen=True)
class Validation:
    """The results of one."""

    scores: Mapping[str, float]  # the loss too
    captions: Mapping[str, Caption]  # greedy ones, by image id
    warnings: tuple[str, ...]  # a sentence each


def check_selection_metric(selection_metric: str, facts: Mapping[str, ImageFacts]) -> None:
    """Make sure, before the first epoch, that a score can be computed.

    Args:
        selection_metric: a number that can select.
        facts: of the images of the validation split.

    Raises:
        RecipeError: training.selection_metric cannot.
    """
    first = next(iter(facts.values()), ImageFacts())
    report = score(["a dog"], {"0": replace(first, references=("a dog",))}, metrics=[metric_of(selection_metric)])
    reason = report.skipped.get(selection_metric)
    if reason is not None:
        raise RecipeError(f"training.selection_metric={selection_metric} cannot be computed here: {reason}")


class Validator:
    """Validates a captioner during training.

    Args:
        captioner: its encoder and decoder.
        objective: what they learn from, for the loss.
        data: the split.
        facts: what is known of the same images.
        training: the score that decides what is best, and the size of batches.
        accelerator: of the processes that share the work.
    """

    def __init__(
        self,
        captioner: EncoderDecoderCaptioner,
        objective: Objective,
        data: TrainingSet,
        facts: Mapping[str, ImageFacts],
        training: TrainingConfig,
        accelerator: Accelerator,
    ) -> None:
        self._facts = facts
        self._captioner = captioner
        self._objective = objective
        self._data = data
        self._selection_metric = training.selection_metric
        self._batch_size = min(training.batch_size, MAX_BATCH_SIZE)
        self._accelerator = accelerator

    @torch.no_grad()
    def validate(self, progress: Callable[[int], None]) -> Validation:
        """Caption and score the split with the weights as they are.

        Args:
            progress: called with the number of images done, by all processes, since the last call.
        """
        captioner, accelerator, size = self._captioner, self._accelerator, self._batch_size
        if captioner.encoder.config.trained and accelerator.num_processes > 1:
            broadcast(list(captioner.encoder.buffers()))  # what batch norm keeps, of the first process
        own: list[tuple[int, float, dict[str, Caption]]] = []  # of each batch: its first image, loss, captions
        settings = captioner.settings(num_beams=1, num_return_sequences=1, search="greedy")
        stride = size * accelerator.num_processes
        with eval_mode(captioner.encoder), eval_mode(captioner.decoder), eval_mode(self._objective):
            for first in range(size * accelerator.process_index, len(self._data), stride):
                indices = range(first, min(first + size, len(self._data)))
                batch = collate([self._data[0, index] for index in indices]).to(accelerator.device)
                features = batch.features or captioner.encode(batch.prepared)
                terms = self._objective(batch, features, captioner.decoder)
                loss = float(terms.parts.get("words", terms.total)) * len(indices)
                results = captioner.caption_features(features, settings)
                best = {image: best for image, (best, *_) in zip(batch.image_ids, results, strict=True)}
                own.append((first, loss, best))
                progress(min(stride, len(self._data) - first))
        losses: list[float] = []
        captions: dict[str, Caption] = {}
        for _, loss, of_batch in sorted(gather_object(own), key=lambda result: result[0]):
            losses.append(loss)
            captions |= of_batch
        names = validation_numbers(self._selection_metric)
        report = score(
            {image: caption.text for image, caption in captions.items()},
            self._facts,
            metrics=set(map(metric_of, names)),
        )
        scores = {"loss": sum(losses) / len(self._data)} | {name: report.scores[name] or 0.0 for name in names}
        return Validation(scores, captions, tuple(health.warnings(captions, self._objective.optimises_reward)))

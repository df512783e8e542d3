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
from showtell.explanations.verdict import caption_warnings, verdict_on_features
from showtell.models.contract import eval_mode
from showtell.objectives import Objective
from showtell.scores import ImageFacts, metric_of, score, validation_numbers
from showtell.training.batches import TrainingSet, collate
from showtell.training.recipe import TrainingConfig

MAX_BATCH_SIZE = 64  # images; the same for any number of processes, so that captions are too


@dataclass(frozen=True)
class Validation:
    """The results of a validation."""

    scores: Mapping[str, float]  # by name, "loss" among them
    captions: Mapping[str, Caption]  # greedy ones, by image id
    warnings: tuple[str, ...]  # a sentence each


def check_selection_metric(selection_metric: str, facts: Mapping[str, ImageFacts]) -> None:
    """Raise a RecipeError, before the first epoch, if training.selection_metric cannot be computed of the images."""
    first = next(iter(facts.values()), ImageFacts())
    report = score(["a dog"], {"0": replace(first, references=("a dog",))}, metrics=[metric_of(selection_metric)])
    if reason := report.skipped.get(selection_metric):
        raise RecipeError(f"training.selection_metric={selection_metric} cannot be computed here: {reason}")


@torch.no_grad()
def validate(
    captioner: EncoderDecoderCaptioner, objective: Objective, data: TrainingSet, facts: Mapping[str, ImageFacts],
    training: TrainingConfig, accelerator: Accelerator, progress: Callable[[int], None],
) -> Validation:  # fmt: skip
    """Caption and score a split; processes share it, and `progress` gets the images done by all since the last call."""
    if accelerator.num_processes > 1:  # running means of batch norm: those of the first process
        broadcast([*captioner.encoder.buffers(), *captioner.decoder.buffers()])
    # Of each batch the index of its first image, its loss and captions; of the first also the verdict on the model.
    own: list[tuple[int, float, dict[str, Caption], list[str]]] = []
    settings = captioner.settings(num_beams=1, num_return_sequences=1, search="greedy")
    size = min(training.batch_size, MAX_BATCH_SIZE)
    stride = size * accelerator.num_processes
    with eval_mode(captioner.encoder), eval_mode(captioner.decoder), eval_mode(objective):
        for first in range(size * accelerator.process_index, len(data), stride):
            indices = range(first, min(first + size, len(data)))
            batch = collate([data[0, index] for index in indices]).to(accelerator.device)
            features = batch.features or captioner.encode(batch.prepared)
            terms = objective(batch, features, captioner.decoder)
            loss = float(terms.parts.get("words", terms.total)) * len(indices)  # the likelihood alone, if it is a part
            results = captioner.caption_features(features, settings)
            captions = {image: best for image, (best, *_) in zip(batch.image_ids, results, strict=True)}
            own.append((first, loss, captions, [] if first else verdict_on_features(captioner, features, batch.words)))
            progress(min(stride, len(data) - first))
    _, losses, batches, verdicts = zip(*sorted(gather_object(own), key=lambda result: result[0]), strict=True)
    captions = {image: caption for of_batch in batches for image, caption in of_batch.items()}
    names = validation_numbers(training.selection_metric)
    texts = {image: caption.text for image, caption in captions.items()}
    report = score(texts, facts, metrics=set(map(metric_of, names)))
    scores = {"loss": sum(losses) / len(data)} | {name: report.scores[name] or 0.0 for name in names}
    return Validation(scores, captions, (*verdicts[0], *caption_warnings(captions, objective.optimises_reward)))

"""Scores: sufficient statistics per caption, then a corpus number."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from showtell.errors import UsageError, nearest
from showtell.scores.base import Corpus, Score
from showtell.scores.bleu import Bleu
from showtell.scores.bootstrap import Difference, Interval, compare, intervals
from showtell.scores.captions import Predictions, References, match, read_predictions, read_references
from showtell.scores.chair import Chair
from showtell.scores.cider import Cider
from showtell.scores.diagnostics import diagnose, diversity
from showtell.scores.meteor import Meteor
from showtell.scores.ngrams import DocumentFrequency
from showtell.scores.report import ScoreReport, measure
from showtell.scores.rouge import RougeL
from showtell.scores.spice import Spice
from showtell.scores.truth import Truth

__all__ = [
    "SCORES",
    "Corpus",
    "Difference",
    "DocumentFrequency",
    "Interval",
    "Score",
    "ScoreReport",
    "compare",
    "diagnose",
    "diversity",
    "intervals",
    "read_predictions",
    "read_references",
    "score",
]

# A metric may need document frequencies for CIDEr; those that do not, ignore them.
SCORES: dict[str, Callable[[DocumentFrequency | None], Score]] = {
    "bleu": lambda _: Bleu(),
    "meteor": lambda _: Meteor(),
    "rouge_l": lambda _: RougeL(),
    "cider": Cider,
    "spice": lambda document_frequency: Spice(Cider(document_frequency)),
    "truth": lambda _: Truth(),
    "chair": lambda _: Chair(),
}


def score(
    predictions: Predictions,
    references: References,
    metrics: Iterable[str] | None = None,
    scenes: Mapping[str, Any] | None = None,
    *,
    objects: Mapping[str, Collection[str]] | None = None,
    document_frequency: DocumentFrequency | None = None,
    progress: Callable[[int], None] | None = None,
) -> ScoreReport:
    """Score captions against references.

    >>> report = score({"1": "a dog runs"}, {"1": ["a dog runs", "the dog runs"]}, metrics=["bleu"])
    >>> round(report.scores["bleu_1"], 6)
    1.0

    Args:
        predictions: `{id: text}`, COCO results `[{"image_id": ..., "caption": ...}]`, or a list of texts.
        references: `{id: [texts]}`, a COCO captions dictionary, or a list of lists of texts.
        metrics: names from `SCORES`; None for all that can run.
        scenes: image id to scene, where the images were drawn; `truth` needs them.
        objects: image id to the categories of what it shows, where known; `chair` needs them.
        document_frequency: weights for CIDEr from other captions than the references.
        progress: called with 1 when a metric is done.

    Raises:
        UsageError: an unknown metric; the message lists the known ones.
        DataError: predictions and references do not fit together; the message lists the ids.
    """
    names = _choose(metrics, {"truth": scenes, "chair": objects})
    corpus = match(predictions, references, scenes, objects)
    report = measure(corpus, {name: SCORES[name](document_frequency) for name in names}, progress)
    warning = Cider(document_frequency).warning(corpus) if "cider" in names else None
    return replace(report, warnings=(warning,)) if warning else report


def _choose(metrics: Iterable[str] | None, needs: Mapping[str, object]) -> list[str]:
    """The metrics asked for, in the order of `SCORES`; if none, those that have what they need."""
    if metrics is None:
        return [name for name in SCORES if needs.get(name, SCORES) is not None]
    asked = set(metrics)
    for name in sorted(asked - set(SCORES)):
        raise UsageError(f'There is no metric "{name}": {nearest(name, SCORES)}.')
    return [name for name in SCORES if name in asked]

"""Scores: sufficient statistics per caption, then a corpus number."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from showtell.errors import UsageError, nearest
from showtell.scores.base import Corpus, Score
from showtell.scores.bleu import Bleu
from showtell.scores.captions import Predictions, References, match
from showtell.scores.cider import Cider
from showtell.scores.meteor import Meteor
from showtell.scores.ngrams import DocumentFrequency
from showtell.scores.report import ScoreReport, measure
from showtell.scores.rouge import RougeL
from showtell.scores.truth import Truth

__all__ = ["SCORES", "Corpus", "DocumentFrequency", "Score", "ScoreReport", "score"]

SCORES: dict[str, Callable[[], Score]] = {
    "bleu": Bleu,
    "meteor": Meteor,
    "rouge_l": RougeL,
    "cider": Cider,
    "truth": Truth,
}


def score(
    predictions: Predictions,
    references: References,
    metrics: Iterable[str] | None = None,
    scenes: Mapping[str, Any] | None = None,
    *,
    document_frequency: DocumentFrequency | None = None,
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
        document_frequency: weights for CIDEr from other captions than the references.

    Raises:
        UsageError: an unknown metric; the message lists the known ones.
        DataError: predictions and references do not fit together; the message lists the ids.
    """
    chosen = _choose(metrics, scenes is not None, document_frequency)
    return measure(match(predictions, references, scenes), chosen)


def _choose(
    metrics: Iterable[str] | None, drawn: bool, document_frequency: DocumentFrequency | None
) -> dict[str, Score]:
    """The metrics asked for, in the order of `SCORES`."""
    names = set(SCORES) - (set() if drawn else {"truth"}) if metrics is None else set(metrics)
    for name in sorted(names - set(SCORES)):
        raise UsageError(f'There is no metric "{name}": {nearest(name, SCORES)}.')
    chosen = {name: build() for name, build in SCORES.items() if name in names}
    if document_frequency is not None and "cider" in chosen:
        chosen["cider"] = Cider(document_frequency)
    return chosen

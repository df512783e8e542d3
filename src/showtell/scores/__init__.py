"""Scores: sufficient statistics per caption, then a corpus number."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, get_args

from showtell.errors import UsageError, nearest
from showtell.registry import Registry
from showtell.scores.base import Corpus, Score, ScoreNumber
from showtell.scores.bleu import Bleu, BleuNoBp
from showtell.scores.bootstrap import Comparison, Interval
from showtell.scores.captions import Predictions, References, match, read_predictions, read_references
from showtell.scores.chair import Chair
from showtell.scores.cider import Cider
from showtell.scores.diagnostics import diagnose, form_warnings
from showtell.scores.facts import ImageFacts, Need, image_facts
from showtell.scores.learned import ClipScore, RefClipScore
from showtell.scores.meteor import Meteor
from showtell.scores.ngrams import FEW_IMAGES, DocumentFrequency
from showtell.scores.report import ComparisonTable, ScoreReport, compare, measure
from showtell.scores.rouge import RougeL
from showtell.scores.spice import Spice
from showtell.scores.truth import Truth

if TYPE_CHECKING:  # which torch and transformers are loaded for
    from showtell.scores.encoders import ClipEncoder

__all__ = [
    "SCORES", "Comparison", "ComparisonTable", "Corpus", "DocumentFrequency", "ImageFacts", "Interval", "Score",
    "ScoreNumber", "ScoreReport", "available_metrics", "compare", "diagnose", "explained_numbers",
    "image_facts", "list_metrics", "metric_names", "metric_of", "numbers", "read_predictions", "read_references",
    "reward_numbers", "score", "selection_metrics", "validation_numbers",
]  # fmt: skip

# Each class declares what it needs, its numbers, and where these are used.
SCORES: Registry[type[Score]] = Registry(
    "showtell.scores",
    {
        "bleu": Bleu,
        "bleu_no_bp": BleuNoBp,
        "meteor": Meteor,
        "rouge_l": RougeL,
        "cider": Cider,
        "spice": Spice,
        "truth": Truth,
        "chair": Chair,
        "clip_score": ClipScore,
        "ref_clip_score": RefClipScore,
    },
    expects="a Score class that can be made without arguments",
    accepts=lambda name, score: isinstance(score, type) and issubclass(score, Score),
)


def list_metrics() -> list[str]:
    """The names of all metrics, those of installed packages included."""
    return list(SCORES)


def metric_names(metrics: str | Iterable[str] | None) -> tuple[str, ...] | None:
    """The metrics that a person named, in the order of `SCORES`; None, which is all that can run, stays None.

    >>> metric_names("rouge_l, bleu"), metric_names(["bleu"])
    (('bleu', 'rouge_l'), ('bleu',))
    """
    if metrics is None:
        return None
    named = {name.strip() for name in (metrics.split(",") if isinstance(metrics, str) else metrics)} - {""}
    if not named:
        raise UsageError("No metric is named; leave metrics out for all that can run, or give some: bleu,cider.")
    for name in sorted(named - set(SCORES)):
        raise UsageError(f'There is no metric "{name}": {nearest(name, SCORES)}.')
    return tuple(name for name in SCORES if name in named)


def numbers() -> dict[str, ScoreNumber]:
    """The numbers of all scores, by their names, in the order of `SCORES`."""
    return {number.name: number for score in SCORES.values() for number in score.numbers}


def metric_of(number: str) -> str:
    """The name in `SCORES` of the score that has a number.

    >>> metric_of("bleu_4")
    'bleu'
    """
    return next(name for name, score in SCORES.items() if any(own.name == number for own in score.numbers))


def selection_metrics() -> tuple[str, ...]:
    """The numbers that `training.selection_metric` may name."""
    return tuple(name for name, number in numbers().items() if number.can_select)


def reward_numbers() -> tuple[str, ...]:
    """The numbers that `objective.reward` may weigh."""
    return tuple(name for name, number in numbers().items() if number.can_reward)


def validation_numbers(selection_metric: str) -> tuple[str, ...]:
    """The numbers that every validation of a training run counts, and the one that selects its weights."""
    always = [name for name, number in numbers().items() if number.in_validation]
    return tuple(dict.fromkeys([*always, selection_metric]))


def explained_numbers() -> tuple[str, ...]:
    """The numbers that explanations show, in their order; the first one that an image has orders the images."""
    ranks = {name: number.explanation_rank for name, number in numbers().items() if number.explanation_rank is not None}
    return tuple(sorted(ranks, key=ranks.__getitem__))


def available_metrics(
    metrics: Iterable[str],
    facts: Iterable[ImageFacts],
    document_frequency: DocumentFrequency | None = None,
    clip: ClipEncoder | None = None,
) -> tuple[str, ...]:
    """Those of some metrics whose needs all images meet, in the order of `SCORES`.

    CLIPScore is included where there is a CLIP, even if something else is missing. Metrics that need document
    frequencies are left out if the given ones are of too few images.
    """
    names, images = set(metrics), tuple(facts)
    missing = {need for need in get_args(Need) if any(image.lacks(need) for image in images)}
    if document_frequency is not None and document_frequency.images < FEW_IMAGES:
        missing.add("document_frequency")

    def can_run(kind: type[Score]) -> bool:
        return clip is not None if "clip" in kind.needs else missing.isdisjoint(kind.needs)

    return tuple(name for name, kind in SCORES.items() if name in names and can_run(kind))


def score(
    predictions: Predictions,
    references: References,
    metrics: str | Iterable[str] | None = None,
    *,
    document_frequency: DocumentFrequency | None = None,
    clip: ClipEncoder | None = None,
) -> ScoreReport:
    """Score captions against references.

    >>> report = score({"1": "a dog runs"}, {"1": ["a dog runs", "the dog runs"]}, metrics="bleu")
    >>> round(report.scores["bleu_1"], 6)
    1.0

    Args:
        predictions: `{id: text}`, COCO results `[{"image_id": ..., "caption": ...}]`, or a list of texts.
        references: `{id: [texts]}`, a COCO captions dictionary, a list of lists of texts, or `{id: ImageFacts}` for
            metrics that need more: scenes (`truth`), annotated objects (`chair`), or the images themselves.
        metrics: a name of `list_metrics` or several, as "bleu,cider" or a list; None for all whose needs are met, but
            for those that run only when named.
        document_frequency: weights for CIDEr from other captions than the references.
        clip: of CLIPScore: `showtell.scores.encoders.ClipEncoder("openai/clip-vit-base-patch32")`.

    Raises:
        UsageError: an unknown metric; the message lists the known ones.
        DataError: predictions and references do not fit together; the message lists the ids.
    """
    names, corpus = metric_names(metrics), match(predictions, references, document_frequency, clip)
    if names is None:
        names = available_metrics([name for name, kind in SCORES.items() if kind.by_default], corpus.facts, clip=clip)
    report = measure(corpus, {name: SCORES[name]() for name in names})
    by_ngrams = any("references" in SCORES[name].needs and "clip" not in SCORES[name].needs for name in names)
    return replace(report, warnings=(*report.warnings, *form_warnings(corpus, by_ngrams=by_ngrams)))

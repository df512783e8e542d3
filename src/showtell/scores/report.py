"""The result of scoring: numbers of the corpus and of each image, signatures, skipped metrics with the reason."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from showtell.errors import DataError, ShowtellError, summarise
from showtell.scores.base import Corpus, Floats, Score, corpus_numbers, image_numbers
from showtell.scores.facts import Need

_NEEDS: dict[Need, str] = {  # what a score needs of every image, and how to give it
    "references": "references",
    "images": "the image files; score against a dataset",
    "scenes": "the scenes that were drawn; score against a scenes dataset",
    "objects": "annotated objects; score against a dataset with boxes, or name a file with --objects",
}


@dataclass(frozen=True)
class ScoreStatistics:
    """One score on one corpus: its sufficient statistics, from which every number comes."""

    score: Score
    rows: Floats  # (images, statistics)
    signature: str

    def from_sums(self, sums: Floats) -> Floats:
        """Sums over as many images, (..., statistics), to the numbers of the score."""
        return self.score.from_sums(sums, len(self.rows))


@dataclass(frozen=True)
class ScoreReport:
    """The scores of a set of captions."""

    scores: dict[str, float | None]  # number's name: value; None where the metric was skipped or is undefined
    signatures: dict[str, str]  # number's name: how it was made
    skipped: dict[str, str]  # number's name: why it could not be made
    images: int
    per_image: dict[str, dict[str, float | None]]  # image id: number's name: value; None where undefined
    warnings: tuple[str, ...] = ()  # sentences about numbers that mislead
    statistics: dict[str, ScoreStatistics] = field(repr=False, default_factory=dict)  # metric: its statistics
    ids: tuple[str, ...] = field(repr=False, default=())  # the order of the statistics' rows

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items() if value is not None)
        skipped = f"; skipped {', '.join(self.skipped)}" if self.skipped else ""
        return f"<ScoreReport of {self.images} images: {scores or 'no scores'}{skipped}>"

    def __str__(self) -> str:
        """The table that `showtell score` prints, without intervals."""
        from showtell.scores.table import as_text  # which knows this record

        return as_text({"score": self}, {}, samples=0, every_number=True)

    def to_json(self) -> dict[str, Any]:
        """What `showtell score --json` has of each system."""
        return {name: getattr(self, name) for name in ("scores", "signatures", "images", "skipped")}


def measure(corpus: Corpus, chosen: dict[str, Score]) -> ScoreReport:
    """Compute each metric, by its name, on a corpus. Metrics that cannot be computed are skipped with the reason."""
    scores: dict[str, float | None] = {}
    signatures: dict[str, str] = {}
    skipped: dict[str, str] = {}
    warnings: list[str] = []
    statistics: dict[str, ScoreStatistics] = {}
    columns: dict[str, Floats] = {}
    for metric, score in chosen.items():
        try:
            _require(metric, score, corpus)
            rows = score.statistics(corpus)
        except ShowtellError as error:
            scores.update(dict.fromkeys(score.names))
            skipped.update(dict.fromkeys(score.names, str(error)))
            continue
        statistics[metric] = ScoreStatistics(score, rows, score.signature(corpus))
        scores.update(zip(score.names, map(_defined, corpus_numbers(score, rows).tolist()), strict=True))
        signatures.update(dict.fromkeys(score.names, statistics[metric].signature))
        columns.update(zip(score.names, image_numbers(score, rows).T, strict=True))
        warning = score.warning(corpus)
        warnings += [warning] if warning else []
    table = np.stack(list(columns.values()), axis=1).tolist() if columns else [[] for _ in corpus.ids]
    per_image = {
        image: dict(zip(columns, map(_defined, row), strict=True)) for image, row in zip(corpus.ids, table, strict=True)
    }
    return ScoreReport(
        scores, signatures, skipped, len(corpus.ids), per_image, tuple(warnings), statistics, ids=corpus.ids
    )


def _require(metric: str, score: Score, corpus: Corpus) -> None:
    """Raise a DataError, which lists the images or says how to mend it, if the corpus lacks what a score needs."""
    if score.weights is not None and (corpus.models is None or not corpus.models.has(score.weights)):
        raise DataError(
            f'"{metric}" needs weights that you name: --{score.weights.replace("_", "-")} with a folder, or a '
            "repository on the Hugging Face hub."
        )
    for need in score.needs:
        lacking = [image for image, facts in zip(corpus.ids, corpus.facts, strict=True) if facts.lacks(need)]
        if lacking:
            raise DataError(
                f'"{metric}" needs {_NEEDS[need]} ({len(lacking)} of {len(corpus.ids)} image(s) lack them: '
                f"{summarise(lacking)})."
            )


def _defined(value: float) -> float | None:
    """A number, or None for one that is not defined."""
    return value if math.isfinite(value) else None

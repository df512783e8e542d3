"""The result of scoring: numbers of the corpus and of each image, signatures, skipped metrics with the reason.

One report or several print as a table for people, with intervals and who is better at what; or become JSON.
"""

from __future__ import annotations

import itertools
import math
import re
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import zip_longest
from typing import Any, overload

import numpy as np

from showtell.errors import DataError, ShowtellError, UsageError, summarise
from showtell.scores import bootstrap
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber, ScoreStatistics, corpus_numbers, image_numbers
from showtell.scores.bootstrap import SAMPLES, Comparison, Interval
from showtell.scores.diagnostics import rate_warnings
from showtell.scores.facts import Need

_NEEDS: dict[Need, str] = {  # what a score needs of every image, and how to give it
    "references": "references",
    "images": "the image files; score against a dataset",
    "scenes": "the scenes that were drawn; score against a scenes dataset",
    "objects": "annotated objects; score against a dataset with boxes, such as COCO's instances_*.json gives",
}
Rates = Mapping[str, Mapping[str, float]]  # of the captions of each system, from `diagnose`
_WIDTH, _FIRST_COLUMN = 100, 18  # characters
_RATES = {  # that tell what is wrong, below the scores, with their digits
    "bad_endings": ("bad endings", 4), "identical": ("identical", 4), "mean_length": ("words per caption", 1),
    "vocabulary": ("different words", 0),
}  # fmt: skip
SIGNIFICANT = 0.05


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
    numbers: dict[str, ScoreNumber] = field(repr=False, default_factory=dict)  # what is declared of each number

    def __repr__(self) -> str:
        scores = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items() if value is not None)
        skipped = f"; skipped {', '.join(self.skipped)}" if self.skipped else ""
        return f"<{type(self).__name__} of {self.images} images: {scores or 'no scores'}{skipped}>"

    def __str__(self) -> str:
        """The table that `showtell score` prints, with intervals."""
        return as_text({"score": self}, {}, every_number=True)

    def intervals(self, samples: int = SAMPLES, seed: int = 0) -> dict[str, Interval]:
        """The 95% interval of each number that is defined, by bootstrap."""
        return bootstrap.intervals(self.statistics, samples, seed)

    def known(self, number: str) -> ScoreNumber:
        """What is declared of a number; its name alone where no score declares it."""
        return self.numbers.get(number) or ScoreNumber(number, number)


@dataclass(frozen=True, repr=False)
class ComparisonTable(Sequence[Comparison]):
    """Systems on the same images: a row for each pair in each number, `table["cider"]` those of one number.

    It prints as a table, and `pandas.DataFrame(table)` has the rows.
    """

    reports: Mapping[str, ScoreReport]  # by the systems' names
    rows: tuple[Comparison, ...]  # number by number
    samples: int  # draws that they are from

    def __len__(self) -> int:
        return len(self.rows)

    @overload
    def __getitem__(self, key: int) -> Comparison: ...
    @overload
    def __getitem__(self, key: slice | str) -> tuple[Comparison, ...]: ...
    def __getitem__(self, key: int | slice | str) -> Comparison | tuple[Comparison, ...]:
        return tuple(row for row in self if row.number == key) if isinstance(key, str) else self.rows[key]

    def __str__(self) -> str:
        return as_text(self.reports, {}, self.samples, every_number=True, pairs=True, comparisons=self)

    __repr__ = __str__


def compare(systems: Mapping[str, ScoreReport], *, samples: int = SAMPLES, seed: int = 0) -> ComparisonTable:
    """Compare every pair of systems on the same draws, for each number that both have.

    Args:
        systems: by their names, what `score` or `evaluate` has returned.
        samples: number of bootstrap draws.
        seed: of the draws.

    Raises:
        DataError: the reports are of different images, or their numbers were made in different ways.
        UsageError: the systems have no names.
    """
    if not (isinstance(systems, Mapping) and systems):
        raise UsageError('Systems are compared by their names: compare({"mine": report, "other": another}).')
    ids = [report.ids for report in systems.values()]
    if odd := sorted(set().union(*ids).difference(set(ids[0]).intersection(*ids))):
        raise DataError(f"Systems are compared on the same images; not all have {summarise(odd)}.")
    drawn = {name: bootstrap.draw(report.statistics, samples, seed) for name, report in systems.items()}
    comparisons: list[Comparison] = []
    for number in dict.fromkeys(number for report in systems.values() for number in report.scores):
        values = {name: value for name, own in systems.items() if (value := own.scores.get(number)) is not None}
        if len(signatures := sorted({systems[name].signatures[number] for name in values})) > 1:
            raise DataError(f"The {number} scores of the systems are made differently: {' and '.join(signatures)}.")
        pairs = []
        for first, second in itertools.combinations(values, 2):
            value, column = values[first] - values[second], drawn[first][number] - drawn[second][number]
            if (result := bootstrap.significance(column, value, len(ids[0]))) is not None:
                pairs.append(Comparison(first, second, number, value, *result, p_holm=result[-1]))
        corrected = bootstrap.holm([pair.p for pair in pairs])
        comparisons += [replace(pair, p_holm=p) for pair, p in zip(pairs, corrected, strict=True)]
    return ComparisonTable(dict(systems), tuple(comparisons), samples)


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
        if warning := score.warning(corpus):
            warnings.append(warning)
    table = np.stack(list(columns.values()), axis=1).tolist() if columns else [[] for _ in corpus.ids]
    rows_of_images = (dict(zip(columns, map(_defined, row), strict=True)) for row in table)
    per_image = dict(zip(corpus.ids, rows_of_images, strict=True))
    numbers = {number.name: number for score in chosen.values() for number in score.numbers}
    return ScoreReport(
        scores, signatures, skipped, len(corpus.ids), per_image, tuple(warnings), statistics, corpus.ids, numbers
    )


def _require(metric: str, score: Score, corpus: Corpus) -> None:
    """Raise a DataError, which lists the images or says how to mend it, if the corpus lacks what a score needs."""
    if "clip" in score.needs and corpus.clip is None:
        raise DataError(
            f'"{metric}" needs a CLIP that you name: --clip-model with a folder, or a repository on the Hugging Face '
            "hub."
        )
    for need in score.needs:
        if lacking := [image for image, facts in zip(corpus.ids, corpus.facts, strict=True) if facts.lacks(need)]:
            raise DataError(
                f'"{metric}" needs {_NEEDS[need]} ({len(lacking)} of {len(corpus.ids)} image(s) lack them: '
                f"{summarise(lacking)})."
            )


def _defined(value: float) -> float | None:
    """A number, or None for one that is not defined."""
    return value if math.isfinite(value) else None


Reports = Mapping[str, ScoreReport]  # by the systems' names


def as_json(
    reports: Reports, rates: Rates, samples: int = SAMPLES, about: Mapping[str, Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    """Of one system its scores, of several {"systems": [...], "comparisons": [...]}; raises as `as_text`."""
    systems = [
        {
            "system": name,
            **(about or {}).get(name, {}),
            **{field: getattr(report, field) for field in ("scores", "signatures", "images", "skipped")},
            "intervals": {number: asdict(own) for number, own in report.intervals(samples).items()} if samples else {},
            "rates": dict(rates[name]),
        }
        for name, report in reports.items()
    ]
    if len(systems) == 1:
        return systems[0]
    comparisons = compare(reports, samples=samples) if samples else ()
    return {"systems": systems, "comparisons": list(map(asdict, comparisons))}


def as_text(
    reports: Reports,
    rates: Rates,
    samples: int = SAMPLES,
    *,
    every_number: bool = False,
    pairs: bool = False,
    comparisons: Sequence[Comparison] | None = None,
) -> str:
    """The table, who is best at what, high rates, skipped scores, signatures; `every_number` adds those like BLEU-1."""
    first = next(iter(reports.values()))
    numbers = [name for name in first.scores if every_number or first.known(name).in_table]
    shown = [name for name in numbers if name not in first.skipped]
    if comparisons is None:
        comparisons = compare(reports, samples=samples) if len(reports) > 1 and samples else ()
    sentences = _best(reports, shown, comparisons)
    for name, own in rates.items():
        sentences += [f"{name}: {sentence}" if len(rates) > 1 else sentence for sentence in rate_warnings(own)]
    reasons: dict[str, list[str]] = {}
    for name, reason in first.skipped.items():
        reasons.setdefault(reason, []).append(name)
    sentences += [f"skipped {', '.join(names)}: {reason}" for reason, names in reasons.items()]
    listed = [pair for pair in comparisons if pairs and pair.number in shown]
    parts = [
        [f"{first.images} images"],
        _score_table(reports, rates, shown, samples),
        [textwrap.fill(sentence, _WIDTH, break_on_hyphens=False) for sentence in sentences],
        _pair_table(first, listed, samples) if listed else [],
        _signatures(first, shown),
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def _score_table(reports: Reports, rates: Rates, shown: Sequence[str], samples: int) -> list[str]:
    """A column for each system (and the intervals of a single one), a row for each number, then the rates."""
    widest = max(8, (_WIDTH - _FIRST_COLUMN) // len(reports) - 2)
    heads = [textwrap.wrap(re.sub(r"\.(jsonl?|csv|tsv)$", "", name), widest) for name in reports]
    first = next(iter(reports.values()))
    bounds = first.intervals(samples) if len(reports) == 1 and samples else {}
    rows = [["", *line, *(["95% interval"] if bounds else [])] for line in zip_longest(*heads, fillvalue="")]
    rule = len(rows)
    for number in shown:
        values = ["-" if (value := one.scores.get(number)) is None else f"{value:.4f}" for one in reports.values()]
        own = bounds.get(number)
        interval = [f"[{own.low:.4f}, {own.high:.4f}]" if own else ""] if bounds else []
        rows.append([_title(first.known(number)), *values, *interval])
    for rate, (title, digits) in _RATES.items() if rates else ():
        values = [f"{of_one[rate]:.{digits}f}" for of_one in rates.values()]
        rows.append([title, *values, *([""] if bounds else [])])
    return _aligned(rows, rule, rule + len(shown))


def _title(known: ScoreNumber) -> str:
    """The name of a number in papers, marked if the lower is the better."""
    return known.title + (" (lower)" if known.lower_is_better else "")


def _best(reports: Reports, shown: Sequence[str], comparisons: Sequence[Comparison]) -> list[str]:
    """Which system is best at which numbers, those apart that are within chance of another system."""
    winners: dict[str, list[str]] = {}
    leaders: dict[str, list[str]] = {}
    for number in shown:
        known = next(iter(reports.values())).known(number)
        rivals = [one for one in comparisons if one.number == number]
        values = {name: value for name, report in reports.items() if (value := report.scores.get(number)) is not None}
        if rivals:
            best = (min if known.lower_is_better else max)(values, key=values.__getitem__)
            own = [one.p_holm < SIGNIFICANT for one in rivals if best in (one.first, one.second)]
            (winners if all(own) else leaders).setdefault(best, []).append(known.title)
    chance = f"better than every other system (p < {SIGNIFICANT}, Holm)"
    return [
        *(f"{name} is the best in {', '.join(titles)}: {chance}." for name, titles in winners.items()),
        *(f"{name} leads in {', '.join(titles)}, by no more than chance may give." for name, titles in leaders.items()),
    ]


def _pair_table(first: ScoreReport, comparisons: Sequence[Comparison], samples: int) -> list[str]:
    """A row for each number of each pair; p is corrected for the number of pairs, "<" where no draw was as far."""
    rows = [["", "difference of", "", "95% interval", "p (Holm)"]]
    for pair in comparisons:
        title, systems = _title(first.known(pair.number)), f"{pair.first} - {pair.second}"
        p = f"{'<' if pair.p <= 1 / samples else ''}{pair.p_holm:.4f}"
        rows.append([title, systems, f"{pair.value:+.4f}", f"[{pair.low:+.4f}, {pair.high:+.4f}]", p])
    return _aligned(rows, 1)


def _aligned(rows: Sequence[Sequence[str]], *rules: int) -> list[str]:
    """Rows as lines, the first column flush left and the others flush right, with rules before some of them."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for number, (first, *others) in enumerate(rows):
        if number in rules:
            lines.append("─" * (sum(widths) + 2 * len(others)))
        cells = (cell.rjust(width) for cell, width in zip(others, widths[1:], strict=True))
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def _signatures(report: ScoreReport, shown: Sequence[str]) -> list[str]:
    """How the numbers were made: what all share, then the rest of each."""
    first_with = {report.signatures[name]: name for name in reversed(shown)}
    made = {report.known(name).title: signature.split("|") for signature, name in reversed(first_with.items())}
    shared = [part for part in next(iter(made.values()), []) if all(part in parts for parts in made.values())]
    rest = {title: [part for part in parts if part not in shared] for title, parts in made.items()}
    lines = [f"{title:10} {' '.join(parts)}" for title, parts in {"signature": shared, **rest}.items() if parts]
    return [textwrap.fill(line, _WIDTH, subsequent_indent=" " * 11) for line in lines]

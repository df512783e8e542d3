"""Do attention and subgoals change at the same words, segment by segment? The claim of papers/000 §5, as numbers.

Along the T words of a caption attention has a map a_t and HACap's manager a subgoal g_t of some dimensions.

    moved_s    1/2 sum_r |a_s,r - a_(s-1),r|: the share of attention that is elsewhere at word s than at the word before
    turned_s   the share of dimensions d whose difference g_s,d - g_(s-1),d has another sign than the one before: a
               monotone run of d, a segment of papers/000 §5.4, ends at word s - 1 and the next one sets out from there
    begins_s   whether word s begins a noun phrase, or what stands between two: a relation, a verb, "and"

for s = 2 .. T - 1, counted from 0: nothing turns before, and HACap's first map is the mean by definition. The end is no
word of these. Total variation, because it is a share, has no logarithm of a weight near 0, and is greatest where all
attention jumps; Jensen-Shannon's distance orders changes much alike.

`correlate_series` tests whether two of these series rise and fall at the same words. From each, the mean at that
position of captions of that length is subtracted, and then the caption's own mean: neither that all captions begin
alike nor that some change more altogether counts. The residuals are correlated over all words of all captions (-1 to 1;
0 by chance). A permutation test exchanges whole series between captions of equal length (p, one-sided). Shuffling the
words of a series would be no fair null hypothesis: it makes a smooth series rough and forgets what all captions share
at a position, so that two independent series look aligned far too often (the test shows it). `same phrases` exchanges
only between captions whose phrases begin at the same words as well: what it leaves is not explained by grammar, which
both may follow independently.

Only the first caption of each image is measured: captions of one image would not be independent of each other.
`next`: attention one word later. It is computed from the state before the last word was read (`models/hacap.py`,
`models/sat.py`) and cannot know of a turn that this word brought.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from showtell.captioners import Captioner
from showtell.datasets.records import CaptionRecord
from showtell.decoding import DecodingConfig, teacher_forced
from showtell.errors import DataError, UsageError
from showtell.explanations.segments import FIRST_TURN, turns
from showtell.grounding.pointing import report_from_statistics
from showtell.grounding.teacher_forcing import captions_to_follow, encode_records
from showtell.models.contract import eval_mode
from showtell.models.goals import GoalOutput, spread_of_directions
from showtell.scenes.lexicon import ANY_SHAPE, BACKGROUND_WORDS, COUNT_WORDS, PATTERN_NOUNS
from showtell.scenes.parser import ADJECTIVES, NOUNS
from showtell.scores.base import Floats
from showtell.scores.bootstrap import intervals
from showtell.scores.report import ScoreReport

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

Bools = npt.NDArray[np.bool_]
PERMUTATIONS = 2000

# --- series along a caption ---


def moved(attention: Floats) -> Floats:
    """The share of attention that is elsewhere than at the word before: (T, R) to (T - 1,)."""
    return np.abs(np.diff(attention, axis=0)).sum(-1) / 2


def unevenness(changes: Floats) -> float:
    """Gini's coefficient of changes (S,): 0 if each word changes as much, near 1 for one jump; nan for none."""
    total, count = changes.sum(), len(changes)
    if not total > 0:
        return math.nan
    return float((2 * np.arange(1, count + 1) - count - 1) @ np.sort(changes) / (count * total))


def _any_of(words: Sequence[str]) -> str:
    return "(?:" + "|".join(sorted(words, key=len, reverse=True)) + ")"


_MARKS = _any_of([word for words in PATTERN_NOUNS.values() for word in words])
_PAPER = _any_of([text for texts in BACKGROUND_WORDS.values() for text in texts])
_THING = (
    rf"(?:(?:an?|a pair of|{_any_of(list(COUNT_WORDS.values()))}) )?(?:{_any_of(list(ADJECTIVES))} )*"
    rf"{_any_of([*NOUNS, *ANY_SHAPE])}(?: with {_MARKS})?"
)
_PHRASE = re.compile(rf"(?<!\S)(?:{_PAPER}|{_THING})(?!\S)")


def phrase_begins(words: Sequence[str]) -> list[bool]:
    """Where the noun phrases of a caption of scenes begin, and what stands between them; what "and" adds is new.

    >>> phrase_begins("a red star above two dots".split())
    [True, False, False, True, True, False]
    """
    text = " ".join(words)
    borders, inside = {0}, set()
    for match in _PHRASE.finditer(text):
        first, end = text[: match.start()].count(" "), text[: match.end()].count(" ") + 1
        borders |= {first, end}
        inside |= set(range(first, end))
    return [position in borders or (word == "and" and position not in inside) for position, word in enumerate(words)]


# --- correlation of two series ---


@dataclass(frozen=True)
class SeriesCorrelation:
    """The correlation of two series of each of n captions."""

    products: Floats  # (n, 3) sums of x y, x x and y y over the residuals of each caption
    p: float  # of the permutation test; nan where nothing can be exchanged

    @property
    def correlation(self) -> float:
        """-1 to 1; nan where a series has no residuals."""
        return float(_correlation(self.products.sum(0)))


def correlate_series(
    first: Sequence[Floats],
    second: Sequence[Floats],
    strata: Sequence[Hashable] | None = None,
    *,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
) -> SeriesCorrelation:
    """Test whether two series of each of n captions change at the same words.

    Args:
        first: n of (S,).
        second: the same.
        strata: what captions must share, beside their length, for their series to be exchanged (default: nothing).
        permutations: number of them.
        seed: of the permutations.
    """
    groups: dict[Hashable, list[int]] = defaultdict(list)
    for index, series in enumerate(first):
        groups[len(series), None if strata is None else strata[index]].append(index)
    rng = np.random.default_rng(seed)
    products, exchanged = np.zeros((len(first), 3)), np.zeros(permutations)
    for members in groups.values():
        x, y = (_residuals(np.stack([both[index] for index in members])) for both in (first, second))
        products[members] = np.stack([(x * y).sum(-1), (x * x).sum(-1), (y * y).sum(-1)], -1)
        cross = x @ y.T
        order = rng.permuted(np.tile(np.arange(len(members)), (permutations, 1)), axis=1)
        exchanged += cross[np.arange(len(members)), order].sum(-1)
    (shared, own, other) = products.sum(0)
    if not own * other > 0:
        return SeriesCorrelation(products, math.nan)
    as_good = exchanged >= shared - 1e-9 * math.sqrt(own * other)
    return SeriesCorrelation(products, float((as_good.sum() + 1) / (permutations + 1)))


def _residuals(rows: Floats) -> Floats:
    """Series of n captions (n, S) without the mean of each position and that of each caption."""
    return rows - rows.mean(0) - rows.mean(1, keepdims=True) + rows.mean() if rows.size else rows


def _correlation(products: Floats) -> Floats:
    """(..., 3) sums to (...)."""
    shared, size = products[..., 0], np.sqrt(products[..., 1] * products[..., 2])
    return np.divide(shared, size, out=np.full_like(shared, np.nan), where=size > 1e-12)


# --- how far goals have collapsed ---


def collapse(goals: Sequence[Floats]) -> dict[str, float]:
    """How far the subgoals of some captions spread; 0 if all are alike (`models.hacap.spread_of_directions`).

    Args:
        goals: of each caption (T, G).

    Returns:
        spread over all words of all captions; over the words of a caption, mean of captions; over the captions at a
        word, mean of words, each as often as there are captions that have it; and the number of dimensions in which
        directions vary, (sum of variances)^2 / sum of their squares along the principal axes: 1 for a line, 0 for none.
    """

    def of(rows: Floats) -> float:
        return float(spread_of_directions(torch.from_numpy(rows)))

    everything = np.concatenate(goals)
    at_words = [np.stack([one[word] for one in goals if len(one) > word]) for word in range(max(map(len, goals)))]
    lengths = np.linalg.norm(everything, axis=-1, keepdims=True)
    directions = everything / np.maximum(lengths, 1e-12)
    variances = np.linalg.eigvalsh(np.atleast_2d(np.cov(directions.T, bias=True))).clip(min=0)
    total = variances.sum()
    return {
        "spread": of(everything),
        "spread_over_time": float(np.mean([of(one) for one in goals])),
        "spread_over_captions": float(
            np.average([of(one) for one in at_words], weights=[len(one) for one in at_words])
        ),
        "dimensions": float(total**2 / (variances**2).sum()) if total > 1e-12 else 0.0,
        "norm": float(lengths.mean()),
    }


# --- statistics of captions, and numbers from their sums ---


@dataclass(frozen=True)
class CaptionSeries:
    """Attention, subgoals and phrases along one caption of T words, without its end."""

    words: tuple[str, ...]
    attention: Floats | None  # (T, R)
    goals: Floats | None  # (T, G)
    begins: Bools | None  # (T,) whether a phrase begins; None if unknown
    boxes: Tensor | None = None  # (R, 4) of the regions in pixels of the upright photo; None if unknown

    def series(self, name: str) -> Floats | None:
        """moved, turned or begins of the words from the third on: (T - 2,); None if it is unknown."""
        if name == "moved":
            return None if self.attention is None else moved(self.attention)[FIRST_TURN - 1 :]
        if name == "turned":
            return None if self.goals is None else turns(self.goals).mean(-1)
        return None if self.begins is None else self.begins[FIRST_TURN:].astype(np.float64)


PAIRS = {  # which two series; how many words the second comes later; whether phrases must begin at the same words
    "goals_attention": ("turned", "moved", 0, False),
    "goals_attention_next": ("turned", "moved", 1, False),
    "goals_attention_same_phrases": ("turned", "moved", 0, True),
    "goals_attention_same_phrases_next": ("turned", "moved", 1, True),
    "goals_phrases": ("begins", "turned", 0, False),
    "attention_phrases": ("begins", "moved", 0, False),
    "attention_phrases_next": ("begins", "moved", 1, False),
}
_MEANS = (
    *("moved", "unevenness", "turned", "moved_begins", "moved_within", "moved_begins_next", "moved_within_next"),
    *("turned_begins", "turned_within"),
)
_DIFFERENCES = {
    "moved_begins_over_within": ("moved_begins", "moved_within"),
    "moved_begins_over_within_next": ("moved_begins_next", "moved_within_next"),
    "turned_begins_over_within": ("turned_begins", "turned_within"),
}


class AlignmentNumbers:
    """Correlations, means, and differences of means. Statistics: three of each correlation, sum and count of a mean."""

    names: ClassVar[tuple[str, ...]] = (*PAIRS, *_MEANS, *_DIFFERENCES)

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """Sums over images (..., columns) to the numbers in `names`, nan where there is nothing to be a mean over."""
        split = 3 * len(PAIRS)
        correlations = _correlation(sums[..., :split].reshape(*sums.shape[:-1], -1, 3))
        totals, counts = sums[..., split::2], sums[..., split + 1 :: 2]
        means = np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0)
        of = {name: means[..., column] for column, name in enumerate(_MEANS)}
        differences = np.stack([of[one] - of[other] for one, other in _DIFFERENCES.values()], -1)
        return np.concatenate([correlations, means, differences], -1)


def statistics_of(
    captions: Sequence[CaptionSeries], *, permutations: int = PERMUTATIONS, seed: int = 0
) -> tuple[Floats, dict[str, float]]:
    """The statistics of n captions, (n, columns), and for each of `PAIRS` its p, nan where it cannot be asked."""
    known = {name: [one.series(name) for one in captions] for name in ("moved", "turned", "begins")}
    columns, chances = [], {}
    phrases = [None if one.begins is None else tuple(one.begins.tolist()) for one in captions]
    for name, (one, other, later, same) in PAIRS.items():
        measured = [
            index
            for index, (x, y) in enumerate(zip(known[one], known[other], strict=True))
            if x is not None and y is not None and len(x) > later and not (same and phrases[index] is None)
        ]
        correlation = correlate_series(
            [known[one][index][: len(known[one][index]) - later] for index in measured],  # type: ignore[index, arg-type]
            [known[other][index][later:] for index in measured],  # type: ignore[index]
            [phrases[index] for index in measured] if same else None,
            permutations=permutations,
            seed=seed,
        )
        sums = np.zeros((len(captions), 3))
        sums[measured] = correlation.products
        columns.append(sums)
        chances[name] = correlation.p
    columns.append(np.stack([_sums_and_counts(one) for one in captions]))
    return np.concatenate(columns, -1), chances


def _sums_and_counts(caption: CaptionSeries) -> Floats:
    """For each of `_MEANS` the sum over a caption's words, and how many these are."""
    values: dict[str, Floats] = {}
    begins = caption.series("begins")
    for name in ("moved", "turned"):
        series = caption.series(name)
        if series is None:
            continue
        values[name] = series
        if begins is not None:
            values[f"{name}_begins"], values[f"{name}_within"] = series[begins > 0], series[begins == 0]
            later, before = series[1:], begins[:-1]
            values[f"{name}_begins_next"], values[f"{name}_within_next"] = later[before > 0], later[before == 0]
    if "moved" in values and not math.isnan(uneven := unevenness(values["moved"])):
        values["unevenness"] = np.array([uneven])
    nothing = np.zeros(0)
    return np.array([(part.sum(), len(part)) for part in (values.get(name, nothing) for name in _MEANS)]).ravel()


# --- a model on a dataset ---


@dataclass(frozen=True)
class AlignmentReport:
    """What a model's attention and subgoals do along captions of some images."""

    report: ScoreReport  # with statistics of each image: `intervals` and `compare` take it
    p: dict[str, float]  # of each of `PAIRS` that could be asked
    goals: dict[str, float]  # `collapse`; empty for models without subgoals
    captions: tuple[CaptionSeries, ...]

    def to_json(self) -> dict[str, Any]:
        """Numbers with their 95 % intervals over images and their p, null where not measured."""
        bounds = intervals(self.report)
        return {
            "images": self.report.images,
            "numbers": {
                name: None
                if value is None
                else {
                    "value": value,
                    "low": bounds[name].low,
                    "high": bounds[name].high,
                    **({"p": self.p[name]} if name in self.p else {}),
                }
                for name, value in self.report.scores.items()
            },
            "goals": self.goals,
        }


@torch.no_grad()
def measure_alignment(
    captioner: Captioner,
    records: Sequence[CaptionRecord],
    *,
    source: str = "references",
    begins: Callable[[Sequence[str]], Sequence[bool]] | None = None,
    settings: DecodingConfig | None = None,
    permutations: int = PERMUTATIONS,
    seed: int = 0,
    batch_size: int = 32,
) -> AlignmentReport:
    """Measure attention and subgoals along a caption of each image.

    Args:
        captioner: the model.
        records: the images.
        source: of the captions: "references", the first of each image, or "own", which the model generates.
        begins: tells which words of a caption begin a phrase, as `phrase_begins` does for scenes; None: unknown.
        settings: how own captions are searched for, and at which stage (default: the checkpoint's settings).
        permutations: number of permutations for p.
        seed: of these.
        batch_size: images in a batch.

    Raises:
        DataError: an image has no caption.
        ImageError: a photo cannot be read.
        UsageError: `source` is neither, or the model has no attention.
    """
    if source == "references" and (bare := [record.image_id for record in records if not record.captions]):
        raise DataError(f"Image {bare[0]} has no caption to measure; use own captions, or leave it out.")
    captions: list[CaptionSeries] = []
    with eval_mode(captioner.decoder):
        for batch, encoded in encode_records(captioner, [record.limited(1) for record in records], batch_size):
            settings = settings or captioner.decoding
            decoder, texts, ids = captions_to_follow(captioner, batch, encoded.features, source, settings)
            outputs = teacher_forced(decoder, encoded.features, ids[..., :-1]).outputs
            if outputs.attention is None:
                raise UsageError("This captioner has no attention to measure along its captions; use one that has.")
            goals = outputs.goal if isinstance(outputs, GoalOutput) else None
            rectangles = captioner.encoder.rectangles(
                encoded.features, encoded.photos.windows.to(captioner.device)
            ).cpu()
            for image, (words,) in enumerate(texts):
                is_region = encoded.features.is_region[image]
                captions.append(
                    CaptionSeries(
                        tuple(words),
                        _numbers(outputs.attention[image, 0, : len(words), is_region]),
                        None if goals is None else _numbers(goals[image, 0, : len(words)]),
                        None if begins is None else np.array(begins(words), dtype=bool),
                        rectangles[image, is_region.cpu()],
                    )
                )
    statistics, chances = statistics_of(captions, permutations=permutations, seed=seed)
    ids_of_images = [record.image_id for record in records]
    goals_of_captions = [one.goals for one in captions if one.goals is not None and len(one.goals)]
    return AlignmentReport(
        report_from_statistics("alignment", AlignmentNumbers(), ids_of_images, statistics, {"captions": source}),
        {name: p for name, p in chances.items() if not math.isnan(p)},
        collapse(goals_of_captions) if goals_of_captions else {},
        tuple(captions),
    )


def _numbers(values: Tensor) -> Floats:
    return values.double().cpu().numpy()

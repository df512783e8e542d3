"""Do two series change together: by hand, against made-up ones that do not and that do, and in a whole model."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch

from goal_alignment import (
    PAIRS,
    AlignmentNumbers,
    CaptionSeries,
    collapse,
    correlate_series,
    measure_alignment,
    moved,
    phrase_begins,
    statistics_of,
    unevenness,
)
from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.datasets import open_dataset
from showtell.errors import DataError, UsageError
from showtell.explanations.segments import segments, turns
from showtell.models.hacap import HacapConfig, HacapDecoder
from showtell.models.nic import NicConfig, NicDecoder
from showtell.scores.base import corpus_numbers
from showtell.scores.bootstrap import compare, intervals

# --- series ---


def test_what_moves_is_a_share_of_attention() -> None:
    maps = np.array([[0.5, 0.5, 0.0], [0.5, 0.25, 0.25], [0.0, 0.0, 1.0]])
    assert moved(maps).tolist() == [0.25, 0.75]


def test_turns_are_where_monotone_runs_end() -> None:
    goals = np.array([[0.0, 5], [1, 4], [2, 4], [1, 3], [0, 3], [3, 4]])
    # the first dimension rises for two words, falls for two, rises; the second falls, standing still twice, and rises
    assert turns(goals).tolist() == [[False, False], [True, False], [False, False], [True, True]]
    assert segments(goals) == [(0, 2), (2, 4), (4, 5)]  # at word 2 half of them turn, at word 4 both
    assert turns(goals[:2]).shape == turns(goals[:1]).shape == (0, 2)
    assert segments(goals[:1]) == [(0, 0)]


def test_independent_numbers_turn_at_two_of_three_positions() -> None:
    noise = np.random.default_rng(0).normal(size=(20000, 6))
    assert turns(noise).mean() == pytest.approx(2 / 3, abs=0.01)


def test_unevenness_is_ginis_coefficient() -> None:
    assert unevenness(np.array([2.0, 2, 2])) == pytest.approx(0)
    assert unevenness(np.array([0.0, 3, 0, 0])) == pytest.approx(3 / 4)
    values = np.array([0.1, 0.7, 0.3, 0.2])
    differences = [abs(a - b) for a, b in itertools.product(values, repeat=2)]
    assert unevenness(values) == pytest.approx(np.mean(differences) / (2 * values.mean()))
    assert np.isnan(unevenness(np.zeros(3)))


@pytest.mark.parametrize(
    ("caption", "parts"),
    [
        ("a red star to the left of two big dotted circles", "a red star|to the left of|two big dotted circles"),
        ("a star with stripes above it and a disc to its left", "a star with stripes|above it|and|a disc|to its left"),
        ("there is a pair of moons on a grid", "there is|a pair of moons|on|a grid"),
        ("a picture of three shapes including a plain cross", "a picture of|three shapes|including|a plain cross"),
        ("white paper with a star together with a heart", "white paper|with|a star|together with|a heart"),
        ("the the star dotted", "the the|star|dotted"),  # as a model may babble
        ("a moon is above a heart and left of it and inside", "a moon|is above|a heart|and left of it|and inside"),
    ],
)
def test_phrases_of_scenes(caption: str, parts: str) -> None:
    expected = [position == 0 for part in parts.split("|") for position, _ in enumerate(part.split())]
    assert phrase_begins(caption.split()) == expected


def test_phrases_are_those_that_the_dataset_grounds(tiny_scenes: Path) -> None:
    asked = 0
    for record in open_dataset(tiny_scenes).records:
        assert record.groundings is not None
        for caption, groundings in zip(record.captions, record.groundings, strict=True):
            words = caption.split()
            begins = phrase_begins(words)
            for one in groundings:
                assert begins[one.first : one.end] == [True] + [False] * (one.end - one.first - 1), caption
                assert one.end == len(words) or begins[one.end], caption
                asked += 1
    assert asked > 300


# --- correlation ---


def test_two_captions_by_hand() -> None:
    first, second = [np.array([1.0, 0]), np.array([0.0, 1])], [np.array([0.6, 0.2]), np.array([0.1, 0.3])]
    series_correlation = correlate_series(first, second, permutations=99)
    # without the means of positions and captions the first are +-1/2; the second: rows less means of both kinds +-0.15
    assert series_correlation.products == pytest.approx(np.array([[0.15, 0.5, 0.045], [0.15, 0.5, 0.045]]))
    assert series_correlation.correlation == pytest.approx(1)
    assert 0.35 < series_correlation.p < 0.65  # one of two orders gives as much


def test_what_all_captions_share_and_what_one_is_throughout_does_not_count() -> None:
    rng = np.random.default_rng(0)
    shape = np.array([0.0, 5, 1, 0, 7])
    level = rng.normal(size=(30, 1))
    first, second = (list(shape + 3 * level + rng.normal(size=(30, 5))) for _ in range(2))
    assert np.corrcoef(np.concatenate(first), np.concatenate(second))[0, 1] > 0.9
    series_correlation = correlate_series(first, second, permutations=200)
    assert abs(series_correlation.correlation) < 0.25
    assert series_correlation.p > 0.02


def smooth(rng: np.random.Generator, captions: int, words: int, dimensions: int) -> np.ndarray:
    """Series (n, T, K) that keep their direction for some words, around a course that all captions share."""
    noise = rng.normal(size=(captions, words + 6, dimensions)) + rng.normal(size=(words + 6, dimensions))
    kernel = np.hanning(9)[1:-1]
    return sum(weight * noise[:, shift : shift + words] for shift, weight in enumerate(kernel))  # type: ignore[return-value]


def made_up(rng: np.random.Generator, captions: int = 24, words: int = 14) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Turns of smooth goals, and smooth attention that knows nothing of them: n of (T - 2,) each."""
    goals = smooth(rng, captions, words, 6)
    weights = np.exp(smooth(rng, captions, words, 8) / 2)
    attention = weights / weights.sum(-1, keepdims=True)
    return [turns(one).mean(-1) for one in goals], [moved(one)[1:] for one in attention]


def by_shuffled_time(first: list[np.ndarray], second: list[np.ndarray], rng: np.random.Generator) -> float:
    """p by the null that is wrong: the words of each series in any order."""
    x, y = np.stack(first), np.stack(second) - np.mean(second)
    shuffled = [(rng.permuted(x, axis=1) * y).sum() for _ in range(99)]
    return float((np.sum(np.array(shuffled) >= (x * y).sum()) + 1) / 100)


def from_uniform(values: list[float]) -> float:
    """Kolmogorov and Smirnov's distance of values from uniform ones, times the root of their number."""
    ordered, count = np.sort(values), len(values)
    above, below = np.arange(1, count + 1) / count - ordered, ordered - np.arange(count) / count
    return float(max(above.max(), below.max()) * np.sqrt(count))


def test_independent_series_have_uniform_p() -> None:
    p_values = [
        correlate_series(*made_up(np.random.default_rng(seed)), permutations=199, seed=seed).p for seed in range(200)
    ]
    assert from_uniform(p_values) < 1.63  # 1 % of uniform samples are farther
    assert np.mean(np.array(p_values) <= 0.05) < 0.1


def test_smooth_series_have_uniform_p_too_and_with_shuffled_words_would_not() -> None:
    fair, unfair = [], []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        first, second = (list(smooth(rng, 24, 12, 1)[..., 0]) for _ in range(2))
        fair.append(correlate_series(first, second, permutations=199, seed=seed).p)
        unfair.append(by_shuffled_time(first, second, rng))
    assert from_uniform(fair) < 1.63
    assert np.mean(np.array(fair) <= 0.05) < 0.1
    assert from_uniform(unfair) > 3  # of uniform samples, 3 in 100 million
    assert np.mean(np.array(unfair) <= 0.05) > 0.2


def test_planted_alignment_is_found() -> None:
    for seed in range(5):
        first, second = made_up(np.random.default_rng(seed))
        planted = [moves + 0.5 * turned for turned, moves in zip(first, second, strict=True)]
        series_correlation = correlate_series(first, planted, permutations=999)
        assert series_correlation.p == pytest.approx(0.001)
        assert series_correlation.correlation > 0.2


def test_series_are_exchanged_between_captions_that_are_alike_only() -> None:
    rng = np.random.default_rng(3)
    shapes = rng.normal(size=(2, 9))  # two kinds of sentence, and both series follow the kind
    kinds = [index % 2 for index in range(40)]
    first, second = ([shapes[kind] + 0.1 * rng.normal(size=9) for kind in kinds] for _ in range(2))
    assert correlate_series(first, second, permutations=199).p == pytest.approx(1 / 200)
    assert correlate_series(first, second, kinds, permutations=199).p > 0.05
    lengths = [one[: 4 + index % 5] for index, one in enumerate(first)]
    assert 0 < correlate_series(lengths, lengths, permutations=199).p <= 1 / 200


def test_nothing_to_exchange_is_no_p() -> None:
    alone = [np.array([1.0, 2, 0]), np.array([1.0, 2])]
    series_correlation = correlate_series(alone, alone)
    assert np.isnan(series_correlation.p)
    assert np.isnan(series_correlation.correlation)
    assert np.isnan(correlate_series([], []).p)


# --- collapse ---


def test_goals_that_are_alike_have_collapsed() -> None:
    same = [np.tile([3.0, 4.0], (5, 1)), np.tile([6.0, 8.0], (2, 1))]
    statistics = collapse(same)
    assert statistics == pytest.approx(
        {"spread": 0, "spread_over_time": 0, "spread_over_captions": 0, "dimensions": 0, "norm": 45 / 7}, abs=1e-6
    )


def test_where_goals_spread() -> None:
    up, right = np.array([0.0, 1]), np.array([1.0, 0])
    fixed_in_time = collapse([np.stack([up, up]), np.stack([-up, -up])])
    assert fixed_in_time["spread_over_time"] == pytest.approx(0)
    assert fixed_in_time["spread_over_captions"] == pytest.approx(1)
    assert fixed_in_time["dimensions"] == pytest.approx(1)
    fixed_in_captions = collapse([np.stack([up, right, -up, -right])] * 3)
    assert fixed_in_captions["spread_over_time"] == pytest.approx(1)
    assert fixed_in_captions["spread_over_captions"] == pytest.approx(0)
    assert fixed_in_captions["dimensions"] == pytest.approx(2)


# --- statistics ---


def random_series(rng: np.random.Generator, words: int, **changes: object) -> CaptionSeries:
    attention = rng.dirichlet(np.ones(4), size=words)
    known = CaptionSeries(("x",) * words, attention, rng.normal(size=(words, 3)), rng.random(words) < 0.4)
    return dataclasses.replace(known, **changes)  # type: ignore[arg-type]


def numbers_of(captions: list[CaptionSeries]) -> dict[str, float]:
    statistics, _ = statistics_of(captions, permutations=9)
    return dict(zip(AlignmentNumbers.names, corpus_numbers(AlignmentNumbers(), statistics).tolist(), strict=True))


def test_means_over_words() -> None:
    attention = np.array([[1.0, 0], [0, 1], [0, 1], [0.5, 0.5], [0.5, 0.5]])  # moved 1, 0, 0.5, 0
    goals = np.array([[0.0], [1], [0], [-1], [-2]])  # turns at the third word alone
    begins = np.array([True, False, False, True, False])
    scores = numbers_of(
        [CaptionSeries(("w",) * 5, attention, goals, begins), random_series(np.random.default_rng(0), 2)]
    )
    assert scores["moved"] == pytest.approx(0.5 / 3)  # the second word, and captions of two, are not asked about
    assert (scores["moved_begins"], scores["moved_within"]) == (0.5, 0)
    assert scores["moved_begins_over_within"] == 0.5
    assert (scores["moved_begins_next"], scores["moved_within_next"]) == (0, 0.5)  # the words after 3, and after 2
    assert scores["moved_begins_over_within_next"] == -0.5
    assert scores["turned"] == pytest.approx(1 / 3)
    assert (scores["turned_begins"], scores["turned_within"]) == (0, 0.5)
    assert scores["unevenness"] == pytest.approx(2 / 3)
    assert np.isnan(scores["goals_attention"])  # no other caption of that length


def test_correlations_are_those_of_correlate_series_one_word_later_where_asked() -> None:
    rng = np.random.default_rng(1)
    captions = [random_series(rng, int(words)) for words in rng.integers(1, 9, size=60)]
    scores = numbers_of(captions)
    for name, (one, other, later, same) in PAIRS.items():
        pairs = [(c.series(one), c.series(other), tuple(c.begins)) for c in captions if len(c.words) > 2 + later]
        x, y = [x[: len(x) - later] for x, _, _ in pairs], [y[later:] for _, y, _ in pairs]
        assert scores[name] == pytest.approx(
            correlate_series(x, y, [k for *_, k in pairs] if same else None).correlation
        )


def test_what_is_not_known_is_not_a_number() -> None:
    rng = np.random.default_rng(1)
    scores = numbers_of([random_series(rng, 6, goals=None) for _ in range(9)])
    assert np.isnan(scores["turned"])
    assert np.isnan(scores["goals_attention"])
    assert not np.isnan(scores["attention_phrases"])
    scores = numbers_of([random_series(rng, 6, begins=None) for _ in range(9)])
    assert np.isnan(scores["attention_phrases"])
    assert np.isnan(scores["goals_attention_same_phrases"])
    assert not np.isnan(scores["goals_attention"])


# --- a model ---


def hacap(tiny_checkpoint: Path) -> Captioner:
    """The tiny checkpoint with a manager: fresh weights."""
    captioner = Captioner.from_pretrained(tiny_checkpoint)
    torch.manual_seed(0)
    config = HacapConfig(
        embedding_size=8, hidden_size=8, attention_size=8, output_size=8, manager_size=8,
        discriminator_embedding_size=8, discriminator_size=8,
    )  # fmt: skip
    decoder = HacapDecoder(config, feature_size=16, vocabulary_size=len(captioner.vocabulary))
    return EncoderDecoderCaptioner(
        encoder=captioner.encoder, decoder=decoder, vocabulary=captioner.vocabulary, decoding=captioner.decoding
    )


@pytest.mark.parametrize("source", ["references", "own"])
def test_a_model_along_its_captions(tiny_checkpoint: Path, tiny_scenes: Path, source: str) -> None:
    captioner = hacap(tiny_checkpoint)
    records = open_dataset(tiny_scenes).records[:12]
    measured = measure_alignment(captioner, records, source=source, begins=phrase_begins, permutations=99, batch_size=5)
    assert len(measured.captions) == 12
    for record, caption in zip(records, measured.captions, strict=True):
        if source == "references":
            assert caption.words == tuple(record.captions[0].split())
        else:
            explained = captioner.explain(record.path).models[0].caption
            count = len(caption.words)
            assert caption.words == tuple(one.word for one in explained.words if one.word)
            assert explained.attention is not None
            np.testing.assert_allclose(caption.attention, explained.attention[:count], atol=1e-6)
            (subgoal,) = (strip.values for strip in explained.word_values if strip.title == "subgoal")
            np.testing.assert_allclose(caption.goals, subgoal[:count], atol=1e-5)
        assert caption.begins is not None
        assert caption.begins.tolist() == phrase_begins(caption.words)
    assert measured.report.scores["moved"] == pytest.approx(
        np.concatenate([one.series("moved") for one in measured.captions]).mean()  # type: ignore[arg-type]
    )
    assert measured.goals["norm"] == pytest.approx(1, abs=1e-5)
    whole = measure_alignment(captioner, records, source=source, begins=phrase_begins, permutations=99)
    assert whole.report.scores == pytest.approx(measured.report.scores, abs=1e-4)
    assert compare(whole.report, measured.report, samples=9)["moved"].value == pytest.approx(0, abs=1e-6)
    content = measured.to_json()["numbers"]["moved"]
    assert content["low"] <= content["value"] <= content["high"]
    assert intervals(measured.report)["moved"].low == content["low"]


def test_attention_alone_is_followed_without_goals(tiny_checkpoint: Path, tiny_scenes: Path) -> None:
    records = open_dataset(tiny_scenes).records[:30]
    measured = measure_alignment(Captioner.from_pretrained(tiny_checkpoint), records, permutations=9)
    assert measured.goals == {}
    assert measured.p == {}
    content = measured.to_json()
    assert content["numbers"]["goals_attention"] is None
    assert content["numbers"]["moved"]["value"] >= 0


def test_what_cannot_be_followed_is_refused(tiny_checkpoint: Path, tiny_scenes: Path) -> None:
    captioner = Captioner.from_pretrained(tiny_checkpoint)
    records = list(open_dataset(tiny_scenes).records[:2])
    with pytest.raises(UsageError, match='There are no captions "other"; use references or own'):
        measure_alignment(captioner, records, source="other")
    silent = [dataclasses.replace(records[0], captions=(), groundings=None)]
    with pytest.raises(DataError, match="has no caption to measure"):
        measure_alignment(captioner, silent)
    decoder = NicDecoder(NicConfig(), feature_size=16, vocabulary_size=len(captioner.vocabulary))
    blind = EncoderDecoderCaptioner(
        encoder=captioner.encoder, decoder=decoder, vocabulary=captioner.vocabulary, decoding=captioner.decoding
    )
    with pytest.raises(UsageError, match="This captioner has no attention to measure"):
        measure_alignment(blind, records)

"""Does attention lie on the object: by hand, by counting pixels, and by another way round for a whole model."""

import dataclasses
import math
from pathlib import Path

import hypothesis
import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from torch import Tensor

from pointing import AttentionNumbers, CaptionMaps, describe, is_centre_inside, measure_attention, statistics_of
from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.datasets.records import Box, CaptionRecord, Grounding
from showtell.grounding.mentions import NamedBoxes, annotated_mentions, category_mentions, category_phrases
from showtell.images.boxes import coverage
from showtell.scores.base import corpus_numbers

WINDOW = torch.tensor([0.0, 0.0, 30.0, 20.0])
# a grid of 2 x 3 cells of 10 pixels
CELLS = torch.tensor([[x, y, x + 10.0, y + 10.0] for y in (0.0, 10.0) for x in (0.0, 10.0, 20.0)])

spans = st.tuples(st.integers(0, 11), st.integers(1, 12)).map(lambda span: (span[0], min(12, sum(span))))
corners = st.tuples(spans, spans).map(lambda sides: (sides[0][0], sides[1][0], sides[0][1], sides[1][1]))
some = st.lists(corners, min_size=1, max_size=4).map(lambda boxes: torch.tensor(boxes, dtype=torch.float32))


@hypothesis.given(some, some)
def test_coverage_counts_every_pixel_once(rectangles: Tensor, boxes: Tensor) -> None:
    covered = np.zeros((12, 12))
    for left, top, right, bottom in boxes.int().tolist():
        covered[top:bottom, left:right] = 1
    expected = [covered[t:b, x:r].mean() for x, t, r, b in rectangles.int().tolist()]
    assert coverage(rectangles, boxes).tolist() == pytest.approx(expected)


def one_by_hand(**changes: object) -> dict[str, float]:
    attention = torch.tensor([[[0.5, 0.1, 0.1, 0.1, 0.1, 0.1], [0.1, 0.4, 0.2, 0.1, 0.1, 0.1]]])  # (1, 2, 6)
    drops = torch.tensor([[[0.9, -0.1, 0.0, 0.2, 0.3, 0.4], [-2.0, 3.0, 1.0, 0.0, 0.0, 0.0]]])
    maps = CaptionMaps(CELLS, WINDOW, is_detected=False, attention=attention, logprob_drop=drops, lengths=[2])
    box = torch.tensor([[8.0, 0.0, 20.0, 10.0]])  # a fifth of cell 0, all of cell 1
    row = statistics_of(dataclasses.replace(maps, **changes), [[NamedBoxes(1, 2, box)]])  # type: ignore[arg-type]
    return dict(zip(AttentionNumbers.names, corpus_numbers(AttentionNumbers(), row[None]).tolist(), strict=True))


def test_one_mention_by_hand() -> None:
    scores = one_by_hand()
    assert scores["pointing"] == 1  # cell 1
    assert scores["mass"] == pytest.approx(0.2 * 0.1 + 0.4)
    assert scores["chance_pointing"] == pytest.approx(1 / 6)
    assert scores["chance_mass"] == pytest.approx((0.2 + 1) / 6)
    assert scores["chance_mass"] == pytest.approx(12 * 10 / (30 * 20))  # what the box covers of the photo
    assert scores["centre_pointing"] == scores["centre_mass"] == 0.5  # cells 1 and 4
    assert scores["occlusion_pointing"] == 1
    assert scores["occlusion_mass"] == pytest.approx(3 / 4)
    assert math.isnan(scores["overlap"])
    # of attention and the absolute drops, equal ones sharing the mean of their ranks
    looked, sizes = [2.5, 6, 5, 2.5, 2.5, 2.5], [5, 6, 4, 2, 2, 2]
    assert scores["correlation_named"] == pytest.approx(np.corrcoef(looked, sizes)[0, 1])
    other = np.corrcoef([6, 3, 3, 3, 3, 3], [6, 2, 1, 3, 4, 5])[0, 1]
    assert scores["correlation"] == pytest.approx((other + scores["correlation_named"]) / 2)


def test_what_is_not_there_is_not_a_number() -> None:
    scores = one_by_hand(attention=None)
    assert math.isnan(scores["pointing"]) and math.isnan(scores["correlation"])
    assert scores["occlusion_pointing"] == 1
    scores = one_by_hand(logprob_drop=None)
    assert math.isnan(scores["occlusion_mass"]) and scores["pointing"] == 1
    # a photo that was cropped shows nothing of the object, so nothing is asked
    assert math.isnan(one_by_hand(window=torch.tensor([20.0, 0.0, 30.0, 10.0]))["chance_pointing"])


def record(*captions: str, groundings: tuple[tuple[Grounding, ...], ...] | None = None) -> CaptionRecord:
    boxes = (Box(7, 0, 0, 10, 10, "circle"), Box(8, 5, 5, 10, 20, "star"), Box(9, 1, 2, 3, 4, "star"))
    return CaptionRecord("1", Path("1.png"), "test", captions, boxes, groundings)


def test_groundings_name_the_noun_and_its_boxes() -> None:
    spans = (Grounding(0, 4, (7,)), Grounding(5, 7, (8, 9)), Grounding(7, 8, (8,)))
    given = record("A big, pink disc beside two stars, too.", groundings=(spans,))
    first, second = annotated_mentions(given, 0, category_phrases([given]))  # "too" names nothing
    assert (first.first, first.end, first.boxes.tolist()) == (3, 4, [[0, 0, 10, 10]])
    assert (second.first, second.end) == (6, 7)  # the comma is no word
    assert second.boxes.tolist() == [[5, 5, 15, 25], [1, 2, 4, 6]]
    # "2 1/2" is one word, so positions are unknown
    crossing = record("2 1/2 stars", groundings=((Grounding(0, 3, (8,)),),))
    assert annotated_mentions(crossing, 0, category_phrases([crossing])) == []


@pytest.mark.parametrize("occlusion", ["mean", None])
def test_a_model_measured_the_other_way_round(tiny_checkpoint: Path, tiny_scenes: Path, occlusion: str | None) -> None:
    captioner = Captioner.from_pretrained(tiny_checkpoint)
    records = open_dataset(tiny_scenes)["test"]
    own = captioner.settings(num_beams=1, max_length=30)
    report = measure_attention(captioner, records, captions="own", occlusion=occlusion, settings=own)
    names, hits, chances = category_phrases(records), [], []
    for one in records:
        caption = captioner.caption(one.path, attention=True, num_beams=1, max_length=30)[0]
        attention = caption.attention
        for grounded in category_mentions(one, [word.word for word in caption.words], names)[0]:
            weights = attention.weights[grounded.first]
            best = attention.boxes[weights.argmax()]
            x, y = ((best[:2] + best[2:]) / 2).tolist()
            hits.append(any(b[0] <= x < b[2] and b[1] <= y < b[3] for b in grounded.boxes.tolist()))
            chances.append(is_centre_inside(attention.boxes, grounded.boxes).double().mean().item())
    assert report.mentions == len(hits)
    if hits:
        assert report.report.scores["pointing"] == pytest.approx(np.mean(hits))
        assert report.report.scores["chance_pointing"] == pytest.approx(np.mean(chances))
    assert (report.report.scores["occlusion_pointing"] is None) == (occlusion is None)
    assert f"{len(hits)} mentions of objects in {len(records)} images" in describe(report)

"""Which boxes of a detector are regions, and its settings."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from showtell.errors import RecipeError, WeightsError
from showtell.features import build_encoder, encoder_config
from showtell.features.regions import choose_regions
from tests.features.conftest import SMALL


def chosen_plainly(boxes, scores, overlap, score_threshold, least, most):
    """The release's procedure box by box: suppression class by class, then each box's greatest remaining score."""
    count, classes = scores.shape
    best = [(0.0, -1)] * count
    for label in range(classes):
        kept: list[int] = []
        for box in sorted(range(count), key=lambda box: -scores[box, label]):
            left, top, right, bottom = boxes[box]
            for other in kept:
                x1, y1, x2, y2 = boxes[other]
                shared = max(0, min(right, x2) - max(left, x1)) * max(0, min(bottom, y2) - max(top, y1))
                either = (right - left) * (bottom - top) + (x2 - x1) * (y2 - y1) - shared
                if shared / either > overlap:
                    break
            else:
                kept.append(box)
        for box in kept:
            if scores[box, label] > best[box][0]:
                best[box] = (scores[box, label], label + 1)  # 0 is the background
    order = sorted(range(count), key=lambda box: -best[box][0])
    enough = sum(score >= score_threshold for score, _ in best)
    return [(box, *best[box]) for box in order[: min(max(enough, least), most)]]


@given(
    seed=st.integers(0, 10**6), count=st.integers(1, 14), classes=st.integers(1, 4), least=st.integers(1, 6),
    more=st.integers(0, 8), overlap=st.sampled_from([0.1, 0.3, 0.7]), sharpness=st.sampled_from([0.1, 2.0, 6.0]),
)  # fmt: skip
def test_regions_are_those_of_the_plain_procedure(seed, count, classes, overlap, least, more, sharpness):
    chance = np.random.default_rng(seed)
    corners = chance.uniform(0, 20, (count, 2))
    boxes = np.concatenate([corners, corners + chance.uniform(1, 12, (count, 2))], -1)
    odds = np.exp(sharpness * chance.standard_normal((count, classes + 1)))
    scores = (odds / odds.sum(-1, keepdims=True))[:, 1:]
    expected = chosen_plainly(boxes, scores, overlap, 0.2, least, least + more)
    chosen = choose_regions(
        torch.tensor(boxes), torch.tensor(scores), min_regions=least, max_regions=least + more, score_threshold=0.2,
        nms_threshold=overlap,
    )  # fmt: skip
    assert [part.tolist() for part in chosen] == [list(part) for part in zip(*expected, strict=True)]


def test_settings_that_do_not_go_together_are_refused():
    for changes, message in (
        ({"min_regions": 8}, "min_regions=8 must not be above max_regions=7, nor that above proposals=7"),
        ({"proposals": 5}, "max_regions=7, nor that above proposals=5"),
        ({"proposals": 6001}, "less than or equal to 6000"),
        ({"trained": True}, "Input should be False"),
    ):
        with pytest.raises(ValidationError, match=message):
            encoder_config({**SMALL, **changes})
    with pytest.raises(RecipeError, match="longest=500 is less than image_size=600, the"):
        build_encoder(encoder_config({"name": "bottom_up", "weights": "random", "longest": 500}))
    for name, message in (
        ("bottom_up", r"fetched by name: take bua-caffe-frcn-r101-k10-100\.pth from the table of https"),
        ("resnet_caffe", r"ResNet-101 cannot be fetched by name: take resnet101\.pth from the folder that"),
    ):
        with pytest.raises(WeightsError, match=message):
            build_encoder(encoder_config({"name": name}))

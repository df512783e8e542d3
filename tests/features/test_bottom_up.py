"""The detector of bottom-up attention, against the steps of the authors' release written out in plain loops."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.datasets.records import CaptionRecord
from showtell.features.bottom_up import BottomUp
from showtell.features.extraction import extract
from showtell.features.store import FeatureStore, StoredImage
from showtell.images.loading import stack_photos
from showtell.types import Features, PreparedBatch
from tests.features.conftest import noise
from tests.features.resnet_by_hand import stage, stem
from tests.toys import random_captioner

# The anchors of lib/rpn/generate_anchors.py for these scales: a ratio (height over width) after the other.
ANCHORS = [
    [-38, -16, 53, 31], [-84, -40, 99, 55], [-176, -88, 191, 103], [-360, -184, 375, 199],
    [-24, -24, 39, 39], [-56, -56, 71, 71], [-120, -120, 135, 135], [-248, -248, 263, 263],
    [-14, -36, 29, 51], [-36, -80, 51, 95], [-80, -168, 95, 183], [-168, -344, 183, 359],
]  # fmt: skip


@dataclass
class Region:
    """A region as the loops have it."""

    vector: np.ndarray
    box: list[float]  # in pixels of the image
    score: float
    label: int
    attribute: int


def area(box: list[float]) -> float:
    return (box[2] - box[0] + 1) * (box[3] - box[1] + 1)


def overlap(one: list[float], other: list[float]) -> float:
    """Intersection over union of boxes whose corners lie on pixels."""
    width = min(one[2], other[2]) - max(one[0], other[0]) + 1
    height = min(one[3], other[3]) - max(one[1], other[1]) + 1
    shared = max(width, 0) * max(height, 0)
    return shared / (area(one) + area(other) - shared)


def suppress(boxes: list[list[float]], scores: list[float], threshold: float) -> list[int]:
    """Indices of the boxes that no better one drops, best first."""
    kept: list[int] = []
    for index in sorted(range(len(boxes)), key=lambda index: -scores[index]):
        if all(overlap(boxes[index], boxes[other]) <= threshold for other in kept):
            kept.append(index)
    return kept


def moved(box: list[float], deltas: list[float], height: int, width: int) -> list[float]:
    """A box moved by deltas and cut off at the outermost pixels."""
    box_width, box_height = box[2] - box[0] + 1, box[3] - box[1] + 1
    x = box[0] + 0.5 * box_width + deltas[0] * box_width
    y = box[1] + 0.5 * box_height + deltas[1] * box_height
    box_width, box_height = math.exp(deltas[2]) * box_width, math.exp(deltas[3]) * box_height
    corners = [x - 0.5 * box_width, y - 0.5 * box_height, x + 0.5 * box_width, y + 0.5 * box_height]
    return [min(max(value, 0), limit - 1) for value, limit in zip(corners, (width, height) * 2, strict=True)]


def tensors_of(encoder: BottomUp) -> dict[str, Tensor]:
    return {name.removeprefix("resnet."): tensor for name, tensor in encoder.detector.state_dict().items()}


@cache  # the tests look at one photo
def maps_of(encoder: BottomUp, height: int, width: int) -> Tensor:
    """(1, 1024, rows, columns) of a photo of noise."""
    tensors = tensors_of(encoder)
    pixels = noise(height, width).flip(0).float() - torch.tensor([102.9801, 115.9465, 122.7717]).view(3, 1, 1)
    maps = stem(tensors, pixels.unsqueeze(0))
    for name, blocks, stride in (("layer1", 3, 1), ("layer2", 4, 2), ("layer3", 23, 2)):
        maps = stage(tensors, maps, name, blocks, stride)
    return maps


def propose(tensors: Mapping[str, Tensor], maps: Tensor, height: int, width: int, scale: float) -> list[list[float]]:
    """All proposals, best first: every anchor of every cell, moved, wide enough and not suppressed."""
    hidden = F.conv2d(maps, tensors["rpn_conv.weight"], tensors["rpn_conv.bias"], padding=1).relu()
    scores, deltas = (
        F.conv2d(hidden, tensors[f"rpn_{name}.weight"], tensors[f"rpn_{name}.bias"])[0].double().numpy()
        for name in ("cls_score", "bbox_pred")
    )
    boxes, objects = [], []
    for row in range(scores.shape[1]):
        for column in range(scores.shape[2]):
            for index, anchor in enumerate(ANCHORS):
                at = [anchor[0] + 16 * column, anchor[1] + 16 * row, anchor[2] + 16 * column, anchor[3] + 16 * row]
                box = moved(at, list(deltas[4 * index : 4 * index + 4, row, column]), height, width)
                if box[2] - box[0] + 1 >= 16 * scale and box[3] - box[1] + 1 >= 16 * scale:
                    background, object_ = np.exp(scores[[index, 12 + index], row, column])
                    boxes.append(box)
                    objects.append(object_ / (background + object_))
    return [boxes[index] for index in suppress(boxes, objects, 0.7)]


def pool(maps: np.ndarray, box: list[float]) -> np.ndarray:
    """RoI max pooling to 14 x 14 with Caffe's rounding: (1024, 14, 14)."""
    left, top, right, bottom = (math.floor(value / 16 + 0.5) for value in box)
    wide, high = max(right - left + 1, 1), max(bottom - top + 1, 1)
    pooled = np.zeros((len(maps), 14, 14), "f4")
    for row in range(14):
        for column in range(14):
            y1, y2 = (min(max(top + edge, 0), maps.shape[1]) for edge in bins(row, high))
            x1, x2 = (min(max(left + edge, 0), maps.shape[2]) for edge in bins(column, wide))
            if y2 > y1 and x2 > x1:
                pooled[:, row, column] = maps[:, y1:y2, x1:x2].max((1, 2))
    return pooled


def bins(index: int, cells: int) -> tuple[int, int]:
    return math.floor(index * cells / 14), math.ceil((index + 1) * cells / 14)


def by_hand(encoder: BottomUp, image: Tensor, window: tuple[float, ...]) -> list[Region]:
    """The regions of an image, as tools/generate_tsv.py finds them but best first."""
    tensors = tensors_of(encoder)
    config = encoder.config
    height, width = image.shape[-2:]
    scale = width / (window[2] - window[0])
    maps = maps_of(encoder, 81, 117)
    proposals = propose(tensors, maps, height, width, scale)[: config.proposals]
    pooled = torch.from_numpy(np.stack([pool(maps[0].numpy(), box) for box in proposals]))
    vectors = stage(tensors, pooled, "layer4", 3, stride=1, dilation=2).mean((2, 3))
    logits = F.linear(vectors, tensors["cls_score.weight"], tensors["cls_score.bias"])
    embedded = torch.cat([vectors, tensors["cls_embedding.weight"][logits.argmax(1)]], 1)
    hidden = F.linear(embedded, tensors["fc_attr.weight"], tensors["fc_attr.bias"]).relu()
    attributes = F.linear(hidden, tensors["attr_score.weight"], tensors["attr_score.bias"]).softmax(1)[:, 1:].numpy()
    probabilities = logits.softmax(1).numpy()

    on_photo = [[value / scale for value in box] for box in proposals]
    best = [(0.0, -1)] * len(proposals)
    for label in range(1, 1601):
        for index in suppress(on_photo, list(probabilities[:, label]), config.nms_threshold):
            if probabilities[index, label] > best[index][0]:
                best[index] = (float(probabilities[index, label]), label)
    order = sorted(range(len(proposals)), key=lambda index: -best[index][0])
    enough = sum(score >= config.score_threshold for score, _ in best)
    regions = []
    for index in order[: min(max(enough, config.min_regions), config.max_regions)]:
        score, label = best[index]
        likeliest = int(attributes[index].argmax())
        attribute = likeliest if attributes[index, likeliest] >= config.attribute_threshold else -1
        regions.append(Region(vectors[index].numpy(), proposals[index], score, label, attribute))
    return regions


def assert_regions(features: Features, expected: list[Region], window: tuple[float, ...], width: int) -> None:
    assert bool(features.is_region.all())
    regions = features.regions
    scale = width / (window[2] - window[0])
    boxes = torch.tensor([[value / scale for value in region.box] for region in expected])
    torch.testing.assert_close(regions.boxes[0], boxes, atol=1e-2, rtol=1e-4, check_dtype=False)
    vectors = torch.from_numpy(np.stack([region.vector for region in expected]))
    torch.testing.assert_close(features.vectors[0], vectors, atol=1e-4, rtol=1e-3)
    assert regions.scores[0].tolist() == pytest.approx([region.score for region in expected], abs=1e-4)
    assert regions.labels[0].tolist() == [region.label for region in expected]
    assert regions.attributes[0].tolist() == [region.attribute for region in expected]


def test_regions_are_those_of_the_steps_by_hand(lively):
    image, window = noise(81, 117), (0.0, 0.0, 234.0, 162.0)
    expected = by_hand(lively, image, window)
    assert_regions(lively(PreparedBatch.of([image], torch.tensor([window]))), expected, window, 117)
    assert len({region.label for region in expected}) > 1  # they tell regions apart


def test_overlaps_are_measured_in_pixels_of_the_photo(lively, monkeypatch):
    """Every region is of one class, and the threshold is one at which photo and image make a difference."""
    image, window, scale = noise(81, 117), (0.0, 0.0, 39.0, 27.0), 3
    proposals = propose(tensors_of(lively), maps_of(lively, 81, 117), 81, 117, scale)[: lively.config.proposals]
    on_photo = [[value / scale for value in box] for box in proposals]
    ones = [1.0] * len(proposals)
    threshold = next(
        threshold
        for threshold in np.arange(0.02, 0.7, 0.01)
        if suppress(proposals, ones, threshold) != suppress(on_photo, ones, threshold)
    )
    changes = {"nms_threshold": float(threshold), "min_regions": 1, "max_regions": 9}
    monkeypatch.setattr(lively, "config", lively.config.model_copy(update=changes))
    bias = lively.detector.cls_score.bias.detach().clone()
    bias[77] += 80
    monkeypatch.setitem(lively.detector.cls_score._parameters, "bias", nn.Parameter(bias, requires_grad=False))
    expected = by_hand(lively, image, window)
    assert_regions(lively(PreparedBatch.of([image], torch.tensor([window]))), expected, window, 117)
    assert {region.label for region in expected} == {77} and len(expected) < len(proposals)


def test_a_photo_does_not_depend_on_its_company(lively):
    images = [noise(80, 112, 1), noise(96, 80, 2)]
    together = lively(PreparedBatch.of(images))
    for index, image in enumerate(images):
        alone = lively(PreparedBatch.of([image]))
        count = int(alone.is_region.sum())
        assert int(together.is_region[index].sum()) == count
        assert torch.equal(together.vectors[index, :count], alone.vectors[0])
        for name in ("boxes", "scores", "labels", "attributes"):
            assert torch.equal(getattr(together.regions, name)[index, :count], getattr(alone.regions, name)[0])
    assert bool((together.regions.attributes[~together.is_region] == -1).all())


def test_a_photo_without_a_proposal_is_one_region(lively):
    bias = lively.detector.rpn_bbox_pred.bias
    before = bias.clone()
    with torch.no_grad():
        bias.unflatten(0, (-1, 4))[:, 2:] -= 20  # every proposal is thinner than a pixel
        features = lively(PreparedBatch.of([noise(80, 112)], torch.tensor([[0.0, 0, 56, 40]])))
        bias.copy_(before)
    assert features.vectors.shape == (1, 1, 2048)
    assert features.regions.boxes[0].tolist() == [[0, 0, 55.5, 39.5]]  # from the first to the last pixel of the image


def test_an_explanation_has_what_regions_are_called_by_photo_and_by_store(lively, tmp_path):
    photo = tmp_path / "7.png"
    Image.fromarray(noise(60, 90, 1).permute(1, 2, 0).numpy()).save(photo)
    regions = lively(stack_photos([lively.prepare(photo)])).regions
    sizes = {"embedding_size": 8, "hidden_size": 8, "attention_size": 8}
    captioner = random_captioner(lively, {"name": "sat", **sizes}, ["a", "red", "car"], max_length=3)
    extract(lively, [CaptionRecord("7", photo, "train", ("a car",))], tmp_path / "store", dtype="fp32")
    stored = StoredImage(FeatureStore(tmp_path / "store"), "7", photo)
    own, other = (captioner.explain(shown).models[0] for shown in (photo, stored))
    assert own.labels == other.labels and torch.equal(own.boxes, other.boxes)
    for label, attribute, name in zip(regions.labels[0], regions.attributes[0], own.labels, strict=True):
        category = lively.categories[label] if label >= 0 else ""
        assert name == (f"{lively.attributes[attribute]} {category}" if category and attribute >= 0 else category)
    assert any(" " in name and name not in lively.categories for name in own.labels)

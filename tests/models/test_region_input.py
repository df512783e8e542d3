"""What happens to feature vectors before they are attended to."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from showtell.errors import UsageError
from showtell.models.region_input import RegionBatchNorm, RegionInput, RegionInputConfig
from showtell.types import Features, Regions
from tests.recorded_graphs import RecordedGraphs

BOXES = torch.tensor([[[10.0, 20.0, 60.0, 40.0], [0.0, 0.0, 100.0, 50.0]]])
PHOTO = Features(
    torch.tensor([[[3.0, 4.0], [0.0, 5.0]]]),
    torch.ones(1, 2, dtype=torch.bool),
    Regions(BOXES, windows=torch.tensor([[0.0, 0.0, 100.0, 50.0]])),
)


def region_input(**settings: object) -> RegionInput:
    config = RegionInputConfig.model_validate({"name": "any", **settings})
    return RegionInput(config, feature_size=2, projected_size=3)


def test_vectors_are_divided_by_their_length_and_padding_stays_a_number():
    vectors = region_input(normalise_features=True).vectors(PHOTO)
    torch.testing.assert_close(vectors, torch.tensor([[[0.6, 0.8], [0.0, 1.0]]]))
    torch.testing.assert_close(region_input(normalise_features=True).vectors(replace(PHOTO, vectors=vectors)), vectors)
    assert not region_input(normalise_features=True).vectors(replace(PHOTO, vectors=torch.zeros(1, 2, 2))).any()


def test_corners_and_area_of_a_box_are_shares_of_the_photo():
    module = region_input(box_features="appended")
    expected = torch.tensor([[[3, 4, 0.1, 0.4, 0.6, 0.8, 0.2], [0, 5, 0, 0, 1, 1, 1]]])
    vectors = module.vectors(PHOTO)
    torch.testing.assert_close(vectors, expected)
    # Another program may have appended them: without boxes they are taken as they are.
    torch.testing.assert_close(module.vectors(Features(vectors, PHOTO.is_region)), expected)
    assert PHOTO.regions is not None
    window = torch.tensor([[-100.0, 0.0, 100.0, 100.0]])
    seen = region_input(box_features="appended").vectors(
        replace(PHOTO, regions=replace(PHOTO.regions, windows=window))
    )[0, 0, 2:]
    torch.testing.assert_close(seen, torch.tensor([0.55, 0.2, 0.8, 0.4, 0.05]))


def test_normalised_numbers_of_boxes_have_length_one():
    numbers = region_input(box_features="normalised", normalise_features=True).vectors(PHOTO)[..., 2:]
    torch.testing.assert_close(numbers.norm(dim=-1), torch.ones(1, 2))
    torch.testing.assert_close(numbers[0, 1], torch.tensor([0, 0, 1, 1, 1]) / 3**0.5)


def test_without_boxes_the_sentence_says_what_is_needed():
    with pytest.raises(UsageError, match=r"reads the boxes of its regions \(model.box_features\), and these features"):
        region_input(box_features="appended").vectors(replace(PHOTO, regions=None))


def test_batch_norm_in_training_leaves_padding_out():
    torch.manual_seed(0)
    ours, reference = RegionBatchNorm(4), nn.BatchNorm1d(4)
    vectors, is_region = torch.randn(3, 5, 4), torch.arange(5) < torch.tensor([[5], [2], [4]])
    expected = reference(vectors[is_region])
    torch.testing.assert_close(ours(vectors.masked_fill(~is_region.unsqueeze(-1), 9.0), is_region)[is_region], expected)
    torch.testing.assert_close(ours.running_var, reference.running_var)
    torch.testing.assert_close(ours.eval()(vectors, is_region)[1, 0], reference.eval()(vectors[1, :2])[0])


def test_batch_norm_in_training_has_fixed_shapes():
    """What waits for the data, or has a size that depends on it, no CUDA graph captures."""
    norm, vectors, is_region = RegionBatchNorm(4), torch.randn(2, 3, 4), torch.arange(3) < torch.tensor([[3], [2]])
    with RecordedGraphs().capture():  # it raises where a capture would
        norm(vectors, is_region)

"""The ResNet of the Caffe kind, against its layers written out one by one."""

from pathlib import Path

import pytest
import torch
from torchvision.models import resnet50

from showtell.errors import WeightsError
from showtell.features import build_encoder, encoder_config
from showtell.features.grid import GridEncoder
from showtell.features.resnet_caffe import caffe_resnet, last_map_before_stage_4
from showtell.types import Features, PreparedBatch
from tests.features.conftest import noise
from tests.features.resnet_by_hand import enliven, stage, stem

MEAN, DEVIATION = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """torchvision's names and shapes, classifier included, in which every tensor has something to say."""
    torch.manual_seed(0)
    tensors = resnet50().state_dict()
    enliven(tensors)
    path = tmp_path_factory.mktemp("weights") / "resnet50.pth"
    torch.save({name: tensor for name, tensor in tensors.items() if "num_batches" not in name}, path)
    return path


def encoder_of(weights: Path | str, **settings: object) -> GridEncoder:
    encoder = build_encoder(encoder_config({"name": "resnet_caffe", "depth": 50, "weights": str(weights), **settings}))
    assert isinstance(encoder, GridEncoder)
    return encoder


@pytest.fixture(scope="module")
def encoder(weights: Path) -> GridEncoder:
    return encoder_of(weights)


def test_features_are_those_of_the_layers_written_out(weights, encoder):
    image, tensors = noise(95, 133), torch.load(weights)
    maps = stem(tensors, ((image.float() / 255 - MEAN.view(3, 1, 1)) / DEVIATION.view(3, 1, 1)).unsqueeze(0))
    for name, blocks in (("layer1", 3), ("layer2", 4), ("layer3", 6), ("layer4", 3)):
        maps = stage(tensors, maps, name, blocks, stride=1 if name == "layer1" else 2)
    expected = maps[0]  # (2048, rows, columns)
    mean = encoder_of(weights, grid=1)(PreparedBatch.of([image])).vectors
    torch.testing.assert_close(mean[0, 0], expected.mean((1, 2)), atol=1e-4, rtol=1e-4)
    cells = encoder(PreparedBatch.of([image])).vectors.unflatten(1, (14, 14))[0]
    rows, columns = expected.shape[1:]
    assert rows < 14  # the map is smaller than the grid, as it is for 480 pixels and less
    for row in range(14):
        for column in range(14):
            band = expected[:, row * rows // 14 : -(-(row + 1) * rows // 14)]
            within = band[..., column * columns // 14 : -(-(column + 1) * columns // 14)]
            torch.testing.assert_close(cells[row, column], within.mean((1, 2)), atol=1e-4, rtol=1e-4)


def test_a_photo_does_not_depend_on_its_company(encoder, weights):
    images = [noise(64, 96), noise(70, 50, 1)]
    together = encoder(PreparedBatch.of(images))
    assert together.vectors.shape == (2, 196, 2048) and bool(together.is_region.all())
    for index, image in enumerate(images):
        assert torch.equal(encoder(PreparedBatch.of([image])).vectors[0], together.vectors[index])
    assert bool(together.vectors.half().isfinite().all())
    with pytest.raises(WeightsError, match=r"resnet50\.pth are not those of ResNet-101 of the Caffe kind: of \d+ tens"):
        encoder_of(weights, depth=101)


def test_the_map_has_as_many_cells_as_its_rectangles_count(encoder):
    network = caffe_resnet((1, 1, 1, 1)).to("meta").eval()
    for pixels in [*range(32, 66), 427, 640]:
        image = torch.empty(1, 3, 32, pixels, device="meta")
        columns = network.layer4(last_map_before_stage_4(network, image)).shape[-1]
        assert encoder.map_side(pixels, 14) == columns, pixels


def test_rectangles_lie_where_the_cells_of_each_photo_looked(encoder):
    """Photos of two shapes in a batch: cells of 32 pixels, shared out to 14 x 14 as adaptive pooling does."""
    windows = torch.tensor([[0.0, 0, 640, 427], [0, 0, 1280, 960]])
    features = Features(torch.zeros(2, 196, 1), torch.ones(2, 196, dtype=torch.bool))
    rectangles = encoder.rectangles(features, windows).unflatten(1, (14, 14))
    for image, (width, height, scale) in enumerate([(640, 427, 1), (640, 480, 2)]):  # the second was shrunk by half
        rows, columns = -(-height // 32), -(-width // 32)
        for row in range(14):
            for column in range(14):
                left, right = column * columns // 14 * 32, -(-(column + 1) * columns // 14) * 32
                top, bottom = row * rows // 14 * 32, -(-(row + 1) * rows // 14) * 32
                expected = [scale * side for side in (left, top, min(right, width), min(bottom, height))]
                assert rectangles[image, row, column].tolist() == pytest.approx(expected, rel=1e-6)
    whole = encoder_of("random", grid=1).rectangles(Features(torch.zeros(2, 1, 1), features.is_region[:, :1]), windows)
    assert torch.equal(whole[:, 0], windows)

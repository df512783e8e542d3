from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from pydantic import ValidationError
from torch import nn
from torchvision.models import get_model_weights
from torchvision.models.detection.image_list import ImageList

from showtell.captioners import Captioner
from showtell.errors import RecipeError, WeightsError
from showtell.features import build_encoder, encoder_config
from showtell.features.regions import DetectorConfig, choose_regions
from showtell.types import Features, PreparedBatch
from tests.toys import random_captioner

TINY = {
    "name": "faster_rcnn", "detector": "fasterrcnn_mobilenet_v3_large_320_fpn", "weights": "random", "seed": 1,
    "categories": ["background", "cat", "dog", "bus"], "image_size": 96, "longest": 192, "min_regions": 5,
    "max_regions": 40, "score_threshold": 0.5, "proposals": 60,
}  # fmt: skip


def detector(**changes):
    """A tiny detector with opinions: fresh weights give every box the same scores and move none."""
    encoder = build_encoder(encoder_config({**TINY, **changes})).eval()
    (image,) = noise((96, 128))
    corners = torch.rand(50, 2, generator=torch.Generator().manual_seed(0)) * 50
    hidden = by_hand(encoder, image, torch.cat([corners, corners + 40], -1))
    predictor = encoder.detector.roi_heads.box_predictor
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer, spread in ((predictor.cls_score, 2.0), (predictor.bbox_pred, 1.0)):
            layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator))
            layer.weight *= spread / (hidden @ layer.weight.T).std(0).unsqueeze(-1)
            layer.bias.copy_(-(hidden @ layer.weight.T).mean(0))
    return encoder


def by_hand(encoder, image, boxes):
    """The box head's output at boxes of an image whose sides are whole multiples of 32."""
    pixels = encoder.preprocessing.normalise(image).unsqueeze(0)
    with torch.no_grad():
        maps = encoder.detector.backbone(pixels)
        heads = encoder.detector.roi_heads
        return heads.box_head(heads.box_roi_pool(maps, [boxes], [tuple(image.shape[-2:])]))


@pytest.fixture(scope="module")
def encoder():
    return detector()


def noise(*sizes: tuple[int, int]) -> list[torch.Tensor]:
    """Images (3, height, width) of soft noise."""
    generator = torch.Generator().manual_seed(0)
    images = []
    for height, width in sizes:
        coarse = torch.rand(1, 3, 6, 6, generator=generator)
        images.append((255 * nn.functional.interpolate(coarse, size=(height, width), mode="bilinear")[0]).byte())
    return images


def regions_of(features: Features, image: int) -> tuple[torch.Tensor, ...]:
    """Vectors, boxes, scores and labels of one image, without padding."""
    count = int(features.is_region[image].sum())
    assert bool(features.is_region[image, :count].all())  # padding is behind
    regions = features.regions
    return tuple(part[image, :count] for part in (features.vectors, regions.boxes, regions.scores, regions.labels))


# --- choosing ---


def chosen_plainly(boxes, scores, overlap, score_threshold, least, most):
    """The release's procedure box by box: suppression class by class, then each box's greatest remaining score."""
    count, classes = scores.shape
    best = [(0.0, -1)] * count
    for label in range(classes):
        kept: list[int] = []
        for box in sorted(range(count), key=lambda box: -scores[box, label]):
            left, top, right, bottom = boxes[box, label]
            if right - left < 0.01 or bottom - top < 0.01:
                continue
            for other in kept:
                x1, y1, x2, y2 = boxes[other, label]
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
    corners = chance.uniform(0, 20, (count, classes, 2))
    sides = chance.uniform(0, 12, (count, classes, 2)) * (chance.random((count, classes, 1)) > 0.1)
    boxes = np.concatenate([corners, corners + sides], -1)
    odds = np.exp(sharpness * chance.standard_normal((count, classes + 1)))
    scores = (odds / odds.sum(-1, keepdims=True))[:, 1:]
    expected = chosen_plainly(boxes, scores, overlap, 0.2, least, least + more)
    config = DetectorConfig(nms_threshold=overlap, min_regions=least, max_regions=least + more)
    chosen = choose_regions(torch.tensor(boxes), torch.tensor(scores), config)
    assert [part.tolist() for part in chosen] == [list(part) for part in zip(*expected, strict=True)]


# --- the detector ---


def test_with_one_class_the_regions_are_the_detections_of_torchvision():
    """With one class every box has one score, so that choosing is nothing but torchvision's own postprocessing."""
    encoder = detector(categories=["background", "thing"], min_regions=1, max_regions=60, score_threshold=0.2)
    model = encoder.detector
    model.transform.min_size, model.transform.max_size = (96,), 192
    model.roi_heads.nms_thresh, model.roi_heads.score_thresh, model.roi_heads.detections_per_img = 0.3, 0.2, 60
    images = noise((96, 130), (96, 96), (150, 96))
    for image in images:
        features = encoder(PreparedBatch.of([image]))
        _, boxes, scores, labels = regions_of(features, 0)
        (theirs,) = model([image / 255])
        assert len(boxes) == len(theirs["boxes"]) > 3
        torch.testing.assert_close(boxes, theirs["boxes"], atol=1e-3, rtol=1e-4)
        torch.testing.assert_close(scores, theirs["scores"], atol=1e-5, rtol=1e-4)
        assert labels.tolist() == theirs["labels"].tolist()


@pytest.mark.parametrize("refine", [True, False])
def test_each_vector_is_the_box_heads_of_the_box_that_is_reported(refine):
    encoder = detector(refine=refine)
    (image,) = noise((96, 128))
    vectors, boxes, scores, labels = regions_of(encoder(PreparedBatch.of([image])), 0)
    expected = by_hand(encoder, image, boxes)
    assert vectors.shape == (len(boxes), encoder.feature_size) == (len(boxes), 1024)
    torch.testing.assert_close(vectors, expected, atol=1e-6, rtol=1e-4)
    assert float(vectors.std()) > 0
    if not refine:
        pixels = encoder.preprocessing.normalise(image).unsqueeze(0)
        (proposals,), _ = encoder.detector.rpn(ImageList(pixels, [(96, 128)]), encoder.detector.backbone(pixels))
        assert all(bool((proposals - box).abs().amax(-1).min() < 1e-3) for box in boxes)
        odds = encoder.detector.roi_heads.box_predictor(expected)[0].softmax(-1)
        torch.testing.assert_close(scores, odds.gather(1, labels.unsqueeze(1)).squeeze(1), atol=1e-4, rtol=1e-3)


def test_photos_of_different_shapes_in_one_batch_are_as_one_by_one(encoder):
    images = noise((96, 130), (150, 96), (96, 96), (96, 150))
    windows = torch.tensor([[0, 0, 260, 192], [0, 0, 96, 150], [10, 20, 202, 212], [0, 0, 300, 192]]).float()
    batched = encoder(PreparedBatch.of(images, windows))
    assert len(set(batched.is_region.sum(1).tolist())) > 1  # there is padding
    assert bool((batched.vectors[~batched.is_region] == 0).all())
    assert bool((batched.regions.labels[~batched.is_region] == -1).all())
    for index, image in enumerate(images):
        alone = encoder(PreparedBatch.of([image], windows[index : index + 1]))
        for one, other in zip(regions_of(batched, index), regions_of(alone, 0), strict=True):
            assert torch.equal(one, other)


def test_a_photo_without_proposals_is_one_region():
    encoder = detector()
    with torch.no_grad():
        encoder.detector.rpn.head.bbox_pred.bias[0::4] = 1e4  # every proposal to the right of the photo
    features = encoder(PreparedBatch.of(noise((96, 128)), torch.tensor([[0.0, 0, 64, 48]])))
    _, boxes, _, _ = regions_of(features, 0)
    assert len(boxes) == 1 and bool((boxes[:, 2:] <= torch.tensor([64, 48])).all())


def test_boxes_are_in_pixels_of_the_photo(encoder):
    (image,) = noise((96, 128))
    on_image = encoder(PreparedBatch.of([image])).regions.boxes
    window = torch.tensor([[100.0, 50, 100 + 5 * 128, 50 + 3 * 96]])
    features = encoder(PreparedBatch.of([image], window))
    expected = on_image * torch.tensor([5, 3, 5, 3]) + torch.tensor([100, 50, 100, 50])
    torch.testing.assert_close(features.regions.boxes, expected, atol=1e-3, rtol=1e-5)
    assert encoder.rectangles(features, window) is features.regions.boxes


# --- weights ---


def published(detector: nn.Module) -> dict[str, torch.Tensor]:
    """A state dict as torchvision's files have it: names from before 0.13, no counts of batches."""
    tensors = {}
    for name, tensor in detector.state_dict().items():
        if name.endswith("num_batches_tracked"):
            continue
        for part in ("inner_blocks.0", "inner_blocks.1", "layer_blocks.0", "layer_blocks.1"):
            name = name.replace(f"{part}.0.", f"{part}.")
        tensors[name.replace("rpn.head.conv.0.0.", "rpn.head.conv.")] = tensor
    return tensors


def test_published_weights_are_found_where_torch_keeps_them(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_HOME", str(tmp_path))
    coco = {**TINY, "categories": None}
    original = build_encoder(encoder_config(coco))
    tensors = published(original.detector)
    assert "rpn.head.conv.weight" in tensors and "backbone.fpn.inner_blocks.0.weight" in tensors
    file = tmp_path / "hub" / "checkpoints" / Path(get_model_weights(TINY["detector"]).DEFAULT.url).name
    file.parent.mkdir(parents=True)
    torch.save({**tensors, "roi_heads.mask_head.mask_fcn1.bias": torch.zeros(3)}, file)  # of a Mask R-CNN too
    loaded = build_encoder(encoder_config({**coco, "weights": "pretrained", "seed": 5}))
    assert loaded.fingerprint() == original.fingerprint()
    assert len(loaded.categories) == 91 and loaded.categories[1] == "person"
    with pytest.raises(WeightsError, match=r"are not those of .*cls_score\.weight is \(91, 1024\) and should"):
        build_encoder(encoder_config({**TINY, "weights": str(file)}))


def test_settings_that_do_not_go_together_are_refused():
    for changes, message in (
        ({"min_regions": 50}, "min_regions=50 must not be above max_regions=40, nor that above proposals=60"),
        ({"proposals": 10}, "max_regions=40, nor that above proposals=10"),
        ({"proposals": 6001}, "less than or equal to 6000"),
        ({"trained": True}, "Input should be False"),
        ({"detector": "yolo"}, "fasterrcnn_resnet50_fpn_v2"),
    ):
        with pytest.raises(ValidationError, match=message):
            encoder_config({**TINY, **changes})
    for changes, message in (
        ({**TINY, "longest": 64}, "encoder: longest=64 is less than image_size=96, the shorter side"),
        ({"name": "bottom_up", "weights": "random", "longest": 500}, "longest=500 is less than image_size=600, the"),
    ):
        with pytest.raises(RecipeError, match=message):
            build_encoder(encoder_config(changes))
    for changes, message in (
        ({"name": "bottom_up"}, r"fetched by name: take bua-caffe-frcn-r101-k10-100\.pth from the table of https"),
        ({"name": "resnet_caffe"}, r"ResNet-101 cannot be fetched by name: take resnet101\.pth from the folder that"),
    ):
        with pytest.raises(WeightsError, match=message):
            build_encoder(encoder_config(changes))


def test_a_checkpoint_with_regions_captions_a_raw_photo(encoder, tmp_path):
    """A saved and reopened checkpoint sees and says the same about raw photos as the model before."""
    chance, photos = np.random.default_rng(0), []
    for number, size in enumerate([(80, 60), (60, 80), (300, 100)]):
        photos.append(tmp_path / f"{number}.jpg")
        Image.fromarray(chance.integers(0, 256, (5, 5, 3), dtype=np.uint8)).resize(size).save(photos[-1])
    sizes = {"embedding_size": 8, "hidden_size": 8, "attention_size": 8}
    words = ["a", "cat", "on", "the", "bus"]
    original = random_captioner(encoder, {"name": "sat", **sizes}, words, num_beams=2, max_length=5)
    (before,) = original.encode_photos(photos)
    original.save_pretrained(tmp_path / "checkpoint")
    opened = Captioner.from_pretrained(tmp_path / "checkpoint", device="cpu")
    assert opened.encoder.fingerprint() == encoder.fingerprint()
    (after,) = opened.encode_photos(photos)
    assert torch.equal(before.vectors, after.vectors) and torch.equal(before.regions.boxes, after.regions.boxes)
    captions = opened.caption_features(before)
    for photo, (best, *_) in zip(photos, captions, strict=True):
        assert opened.caption(photo)[0].text == best.text
        assert opened.caption(photo)[0].logprob == pytest.approx(best.logprob, abs=1e-4)

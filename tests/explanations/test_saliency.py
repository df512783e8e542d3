"""What a word loses when a region is hidden, one region at a time, by hand; gradients; and the test of both."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from showtell.captioners import Captioner, saliency
from showtell.captioners.saliency import METHODS, fill_rectangles, occlude
from showtell.decoding import teacher_forced
from showtell.types import EncodedBatch, Features, PreparedBatch
from tests.toys import random_captioner

WORDS = torch.tensor([[[1, 5, 4, 6, 2], [1, 7, 2, 0, 0]], [[1, 6, 6, 2, 0], [1, 0, 0, 0, 0]]])  # (2, 2, T + 1)


def captioner(model: str = "sat") -> Captioner:
    encoder = {"name": "small_cnn", "image_size": 32, "widths": [6, 8, 8]}
    sizes = {"embedding_size": 6, "hidden_size": 7} | ({} if model == "nic" else {"attention_size": 5})
    return random_captioner(encoder, {"name": model, **sizes}, ["a", "red", "star", "circle"], seed=3, std=0.7)


def encoded_batch(made: Captioner) -> EncodedBatch:
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 3, 32, 32), generator=generator, dtype=torch.uint8)
    windows = torch.tensor([[0.0, 0.0, 32.0, 32.0], [10.0, 0.0, 74.0, 64.0]])
    batch = PreparedBatch.of(images, windows)
    return EncodedBatch(made.encode(batch), batch.windows, batch)


def word_logprobs(made: Captioner, features: Features, words: Tensor) -> Tensor:
    """log p of each word of one caption of one image: (T,)."""
    logprobs = teacher_forced(made.decoder, features, words[None, None, :-1]).logits[0, 0].log_softmax(-1)
    return logprobs.gather(-1, words[1:, None]).squeeze(-1)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("padding", [0, 3])
@pytest.mark.parametrize("memory", [1, 2**28])
@torch.no_grad()
def test_it_is_one_region_after_the_other(padding, method, memory, monkeypatch):
    monkeypatch.setattr(saliency, "MEMORY", memory)
    made = captioner()
    batch = encoded_batch(made)
    batch.features.is_region[1, len(batch.features.is_region[1]) - padding :] = False
    drops = occlude(made, batch, WORDS, method)
    assert drops.shape == (2, 2, 4, batch.features.vectors.shape[1])
    rectangles = made.encoder.rectangles(batch.features, batch.photos.windows)
    for image in range(2):
        own = Features(batch.features.vectors[image : image + 1], batch.features.is_region[image : image + 1])
        regions = own.is_region[0].nonzero().flatten().tolist()
        for region in range(drops.shape[-1]):
            if region not in regions:
                assert (drops[image, ..., region] == 0).all()
                continue
            vectors = own.vectors.clone()
            if method == "pixels":
                window = batch.photos.windows[image]
                filled = fill_rectangles(batch.photos.images[image], window, rectangles[image, [region]])
                without = made.encode(PreparedBatch.of(filled[None], window[None]))
            else:
                vectors[0, region] = vectors[0, [other for other in regions if other != region]].mean(0)
                without = Features(vectors, own.is_region)
            for number, length in enumerate([4, 2] if image == 0 else [3, 0]):
                words = WORDS[image, number, : length + 1]
                expected = (
                    word_logprobs(made, own, words) - word_logprobs(made, without, words) if length else torch.zeros(0)
                )
                torch.testing.assert_close(drops[image, number, :length, region], expected, atol=1e-5, rtol=1e-4)
                assert (drops[image, number, length:, region] == 0).all()
    assert drops.abs().max() > 0.01


def test_painting_covers_exactly_the_pixels_whose_centres_are_inside() -> None:
    image = torch.zeros(3, 4, 8, dtype=torch.uint8)
    image[0, 0, 0] = 64  # mean 2
    window = torch.tensor([100.0, 50.0, 180.0, 90.0])  # ten pixels of the photo to one of the image
    filled = fill_rectangles(image, window, torch.tensor([[115.0, 54.0, 136.0, 76.0]]))
    # centres at x 105, 115, 125, 135, ... and y 55, 65, 75, 85: columns 1 to 3 and rows 0 to 2
    expected = image.clone()
    expected[0, 0:3, 1:4] = 2
    assert torch.equal(filled, expected)
    assert torch.equal(image.sum(), torch.tensor(64))  # the photo is as it was


def test_log_probabilities_have_a_graph_to_features_and_pixels() -> None:
    made = captioner()
    batch = encoded_batch(made)
    pixels = batch.photos.images.float().requires_grad_()
    texts = [["a red star", "a"], ["circle"]]
    logprobs = made.token_logprobs(replace(batch.photos, images=pixels), texts)
    known = made.logprobs_features(batch.features, texts)
    assert logprobs.shape == (2, 2, 4)
    for of_image, row in zip(known, logprobs, strict=True):
        for text, values in zip(of_image, row, strict=False):
            assert float(values.detach().sum()) == pytest.approx(text.logprob, abs=1e-4)
    (gradient,) = torch.autograd.grad(logprobs[0].sum(), pixels)
    assert gradient[0].abs().sum() > 0 == gradient[1].abs().sum()  # an image's captions depend on its own pixels
    step = 2.0 * gradient[0] / gradient[0].abs().max()
    with torch.no_grad():
        changed = pixels.clone()
        changed[0] += step
        after = made.token_logprobs(replace(batch.photos, images=changed), texts)[0].sum()
    assert float(after - logprobs[0].detach().sum()) == pytest.approx(float((gradient[0] * step).sum()), rel=0.3)

"""Saliency: how much each word of a caption needs each region of the photo, by occlusion.

M. D. Zeiler and R. Fergus, Visualizing and understanding convolutional networks, ECCV 2014, for captions: the words are
given (teacher forcing) and the regions hidden one at a time; for every word t and region r

    saliency[t, r] = log p(y_t | y_<t, image) - log p(y_t | y_<t, image without r)

The method `mean` replaces the region's vector by the mean of the image's other vectors, and costs no encoding. `pixels`
fills the region's rectangle with the photo's mean colour, whose edges are new lines in the photo, and encodes it again.
docs/explaining.md says what each tells. For gradients see `EncoderDecoderCaptioner.token_logprobs`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn import functional as F

from showtell.decoding.rollout import word_logprobs
from showtell.errors import UsageError
from showtell.images.loading import stack_images
from showtell.models import Decoder
from showtell.models.contract import eval_mode
from showtell.types import EncodedBatch, Features, PreparedBatch, map_tensors

if TYPE_CHECKING:
    from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner

METHODS = ("mean", "pixels")
MEMORY = 256 * 2**20  # bytes of features and logits of the variants in a batch
MAX_PHOTOS = 32  # filled photos in a batch


@torch.no_grad()
def occlude(
    captioner: EncoderDecoderCaptioner,
    batch: EncodedBatch,
    words: Tensor,  # (B, N, T + 1), begin first, padded
    method: str = "mean",
    *,
    decoder: Decoder | None = None,
) -> Tensor:
    """The drop of each word's log-probability when a region is hidden: (B, N, T, R), 0 for padding."""
    if method == "pixels" and batch.photos is None:
        raise UsageError(
            "Occlusion by pixels fills parts of the photo and encodes it again, and the features of a store come "
            "without photos; use the saliency method mean."
        )
    decoder = decoder or captioner.decoder
    with eval_mode(decoder):
        words = words.to(captioner.device)
        whole = word_logprobs(decoder, batch.features, words)  # (B, N, T)
        drops = whole.new_zeros(*whole.shape, batch.features.is_region.shape[1])
        rectangles = captioner.rectangles(batch) if method == "pixels" else None
        logits = whole[0].numel() * len(captioner.vocabulary)
        size = max(1, MEMORY // (4 * (2 * batch.features.vectors[0].numel() + 3 * logits)))
        size = size if rectangles is None else min(size, MAX_PHOTOS)
        images, regions = batch.features.is_region.nonzero().unbind(-1)
        for image, region in zip(torch.split(images, size), torch.split(regions, size), strict=True):
            hidden = F.one_hot(region, drops.shape[-1]).bool()
            if rectangles is None:
                features = _hide_vectors(map_tensors(batch.features, lambda x, of=image: x[of]), hidden)
            else:
                features = _encode_filled(captioner, batch, rectangles, image, hidden)
            drops[image, :, :, region] = whole[image] - word_logprobs(decoder, features, words[image])
    return drops


def _hide_vectors(features: Features, hidden: Tensor) -> Features:
    """Features (c, R, D) with some regions (c, R) bool of each hidden; if no other is left, they are zeros."""
    rest = features.is_region & ~hidden
    count = rest.sum(-1, keepdim=True)  # (c, 1)
    total = features.vectors.masked_fill(~rest.unsqueeze(-1), 0).sum(1)
    mean = torch.where(count > 0, total / count.clamp(min=1), 0)
    vectors = torch.where(hidden.unsqueeze(-1), mean.unsqueeze(1), features.vectors)
    return replace(features, vectors=vectors)


def _encode_filled(
    captioner: EncoderDecoderCaptioner, batch: EncodedBatch, rectangles: Tensor, image: Tensor, hidden: Tensor
) -> Features:
    """Features of the images (c,) whose hidden (c, R) rectangles (B, R, 4), in pixels of the photos, are filled."""
    indices = image.tolist()
    photos = batch.photos
    assert photos is not None  # `occlude` made sure
    filled = [
        fill_rectangles(photos.images[index], photos.windows[index], rectangles[index, own].cpu())
        for index, own in zip(indices, hidden, strict=True)
    ]
    return captioner.encode(PreparedBatch.of(stack_images(filled), photos.windows[indices]))


def fill_rectangles(image: Tensor, window: Tensor, rectangles: Tensor) -> Tensor:
    """A photo (3, height, width) uint8, which shows a window (4,), with rectangles (K, 4) in its mean colour."""
    height, width = image.shape[1:]
    left, top, right, bottom = window.tolist()
    x = left + (torch.arange(width) + 0.5) * (right - left) / width
    y = top + (torch.arange(height) + 0.5) * (bottom - top) / height
    columns = (x >= rectangles[:, 0, None]) & (x < rectangles[:, 2, None])  # (K, width)
    rows = (y >= rectangles[:, 1, None]) & (y < rectangles[:, 3, None])
    is_hidden = (rows[:, :, None] & columns[:, None]).any(0).to(image.device)
    colour = image.double().mean((1, 2)).round().to(torch.uint8)
    return torch.where(is_hidden, colour[:, None, None], image)

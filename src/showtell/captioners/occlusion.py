"""Occlusion: how much less likely each word of a caption becomes when one region of the photo is hidden.

M. D. Zeiler and R. Fergus, Visualizing and understanding convolutional networks, ECCV 2014, for captions: the words
are given (teacher forcing), the regions are hidden one at a time, and for every word t and region r

    logprob_drop[t, r] = log p(y_t | y_<t, image) - log p(y_t | y_<t, image without r)

Attention is what a model weighs; the drop is what a word loses. There are three methods:

    mean    replaces the region's vector by the mean of the image's other vectors (the default: it costs no encoding).
            Neighbouring vectors keep what they know of the region, which with convolutions is much.
    remove  removes the vector, as if the image had one region less. Attention over the others is then larger.
    pixels  fills the region's rectangle with the mean colour of the photo and encodes it again: the strictest method,
            the only one that means something for models that see the photo as a whole, and the most expensive.

None of them shows a word that two regions support independently, nor what a region contributed to the previous words,
because they are given. A filled rectangle is itself something to be seen: its edges are new lines in the photo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from showtell.captioners.teacher_forcing import word_logprobs
from showtell.errors import UsageError
from showtell.images.loading import stack_images
from showtell.models import Decoder
from showtell.models.contract import eval_mode
from showtell.types import EncodedBatch, Features, PreparedBatch, map_tensors

if TYPE_CHECKING:
    from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner

OCCLUSION_METHODS = ("mean", "remove", "pixels")
MEMORY = 256 * 2**20  # bytes of features and logits of the variants in a batch
MAX_PHOTOS = 32  # filled photos in a batch


@torch.no_grad()
def occlude(
    captioner: EncoderDecoderCaptioner,
    batch: EncodedBatch,
    words: Tensor,
    method: str = "mean",
    *,
    decoder: Decoder | None = None,
) -> Tensor:
    """The drop of each word's log-probability when a region is hidden.

    All captions of an image share its variants; variants of different images share a batch, as many as fit into memory.

    Args:
        captioner: the model.
        batch: B photos.
        words: (B, N, T + 1) int64, begin first, padded: N captions of each image.
        method: one of `OCCLUSION_METHODS`.
        decoder: a view of the captioner's decoder (default: the decoder itself).

    Returns:
        (B, N, T, R) natural logarithms, above 0 where the region supports the word; 0 for padding.

    Raises:
        UsageError: an unknown method, or pixels without photos.
    """
    captioner.check_occlusion(method)
    if method == "pixels" and batch.photos is None:
        raise UsageError(
            "Occlusion by pixels fills parts of the photo and encodes it again, and the features of a store come "
            "without photos; use the occlusion method mean or remove."
        )
    decoder = decoder or captioner.decoder
    with eval_mode(decoder):
        words = words.to(captioner.device)
        whole = word_logprobs(decoder, batch.features, words)  # (B, N, T)
        drops = whole.new_zeros(*whole.shape, batch.features.is_region.shape[1])
        logits = words.shape[1] * (words.shape[2] - 1) * len(captioner.vocabulary)
        batch_size = max(1, MEMORY // (4 * (2 * batch.features.vectors[0].numel() + 3 * logits)))
        for image, region, features in _variants(captioner, batch, method, batch_size):
            drops[image, :, :, region] = whole[image] - word_logprobs(decoder, features, words[image])
    return drops


# --- variants of photos, each with one region hidden ---


def _variants(
    captioner: EncoderDecoderCaptioner, batch: EncodedBatch, method: str, batch_size: int
) -> Iterator[tuple[Tensor, Tensor, Features]]:
    """Batches of variants: index of the image (c,), index of the hidden region (c,), and features without it."""
    rectangles = captioner.rectangles(batch) if method == "pixels" else None
    if rectangles is not None:
        rectangles, batch_size = rectangles.cpu(), min(batch_size, MAX_PHOTOS)
    for indices in torch.split(batch.features.is_region.nonzero(), batch_size):
        image, region = indices.unbind(-1)
        if rectangles is not None:
            yield image, region, _encode_filled(captioner, batch, rectangles[indices.cpu().unbind(-1)], image)
        else:
            features = map_tensors(batch.features, lambda x, of=image: x[of])
            yield image, region, _hide_vectors(features, region, method)


def _hide_vectors(features: Features, region: Tensor, method: str) -> Features:
    """Features (c, R, D) with a region (c,) of each hidden; if it is the only one, zeros are left."""
    hidden = torch.arange(len(region), device=region.device), region
    is_region = features.is_region
    own = features.vectors[hidden]  # (c, D)
    others = is_region.sum(-1, keepdim=True) - 1  # (c, 1)
    total = features.vectors.masked_fill(~is_region.unsqueeze(-1), 0).sum(1)
    mean = torch.where(others > 0, (total - own) / others.clamp(min=1), 0)
    vectors = features.vectors.index_put(hidden, mean)
    if method == "remove":
        is_region = is_region.index_put(hidden, others.squeeze(-1) == 0)
    return replace(features, vectors=vectors, is_region=is_region)


def _encode_filled(
    captioner: EncoderDecoderCaptioner, batch: EncodedBatch, rectangles: Tensor, image: Tensor
) -> Features:
    """Features of the images (c,) with rectangles (c, 4), in pixels of the photos, filled."""
    indices = image.tolist()
    photos = batch.photos
    assert photos is not None  # `occlude` made sure
    filled = [
        fill_rectangle(photos.images[index], photos.windows[index], rectangle)
        for index, rectangle in zip(indices, rectangles, strict=True)
    ]
    return captioner.encode(PreparedBatch.of(stack_images(filled), photos.windows[indices]))


def fill_rectangle(image: Tensor, window: Tensor, rectangle: Tensor) -> Tensor:
    """A copy of a prepared photo (3, height, width) uint8 with a rectangle filled with the photo's mean colour.

    Args:
        image: the prepared photo.
        window: (4,) the part of the upright photo that the image shows, in the photo's pixels.
        rectangle: (4,) corners in pixels of the upright photo; pixels with their centre inside are filled.
    """
    height, width = image.shape[1:]
    left, top, right, bottom = window.tolist()
    x = left + (torch.arange(width) + 0.5) * (right - left) / width
    y = top + (torch.arange(height) + 0.5) * (bottom - top) / height
    columns = (x >= rectangle[0]) & (x < rectangle[2])
    rows = (y >= rectangle[1]) & (y < rectangle[3])
    is_hidden = (rows[:, None] & columns).to(image.device)
    colour = image.double().mean((1, 2)).round().to(torch.uint8)
    return torch.where(is_hidden, colour[:, None, None], image)

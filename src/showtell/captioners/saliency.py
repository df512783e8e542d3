"""Saliency: how much each word of a caption needs each region of the photo, by occlusion or by gradients.

The words are given (teacher forcing). **Occlusion** (M. D. Zeiler and R. Fergus, Visualizing and understanding
convolutional networks, ECCV 2014, for captions) hides the regions one at a time; for every word t and region r

    saliency[t, r] = log p(y_t | y_<t, image) - log p(y_t | y_<t, image without r)

Attention is what a model weighs; the drop is what a word loses. There are three methods:

    mean    replaces the region's vector by the mean of the image's other vectors (the default: it costs no encoding).
            Neighbouring vectors keep what they know of the region, which with convolutions is much.
    remove  removes the vector, as if the image had one region less. Attention over the others is then larger.
    pixels  fills the region's rectangle with the mean colour of the photo and encodes it again: the strictest method,
            the only one that means something for models that see the photo as a whole, and the most expensive.

None of them shows a word that two regions support independently, nor what a region contributed to the previous words,
because they are given. A filled rectangle is itself something to be seen: its edges are new lines in the photo.

The deletion test (V. Petsiuk et al., RISE, BMVC 2018) asks the same of any map: does hiding the regions that it lights
most cost a word more than hiding as many at random?

**Gradients**, of every region with the vector v_r of D numbers:

    input_x_gradient      s[t, r] = v_r . d log p(y_t | y_<t, v) / d v_r
    integrated_gradients  s[t, r] = v_r . mean_a d log p(y_t | y_<t, a v) / d (a v_r),   a from 0 to 1

M. Sundararajan, A. Taly and Q. Yan, Axiomatic attribution for deep networks, ICML 2017: the integrated gradients of a
word sum over the regions to what it gains from the features, log p(y_t | y_<t, v) - log p(y_t | y_<t, 0). The mean is
over the middles of `STEPS` equal parts. The product with the gradient at the photo itself is the same to first order.
For gradients to pixels, and other methods, see `EncoderDecoderCaptioner.token_logprobs`.
"""

from __future__ import annotations

from collections.abc import Mapping
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
from showtell.text.vocabulary import Vocabulary
from showtell.types import EncodedBatch, Features, PreparedBatch, map_tensors

if TYPE_CHECKING:
    from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner

OCCLUSION_METHODS = ("mean", "remove", "pixels")
MEMORY = 256 * 2**20  # bytes of features and logits of the variants in a batch
MAX_PHOTOS = 32  # filled photos in a batch
DELETED = 0.2  # share of the regions that the deletion test hides
DRAWS = 8  # random choices of as many
STEPS = 32  # of the integral
GRADIENT_METHODS = {"input_x_gradient": (1.0,), "integrated_gradients": [(n + 0.5) / STEPS for n in range(STEPS)]}
GRADIENT_MEMORY = 128 * 2**20  # bytes of the features in a batch


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
        UsageError: pixels without photos.
    """
    if method == "pixels" and batch.photos is None:
        raise UsageError(
            "Occlusion by pixels fills parts of the photo and encodes it again, and the features of a store come "
            "without photos; use the saliency method mean, remove or one of gradients."
        )
    decoder = decoder or captioner.decoder
    with eval_mode(decoder):
        words = words.to(captioner.device)
        whole = word_logprobs(decoder, batch.features, words)  # (B, N, T)
        drops = whole.new_zeros(*whole.shape, batch.features.is_region.shape[1])
        image, region = batch.features.is_region.nonzero().unbind(-1)
        hidden = F.one_hot(region, drops.shape[-1]).bool()
        drops[image, :, :, region] = whole[image] - _hidden_logprobs(
            captioner, decoder, batch, words, image, hidden, method
        )
    return drops


@torch.no_grad()
def deletion_test(
    captioner: EncoderDecoderCaptioner,
    batch: EncodedBatch,
    words: Tensor,
    maps: Mapping[str, Tensor],
    *,
    decoder: Decoder | None = None,
) -> dict[str, Tensor]:
    """By how much a word becomes less likely when a fifth of the regions is hidden (`mean`): those that a map lights
    most, and as many at random.

    Args:
        captioner: the model.
        batch: B photos.
        words: (B, 1, T + 1) int64, begin first, padded.
        maps: (B, T, R) by name.
        decoder: a view of the captioner's decoder (default: the decoder itself).

    Returns:
        (B, T) natural logarithms for each map and for "random", the mean of `DRAWS` choices; 0 for padding.
    """
    decoder, words, is_region = decoder or captioner.decoder, words.to(captioner.device), batch.features.is_region
    count = (DELETED * is_region.sum(-1)).round().long().clamp(min=1)  # (B,)
    image, time = (words[:, 0, 1:] != Vocabulary.pad).nonzero().unbind(-1)

    def most(values: Tensor, of: Tensor) -> Tensor:
        """The regions of the highest values (c, R) of images (c,), as many as are hidden: (c, R) bool."""
        ranks = values.masked_fill(~is_region[of], -torch.inf).argsort(-1, descending=True).argsort(-1)
        return ranks < count[of].unsqueeze(-1)

    costs = {}
    with eval_mode(decoder):
        whole = word_logprobs(decoder, batch.features, words)[:, 0]  # (B, T)
        for name, values in maps.items():
            hidden = most(values.to(captioner.device)[image, time], image)
            without = _hidden_logprobs(captioner, decoder, batch, words, image, hidden, "mean")[:, 0]
            costs[name] = torch.zeros_like(whole)
            costs[name][image, time] = whole[image, time] - without.gather(1, time.unsqueeze(1)).squeeze(1)
        every = torch.arange(len(words), device=words.device).repeat(DRAWS)
        draws = [torch.rand(is_region.shape[1], generator=torch.Generator().manual_seed(seed)) for seed in range(DRAWS)]
        drawn = torch.stack(draws).repeat_interleave(len(words), 0)  # the same for each photo
        hidden = most(drawn.to(captioner.device), every)
        without = _hidden_logprobs(captioner, decoder, batch, words, every, hidden, "mean")[:, 0]
        costs["random"] = whole - without.view(DRAWS, *whole.shape).mean(0)
    return costs


# --- variants of photos, each with some regions hidden ---


def _hidden_logprobs(
    captioner: EncoderDecoderCaptioner,
    decoder: Decoder,
    batch: EncodedBatch,
    words: Tensor,
    image: Tensor,
    hidden: Tensor,
    method: str,
) -> Tensor:
    """The log-probabilities (c, N, T) of the words of images (c,) whose regions (c, R) bool are hidden."""
    rectangles = captioner.rectangles(batch) if method == "pixels" else None
    logits = words.shape[1] * (words.shape[2] - 1) * len(captioner.vocabulary)
    batch_size = max(1, MEMORY // (4 * (2 * batch.features.vectors[0].numel() + 3 * logits)))
    parts = []
    for own in torch.split(
        torch.arange(len(image), device=image.device),
        batch_size if rectangles is None else min(batch_size, MAX_PHOTOS),
    ):
        if rectangles is None:
            features = map_tensors(batch.features, lambda x, of=image[own]: x[of])
            features = _hide_vectors(features, hidden[own], method)
        else:
            features = _encode_filled(captioner, batch, rectangles, image[own], hidden[own])
        parts.append(word_logprobs(decoder, features, words[image[own]]))
    return torch.cat(parts)


def _hide_vectors(features: Features, hidden: Tensor, method: str) -> Features:
    """Features (c, R, D) with some regions (c, R) bool of each hidden; if no other is left, they are zeros."""
    rest = features.is_region & ~hidden
    count = rest.sum(-1, keepdim=True)  # (c, 1)
    total = features.vectors.masked_fill(~rest.unsqueeze(-1), 0).sum(1)
    mean = torch.where(count > 0, total / count.clamp(min=1), 0)
    vectors = torch.where(hidden.unsqueeze(-1), mean.unsqueeze(1), features.vectors)
    is_region = torch.where(count > 0, rest, features.is_region) if method == "remove" else features.is_region
    return replace(features, vectors=vectors, is_region=is_region)


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
    """A copy of a prepared photo (3, height, width) uint8 with rectangles filled with the photo's mean colour.

    Args:
        image: the prepared photo.
        window: (4,) the part of the upright photo that the image shows, in the photo's pixels.
        rectangles: (K, 4) corners in pixels of the upright photo; pixels with their centre inside are filled.
    """
    height, width = image.shape[1:]
    left, top, right, bottom = window.tolist()
    x = left + (torch.arange(width) + 0.5) * (right - left) / width
    y = top + (torch.arange(height) + 0.5) * (bottom - top) / height
    columns = (x >= rectangles[:, 0, None]) & (x < rectangles[:, 2, None])  # (K, width)
    rows = (y >= rectangles[:, 1, None]) & (y < rectangles[:, 3, None])
    is_hidden = (rows[:, :, None] & columns[:, None]).any(0).to(image.device)
    colour = image.double().mean((1, 2)).round().to(torch.uint8)
    return torch.where(is_hidden, colour[:, None, None], image)


def attribute(decoder: Decoder, features: Features, words: Tensor, method: str) -> Tensor:
    """The saliency of each region for each given word.

    Args:
        decoder: the model, or a view of one of its stages.
        features: of B images.
        words: (B, N, T + 1) int64, begin first, padded: N captions of each image.
        method: one of `GRADIENT_METHODS`.

    Returns:
        (B, N, T, R) natural logarithms, above 0 where the region supports the word; 0 for padding.
    """
    words, shares = words.to(features.vectors.device), GRADIENT_METHODS[method]
    indices = (words[..., 1:] != Vocabulary.pad).nonzero()  # (words of all captions, 3)
    saliency = features.vectors.new_zeros(*words[..., 1:].shape, features.vectors.shape[1])
    with eval_mode(decoder), torch.enable_grad():
        for some in torch.split(indices, max(1, GRADIENT_MEMORY // (4 * features.vectors[0].numel()))):
            image, row, time = some.unbind(-1)
            own = map_tensors(features, lambda x, of=image: x[of])
            total = torch.zeros_like(own.vectors)
            for share in shares:
                vectors = (share * own.vectors).detach().requires_grad_()
                logprobs = word_logprobs(decoder, replace(own, vectors=vectors), words[image, row].unsqueeze(1))
                total += torch.autograd.grad(logprobs[:, 0].gather(1, time.unsqueeze(1)).sum(), vectors)[0]
            saliency[image, row, time] = (own.vectors * total / len(shares)).sum(-1)
    return saliency

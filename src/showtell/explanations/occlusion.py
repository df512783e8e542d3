"""Occlusion: how much less likely each word of a caption becomes when the model cannot see a place.

M. D. Zeiler and R. Fergus, Visualizing and understanding convolutional networks, ECCV 2014, for captions: the words
stay as they are (teacher forcing), one place after the other is hidden, and for every word t and place r

    fall[t, r] = log p(y_t | y_<t, image) - log p(y_t | y_<t, image without r)

Attention is what a model weighs; the fall is what a word loses. Three ways to hide a place:

    mean    its vector is replaced by the mean of the image's other vectors: the decoder reads nothing particular there.
            What neighbouring vectors know of the place stays, and with convolutions that is much.
    remove  the vector is taken away, as if the image had one place less. Attention over the others is then larger, so
            this also changes how much of each of them is seen.
    pixels  the place's rectangle is painted over in the mean colour of the photo, which is encoded anew: nobody can
            know any more what was there. It is the strictest of the three, the only one that means something for models
            that see the photo as a whole, and the dearest: an encoding for each place.

`mean` is the default: it costs no encoding, and leaves the other places with the weights that they had. What none of
them shows: a word that two places can each support by themselves loses little when either is hidden; what a place did
to the words before is not counted, because they are given; and a painted patch is itself something to be seen. The
edges of a patch are new lines in the photo.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, get_args

import torch
from torch import Tensor

from showtell.captioner import Captioner
from showtell.decoding import teacher_forced
from showtell.decoding.likelihood import log_likelihood
from showtell.errors import UsageError, nearest
from showtell.images.loading import stack_images
from showtell.models import Decoder
from showtell.models.contract import eval_mode
from showtell.text.vocabulary import Vocabulary
from showtell.types import EnsembleFeatures, Features, PreparedBatch, map_tensors

Hiding = Literal["mean", "remove", "pixels"]
HIDINGS: tuple[str, ...] = get_args(Hiding)

MEMORY = 256 * 2**20  # bytes of features and logits of the variants that are looked at together
PHOTOS_AT_ONCE = 32  # painted ones that are encoded together


@dataclass(frozen=True)
class EncodedBatch:
    """B prepared photos and what the encoder makes of them."""

    photos: PreparedBatch
    features: Features


@torch.no_grad()
def occlude(
    captioner: Captioner,
    seen: EncodedBatch,
    words: Tensor,
    hide: str = "mean",
    *,
    decoder: Decoder | None = None,
    patch: float = 1.0,
    memory: int = MEMORY,
) -> Tensor:
    """The fall of each word's log-probability when a place is hidden.

    All captions of an image share its variants, and variants of different images are looked at together, as many as
    the memory allows.

    Args:
        captioner: that sees and speaks.
        seen: B photos.
        words: (B, N, T + 1) int64, begin first, padded: N captions of each image.
        hide: one of `HIDINGS`.
        decoder: a view of the captioner's decoder; None is the decoder itself.
        patch: with "pixels", sides of the painted rectangle over those of the place.
        memory: bytes that the variants may take together.

    Returns:
        (B, N, T, R) natural logarithms, above 0 where the place speaks for the word; 0 where there is none.

    Raises:
        UsageError: there is no such way to hide, or the members of an ensemble look at places of their own.
    """
    if hide not in HIDINGS:
        raise UsageError(f'There is no way "{hide}" to hide a place; {nearest(hide, HIDINGS)}.')
    if hide != "pixels" and isinstance(seen.features, EnsembleFeatures):
        raise UsageError(
            "The members of an ensemble look at places of their own, so a place cannot be hidden from all of them; "
            "hide pixels instead (pixels), or ask each member."
        )
    decoder = decoder or captioner.decoder
    with eval_mode(decoder):
        words = words.to(captioner.device)
        whole = logprobs_of(decoder, seen.features, words)  # (B, N, T)
        falls = whole.new_zeros(*whole.shape, seen.features.is_region.shape[1])
        at_once = _at_once(seen, words, len(captioner.vocabulary), memory)
        for image, place, features in _variants(captioner, seen, hide, patch, at_once):
            falls[image, :, :, place] = whole[image] - logprobs_of(decoder, features, words[image])
    return falls


def logprobs_of(decoder: Decoder, features: Features, words: Tensor) -> Tensor:
    """The log-probability of each given word, the end included: words (B, N, T + 1) to (B, N, T), 0 for padding."""
    targets = words[..., 1:]
    said = log_likelihood(teacher_forced(decoder, features, words[..., :-1]).logits, targets)
    return said.masked_fill(targets == Vocabulary.pad, 0)


def agreement(attention: Tensor, falls: Tensor) -> Tensor:
    """How far attention ranks places as occlusion does: its rank correlation with the sizes of the falls.

    Attention says how much of a place is seen, not whether that speaks for or against the word, so falls and rises
    count alike. (Signed falls are near 0 for most places, and their order there is noise: docs/explaining.md.)

    Args:
        attention: (..., R).
        falls: (..., R), from `occlude`.

    Returns:
        (...), see `rank_correlation`.
    """
    return rank_correlation(attention, falls.abs())


def rank_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Spearman's correlation of two maps over the same places, ties taking the mean of their ranks.

    Args:
        first: (..., R).
        second: (..., R).

    Returns:
        (...) float64 from -1 to 1; nan where a map is the same everywhere, so that nothing can be ranked.
    """
    one, other = ((ranks := _ranks(x)) - ranks.mean(-1, keepdim=True) for x in (first, second))
    return (one * other).sum(-1) / (one.square().sum(-1) * other.square().sum(-1)).sqrt()


def _ranks(values: Tensor) -> Tensor:
    """The rank of each of (..., R) values, from 1; equal ones share the mean of theirs."""
    values = values.contiguous()
    ordered = values.sort(-1).values
    below, not_above = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    return (below + not_above + 1).double() / 2


# --- variants of photos, each with one place hidden ---


def _variants(
    captioner: Captioner, seen: EncodedBatch, hide: str, patch: float, at_once: int
) -> Iterator[tuple[Tensor, Tensor, Features]]:
    """Some of them at a time: of which image (c,), without which place (c,), and how they look to the decoder."""
    if hide == "pixels":
        rectangles = captioner.encoder.rectangles(seen.features, seen.photos.windows.to(captioner.device)).cpu()
        at_once = min(at_once, PHOTOS_AT_ONCE)
    for chunk in seen.features.is_region.nonzero().split(at_once):
        image, place = chunk.unbind(-1)
        if hide == "pixels":
            yield image, place, _painted(captioner, seen, _grown(rectangles[chunk.cpu().unbind(-1)], patch), image)
        else:
            yield image, place, _without(map_tensors(seen.features, lambda x, of=image: x[of]), place, hide)


def _at_once(seen: EncodedBatch, words: Tensor, vocabulary: int, memory: int) -> int:
    """How many variants fit: each has features of its own, and logits for all captions of its image."""
    logits = words.shape[1] * (words.shape[2] - 1) * vocabulary
    return max(1, memory // (4 * (2 * seen.features.vectors[0].numel() + 3 * logits)))


def _without(features: Features, place: Tensor, hide: str) -> Features:
    """Features (c, R, D) with a place (c,) of each hidden. Where it is the only one, nothing is left but zeros."""
    here = torch.arange(len(place), device=place.device), place
    is_region = features.is_region
    own = features.vectors[here]  # (c, D)
    others = is_region.sum(-1, keepdim=True) - 1  # (c, 1)
    total = features.vectors.masked_fill(~is_region.unsqueeze(-1), 0).sum(1)
    mean = torch.where(others > 0, (total - own) / others.clamp(min=1), 0)
    vectors = features.vectors.index_put(here, mean)
    if hide == "remove":
        is_region = is_region.index_put(here, others.squeeze(-1) == 0)
    return replace(features, vectors=vectors, is_region=is_region)


def _grown(rectangles: Tensor, factor: float) -> Tensor:
    """Rectangles (c, 4) with other sides around the same centres."""
    centre = (rectangles[:, :2] + rectangles[:, 2:]) / 2
    half = (rectangles[:, 2:] - rectangles[:, :2]) / 2 * factor
    return torch.cat((centre - half, centre + half), -1)


def _painted(captioner: Captioner, seen: EncodedBatch, rectangles: Tensor, image: Tensor) -> Features:
    """What the encoder sees of photos image (c,) with rectangles (c, 4), in pixels of the photos, painted over."""
    numbers = image.tolist()
    photos = [
        paint_over(seen.photos.images[number], seen.photos.windows[number], rectangle)
        for number, rectangle in zip(numbers, rectangles, strict=True)
    ]
    boxes = None if seen.photos.boxes is None else [seen.photos.boxes[number] for number in numbers]
    return captioner.encode(PreparedBatch.of(stack_images(photos), seen.photos.windows[numbers], boxes))


def paint_over(image: Tensor, window: Tensor, rectangle: Tensor) -> Tensor:
    """A prepared photo in whose rectangle every pixel has the photo's mean colour.

    Args:
        image: (3, height, width) uint8.
        window: (4,) the part of the upright photo that the image shows, in its pixels.
        rectangle: (4,) left, top, right, bottom in pixels of the upright photo; it has the pixels whose centres it has.

    Returns:
        (3, height, width) uint8, a copy.
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

"""Captions of transformers explained: probabilities, runners-up, and occlusion of 6 x 6 cells of the photo."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from PIL import Image, ImageDraw, ImageStat
from torch import Tensor

from showtell.captioners.hugging_face_families import Photos
from showtell.captioners.hugging_face_generation import Generated
from showtell.captioners.hugging_face_words import word_indices
from showtell.captions import NUM_RUNNERS_UP, Caption, ExplainedCaption, ExplainedWord, ModelExplanation
from showtell.decoding_config import DecodingConfig

if TYPE_CHECKING:
    from showtell.captioners.hugging_face import TransformersCaptioner

CELLS = 6  # along a side; as many filled photos as cells are in a batch


def explain_batch(
    captioner: TransformersCaptioner, photos: Photos, settings: DecodingConfig, *, saliency: str | None = None
) -> list[ModelExplanation]:
    """The best caption of each photo, explained: the method `explain_encoded` of `TransformersCaptioner`."""
    explanations = []
    for photo, (best, *_) in zip(photos, captioner.search(photos, settings, keep_logits=True), strict=True):
        drops = occlude(captioner, photo, best, settings.prompt) if saliency else None
        ((caption,),) = captioner.calibrated([[captioner.caption_of(best)]], settings, ())
        shown, grid = (_explain(captioner, best, caption, drops),), (CELLS, CELLS)
        explanations.append(ModelExplanation("", shown, cell_boxes(photo.size), grid, saliency=saliency))
    return explanations


def _explain(captioner: TransformersCaptioner, best: Generated, one: Caption, drops: Tensor | None) -> ExplainedCaption:
    """A caption, with the drops (T + 1, R) of its tokens."""
    indices = word_indices(captioner.tokenizer, best.tokens, one.text)
    assert best.logits is not None
    explained = []
    for number, word in enumerate(one.words):
        own = [position for position, index in enumerate(indices) if index == number]
        others = runners_up(captioner, best.logits[own[0]], best.tokens[own[0]]) if own else ()
        drop = None if drops is None else drops[own].sum(0)
        explained.append(ExplainedWord(word.word, math.exp(word.logprob), others, saliency=drop))
    if best.finished:
        others, drop = runners_up(captioner, best.logits[-1], None), None if drops is None else drops[-1]
        explained.append(ExplainedWord("", math.exp(best.end), others, saliency=drop))
    assert one.logprob is not None and one.confidence is not None  # a model's own
    return ExplainedCaption(one.text, tuple(explained), one.logprob, one.finished, one.confidence, one.doubt)


def runners_up(captioner: TransformersCaptioner, logits: Tensor, token: int | None) -> tuple[tuple[str, float], ...]:
    """The most likely other tokens: logits (V,) and the token that was chosen, None for the end."""
    tokenizer = captioner.tokenizer
    ends = set(captioner.generator.end_ids)
    hidden = (set(tokenizer.all_special_ids) - ends) | (ends if token is None else {token})
    probabilities = logits.softmax(-1)
    probabilities[[index for index in hidden if index < len(logits)]] = -1.0
    texts: dict[str, float] = {}
    for probability, index in zip(*(x.tolist() for x in probabilities.topk(4 * NUM_RUNNERS_UP)), strict=True):
        text = "" if index in ends else tokenizer.decode([index]).strip()
        if probability >= 0 and (text or index in ends):
            texts.setdefault(text, probability)
    return tuple(list(texts.items())[:NUM_RUNNERS_UP])


def cell_boxes(size: tuple[int, int]) -> Tensor:
    """The cells in a photo of (width, height): (R, 4) left, top, right, bottom in pixels, row by row."""
    across, down = (torch.linspace(0, side, CELLS + 1) for side in size)
    top, left = torch.meshgrid(down[:-1], across[:-1], indexing="ij")
    bottom, right = torch.meshgrid(down[1:], across[1:], indexing="ij")
    return torch.stack([left, top, right, bottom], -1).flatten(0, 1)


def occlude(captioner: TransformersCaptioner, photo: Image.Image, caption: Generated, prompt: str | None) -> Tensor:
    """How much less likely each token becomes when a cell is filled with the photo's mean colour: (T + 1, R)."""
    filled = [fill(photo, box) for box in cell_boxes(photo.size).tolist()]
    forced = captioner.force(filled, [[caption.tokens]] * len(filled), prompt)
    hidden = torch.tensor([[*row.logprobs, row.end] for (row,) in forced])
    return (torch.tensor([*caption.logprobs, caption.end]) - hidden).T


def fill(image: Image.Image, box: Sequence[float]) -> Image.Image:
    """A copy of a photo with a rectangle in its mean colour."""
    left, top, right, bottom = map(round, box)
    filled = image.copy()
    colour = tuple(round(channel) for channel in ImageStat.Stat(image).mean)
    ImageDraw.Draw(filled).rectangle((left, top, max(right - 1, left), max(bottom - 1, top)), fill=colour)
    return filled

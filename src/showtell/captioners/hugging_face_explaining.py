"""Captions of transformers explained: probabilities, runners-up, occlusion in pixels, attention over patches.

The regions of a photo are the cells of a grid: the patches of the model where its cross-attention is over them (several
patches in a cell if there are more than 12 along a side), else 6 x 6 cells over the whole photo.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from PIL import Image, ImageDraw, ImageStat
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from showtell.captioners.hugging_face_families import Photos
from showtell.captioners.hugging_face_generation import Generated
from showtell.captioners.hugging_face_words import decode, word_indices
from showtell.captions import NUM_RUNNERS_UP, Attention, ExplainedCaption, ExplainedWord, ModelExplanation
from showtell.decoding_config import DecodingConfig
from showtell.errors import UsageError

if TYPE_CHECKING:
    from showtell.captioners.hugging_face import TransformersCaptioner

MAX_CELLS = 12  # along a side
CELLS = 6  # along a side, where the model has no patches to show
MAX_PHOTOS = 36  # filled photos in a batch


def explain_batch(
    captioner: TransformersCaptioner, photos: Photos, settings: DecodingConfig, *, saliency: str | None = None
) -> list[ModelExplanation]:
    """The best caption of each photo, explained: the method `explain_encoded` of `TransformersCaptioner`."""
    best = [rows[0] for rows in captioner.search(photos, settings, keep_logits=True)]
    nothing = [None] * len(best)
    drops: Sequence[Tensor | None] = occlude(captioner, photos, best, settings.prompt) if saliency else nothing
    maps: Sequence[Tensor | None] = nothing
    note = f"{captioner.name} has no cross-attention from words to the photo; saliency shows what a word needs."
    if side := captioner.patches:
        rows = attention_of(captioner, photos, [[row] for row in best], settings.prompt)
        maps = [row.weights for (row,) in rows]
        note = (
            f"The cross-attention of the text decoder over the {side} x {side} patches of the photo: the mean over all "
            "layers and heads, and over the tokens of a word; attention to no patch is left out."
        )
    cells = len(cell_edges(captioner)) - 1
    explained = [_explain(captioner, *parts) for parts in zip(best, drops, maps, strict=True)]
    return [
        ModelExplanation(
            "", (caption,), cell_boxes(captioner, image.size), (cells, cells), attention_note=note, saliency=saliency
        )
        for caption, image in zip(explained, photos, strict=True)
    ]


def _explain(
    captioner: TransformersCaptioner, best: Generated, drops: Tensor | None, attention: Tensor | None
) -> ExplainedCaption:
    """A caption, with the drops (T + 1, R) of its tokens and the attention (words, R)."""
    caption = captioner.caption_of(best)
    indices = word_indices(captioner.tokenizer, best.tokens, caption.text)
    assert best.logits is not None
    explained = []
    for number, word in enumerate(caption.words):
        own = [position for position, index in enumerate(indices) if index == number]
        others = runners_up(captioner, best.logits[own[0]], best.tokens[own[0]]) if own else ()
        drop = None if drops is None else drops[own].sum(0)
        explained.append(ExplainedWord(word.word, math.exp(word.logprob), others, saliency=drop))
    if best.finished:
        others, drop = runners_up(captioner, best.logits[-1], None), None if drops is None else drops[-1]
        explained.append(ExplainedWord("", math.exp(best.end), others, saliency=drop))
    weights = None if attention is None else attention[: len(explained)]
    assert caption.logprob is not None and caption.confidence is not None  # a model's own
    return ExplainedCaption(
        caption.text, tuple(explained), caption.logprob, caption.finished, caption.confidence, attention=weights
    )


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


# --- regions ---


def cell_edges(captioner: TransformersCaptioner) -> list[int]:
    """Where the cells along a side begin and end, in patches; without patches in sixths."""
    patches = captioner.patches or CELLS
    return [*range(0, patches, math.ceil(patches / MAX_CELLS)), patches]


def cell_boxes(captioner: TransformersCaptioner, size: tuple[int, int]) -> Tensor:
    """The cells in a photo of (width, height): (R, 4) left, top, right, bottom in pixels, row by row."""
    edges = torch.tensor(cell_edges(captioner), dtype=torch.float64)
    across, down = (edges / edges[-1] * side for side in size)
    top, left = torch.meshgrid(down[:-1], across[:-1], indexing="ij")
    bottom, right = torch.meshgrid(down[1:], across[1:], indexing="ij")
    return torch.stack([left, top, right, bottom], -1).flatten(0, 1).float()


# --- attention ---


@torch.no_grad()
def attention_of(
    captioner: TransformersCaptioner, photos: Photos, captions: Sequence[Sequence[Generated]], prompt: str | None
) -> list[list[Attention]]:
    """The attention of the words of captions, and of their ends, over cells; a UsageError if the model has none."""
    patches = captioner.patches
    if patches is None:
        raise UsageError(
            f"{captioner.name} has no attention to show: it is of type {captioner.model.config.model_type}, which has "
            "no cross-attention over a grid of patches of the whole photo; leave attention out."
        )
    edges = torch.tensor(cell_edges(captioner))
    sides = torch.arange(patches).unsqueeze(1)
    spread = ((sides >= edges[:-1]) & (sides < edges[1:])).float()  # (patches, cells) along a side
    maps: list[list[Attention]] = [[] for _ in captions]
    end = captioner.generator.end_ids[0]
    for rank in range(max(map(len, captions))):
        indices = [index for index, of_photo in enumerate(captions) if len(of_photo) > rank]
        rows = [captions[index][rank].tokens for index in indices]
        tokens = pad_sequence([torch.tensor(row, dtype=torch.long) for row in rows], True, end)
        with captioner.errors():
            inputs = captioner.inputs([photos[index] for index in indices], prompt)
            weights = captioner.family.attention(captioner.model, inputs, tokens.to(captioner.device)).cpu()
        weights = weights[..., weights.shape[-1] - patches**2 :]
        weights = torch.unflatten(weights / weights.sum(-1, keepdim=True), -1, (patches, patches))
        cells = torch.einsum("btyx,yr,xc->btrc", weights, spread, spread).flatten(-2)  # (b, T + 1, R)
        for row, index in enumerate(indices):
            of_words = _mean_by_word(captioner, cells[row], rows[row])
            maps[index].append(Attention(of_words, cell_boxes(captioner, photos[index].size)))
    return maps


def _mean_by_word(captioner: TransformersCaptioner, cells: Tensor, tokens: Sequence[int]) -> Tensor:
    """Attention (T + 1, R) of tokens as that of words, (words + 1, R), the end's last."""
    indices = torch.tensor(word_indices(captioner.tokenizer, tokens, decode(captioner.tokenizer, tokens)))
    words = [cells[: len(tokens)][indices == word].mean(0) for word in range(int(indices.max()) + 1)] if tokens else []
    return torch.stack([*words, cells[len(tokens)]])


# --- occlusion ---


def occlude(
    captioner: TransformersCaptioner, photos: Photos, captions: Sequence[Generated], prompt: str | None
) -> list[Tensor]:
    """How much less likely each token becomes when a cell is filled with the photo's mean colour: (T + 1, R) each."""
    drops = []
    for image, caption in zip(photos, captions, strict=True):
        boxes = cell_boxes(captioner, image.size).tolist()
        hidden: list[Tensor] = []
        for start in range(0, len(boxes), MAX_PHOTOS):
            filled = [fill(image, box) for box in boxes[start : start + MAX_PHOTOS]]
            forced = captioner.force(filled, [[caption.tokens]] * len(filled), prompt)
            hidden += [torch.tensor([*row.logprobs, row.end]) for (row,) in forced]
        drops.append((torch.tensor([*caption.logprobs, caption.end]) - torch.stack(hidden)).T)
    return drops


def fill(image: Image.Image, box: Sequence[float]) -> Image.Image:
    """A copy of a photo with a rectangle in its mean colour."""
    left, top, right, bottom = map(round, box)
    filled = image.copy()
    colour = tuple(round(channel) for channel in ImageStat.Stat(image).mean)
    ImageDraw.Draw(filled).rectangle((left, top, max(right - 1, left), max(bottom - 1, top)), fill=colour)
    return filled

"""Captions of transformers explained: probabilities, runners-up, occlusion in pixels, attention over patches.

The regions of a photo are the cells of a grid: the patches of the model where its cross-attention is over them (several
patches in a cell if there are more than 12 along a side), else 6 x 6 cells over the whole photo.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from PIL import Image, ImageDraw, ImageStat
from torch import Tensor

from showtell.captioners.hugging_face_generation import Generated
from showtell.captions import NUM_RUNNERS_UP, Attention, Caption, ExplainedCaption, ExplainedWord, ModelExplanation
from showtell.decoding_config import DecodingConfig
from showtell.errors import UsageError
from showtell.hub import quiet

if TYPE_CHECKING:
    from showtell.captioners.hugging_face import PhotoBatch, TransformersCaptioner

MAX_CELLS = 12  # along a side
CELLS = 6  # along a side, where the model has no patches to show
MAX_PHOTOS = 32  # filled photos in a batch


def explain_batch(
    captioner: TransformersCaptioner,
    photos: PhotoBatch,
    settings: DecodingConfig,
    image_ids: Sequence[str] | None,
    occlusion: str | None,
) -> list[ModelExplanation]:
    """The explanations of a batch of photos; see `Captioner.explain_encoded`."""
    prompt = settings.prompt
    best = [of_photo[:1] for of_photo in captioner.search(photos, settings, image_ids)]
    tokens = [[one.tokens for one in of_photo] for of_photo in best]
    forced = captioner.force(photos, tokens, prompt, keep_logits=True)
    drops = occlude(captioner, photos, [rows[0] for rows in forced], prompt) if occlusion else None
    maps = attention_of(captioner, photos, best, prompt, with_end=True) if captioner.patches else None
    note = (
        f"{captioner.name} has no cross-attention from words to the photo that could be shown; occlusion shows what a "
        "word needs."
    )
    if captioner.patches:
        note = (
            f"The cross-attention of the text decoder over the {captioner.patches} x {captioner.patches} patches of "
            "the photo: the mean over all layers and heads, and over the tokens of a word; what goes to no patch is "
            "left out."
        )
    explanations = []
    for index, image in enumerate(photos.images):
        side = len(cell_edges(captioner)) - 1
        caption = _explain(
            captioner,
            best[index][0],
            forced[index][0],
            None if drops is None else drops[index],
            None if maps is None else maps[index][0].weights,
        )
        explanations.append(
            ModelExplanation("", (caption,), cell_boxes(captioner, image.size), (side, side), attention_note=note)
        )
    return explanations


def _explain(
    captioner: TransformersCaptioner, best: Generated, forced: Generated, drops: Tensor | None, attention: Tensor | None
) -> ExplainedCaption:
    """A caption, with the drops (T + 1, R) of its tokens and the attention (words, R)."""
    text, words = captioner.texts.words_of(best.tokens, best.logprobs)
    indices = captioner.texts.word_indices(best.tokens, text)
    assert forced.logits is not None
    explained = []
    for number, word in enumerate(words):
        positions = [position for position, index in enumerate(indices) if index == number]
        explained.append(
            ExplainedWord(
                word.word,
                math.exp(word.logprob),
                runners_up(captioner, forced.logits[positions[0]], best.tokens[positions[0]]) if positions else (),
                logprob_drop=None if drops is None else drops[positions].sum(0),
            )
        )
    if best.finished:
        drop = None if drops is None else drops[len(best.tokens)]
        others = runners_up(captioner, forced.logits[len(best.tokens)], None)
        explained.append(ExplainedWord("", math.exp(best.end), others, logprob_drop=drop))
    caption = Caption(text, best.logprob, best.finished, words, tokens=captioner.tokens_of(best))
    return ExplainedCaption(
        text,
        tuple(explained),
        best.logprob,
        best.finished,
        caption.confidence,
        attention=None if attention is None else attention[: len(explained)],
    )


def runners_up(captioner: TransformersCaptioner, logits: Tensor, token: int | None) -> tuple[tuple[str, float], ...]:
    """The most likely other tokens: logits (V,) and the token that was chosen, None for the end."""
    tokenizer = captioner.tokenizer
    ends = set(captioner.family.end_ids(captioner.model))
    probabilities = logits.softmax(-1)
    hidden = (set(tokenizer.all_special_ids) - ends) | (ends if token is None else {token})
    rest = probabilities.clone()
    rest[[index for index in hidden if index < len(rest)]] = -1.0
    texts: dict[str, float] = {}
    for probability, index in zip(*(x.tolist() for x in rest.topk(min(4 * NUM_RUNNERS_UP, len(rest)))), strict=True):
        text = "" if index in ends else tokenizer.decode([index]).strip()
        if probability >= 0 and (text or index in ends):
            texts.setdefault(text, probability)
    return tuple(list(texts.items())[:NUM_RUNNERS_UP])


# --- regions ---


def cell_edges(captioner: TransformersCaptioner) -> list[int]:
    """Where the cells along a side begin and end, in patches; without patches in sixths."""
    patches = captioner.patches
    if patches is None:
        return list(range(CELLS + 1))
    size = math.ceil(patches / MAX_CELLS)
    return [*range(0, patches, size), patches]


def cell_boxes(captioner: TransformersCaptioner, size: tuple[int, int]) -> Tensor:
    """The cells in a photo of (width, height): (R, 4) left, top, right, bottom in pixels, row by row."""
    left, top, right, bottom = (0.0, 0.0, *map(float, size))
    if captioner.patches is not None:
        left, top, right, bottom = visible_part(captioner.processor.images, size)
    edges = torch.tensor(cell_edges(captioner), dtype=torch.float64)
    shares = edges / edges[-1]
    across, down = left + shares * (right - left), top + shares * (bottom - top)
    rows, columns = torch.meshgrid(torch.arange(len(shares) - 1), torch.arange(len(shares) - 1), indexing="ij")
    rows, columns = rows.flatten(), columns.flatten()
    return torch.stack((across[columns], down[rows], across[columns + 1], down[rows + 1]), 1).float()


def visible_part(processor: Any, size: tuple[int, int]) -> tuple[float, float, float, float]:
    """What of a photo of (width, height) an image processor leaves: all of it, or the middle of it if it crops."""
    width, height = size
    if not getattr(processor, "do_center_crop", False):
        return 0.0, 0.0, float(width), float(height)
    resize, crop = processor.size, processor.crop_size
    shortest = resize.get("shortest_edge") if processor.do_resize else None
    if shortest:
        across = down = shortest / min(width, height)
    elif processor.do_resize:
        across, down = resize["width"] / width, resize["height"] / height
    else:
        across = down = 1.0
    half_width, half_height = crop["width"] / across / 2, crop["height"] / down / 2
    return width / 2 - half_width, height / 2 - half_height, width / 2 + half_width, height / 2 + half_height


# --- attention ---


@torch.no_grad()
def attention_of(
    captioner: TransformersCaptioner,
    photos: PhotoBatch,
    captions: Sequence[Sequence[Generated]],
    prompt: str | None,
    *,
    with_end: bool = False,
) -> list[list[Attention]]:
    """The attention of the words of captions over the cells of their photos; the last row is the end's, if wanted.

    Raises:
        UsageError: the model has no cross-attention over patches.
    """
    patches = captioner.patches
    if patches is None or captioner.family.attention is None:
        raise UsageError(
            f"{captioner.name} has no attention to show: it is of type {captioner.model_type}, which has no "
            "cross-attention over a grid of patches; leave attention out."
        )
    edges = cell_edges(captioner)
    spread = torch.zeros(patches, len(edges) - 1)  # (patches, cells) along a side
    for cell, (start, stop) in enumerate(pairwise(edges)):
        spread[start:stop, cell] = 1.0
    maps: list[list[Attention]] = [[] for _ in captions]
    end = captioner.family.end_ids(captioner.model)[0]
    for rank in range(max(map(len, captions))):
        indices = [index for index, of_photo in enumerate(captions) if len(of_photo) > rank]
        rows = [captions[index][rank].tokens for index in indices]
        longest = max(map(len, rows))
        tokens = torch.tensor([[*row, *[end] * (longest - len(row))] for row in rows], dtype=torch.long)
        inputs = captioner.inputs([photos.images[index] for index in indices], prompt)
        with quiet(), captioner.errors():
            weights = captioner.family.attention(captioner.model, inputs, tokens.to(captioner.device)).cpu()
        weights = weights[..., weights.shape[-1] - patches**2 :]
        weights = torch.unflatten(weights / weights.sum(-1, keepdim=True), -1, (patches, patches))
        cells = torch.einsum("btyx,yr,xc->btrc", weights, spread, spread).flatten(-2)  # (b, T + 1, R)
        for row, index in enumerate(indices):
            text = captioner.texts.decode(rows[row])
            of_words = _mean_by_word(cells[row], captioner.texts.word_indices(rows[row], text), with_end)
            maps[index].append(Attention(of_words, cell_boxes(captioner, photos.images[index].size)))
    return maps


def _mean_by_word(cells: Tensor, indices: Sequence[int], with_end: bool) -> Tensor:
    """Attention (T + 1, R) of tokens as that of words, (words, R), then the end's."""
    words = max(indices, default=-1) + 1
    rows = []
    for word in range(words):
        own = [position for position, index in enumerate(indices) if index == word]
        rows.append(cells[own].mean(0))
    if with_end:
        rows.append(cells[len(indices)])
    return torch.stack(rows) if rows else cells[:0]


# --- occlusion ---


def occlude(
    captioner: TransformersCaptioner, photos: PhotoBatch, captions: Sequence[Generated], prompt: str | None
) -> list[Tensor]:
    """How much less likely each token becomes when a cell is filled with the photo's mean colour: (T + 1, R) each."""
    variants = [
        (index, box) for index, image in enumerate(photos.images) for box in cell_boxes(captioner, image.size).tolist()
    ]
    rows: list[list[Tensor]] = [[] for _ in captions]
    for start in range(0, len(variants), MAX_PHOTOS):
        part = variants[start : start + MAX_PHOTOS]
        images = [fill(photos.images[index], box) for index, box in part]
        filled = captioner.encode_prepared(images)
        forced = captioner.force(filled, [[captions[index].tokens] for index, _ in part], prompt)
        for (index, _), (one,) in zip(part, forced, strict=True):
            rows[index].append(torch.tensor([*one.logprobs, one.end]))
    return [
        (torch.tensor([*caption.logprobs, caption.end]) - torch.stack(of_cells)).T
        for caption, of_cells in zip(captions, rows, strict=True)
    ]


def fill(image: Image.Image, box: Sequence[float]) -> Image.Image:
    """A copy of a photo with a rectangle in its mean colour."""
    left, top, right, bottom = box
    filled = image.copy()
    colour = tuple(round(channel) for channel in ImageStat.Stat(image).mean)
    edges = (round(left), round(top), max(round(right), round(left) + 1) - 1, max(round(bottom), round(top) + 1) - 1)
    ImageDraw.Draw(filled).rectangle(edges, fill=colour)
    return filled

"""Mentions: which words of a caption name which objects, where those are, and which objects are hallucinated.

If the dataset records which words name which objects (`CaptionRecord.groundings`, as scenes does), that is exact.
Otherwise words that name a category, or are synonyms of it (`text/objects.py`), stand for all boxes of that category in
the image.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from showtell.captions import ExplainedCaption, Explanation
from showtell.datasets.records import CaptionRecord
from showtell.images.boxes import corners
from showtell.scenes.lexicon import SHAPE_WORDS
from showtell.scores.chair import categories_shown
from showtell.scores.facts import ImageFacts
from showtell.text.objects import Phrases, mentions, phrases_of
from showtell.text.tokenizer import tokenize
from showtell.types import NamingWords

MIN_IOU = 0.5  # intersection over union from which on a detected region counts as the object


@dataclass(frozen=True)
class NamedBoxes:
    """words[first:end] of a caption name objects whose boxes are known."""

    first: int
    end: int
    boxes: Tensor  # (n, 4) corners in pixels of the upright photo, n >= 1


def category_phrases(records: Sequence[CaptionRecord]) -> Phrases:
    """The phrases that name the categories of a dataset, including the shapes of scenes if it has those."""
    categories = {box.category for record in records for box in record.boxes or ()}
    shapes = {(word,): shape for shape, pairs in SHAPE_WORDS.items() for pair in pairs for word in pair}
    return phrases_of(categories) | {words: shape for words, shape in shapes.items() if shape in categories}


def annotated_phrases(record: CaptionRecord, caption: int) -> list[NamedBoxes]:
    """The phrases of a caption that the dataset annotates with boxes, by the positions of their tokens."""
    assert record.groundings is not None and record.boxes is not None
    pieces = [tokenize(piece) for piece in record.captions[caption].split()]
    if [word for piece in pieces for word in piece] != tokenize(record.captions[caption]):
        return []  # a token crosses a space, so positions of pieces are unknown
    starts = np.cumsum([0, *map(len, pieces)]).tolist()
    corners_of = {box.id: own for box, own in zip(record.boxes, corners(record.boxes), strict=True)}
    return [
        NamedBoxes(starts[phrase.first], starts[phrase.end], torch.stack([corners_of[box] for box in phrase.boxes]))
        for phrase in record.groundings[caption]
        if phrase.boxes
    ]


def annotated_mentions(record: CaptionRecord, caption: int, phrases: Phrases) -> list[NamedBoxes]:
    """The nouns of the phrases that the dataset annotates: the last category named in each of them."""
    words = tokenize(record.captions[caption])
    nouns = []
    for phrase in annotated_phrases(record, caption):
        for noun in mentions(words[phrase.first : phrase.end], phrases)[-1:]:
            nouns.append(NamedBoxes(phrase.first + noun.first, phrase.first + noun.end, phrase.boxes))
    return nouns


def category_mentions(record: CaptionRecord, words: Sequence[str], phrases: Phrases) -> tuple[list[NamedBoxes], int]:
    """The mentions in some words by the names of categories, and the number of those that the image does not have."""
    boxes: dict[str, list[Tensor]] = {}
    for box, own in zip(record.boxes or (), corners(record.boxes), strict=True):
        boxes.setdefault(box.category, []).append(own)
    named = mentions(words, phrases)
    nouns = [
        NamedBoxes(noun.first, noun.end, torch.stack(boxes[noun.category])) for noun in named if noun.category in boxes
    ]
    return nouns, len(named) - len(nouns)


def named_boxes(record: CaptionRecord, caption: int, phrases: Phrases, naming: NamingWords) -> list[NamedBoxes]:
    """Which words of a caption name which boxes, from left to right; words that name none are in no span.

    `naming`: "nouns"; "phrases", every word of those that the dataset annotates ("a small red circle"); or "links",
    also the words between two of them ("is left of"), which lead to the second and name its boxes."""
    if record.groundings is None:
        named, _ = category_mentions(record, tokenize(record.captions[caption]), phrases)
    elif naming == "nouns":
        named = annotated_mentions(record, caption, phrases)
    else:
        named = annotated_phrases(record, caption)
    named = sorted(named, key=lambda one: one.first)
    if naming == "links":
        named = named[:1] + [replace(two, first=min(one.end, two.first)) for one, two in itertools.pairwise(named)]
    return named


def mark_hallucinations(explanation: Explanation, facts: ImageFacts) -> Explanation:
    """Mark the words that name an object which the image does not show (CHAIR's rule), if its objects are annotated."""
    if facts.objects is None:
        return explanation
    phrases = phrases_of(facts.categories | facts.objects)
    shown = categories_shown(facts.objects, map(tokenize, facts.references), phrases)
    models = tuple(
        replace(model, captions=tuple(_mark_caption(caption, phrases, shown) for caption in model.captions))
        for model in explanation.models
    )
    return replace(explanation, models=models)


def _mark_caption(caption: ExplainedCaption, phrases: Phrases, shown: set[str]) -> ExplainedCaption:
    words = list(caption.words)
    for mention in mentions([word.word for word in words], phrases):
        if mention.category not in shown:
            for position in range(mention.first, mention.end):
                words[position] = replace(words[position], hallucinated=mention.category)
    return replace(caption, words=tuple(words))

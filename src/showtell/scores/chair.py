"""CHAIR: objects that a caption names and the image does not show, as its authors count them.

A. Rohrbach et al., Object hallucination in image captioning, EMNLP 2018. COCO's categories are looked for by the words
of the authors' release (`coco_words.txt`), other categories by their names, in the singular and the plural. Two words
that belong together count as one: "hot dog" is no dog, "baby elephant" no person, "train track" no train. An object is
there if it is annotated, or if a reference names it. Categories are all of the dataset, also those that no scored image
shows.

CHAIR_i is the share of named objects that are not there, CHAIR_s the share of captions that name at least one such;
recall is the share of the categories that are there which captions name, F1 its harmonic mean with 1 - CHAIR_i. CHAIR_i
of the first 16, 32 and more words compares long captions with short ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber, ratio
from showtell.scores.facts import ImageFacts
from showtell.text.tokenizer import tokenize

_PLURALS = {"calf": "calves", "goose": "geese", "mouse": "mice"}  # "children", "oxen" and others are words of the list
# Forms that the authors' code does not find, since its singular of "bus" is "bu" and that of "ties" is "ty".
_MISSED = frozenset(["airbus", "bus", "canoes", "magpies", "minibus", "ties"])
_ANIMALS = ("animal", "bear", "bird", "cat", "cow", "cub", "dog", "elephant", "giraffe", "horse", "sheep", "zebra")
_QUALIFIERS = {"baby": _ANIMALS, "adult": _ANIMALS, "passenger": ("jet", "train")}  # which are no persons here
_NO_OBJECTS = (("home", "plate"), ("motor", "bike"), ("train", "track"))  # no plate, bicycle and train


class Chair(Score):
    """CHAIR_i, CHAIR_s, recall and F1 of objects, CHAIR_i by length.

    Statistics: whether an object that is not there is named; categories that are there, those of them that are named;
    objects named and those that are not there, in the whole caption and in its first words.
    """

    lengths = (16, 32, 64, 128)
    numbers = (
        ScoreNumber("chair_i", "CHAIR_i", lower_is_better=True),
        ScoreNumber("chair_s", "CHAIR_s", lower_is_better=True),
        ScoreNumber("chair_recall", "object recall"),
        ScoreNumber("chair_f1", "object F1"),
        *(ScoreNumber(f"chair_i_{n}", f"CHAIR_i at {n}", lower_is_better=True, in_table=False) for n in lengths),
    )
    summary = "hallucinated objects by the rules of the paper, where objects are annotated"
    needs = ("objects",)

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 13)."""
        phrases = phrases_of(_categories(corpus.facts))
        names = {words: category for words, category in phrases.items() if words[-1] not in _MISSED}
        rows = []
        for facts, words, references in zip(corpus.facts, corpus.predicted_words, corpus.reference_words, strict=True):
            shown = categories_shown(facts.objects or (), references, names)
            named = mentions(words, names)
            hits = shown.intersection(mention.category for mention in named)
            counts = []
            for length in (len(words), *self.lengths):
                first = [mention.category for mention in named if mention.end <= length]
                counts += [len(first), sum(category not in shown for category in first)]
            rows.append([counts[1] > 0, len(shown), len(hits), *counts])
        return np.array(rows, dtype=np.float64).reshape(-1, 5 + 2 * len(self.lengths))

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """Shares, 0 where there is nothing to share."""
        of_named = ratio(sums[..., 4::2], sums[..., 3::2])  # in the whole caption, then in its first words
        recall, precision = ratio(sums[..., 2], sums[..., 1]), 1 - of_named[..., 0]
        f1 = ratio(2 * precision * recall, precision + recall)
        whole = np.stack([of_named[..., 0], sums[..., 0] / images, recall, f1], axis=-1)
        return np.concatenate([whole, of_named[..., 1:]], axis=-1)

    def signature(self, corpus: Corpus) -> str:
        """Number of annotated categories, of those of the dataset, words for them, version."""
        categories = _categories(corpus.facts)
        annotated = len(frozenset().union(*(facts.objects or () for facts in corpus.facts)))
        of = f"|of:{len(categories)}" if len(categories) > annotated else ""
        return f"{corpus.signature}|categories:{annotated}{of}|words:rohrbach2018|version:{__version__}"


def _categories(facts: Iterable[ImageFacts]) -> set[str]:
    """The categories that may be annotated in some images."""
    return {category for image in facts for category in (*image.categories, *(image.objects or ()))}


Phrases = dict[tuple[str, ...], str | None]  # words to the category that they name; None: to no category


@cache
def _coco_words() -> dict[str, list[str]]:
    """COCO's categories, each with the words that stand for it."""
    lines = Path(__file__).with_name("coco_words.txt").read_text("utf-8").splitlines()
    pairs = (line.split(":") for line in lines if not line.startswith("#"))
    return {category: [category, *filter(None, words.strip().split(", "))] for category, words in pairs}


def phrases_of(categories: Iterable[str]) -> Phrases:
    """How captions may name some categories."""
    phrases: Phrases = {(first, form): None for first, noun in _NO_OBJECTS for form in _forms(noun)}
    for category in sorted(categories):
        for words in filter(None, map(tokenize, _coco_words().get(category, [category]))):
            for last in _forms(words[-1]):
                phrases.setdefault((*words[:-1], last), category)
    for qualifier, nouns in _QUALIFIERS.items():
        for form in (form for noun in nouns for form in _forms(noun)):
            phrases[qualifier, form] = phrases.get((form,))
    return {**phrases, ("toilet", "seat"): phrases.get(("toilet",))}


@dataclass(frozen=True, slots=True)
class Mention:
    """words[first:end] of a caption, which name a category."""

    first: int
    end: int
    category: str


def mentions(words: Sequence[str], names: Phrases) -> list[Mention]:
    """Where a caption names which category, the longest names first; beside a toilet a seat is no chair.

    >>> mentions("a dog eats hot dogs".split(), phrases_of({"dog", "hot dog"}))[1]
    Mention(first=3, end=5, category='hot dog')
    """
    longest = max(map(len, names), default=0)
    hidden = ("seat", "seats") if "toilet" in words or "toilets" in words else ()
    located = []
    start = 0
    while start < len(words):
        sizes = range(min(longest, len(words) - start), 0, -1)
        size = next((size for size in sizes if tuple(words[start : start + size]) in names), 0)
        end = start + max(size, 1)
        category = names.get(tuple(words[start:end]))
        if category is not None and words[start] not in hidden:
            located.append(Mention(start, end, category))
        start = end
    return located


def categories_shown(annotated: Iterable[str], references: Iterable[Sequence[str]], names: Phrases) -> set[str]:
    """The categories that an image shows: those that are annotated in it, and those that a reference names."""
    return set(annotated).union(mention.category for words in references for mention in mentions(words, names))


def _forms(word: str) -> set[str]:
    """A word and its plurals, with an s too many or too few where people write so."""
    forms = {word, word + "s", _PLURALS.get(word, word)}
    if word.endswith("y"):
        forms.add(word[:-1] + "ies")
    if word.endswith(("s", "x", "z", "ch", "sh", "o")):
        forms.add(word + "es")
    if word.endswith("man"):
        forms.add(word[:-2] + "en")
    return forms

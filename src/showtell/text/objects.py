"""The things that captions name: as CHAIR counts them, as keywords of a photo, and as what finds a photo by words.

COCO's categories are known by the words of CHAIR's authors (`coco_words.txt`), other things by the names of Visual
Genome's objects (`visual_genome.txt`) and by a list of ours (`nouns.txt`), in the singular and the plural.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from showtell.text.tokenizer import tokenize

_PLURALS = {
    "calf": "calves", "child": "children", "foot": "feet", "goose": "geese", "knife": "knives", "leaf": "leaves",
    "mouse": "mice", "ox": "oxen", "person": "people", "scarf": "scarves", "shelf": "shelves", "tooth": "teeth",
    "wolf": "wolves",
}  # fmt: skip
_ANIMALS = ("animal", "bear", "bird", "cat", "cow", "cub", "dog", "elephant", "giraffe", "horse", "sheep", "zebra")
_QUALIFIERS = {"baby": _ANIMALS, "adult": _ANIMALS, "passenger": ("jet", "train")}  # which are no persons here
_NO_OBJECTS = (("home", "plate"), ("motor", "bike"), ("train", "track"))  # no plate, bicycle and train
# Categories whose other words are kinds of them: a puppy is a dog, but a dog need not be a puppy. Those of the others
# stand for the same thing, such as "couch" and "sofa", or for one that is like it, such as "bowl" and "container".
_KINDS = frozenset(["bear", "bird", "boat", "car", "cat", "dog", "horse", "person", "truck"])

Phrases = dict[tuple[str, ...], str | None]  # words to the category or the thing that they name; None: to none


def phrases_of(categories: Iterable[str]) -> Phrases:
    """How captions may name some categories."""
    phrases: Phrases = {(first, form): None for first, noun in _NO_OBJECTS for form in _forms(noun)}
    for category in sorted(categories):
        for words in filter(None, map(tokenize, _coco_words().get(category, [category]))):
            _add_forms(phrases, words, category)
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


def mentions(words: Sequence[str], names: Phrases, longest: int | None = None) -> list[Mention]:
    """Where words name which category, long names (up to `longest` words) first; by a toilet a seat is no chair."""
    longest = longest or max(map(len, names), default=0)
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


def keywords(caption: str) -> list[str]:
    """The things that a caption names: its own words in the singular, a puppy also as the dog that it is."""
    words: dict[str, None] = {}
    for _, name, category in _things(tokenize(caption)):
        words |= dict.fromkeys(word for word in (name, category) if word in {name, *_KINDS})
    return list(words)


def matches(query: str, caption: str) -> bool:
    """Whether a caption has each word of a query: as a thing by another name, or as the beginning of a word."""
    asked, words = tokenize(query), tokenize(caption)
    named = {word for _, *names in _things(words) for word in names}
    for mention, name, category in _things(asked):
        if name in named or (category in named and category not in _KINDS):
            asked[mention.first : mention.end] = [""] * (mention.end - mention.first)
    return all(any(word.startswith(part) for word in ["", *words]) for part in asked)


def _things(words: Sequence[str]) -> list[tuple[Mention, str, str | None]]:
    """The things that words name: where, their name, and the category of COCO that they belong to, if any does."""
    coco, things = _coco_phrases(), []
    for mention in mentions(words, _nouns(), longest=3):
        endings = (tuple(words[start : mention.end]) for start in range(mention.first, mention.end))
        things.append((mention, mention.category, next((coco[ending] for ending in endings if ending in coco), None)))
    return things


@cache
def visual_genome_names() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The names of the 1,600 objects and 400 attributes that the detector knows, in the order of its outputs."""
    objects, attributes = _lists("visual_genome.txt")
    return objects, attributes


@cache
def _coco_words() -> dict[str, list[str]]:
    """COCO's categories, each with the words that stand for it."""
    lines = Path(__file__).with_name("coco_words.txt").read_text("utf-8").splitlines()
    pairs = (line.split(":") for line in lines if not line.startswith("#"))
    return {category: [category, *filter(None, words.strip().split(", "))] for category, words in pairs}


@cache
def _coco_phrases() -> Phrases:
    return phrases_of(_coco_words())


@cache
def _nouns() -> Phrases:
    """How captions may name the things that are keywords of photos, each with its singular."""
    more, no_keywords, verbs = _lists("nouns.txt")
    coco = (word for words in _coco_words().values() for word in words)
    names = {*coco, *visual_genome_names()[0]}.difference(form for name in no_keywords for form in _forms(name))
    plurals = {form for name in names for form in _forms(name) if form != name}
    phrases: Phrases = {}
    for name in (*more, *sorted(names - plurals)):
        _add_forms(phrases, name.split(), name)
    for qualifier, nouns in _QUALIFIERS.items():
        phrases |= {(qualifier, form): noun for noun in nouns for form in _forms(noun)}
    return {words: name for words, name in phrases.items() if " ".join(words) not in verbs}


def _lists(file: str) -> list[tuple[str, ...]]:
    """The lists of names in a file, which an empty line ends."""
    lines = Path(__file__).with_name(file).read_text("utf-8").splitlines()
    names = " ".join(line or "," for line in lines if not line.startswith("#"))
    return [tuple(part.split(", ")) for part in names.split(" , ")]


def _add_forms(phrases: Phrases, words: Sequence[str], name: str) -> None:
    """Add the singular and the plurals of a name, unless another has them."""
    for last in _forms(words[-1]):
        phrases.setdefault((*words[:-1], last), name)


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

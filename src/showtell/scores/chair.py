"""CHAIR: objects that a caption names and the image does not show.

A. Rohrbach et al., Object hallucination in image captioning, EMNLP 2018. Names of object categories, their plurals
and other words for them are looked for in the captions, the longest first ("hot dog" is no dog). An object is there
if it is annotated, or if a reference names it. CHAIR_i is the share of named objects that are not there, CHAIR_s the
share of captions that name at least one such; lower is better. Categories are all of the dataset, also those that no
scored image shows. The paper's list of words for COCO's categories is not used; ours is `COCO_WORDS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber
from showtell.scores.facts import ImageFacts
from showtell.text.function_words import FUNCTION_WORDS
from showtell.text.tokenizer import tokenize

# Colours; one that is a category as well, such as orange, names no fruit in "an orange cat", "an orange and white cat".
COLOURS = {
    "black", "blue", "brown", "gray", "green", "grey", "orange", "pink", "purple", "red", "silver", "tan", "white",
    "yellow",
}  # fmt: skip
# What may stand behind a noun, other than a noun that it describes.
BEHIND_NOUNS = FUNCTION_WORDS | {
    "above", "among", "behind", "below", "beside", "between", "for", "from", "has", "inside", "into", "near", "next",
    "onto", "or", "over", "resting", "sits", "sitting", "under", "was", "were",
}  # fmt: skip

# Other words for COCO's 80 categories; plurals are made.
COCO_WORDS = {category: tuple(words.split(", ")) for category, words in {
    "person": "man, woman, boy, girl, child, kid, baby, toddler, guy, lady, gentleman, player, people, men, women, "
    "children, skier, surfer, skateboarder, snowboarder, rider, batter, pitcher, catcher, chef, "
    "policeman, couple, crowd, pedestrian, teenager, adult, infant",
    "bicycle": "bike", "car": "automobile, sedan, suv, taxi, cab, minivan", "motorcycle": "motorbike, moped, scooter",
    "airplane": "plane, aeroplane, jet, jetliner, airliner, aircraft, biplane",
    "train": "locomotive, tram, subway train", "truck": "pickup, lorry",
    "boat": "ship, canoe, kayak, sailboat, ferry, yacht, rowboat",
    "traffic light": "stoplight, traffic signal, stop light", "fire hydrant": "hydrant",
    "bird": "duck, goose, geese, seagull, pigeon, parrot, owl, swan, penguin, chicken, ostrich",
    "cat": "kitten, kitty", "dog": "puppy, puppies, hound", "horse": "pony, ponies, foal, colt", "sheep": "lamb, ram",
    "cow": "cattle, bull, calf, calves, ox, oxen", "teddy bear": "teddy, teddies, stuffed bear",
    "backpack": "knapsack, rucksack", "handbag": "purse", "tie": "necktie, bow tie", "suitcase": "luggage, briefcase",
    "sports ball": "soccer ball, tennis ball, basketball, football, baseball", "skis": "ski",
    "surfboard": "surf board", "skateboard": "skate board", "cup": "mug", "wine glass": "wineglass",
    "knife": "knives", "hot dog": "hotdog", "donut": "doughnut", "couch": "sofa, loveseat",
    "potted plant": "houseplant, house plant", "dining table": "table, desk",
    "tv": "television, television set, monitor", "laptop": "laptop computer, notebook computer",
    "mouse": "computer mouse", "remote": "remote control", "cell phone": "cellphone, phone, smartphone, mobile phone",
    "oven": "stove", "refrigerator": "fridge", "hair drier": "hair dryer, blow dryer, hairdryer",
}.items()}  # fmt: skip


class Chair(Score):
    """CHAIR_i and CHAIR_s. Statistics: objects named, those that are not there, and whether there is one."""

    numbers = (
        ScoreNumber("chair_i", "CHAIR_i", lower_is_better=True),
        ScoreNumber("chair_s", "CHAIR_s", lower_is_better=True),
    )
    summary = "hallucinated objects, where the images have boxes"
    needs = ("references", "objects")

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 3)."""
        names = phrases_of(_categories(corpus.facts))
        rows = []
        for facts, words, references in zip(corpus.facts, corpus.predicted_words, corpus.reference_words, strict=True):
            shown = categories_shown(facts.objects or (), references, names)
            named = mentioned(words, names)
            absent = sum(category not in shown for category in named)
            rows.append([len(named), absent, absent > 0])
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """Objects that are not there over objects named, 0 where none is; captions with one over captions."""
        named, absent, captions = np.moveaxis(sums, -1, 0)
        of_named = np.divide(absent, named, out=np.zeros_like(absent), where=named > 0)
        return np.stack([of_named, captions / images], axis=-1)

    def signature(self, corpus: Corpus) -> str:
        """Number of annotated categories, of those of the dataset, words for them, version."""
        categories = _categories(corpus.facts)
        annotated = len(frozenset().union(*(facts.objects or () for facts in corpus.facts)))
        of = f"|of:{len(categories)}" if len(categories) > annotated else ""
        return f"{corpus.signature}|categories:{annotated}{of}|words:showtell|version:{__version__}"


def _categories(facts: Iterable[ImageFacts]) -> set[str]:
    """The categories that may be annotated in some images."""
    return {category for image in facts for category in (*image.categories, *(image.objects or ()))}


Phrases = dict[tuple[str, ...], str]


def phrases_of(categories: Iterable[str]) -> Phrases:
    """How captions may name some categories: words to category."""
    phrases: Phrases = {}
    for category in sorted(categories):
        for words in filter(None, map(tokenize, (category, *COCO_WORDS.get(category, ())))):
            for last in (words[-1], *_plurals(words[-1])):
                phrases.setdefault((*words[:-1], last), category)
    return phrases


@dataclass(frozen=True, slots=True)
class Mention:
    """words[first:end] of a caption, which name a category."""

    first: int
    end: int
    category: str


def mentions(words: Sequence[str], names: Phrases) -> list[Mention]:
    """Where a caption names which category.

    A word that is also a colour names nothing where it describes a noun behind it.

    >>> mentions("a dog eats hot dogs".split(), phrases_of({"dog", "hot dog"}))[1]
    Mention(first=3, end=5, category='hot dog')
    >>> mentions("an orange and white cat beside an orange on a plate".split(), phrases_of({"orange"}))
    [Mention(first=7, end=8, category='orange')]
    """
    longest = max(map(len, names), default=0)
    located = []
    start = 0
    while start < len(words):
        sizes = range(min(longest, len(words) - start), 0, -1)
        size = next((size for size in sizes if tuple(words[start : start + size]) in names), 0)
        end = start + max(size, 1)
        if size and not _describes(words[end - 1], words[end:]):
            located.append(Mention(start, end, names[tuple(words[start:end])]))
        start = end
    return located


def _describes(word: str, after: Sequence[str]) -> bool:
    """Whether a word is a colour of what the words after it name."""
    if word not in COLOURS or not after:
        return False
    return after[0] not in BEHIND_NOUNS or (after[0] == "and" and any(word in COLOURS for word in after[1:2]))


def mentioned(words: Sequence[str], names: Phrases) -> list[str]:
    """The categories that a caption names, as often as it names them."""
    return [mention.category for mention in mentions(words, names)]


def categories_shown(annotated: Iterable[str], references: Iterable[Sequence[str]], names: Phrases) -> set[str]:
    """The categories that an image shows: those that are annotated in it, and those that a reference names."""
    return set(annotated).union(*(mentioned(words, names) for words in references))


def _plurals(word: str) -> tuple[str, ...]:
    if word.endswith("y") and word[-2:-1] not in tuple("aeiou"):
        return (word[:-1] + "ies", word + "s")
    if word.endswith(("s", "x", "z", "ch", "sh")):
        return (word + "es",)
    return (word + "s",)

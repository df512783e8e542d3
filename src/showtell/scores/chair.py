"""CHAIR: objects that a caption names and the image does not show, as its authors count them.

A. Rohrbach et al., Object hallucination in image captioning, EMNLP 2018. COCO's categories are looked for by the words
of the authors' release (`text/objects.py`), other categories by their names, in the singular and the plural. Two words
that belong together count as one: "hot dog" is no dog, "baby elephant" no person, "train track" no train. An object is
there if it is annotated, or if a reference names it. Categories are all of the dataset, also those that no scored image
shows.

CHAIR_i is the share of named objects that are not there, CHAIR_s the share of captions that name at least one such;
recall is the share of the categories that are there which captions name, F1 its harmonic mean with 1 - CHAIR_i. CHAIR_i
of the first 16, 32 and more words compares long captions with short ones.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber, ratio
from showtell.scores.facts import ImageFacts
from showtell.text.objects import Phrases, mentions, phrases_of

# Forms that the authors' code does not find, since its singular of "bus" is "bu" and that of "ties" is "ty".
_MISSED = frozenset(["airbus", "bus", "canoes", "magpies", "minibus", "ties"])


class Chair(Score):
    """CHAIR_i, CHAIR_s, recall and F1 of objects, CHAIR_i by length.

    Statistics: whether an object that is not there is named; categories that are there, those of them that are named;
    objects named and those that are not there, in the whole caption and in its first words."""

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


def categories_shown(annotated: Iterable[str], references: Iterable[Sequence[str]], names: Phrases) -> set[str]:
    """The categories that an image shows: those that are annotated in it, and those that a reference names."""
    return set(annotated).union(mention.category for words in references for mention in mentions(words, names))

"""BLEU-1 to 4 as coco-caption computes it.

K. Papineni et al., BLEU: a method for automatic evaluation of machine translation, ACL 2002. The conventions are those
of the reference implementation: per image the closest reference length (ties go to the shorter), counts clipped to the
maximum over references, and two tiny constants in place of smoothing, which is why an identical sentence of four words
scores 0.9999999992. `BleuNoBp` leaves the brevity penalty out: so Xu et al.'s own tables were counted.
"""

from __future__ import annotations

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber
from showtell.scores.ngrams import ORDERS, Integers, NgramIndex

_TINY = 1e-15  # added to numerators
_SMALL = 1e-9  # added to denominators


class Bleu(Score):
    """BLEU-1 to 4. Statistics: words, closest reference length, then matched n-grams and n-grams for n = 1, 2, 3, 4."""

    numbers = (
        *(ScoreNumber(f"bleu_{n}", f"BLEU-{n}", in_table=False, can_reward=True) for n in range(1, ORDERS)),
        ScoreNumber("bleu_4", "BLEU-4", can_select=True, in_validation=True, explanation_rank=6, can_reward=True),
    )
    summary = "corpus BLEU, closest reference length"

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 10)."""
        index = corpus.ngrams
        length = index.lengths[index.is_prediction]
        columns = [length, closest_lengths(index)]
        for n, entries in enumerate(index.counts, start=1):
            starts = np.flatnonzero(np.diff(entries.group, prepend=-1))
            predicted = index.is_prediction[entries.caption]
            in_references = np.where(predicted, 0, entries.count)
            most = np.maximum.reduceat(in_references, starts) if len(starts) else in_references
            clipped = np.minimum(entries.count[predicted], most[entries.group[predicted]])
            image = index.image[entries.caption[predicted]]
            columns.append(np.bincount(image, weights=clipped, minlength=index.images))
            columns.append(np.maximum(length - n + 1, 0))
        return np.stack(columns, axis=1).astype(np.float64)

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """BLEU-n = brevity penalty x (product of the first n precisions)^(1/n)."""
        length, reference = sums[..., 0], sums[..., 1]
        lengths_ratio = (length + _TINY) / (reference + _SMALL)
        penalty = np.where(lengths_ratio < 1, np.exp(1 - 1 / lengths_ratio), 1.0)
        return mean_precisions(sums) * penalty[..., None]

    def signature(self, corpus: Corpus) -> str:
        """Tokenizer, references, brevity convention, version."""
        return f"{corpus.signature}|length:closest|smooth:tiny|version:{__version__}"


class BleuNoBp(Bleu):
    """BLEU without brevity penalty. It favours short captions ("a a a" scores high), so it selects no weights."""

    numbers = tuple(ScoreNumber(f"bleu_no_bp_{n}", f"BLEU-{n}, no brevity penalty") for n in range(1, ORDERS + 1))
    summary = "corpus BLEU without brevity penalty, as Xu et al. 2015 count; only where `--metrics` names it"
    by_default = False

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """BLEU-n without its first factor; 0 where there are no words."""
        return np.where(sums[..., :1] > 0, mean_precisions(sums), 0.0)

    def signature(self, corpus: Corpus) -> str:
        """The signature of BLEU, which says that there is no penalty instead of which length is compared."""
        return super().signature(corpus).replace("length:closest", "bp:no")

    def warning(self, corpus: Corpus) -> str | None:
        """That short captions score high."""
        return 'bleu_no_bp has no brevity penalty: captions that are too short ("a a a") score high; compare bleu.'


def mean_precisions(sums: Floats) -> Floats:
    """(product of the first n precisions)^(1/n) for n = 1 to 4: (..., 10) to (..., 4)."""
    precisions = (sums[..., 2::2] + _TINY) / (sums[..., 3::2] + _SMALL)
    means: Floats = np.cumprod(precisions, axis=-1) ** (1 / np.arange(1, ORDERS + 1))
    return means


def closest_lengths(index: NgramIndex) -> Integers:
    """The reference length closest to the prediction's, of two as close the shorter: (images,)."""
    of_image = index.image[~index.is_prediction]
    reference = index.lengths[~index.is_prediction]
    distance = np.abs(reference - index.lengths[index.is_prediction][of_image])
    order = np.lexsort((reference, distance, of_image))
    first = np.flatnonzero(np.diff(of_image[order], prepend=-1))
    return reference[order][first]

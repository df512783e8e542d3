"""ROUGE-L as coco-caption computes it.

C.-Y. Lin, ROUGE: a package for automatic evaluation of summaries, 2004: the longest common subsequence of
prediction and reference as precision and recall, F-measure with beta = 1.2. Precision and recall are each
maximised over the references, as in the reference implementation. A caption without words is one empty token
there, so empty against empty scores 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber

_BETA = 1.2
_NO_WORDS = [""]


class RougeL(Score):
    """ROUGE-L. Statistics: the number of each image."""

    numbers = (ScoreNumber("rouge_l", "ROUGE-L", explanation_rank=5),)
    summary = "ROUGE-L, beta 1.2"

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        pairs = zip(corpus.predicted_words, corpus.reference_words, strict=True)
        values = [rouge_l(prediction, references) for prediction, references in pairs]
        return np.array(values, dtype=np.float64).reshape(-1, 1)

    def signature(self, corpus: Corpus) -> str:
        """Tokenizer, references, beta, version."""
        return f"{corpus.signature}|beta:{_BETA}|version:{__version__}"


def rouge_l(prediction: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """ROUGE-L of one prediction."""
    prediction = prediction or _NO_WORDS
    common = common_subsequences(prediction, [reference or _NO_WORDS for reference in references])
    precision = max(common) / len(prediction)
    recall = max(length / len(reference or _NO_WORDS) for length, reference in zip(common, references, strict=True))
    if precision == 0 or recall == 0:
        return 0.0
    return ((1 + _BETA**2) * precision * recall) / (recall + _BETA**2 * precision)


def common_subsequences(words: Sequence[str], others: Sequence[Sequence[str]]) -> list[int]:
    """Lengths of the longest common subsequences of one caption with others, bit-parallel (Hyyrö 2004).

    Bit i of `row` is 0 where the length grows at word i, so a step of the usual table is an addition of integers."""
    positions: dict[str, int] = {}
    for index, word in enumerate(words):
        positions[word] = positions.get(word, 0) | 1 << index
    full = (1 << len(words)) - 1
    lengths = []
    for other in others:
        row = full
        for word in other:
            if word in positions:
                matches = row & positions[word]
                row = (row + matches | row - matches) & full
        lengths.append(len(words) - row.bit_count())
    return lengths

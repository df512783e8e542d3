"""What is wrong with captions that a score does not say: too few words, repetition, bad endings, one caption for all.

All counts are of words as the tokenizer makes them, all rates are shares between 0 and 1.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Container, Iterable, Mapping, Sequence

import numpy as np

from showtell.errors import DataError
from showtell.scores.base import Corpus, image_numbers
from showtell.scores.bleu import Bleu
from showtell.scores.cider import Cider
from showtell.scores.facts import ImageFacts
from showtell.scores.ngrams import ORDERS, DocumentFrequency, ngrams
from showtell.text.endings import BAD_ENDINGS
from showtell.text.tokenizer import tokenize

UNKNOWN_WORDS = frozenset(["<unk>", "unk", "<unknown>"])


def diagnose(
    captions: Iterable[str],
    *,
    training: Iterable[str] | None = None,
    vocabulary: Container[str] | None = None,
) -> dict[str, float]:
    """Rates over a set of captions, one per image.

    Args:
        captions: the predictions.
        training: captions that the model was trained on: adds `novelty`.
        vocabulary: words that count as known; None counts only the marks of unknown words.

    Returns:
        mean_length in words; vocabulary, the number of different words; distinct_1 and distinct_2, different n-grams
        per n-gram; bad_endings and repeats, shares of captions that end in a word like "a", or in which one to four
        words follow themselves; unknown, the share of words; identical, the share of captions that another image has
        too; most_common, the share of the commonest caption; novelty, the share that is no training caption.

    Raises:
        DataError: there are no captions.
    """
    words = [tuple(tokenize(caption)) for caption in captions]
    if not words:
        raise DataError("There are no captions to diagnose.")
    total = sum(map(len, words))
    different = {word for caption in words for word in caption}
    known = different - UNKNOWN_WORDS if vocabulary is None else {word for word in different if word in vocabulary}
    times = Counter(words)
    rates = {
        "mean_length": total / len(words),
        "vocabulary": float(len(different)),
        **{f"distinct_{n}": distinct(words, n) for n in (1, 2)},
        "bad_endings": _share(bool(caption) and caption[-1] in BAD_ENDINGS for caption in words),
        "repeats": _share(repeats_itself(caption) for caption in words),
        "unknown": sum(word not in known for caption in words for word in caption) / max(total, 1),
        "identical": _share(times[caption] > 1 for caption in words),
        "most_common": max(times.values()) / len(words),
    }
    if training is not None:
        trained_on = {tuple(tokenize(caption)) for caption in training}
        rates["novelty"] = _share(caption not in trained_on for caption in words)
    return rates


def diversity(
    sets: Mapping[str, Sequence[str]], document_frequency: DocumentFrequency | None = None
) -> dict[str, float]:
    """How different the several captions of each image are, averaged over images.

    Args:
        sets: image id to two or more captions, as many for each image.
        document_frequency: for self_cider; None takes the captions themselves.

    Returns:
        mbleu_4: BLEU-4 of each caption against the others of its image (lower is more diverse); distinct_1,
        distinct_2: different n-grams per n-gram within an image; self_cider: Q. Wang, A. Chan, Describing like
        humans, CVPR 2019: -log(s_1 / sum s) / log(captions) of the singular values s of the captions' vectors, whose
        squares are the eigenvalues of the matrix of their CIDEr similarities; 1 is most diverse.

    Raises:
        DataError: an image has fewer than two captions, or a different number than the others.
    """
    counts = {len(captions) for captions in sets.values()}
    if len(counts) != 1 or min(counts) < 2:
        raise DataError(
            f"Diversity compares sets of at least two captions, equally many for each image, not of {sorted(counts)}."
        )
    (size,) = counts
    ids = tuple(sets)
    chosen = [(image, number) for image in ids for number in range(size)]
    against_others = Corpus(
        ids=tuple(f"{image} {number}" for image, number in chosen),
        predictions=tuple(sets[image][number] for image, number in chosen),
        facts=tuple(
            ImageFacts(tuple(text for other, text in enumerate(sets[image]) if other != number))
            for image, number in chosen
        ),
    )
    bleu = Bleu()
    words = [[tokenize(caption) for caption in sets[image]] for image in ids]
    return {
        "mbleu_4": float(image_numbers(bleu, bleu.statistics(against_others))[:, 3].mean()),
        **{f"distinct_{n}": float(np.mean([distinct(captions, n) for captions in words])) for n in (1, 2)},
        "self_cider": float(np.mean(_self_cider(sets, words, document_frequency))),
    }


def distinct(captions: Iterable[Sequence[str]], n: int) -> float:
    """Different n-grams per n-gram of some captions; 0 where there are none."""
    counts = Counter(gram for caption in captions for gram in ngrams(caption, [n]))
    return len(counts) / max(counts.total(), 1)


def repeats_itself(words: Sequence[str]) -> bool:
    """Whether one to four words follow themselves: "a man a man", "red red".

    >>> repeats_itself("a man and a man and".split()), repeats_itself("a man and a dog".split())
    (True, False)
    """
    return any(
        words[start : start + n] == words[start + n : start + 2 * n]
        for n in range(1, ORDERS + 1)
        for start in range(len(words) - 2 * n + 1)
    )


def _self_cider(
    sets: Mapping[str, Sequence[str]], words: Sequence[Sequence[Sequence[str]]], frequency: DocumentFrequency | None
) -> list[float]:
    """Self-CIDEr of each image."""
    size = len(words[0])
    frequency = frequency or DocumentFrequency.of(words, "captions")
    pairs = [(image, one, other) for image in sets for one in range(size) for other in range(size)]
    corpus = Corpus(
        ids=tuple(map(str, range(len(pairs)))),
        predictions=tuple(sets[image][one] for image, one, _ in pairs),
        facts=tuple(ImageFacts((sets[image][other],)) for image, _, other in pairs),
        document_frequency=frequency,
    )
    plain = Cider().statistics(corpus)[:, 1] / 10
    values = []
    for kernel in plain.reshape(-1, size, size):
        singular = np.sqrt(np.maximum(np.linalg.eigvalsh((kernel + kernel.T) / 2), 0))
        total = singular.sum()
        values.append(-math.log(singular.max() / total) / math.log(size) if total > 0 else 0.0)
    return values


def _share(flags: Iterable[bool]) -> float:
    values = list(flags)
    return sum(values) / len(values)

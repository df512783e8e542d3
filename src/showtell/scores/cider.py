"""CIDEr-D, the number that everyone publishes as CIDEr.

R. Vedantam, C. L. Zitnick, D. Parikh, CIDEr: consensus-based image description evaluation, CVPR 2015. A caption is a
vector of n-gram counts weighted by log(images / images whose references hold the n-gram), for each n = 1 to 4; the
score is the mean cosine to the references, times 10. CIDEr-D clips a prediction's weights to the reference's and
multiplies by exp(-(difference in length)^2 / (2 sigma^2)), sigma = 6, against captions that repeat or pad.

coco-caption's "CIDEr" is CIDEr-D, and its length is counted in bigrams. With one image every weight is log(1) = 0.
"""

from __future__ import annotations

import math

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber
from showtell.scores.ngrams import FEW_IMAGES, ORDERS, Integers, NgramCounts, NgramIndex

SIGMA = 6.0


class Cider(Score):
    """CIDEr-D. Statistics: the number of each image."""

    numbers = (
        ScoreNumber("cider", "CIDEr-D", 10.0, can_select=True, in_validation=True, explanation_rank=3, can_reward=True),
    )
    summary = "what everyone publishes as CIDEr, in truth CIDEr-D"
    needs = ("references", "document_frequency")

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 1)."""
        given = corpus.document_frequency
        index = corpus.ngrams
        log_images = np.log(float(given.images if given else index.images))
        by_order = []
        for n, entries in enumerate(index.counts, start=1):
            frequency = given.of_grams(index, entries, n) if given else reference_frequency(index, entries)
            weight = log_images - np.log(np.maximum(1.0, frequency))
            by_order.append(similarities(index, entries, weight))
        similarity = np.array(by_order) * length_penalty(index)
        return image_means(index, similarity)[:, None]

    def warning(self, corpus: Corpus) -> str | None:
        """A sentence where the document frequencies come from few images."""
        images = corpus.document_frequency.images if corpus.document_frequency else len(corpus.ids)
        message = (
            f"CIDEr's document frequencies come from {images} images, too few to tell common words from rare ones "
            f"(about {FEW_IMAGES} at least): take them from the training captions or from COCO's."
        )
        return message if images < FEW_IMAGES else None

    def signature(self, corpus: Corpus) -> str:
        """Tokenizer, references, source of the document frequencies and its size in images, version."""
        given = corpus.document_frequency
        source = f"{given.source}:{given.images}" if given else f"references:{len(corpus.ids)}"
        return f"{corpus.signature}|df:{source}|n:{ORDERS}|sigma:{SIGMA:g}|version:{__version__}"


def reference_frequency(index: NgramIndex, entries: NgramCounts) -> Floats:
    """In the references of how many images each n-gram occurs: (grams,)."""
    in_reference = ~index.is_prediction[entries.caption]
    group = entries.group[in_reference]
    once = np.diff(group, prepend=-1) != 0
    return np.bincount(entries.gram[in_reference][once], minlength=entries.grams).astype(np.float64)


def similarities(index: NgramIndex, entries: NgramCounts, weight: Floats) -> Floats:
    """Cosine of each reference with its image's prediction for one n, clipped: (references,). `weight`: (grams,).

    Sums run in the order of the words in the caption, as in the reference, so that the last digit agrees too."""
    vector = entries.count * weight[entries.gram]  # (entries,)
    at_word = np.zeros(len(index.words))
    at_word[entries.position] = vector**2
    norm = np.sqrt(_sums(at_word, index.lengths))  # (captions,)

    # an entry of a reference matches when the first entry of its group is one of the prediction
    first = np.flatnonzero(np.diff(entries.group, prepend=-1))[entries.group]
    matched = np.flatnonzero(index.is_prediction[entries.caption[first]] & ~index.is_prediction[entries.caption])
    partner = first[matched]
    reference = entries.caption[matched]

    # one cell per reference and word of the prediction, in that order
    prediction = np.flatnonzero(index.is_prediction)[index.image]  # (captions,) the image's prediction
    cells = np.where(index.is_prediction, 0, index.lengths[prediction])
    cell = (np.cumsum(cells) - cells)[reference] + entries.position[partner] - index.starts[prediction[reference]]
    predicted = np.minimum(vector[partner], vector[matched])
    products = np.zeros(int(cells.sum()))
    products[cell] = predicted * vector[matched]
    dots = _sums(products, cells)
    lengths = norm[prediction] * norm
    np.divide(dots, lengths, out=dots, where=lengths != 0)
    return dots[~index.is_prediction]


def length_penalty(index: NgramIndex) -> Floats:
    """The Gaussian penalty on each reference's difference in length from the prediction: (references,)."""
    bigrams = np.maximum(index.lengths - 1, 0)
    prediction = np.flatnonzero(index.is_prediction)[index.image]
    delta = np.abs(bigrams - bigrams[prediction])[~index.is_prediction]
    # through Python's pow, one value for each difference: numpy's power and exp may differ in the last digit
    different, where = np.unique(delta, return_inverse=True)
    return np.array([math.e ** (-(float(d) ** 2) / (2 * SIGMA**2)) for d in different.tolist()])[where]


def image_means(index: NgramIndex, similarity: Floats) -> Floats:
    """The mean over references and n, times 10, of each image: (orders, references) to (images,)."""
    image = index.image[~index.is_prediction]
    references = np.bincount(image, minlength=index.images)
    total = sum(np.bincount(image, weights=row, minlength=index.images) for row in similarity)
    return np.asarray(total / len(similarity) / references * 10.0)


def _sums(values: Floats, lengths: Integers) -> Floats:
    """Sum of each run of values, in order: (runs,)."""
    run = np.repeat(np.arange(len(lengths)), lengths)
    return np.bincount(run, weights=values, minlength=len(lengths)).astype(np.float64)  # int64 where empty

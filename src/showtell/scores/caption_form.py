"""Whether captions have the form that n-gram scores can judge by these references, said in sentences where not.

A caption that describes its image well and is a paragraph, a list or an answer with a lead-in scores near zero against
one-sentence references: the score then measures the form. Chat models answer so unless they are asked for a sentence.
"""

from __future__ import annotations

import re
from collections import Counter

import numpy as np

from showtell.scores.base import Corpus
from showtell.scores.cider import length_penalty
from showtell.scores.ngrams import ngrams

NGRAM_SCORES = frozenset(["bleu", "bleu_no_bp", "meteor", "rouge_l", "cider", "spice"])

FAR_LONGER = 2.5  # times the mean length of references, from which CIDEr-D's penalty leaves next to nothing
FAR_SHORTER = 0.4
COMMON = 0.3  # share of captions from which a form is that of the file
NEARLY_NOTHING = 0.05  # what CIDEr-D's penalty for length leaves
FEW_CAPTIONS = 10  # below which a shared beginning is nothing to speak of
LEAD_IN = 3  # words

_LIST_ITEM = re.compile(r"^\s*(?:[-*•]|\d+[.)]|#+)\s", re.MULTILINE)


def form_warnings(corpus: Corpus) -> list[str]:
    """Sentences about captions that n-gram scores cannot judge by these references; none for usual captions."""
    warnings = [_empty(corpus), _length(corpus), _lead_in(corpus)]
    return [warning for warning in warnings if warning is not None]


def _empty(corpus: Corpus) -> str | None:
    empty = [image for image, words in zip(corpus.ids, corpus.predicted_words, strict=True) if not words]
    if len(empty) < max(1, len(corpus.ids) / 20):
        return None
    return f"{len(empty)} of {len(corpus.ids)} captions are empty and score zero, that of image {empty[0]} first."


def _length(corpus: Corpus) -> str | None:
    """That captions are far longer or shorter than references, and what this does to CIDEr-D."""
    lengths = np.array([len(words) for words in corpus.predicted_words])
    of_references = np.array([np.mean([len(words) for words in texts]) for texts in corpus.reference_words])
    if not lengths.sum() or not of_references.sum():
        return None
    ratio = lengths.mean() / of_references.mean()
    much_longer = np.mean(lengths > 2 * np.array([max(map(len, texts)) for texts in corpus.reference_words]))
    if FAR_SHORTER < ratio < FAR_LONGER and much_longer < COMMON:
        return None
    numbers = f"{lengths.mean():.1f} words against {of_references.mean():.1f}"
    penalty = float(length_penalty(corpus.ngrams).mean())
    left = f"CIDEr-D's penalty for the difference in length leaves {penalty:.1g} of it"
    if ratio <= FAR_SHORTER:
        return (
            f"Captions are far shorter than their references, {numbers}: BLEU's brevity penalty is large, and {left}."
        )
    lists = np.mean([len(_LIST_ITEM.findall(text)) > 1 for text in corpus.predictions])
    paragraphs = np.mean(["\n" in text.strip() for text in corpus.predictions])
    form = "lists" if lists >= COMMON else "texts of several lines" if paragraphs >= COMMON else "paragraphs"
    return (
        f"CIDEr is {'near zero' if penalty < NEARLY_NOTHING else 'low'} because of the form: captions have {numbers}, "
        f"{ratio:.1f} times as many; "
        f"{much_longer:.0%} are more than twice as long as their longest reference; {_shared_pairs(corpus):.0%} of "
        f"their word pairs stand in a reference; {left}. No n-gram score can judge {form} by such references: ask the "
        "model for one sentence, or take a score of image and text."
    )


def _lead_in(corpus: Corpus) -> str | None:
    """That many captions begin alike and references do not."""
    captions = [tuple(words[:LEAD_IN]) for words in corpus.predicted_words if len(words) > LEAD_IN]
    if len(captions) < FEW_CAPTIONS:
        return None
    (beginning, times) = Counter(captions).most_common(1)[0]
    references = [tuple(words[:LEAD_IN]) for texts in corpus.reference_words for words in texts]
    share, usual = times / len(corpus.ids), references.count(beginning) / len(references)
    if share < COMMON or usual > share / 3:
        return None
    return (
        f'{share:.0%} of the captions begin with "{" ".join(beginning)}" and {usual:.0%} of the references: a lead-in '
        "lowers every n-gram score; ask for the caption alone, or cut it off."
    )


def _shared_pairs(corpus: Corpus) -> float:
    """The share of the captions' bigrams that stand in a reference of their image."""
    shared = total = 0
    for words, references in zip(corpus.predicted_words, corpus.reference_words, strict=True):
        known = {pair for reference in references for pair in ngrams(reference, [2])}
        pairs = list(ngrams(words, [2]))
        shared += sum(pair in known for pair in pairs)
        total += len(pairs)
    return shared / max(total, 1)

"""Faults of captions that scores do not show: too few words, repetition, bad endings, one caption for all.

All counts are of words as the tokenizer makes them, all rates are shares between 0 and 1.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain
from statistics import fmean

from showtell.errors import DataError
from showtell.scores.base import Corpus
from showtell.scores.cider import length_penalty
from showtell.scores.ngrams import ngrams
from showtell.text.endings import BAD_ENDINGS, repeats_itself
from showtell.text.tokenizer import UNSPACED, is_unspaced, tokenize

UNKNOWN_WORDS = frozenset(["<unk>", "unk", "<unknown>"])
# What belongs to a model, not to its captions.
SPECIAL_TOKENS = re.compile(
    r"<(?i:start|end|s|/s|bos|sos|eos|pad|unk|unknown|\|endoftext\|)>|\[(?:CLS|SEP|PAD|UNK)\]|startseq\b|endseq\b"
)
# The share from which on a rate of captions is worth a sentence.
_REMARKABLE = {
    "bad_endings": (0.1, 'end in a word such as "a" or "with": cut off, or trained on a reward that ignores the end'),
    "repeats": (0.05, 'repeat themselves ("a man a man")'),
    "identical": (0.5, "equal the caption of another image"),
}
FAR_LONGER, FAR_SHORTER = 2.5, 0.4  # times the length of references; CIDEr-D's penalty then leaves next to nothing


def diagnose(captions: Iterable[str], *, training: Iterable[str] | None = None) -> dict[str, float]:
    """Rates over a set of captions, one per image.

    mean_length in words; vocabulary, the number of different words; distinct_1 and distinct_2, different n-grams per
    n-gram; bad_endings and repeats, shares of captions that end in a word like "a", or in which one to four words
    follow themselves; unknown, the share of words that are `UNKNOWN_WORDS`; identical, the share of captions that
    another image has too; most_common, the share of the commonest caption; with training captions novelty, the share
    that is not among these.

    Raises:
        DataError: there are no captions.
    """
    words = [tuple(tokenize(caption)) for caption in captions]
    if not words:
        raise DataError("There are no captions to diagnose.")
    total = sum(map(len, words))
    times = Counter(words)
    ngrams_of = {n: [gram for caption in words for gram in ngrams(caption, [n])] for n in (1, 2)}
    rates = {
        "mean_length": total / len(words),
        "vocabulary": float(len(set(chain.from_iterable(words)))),
        **{f"distinct_{n}": len(set(grams)) / max(len(grams), 1) for n, grams in ngrams_of.items()},
        "bad_endings": fmean(bool(caption) and caption[-1] in BAD_ENDINGS for caption in words),
        "repeats": fmean(repeats_itself(caption) for caption in words),
        "unknown": sum(word in UNKNOWN_WORDS for word in chain.from_iterable(words)) / max(total, 1),
        "identical": fmean(times[caption] > 1 for caption in words),
        "most_common": max(times.values()) / len(words),
    }
    if training is not None:
        trained_on = {tuple(tokenize(caption)) for caption in training}
        rates["novelty"] = fmean(caption not in trained_on for caption in words)
    return rates


def rate_warnings(rates: Mapping[str, float]) -> list[str]:
    """Sentences about rates of `diagnose` that are high; none for usual captions."""
    high = {name: rates.get(name, 0.0) for name, (share, _) in _REMARKABLE.items() if rates.get(name, 0.0) >= share}
    return [f"{rate:.0%} of captions {_REMARKABLE[name][1]}." for name, rate in high.items()]


def without_special_tokens(caption: str) -> str:
    """A caption without marks of its beginning, end and unknown words: "<start> a dog <unk> . <end>" is "a dog ."."""
    return " ".join(SPECIAL_TOKENS.sub(" ", caption).split())


def form_warnings(corpus: Corpus, *, by_ngrams: bool = True) -> list[str]:
    """Sentences about special tokens in captions, and about captions too unlike the references for n-gram scores."""
    warnings = []
    marked = [mark for mark in map(SPECIAL_TOKENS.search, corpus.predictions) if mark]
    if marked:
        warnings.append(
            f"{len(marked)} of {len(corpus.ids)} captions hold special tokens, which are scored as words "
            f'("{marked[0][0]}"); showtell score --strip-tokens removes them.'
        )
    if not by_ngrams or not all(corpus.references):
        return warnings
    texts = [*corpus.predictions[:1000], *(text for references in corpus.references[:1000] for text in references)]
    warnings += [UNSPACED] if is_unspaced(texts) else []
    lengths = [len(words) for words in corpus.predicted_words]
    own, theirs = fmean(lengths), fmean(sum(map(len, texts)) / len(texts) for texts in corpus.reference_words)
    if lengths.count(0) >= max(1, len(lengths) / 20):
        first = corpus.ids[lengths.index(0)]
        warnings.append(
            f"{lengths.count(0)} of {len(lengths)} captions are empty and score zero, that of {first} first."
        )
    if own and theirs and not FAR_SHORTER < own / theirs < FAR_LONGER:
        left = float(length_penalty(corpus.ngrams).mean())
        advice = "ask the model for one sentence" if own > theirs else "BLEU's brevity penalty is large, too"
        warnings.append(
            f"Captions have {own:.1f} words and references {theirs:.1f}: CIDEr-D's penalty for the difference leaves "
            f"{left:.1g} of it, and no n-gram score can judge such captions by such references; {advice}."
        )
    return warnings

"""METEOR 1.5 as coco-caption runs it (English, `-norm`), without Java.

M. Denkowski, A. Lavie, Meteor 1.3, WMT 2011, and Meteor Universal, WMT 2014. Words and phrases of the prediction and
of a reference match as equal, with the same stem, as synonyms, or as paraphrases. An alignment covers each word at
most once; the best has the most matched words, then the fewest chunks (runs that are contiguous in both), then the
least distance between where matched words stand. From it

    P, R    matched weight over all weight, where a content word weighs delta and a function word 1 - delta,
            and a match 1 (equal), .6 (stem), .8 (synonym) or .6 (paraphrase)
    F       P R / (alpha P + (1 - alpha) R)
    penalty gamma (chunks / matched words)^beta, 0 where all words match in one chunk
    score   (1 - penalty) F

of the reference for which it is highest. The corpus number comes from the statistics summed over images; it is not
the mean. Written from the papers and from what the reference puts out; where the papers leave a choice, its choice:

1. A match that covers its words alone, because nothing else matches them, is taken before the search.
2. The search walks along the reference with a beam of 40 and counts matched words in whole numbers: a match weighs
   1 for each word if equal, else a half for each word, rounded down, so one word counts 0.
3. A chunk counts when it ends. Ties go to the path that came first, and to the earlier kind of match.
4. The distance of a match is charged to the paths of its reference word that come after it, never to its own.
5. Equal sentences are aligned by equality alone. Words are equal when Java's 32-bit hash codes are.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from functools import cache, partial
from itertools import chain, islice, pairwise
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np

from showtell import __version__
from showtell.scores.base import Corpus, Floats, Score, ScoreNumber, ratio
from showtell.scores.meteor_index import MeteorIndex, open_index, stem
from showtell.scores.meteor_text import normalise

ALPHA, BETA, GAMMA, DELTA = 0.85, 0.2, 0.6, 0.75
WEIGHTS = (1.0, 0.6, 0.8, 0.6)  # of the kinds of match
KINDS = ("exact", "stem", "synonym", "paraphrase")
EXACT, STEM, SYNONYM, PARAPHRASE = range(4)
# Of the ways in which two words match, a bit for each, those that count: equal words match in no other.
_KINDS_OF = [[EXACT] if ways & 1 else [kind for kind in range(len(KINDS)) if ways >> kind & 1] for ways in range(16)]
BEAM = 40
_IMAGES_AT_ONCE = 256

STATISTICS = 24  # the 23 of the reference, and what its corpus score adds up in place of the chunks

# A path's rank is one number, the better the lower: matched words, chunks, distance, from high to low.
_CHUNK, _MATCH = 1 << 32, 1 << 52
_RANK = itemgetter(0)

# WordNet's rules for regular forms, in its order: the first that leads to a listed word.
_ENDINGS = (
    *(("s", ""), ("ses", "s"), ("xes", "x"), ("zes", "z"), ("ches", "ch"), ("shes", "sh"), ("men", "man")),
    *(("ies", "y"), ("es", "e"), ("es", ""), ("ed", "e"), ("ed", ""), ("ing", "e"), ("ing", "")),
    *(("er", ""), ("est", ""), ("er", "e"), ("est", "e")),
)


class Meteor(Score):
    """METEOR 1.5. Statistics: those of `statistics`, of the best reference of each image."""

    numbers = (ScoreNumber("meteor", "METEOR", can_select=True, explanation_rank=4),)
    summary = "METEOR 1.5, English, `-norm`"

    def statistics(self, corpus: Corpus) -> Floats:
        """(images, 24)."""
        texts = (" ".join(words).replace("|||", "").replace("  ", " ") for words in corpus.predicted_words)
        predictions = list(map(normalise, texts))
        references = [[normalise(" ".join(words)) for words in texts] for texts in corpus.reference_words]
        vocabulary = {*chain.from_iterable(predictions), *chain.from_iterable(chain.from_iterable(references))}
        index = open_index()
        rows: list[list[int]] = []
        was_on = gc.isenabled()
        gc.disable()  # paths of the search are tuples without cycles: it would free none, and takes a fifth of the time
        try:
            lexicon = Lexicon(index, vocabulary)
            for first in range(0, len(predictions), _IMAGES_AT_ONCE):
                batch = slice(first, first + _IMAGES_AT_ONCE)
                rows += _best_statistics(predictions[batch], references[batch], lexicon)
        finally:
            if was_on:
                gc.enable()
        return np.array(rows, dtype=np.float64).reshape(-1, STATISTICS)

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """The score of summed statistics."""
        return score(sums)[..., None]

    def signature(self, corpus: Corpus) -> str:
        """Tokenizer, references, version of METEOR, parameters, kinds of match, version."""
        parameters = f"alpha:{ALPHA}|beta:{BETA}|gamma:{GAMMA}|delta:{DELTA}"
        kinds = "+".join(KINDS)
        return f"{corpus.signature}|meteor:1.5|norm:yes|{parameters}|match:{kinds}|beam:{BEAM}|version:{__version__}"


def score(statistics: Floats) -> Floats:
    """The METEOR score of statistics of one image or summed over several: (..., 24) to (...)."""
    words, reference_words, function, reference_function = np.moveaxis(statistics[..., :4], -1, 0)
    matched = statistics[..., 4:20].reshape(*statistics.shape[:-1], len(KINDS), 2, 2)  # kind, content/function, side
    matched_words, matched_reference, fragments = np.moveaxis(statistics[..., 21:], -1, 0)
    weighted = np.einsum("k,...kcs->...cs", np.array(WEIGHTS), matched)
    weighted = DELTA * weighted[..., 0, :] + (1 - DELTA) * weighted[..., 1, :]  # (..., side)
    all_weight = DELTA * (words - function) + (1 - DELTA) * function
    all_reference_weight = DELTA * (reference_words - reference_function) + (1 - DELTA) * reference_function
    precision = ratio(weighted[..., 0], all_weight)
    recall = ratio(weighted[..., 1], all_reference_weight)
    f_mean = ratio(precision * recall, ALPHA * precision + (1 - ALPHA) * recall)
    fragmentation = ratio(fragments, (matched_words + matched_reference) / 2)
    return (1 - GAMMA * fragmentation**BETA) * f_mean


def _best_statistics(
    predictions: Sequence[list[str]], references: Sequence[Sequence[list[str]]], lexicon: Lexicon
) -> list[list[int]]:
    """The statistics of each prediction with the reference that it scores highest with; of equals the first."""
    sentences = iter(lexicon.sentences([*predictions, *chain.from_iterable(references)]))
    tests = list(islice(sentences, len(predictions)))
    rows = []
    for test, texts in zip(tests, references, strict=True):
        others = list(islice(sentences, len(texts)))
        pairs = zip(others, lexicon.matches(test, others), strict=True)
        rows += [statistics(test, other, options) for other, options in pairs]
    scores = score(np.array(rows, dtype=np.float64).reshape(-1, STATISTICS))
    ends = np.cumsum([len(texts) for texts in references]).tolist()
    return [rows[first + int(np.argmax(scores[first:end]))] for first, end in pairwise([0, *ends])]


Span = tuple[int, int]  # start, words


class _Sentence(NamedTuple):
    """A caption as METEOR sees it."""

    words: list[str]
    is_function: list[bool]  # of each word
    positions: dict[str, list[int]]  # where each word is
    phrases: list[tuple[int, int, int]]  # (start, words, node) where the table has paraphrases
    spans: dict[int, list[Span]]  # node: where it is, for all phrases of the table


class _Match(NamedTuple):
    """A possible match."""

    reference_start: int
    reference_words: int
    start: int
    words: int
    kind: int


Options = list[list[_Match]]  # all possible matches, by where they start in the reference, in the order of the search


class Lexicon:
    """All words of a corpus, which of them match, and what the table says of their phrases, looked up once."""

    def __init__(self, index: MeteorIndex, vocabulary: Iterable[str]) -> None:
        """Look up the words of a corpus."""
        self._index = index
        self._listed = cache(self._ranks)
        shared = {word: _shared(word, index) for word in vocabulary}
        sharing: dict[tuple[int, int], list[str]] = {}  # (kind, what is shared): the words that share it
        for word, keys in shared.items():
            for key in keys:
                sharing.setdefault(key, []).append(word)
        self._kinds: dict[str, dict[str, int]] = {}  # the words that match a word, and in which ways: a bit for each
        for word, keys in shared.items():
            matching = self._kinds[word] = {}
            for key in keys:
                for other in sharing[key]:
                    matching[other] = matching.get(other, 0) | 1 << key[0]

    def sentences(self, texts: Sequence[list[str]]) -> Iterator[_Sentence]:
        """Prepare normalised captions."""
        for words, phrases in zip(texts, self._index.phrases(texts), strict=True):
            positions: dict[str, list[int]] = {}
            for position, word in enumerate(words):
                positions.setdefault(word, []).append(position)
            spans: dict[int, list[Span]] = {}
            for start, size, node, _ in phrases:
                spans.setdefault(node, []).append((start, size))
            listed = [(start, size, node) for start, size, node, has_paraphrases in phrases if has_paraphrases]
            yield _Sentence(words, [word in self._index.function_words for word in words], positions, listed, spans)

    def matches(self, test: _Sentence, references: Sequence[_Sentence]) -> Iterator[Options]:
        """For each reference all possible matches, by where they start in it, there in the order of kinds."""
        starts = cache(partial(self._starts, test))  # of the words that match a word of a reference
        paraphrased = cache(partial(self._spans, test))  # of the paraphrases of a phrase of a reference
        nodes: set[int] = set().union(*(reference.spans for reference in references))
        from_test = [phrase for phrase in test.phrases if not nodes.isdisjoint(self._listed(phrase[2]))]
        for reference in references:
            is_equal = test.words == reference.words
            options = [
                [_Match(at, 1, start, 1, kind) for kind, start in starts(word) if kind == EXACT or not is_equal]
                for at, word in enumerate(reference.words)
            ]
            if not is_equal:
                for at, size, node in reference.phrases:
                    options[at] += [_Match(at, size, *span, PARAPHRASE) for span in paraphrased(node)]
                for start, length, node in from_test:
                    for at, size in self._spans(reference, node):
                        options[at].append(_Match(at, size, start, length, PARAPHRASE))
            yield options

    def _starts(self, sentence: _Sentence, word: str) -> list[tuple[int, int]]:
        """The words of a sentence that match a word: (kind, start), kind by kind; equal ones in no other way."""
        matching = self._kinds[word]
        return sorted(
            (kind, start)
            for other in matching.keys() & sentence.positions.keys()
            for kind in _KINDS_OF[matching[other]]
            for start in sentence.positions[other]
        )

    def _ranks(self, node: int) -> dict[int, int]:
        """The paraphrases of a phrase, each with its index in the list."""
        return {other: rank for rank, other in enumerate(self._index.paraphrases_of(node))}

    def _spans(self, sentence: _Sentence, node: int) -> list[Span]:
        """Where a sentence has paraphrases of a phrase, in the order of the phrase's list."""
        listed = self._listed(node)
        common = sorted(listed.keys() & sentence.spans.keys(), key=listed.__getitem__)
        return [span for other in common for span in sentence.spans[other]]


def _shared(word: str, index: MeteorIndex) -> list[tuple[int, int]]:
    """What makes a word match another: (kind, what both share)."""
    synonyms = ((SYNONYM, synset) for synset in synsets(word, index))
    return [(EXACT, java_hash(word)), (STEM, java_hash(stem(word))), *dict.fromkeys(synonyms)]


def statistics(test: _Sentence, reference: _Sentence, options: Options) -> list[int]:
    """The statistics of the best alignment, in the reference's order.

    Words and function words, each of prediction and reference; matched words, for each kind content words of both and
    function words of both; chunks; matched words of both; chunks again, but 0 where all words of both match in one."""
    chunks, chosen = best_alignment(options, len(test.words))
    matched = [0] * 16
    words = reference_words = 0
    for at, size, start, length, kind in chosen:
        for is_function in test.is_function[start : start + length]:
            matched[4 * kind + 2 * is_function] += 1
        for is_function in reference.is_function[at : at + size]:
            matched[4 * kind + 2 * is_function + 1] += 1
        words += length
        reference_words += size
    lengths = [len(test.words), len(reference.words)]
    functions = [sum(test.is_function), sum(reference.is_function)]
    fragments = 0 if chunks == 1 and [words, reference_words] == lengths else chunks
    return [*lengths, *functions, *matched, chunks, words, reference_words, fragments]


_History = tuple[_Match, Any] | None  # the last match, and the history before it
_Path = tuple[int, int, int, int, _History]  # rank, words used, end of the open chunk or -1, covered up to, history


def best_alignment(options: Options, words: int) -> tuple[int, list[_Match]]:
    """The number of chunks and the matches of the best alignment with a prediction of this number of words."""
    unrivalled = _unrivalled(options, words)
    paths: list[_Path] = [(0, 0, -1, 0, None)]
    settled = True  # no path has a chunk to end or words to skip, so a word without matches changes nothing
    for at, here in enumerate(options):
        if not here and settled:
            continue
        must = at in unrivalled
        extensions = [_extension(match) for match in here]
        longer: list[_Path] = []
        add = longer.append
        for path in paths:
            rank, used, open_end, covered, history = path
            if covered > at:
                add(path)
                continue
            for mask, start, gain, distance, end, reference_end, match in extensions:
                if used & mask:
                    continue
                closed = rank + gain + _CHUNK if open_end >= 0 and open_end != start else rank + gain
                add((closed, used | mask, end, reference_end, (match, history)))
                rank += distance
            if not must:
                add((rank + _CHUNK if open_end >= 0 else rank, used, -1, 0, history))
        if not must:
            longer.sort(key=_RANK)
            del longer[BEAM:]
        paths = longer
        settled = not here and max(path[2] for path in paths) < 0
    *_, history = min(paths, key=lambda path: path[0] + _CHUNK if path[2] >= 0 else path[0])
    chosen = []
    while history is not None:
        match, history = history
        chosen.append(match)
    return _chunks(chosen[::-1]), chosen[::-1]


def _extension(match: _Match) -> tuple[int, int, int, int, int, int, _Match]:
    """What the search needs of a match: words used, start, gain in rank, distance, both ends."""
    at, size, start, length, kind = match
    gain = -_MATCH * (length + size if kind == EXACT else length // 2 + size // 2)
    return ((1 << length) - 1) << start, start, gain, abs(start - at), start + length, at + size, match


def _unrivalled(options: Options, words: int) -> set[int]:
    """Words of the reference with one match alone, none of whose words is matched by another."""
    covered, reference_covered = [0] * words, [0] * len(options)
    for at, size, start, length, _ in chain.from_iterable(options):
        for position in range(start, start + length):
            covered[position] += 1
        for position in range(at, at + size):
            reference_covered[position] += 1
    alone = set()
    for here in options:
        if len(here) == 1:
            at, size, start, length, _ = here[0]
            if max(*covered[start : start + length], *reference_covered[at : at + size]) == 1:
                alone.add(at)
    return alone


def _chunks(matches: Sequence[_Match]) -> int:
    """Runs of matches that are contiguous in both sentences."""
    ends = [(match.reference_start + match.reference_words, match.start + match.words) for match in matches]
    starts = [(match.reference_start, match.start) for match in matches]
    return len(matches) - sum(end == start for end, start in zip(ends, starts[1:], strict=False))


def synsets(word: str, index: MeteorIndex) -> Iterator[int]:
    """The sets of synonyms of a word and of the words that it is a form of."""
    yield from index.synsets_of(word)
    bases: Iterable[str] = index.irregular.get(word, ())
    if not bases and len(word) > 2 and not word.endswith("ss"):
        regular = (word.removesuffix(ending) + base for ending, base in _ENDINGS if word.endswith(ending))
        bases = [next((base for base in regular if index.synonyms.get(base)), "")]
    for base in bases:
        yield from index.synsets_of(base)


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 units, in 32 bits; 3122 for "as" as for "c5"."""
    code = 0
    units = text.encode("utf-16-le")
    for low, high in zip(units[::2], units[1::2], strict=True):
        code = (31 * code + (high << 8 | low)) & 0xFFFFFFFF
    return code

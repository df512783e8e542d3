"""The searches written plainly, one image and one hypothesis at a time, with nothing left out early."""

from collections.abc import Sequence
from dataclasses import dataclass

from showtell.decoding import Captions, Rules
from showtell.text.vocabulary import Vocabulary
from tests.toys import TableDecoder

END = Vocabulary.end
NEVER = (Vocabulary.pad, Vocabulary.begin)


@dataclass(frozen=True)
class Hypothesis:
    """A caption."""

    words: list[int]  # with end, if it came
    logprob: float
    is_stuck: bool = False  # it had nothing left to say

    def score(self, penalty: float) -> float:
        return self.logprob / max(1, len(self.words)) ** penalty


def has(words: Sequence[int], phrase: Sequence[int]) -> bool:
    return any(tuple(words[start : start + len(phrase)]) == tuple(phrase) for start in range(len(words)))


def is_allowed(words: Sequence[int], word: int, rules: Rules, max_length: int) -> bool:
    after = [*words, word]
    if len(words) < len(rules.prefix):
        return word == rules.prefix[len(words)]
    if word in NEVER or any(tuple(after[-len(phrase) :]) == phrase for phrase in rules.forbidden):
        return False
    if word == END:
        bad = bool(words) and words[-1] in rules.bad_endings
        return len(words) >= rules.min_length and not bad
    if rules.repeatable is not None and word in words and word not in rules.repeatable:
        return False
    n = rules.no_repeat_ngram_size
    if n and len(after) > n and has(after[:-1], after[-n:]):
        return False
    return not (len(after) == max_length and word in rules.bad_endings)


def options(decoder: TableDecoder, image: int, words: Sequence[int], rules: Rules, max_length: int) -> dict[int, float]:
    last = words[-1] if words else Vocabulary.begin
    logprobs = decoder.table[image, len(words), last].log_softmax(-1).tolist()
    return {word: gain for word, gain in enumerate(logprobs) if is_allowed(words, word, rules, max_length)}


def at_limit(words: list[int], total: float, logprobs: dict[int, float]) -> Hypothesis:
    if logprobs and max(logprobs, key=lambda word: (logprobs[word], -word)) == END:
        return Hypothesis([*words, END], total + logprobs[END])
    return Hypothesis(words, total)


def every_caption(decoder: TableDecoder, image: int, max_length: int, rules: Rules, penalty: float) -> list[Hypothesis]:
    """All captions that the rules allow, the best first."""
    captions: list[Hypothesis] = []

    def extend(words: list[int], total: float) -> None:
        logprobs = options(decoder, image, words, rules, max_length)
        if len(words) == max_length:
            captions.append(at_limit(words, total, logprobs))
        elif not logprobs:
            captions.append(Hypothesis(words, total, is_stuck=True))
        else:
            for word, gain in logprobs.items():
                if word == END:
                    captions.append(Hypothesis([*words, END], total + gain))
                else:
                    extend([*words, word], total + gain)

    extend([], 0.0)
    return sorted(captions, key=lambda one: (one.is_stuck, -one.score(penalty)))


def plain_beam(
    decoder: TableDecoder, image: int, max_length: int, num_beams: int, *, rules: Rules, penalty: float
) -> list[Hypothesis]:
    """The pool, the best first. The search does not end before its time."""
    live: list[tuple[list[int], float]] = [([], 0.0)]
    pool: list[Hypothesis] = []
    for step in range(max_length + 1):
        candidates = []
        for row, (words, total) in enumerate(live):
            logprobs = options(decoder, image, words, rules, max_length)
            if step == max_length:
                pool.append(at_limit(words, total, logprobs))
                continue
            if not logprobs:
                candidates.append((-total, row, 0, words, total))
            for word, gain in logprobs.items():
                candidates.append((-total - gain, row, word, words, total + gain))
        live = []
        for _, _, word, words, total in sorted(candidates)[:num_beams]:
            if word == Vocabulary.pad:
                pool.append(Hypothesis(words, total, is_stuck=True))
            elif word == END:
                pool.append(Hypothesis([*words, END], total))
            else:
                live.append(([*words, word], total))
    return sorted(pool, key=lambda one: (one.is_stuck, -one.score(penalty)))[:num_beams]


def words_of(captions: Captions, image: int, row: int) -> list[int]:
    return captions.words[image, row][captions.is_word[image, row]].tolist()

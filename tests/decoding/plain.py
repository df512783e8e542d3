"""The searches written plainly, one image and one hypothesis at a time, with nothing left out early."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from showtell.decoding import Captions, LengthPenalty, Rules
from showtell.text.vocabulary import Vocabulary
from tests.toys import TableDecoder

END = Vocabulary.end
NEVER = (Vocabulary.pad, Vocabulary.begin)


@dataclass(frozen=True)
class Hypothesis:
    """A caption, with how much of what is required it has."""

    words: list[int]  # with end, if it came
    logprob: float
    met: int  # -1 for one that had nothing left to say

    def score(self, penalty: LengthPenalty) -> float:
        length = max(1, len(self.words))
        base = {"none": 1.0, "average": length, "wu": (5 + length) / 6}[penalty.form]
        return self.logprob / base**penalty.exponent


def has(words: Sequence[int], phrase: Sequence[int]) -> bool:
    return any(tuple(words[start : start + len(phrase)]) == tuple(phrase) for start in range(len(words)))


def met(words: Sequence[int], required: Sequence[Sequence[int]]) -> int:
    """Words of required phrases: all of those that occur, and the longest beginning that the caption ends on."""
    total = 0
    for phrase in required:
        if has(words, phrase):
            total += len(phrase)
        else:
            total += max(
                n for n in range(len(phrase)) if n <= len(words) and list(words[len(words) - n :]) == list(phrase[:n])
            )
    return total


def is_allowed(words: Sequence[int], word: int, rules: Rules, max_length: int) -> bool:
    after = [*words, word]
    if len(words) < len(rules.prefix):
        return word == rules.prefix[len(words)]
    if word in NEVER or any(tuple(after[-len(phrase) :]) == phrase for phrase in rules.forbidden):
        return False
    if word == END:
        wanting = any(not has(words, phrase) for phrase in rules.required)
        bad = bool(words) and words[-1] in rules.bad_endings
        return len(words) >= rules.min_length and not wanting and not bad
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


def at_limit(words: list[int], total: float, logprobs: dict[int, float], rules: Rules) -> Hypothesis:
    if logprobs and max(logprobs, key=lambda word: (logprobs[word], -word)) == END:
        return Hypothesis([*words, END], total + logprobs[END], met(words, rules.required))
    return Hypothesis(words, total, met(words, rules.required))


def every_caption(
    decoder: TableDecoder, image: int, max_length: int, rules: Rules, penalty: LengthPenalty
) -> list[Hypothesis]:
    """All captions that the rules allow, the best first."""
    captions: list[Hypothesis] = []

    def extend(words: list[int], total: float) -> None:
        logprobs = options(decoder, image, words, rules, max_length)
        if len(words) == max_length:
            captions.append(at_limit(words, total, logprobs, rules))
        elif not logprobs:
            captions.append(Hypothesis(words, total, -1))
        else:
            for word, gain in logprobs.items():
                if word == END:
                    captions.append(Hypothesis([*words, END], total + gain, met(words, rules.required)))
                else:
                    extend([*words, word], total + gain)

    extend([], 0.0)
    return sorted(captions, key=lambda one: (-one.met, -one.score(penalty)))


def plain_beam(
    decoder: TableDecoder, image: int, max_length: int, num_beams: int, *, rules: Rules, penalty: LengthPenalty,
    groups: int = 1, diversity: float = 0.0,
) -> list[list[Hypothesis]]:  # fmt: skip
    """The pool of each group, the best first. No search ends before its time."""
    width = num_beams // groups
    live: list[list[tuple[list[int], float]]] = [[([], 0.0)] for _ in range(groups)]
    pools: list[list[Hypothesis]] = [[] for _ in range(groups)]
    for step in range(max_length + 1):
        chosen_words: list[int] = []
        for group in range(groups):
            candidates = []
            for row, (words, total) in enumerate(live[group]):
                logprobs = options(decoder, image, words, rules, max_length)
                if step == max_length:
                    pools[group].append(at_limit(words, total, logprobs, rules))
                    continue
                if not logprobs:
                    candidates.append((-total, row, 0, words, total))
                for word, gain in logprobs.items():
                    rank = total + gain - diversity * chosen_words.count(word)
                    candidates.append((-rank, row, word, words, total + gain))
            live[group] = []
            for _, _, word, words, total in sorted(candidates)[:width]:
                chosen_words.append(word)
                if word == Vocabulary.pad:
                    pools[group].append(Hypothesis(words, total, -1))
                elif word == END:
                    pools[group].append(Hypothesis([*words, END], total, met(words, rules.required)))
                else:
                    live[group].append(([*words, word], total))
    return [sorted(pool, key=lambda one: (-one.met, -one.score(penalty)))[:width] for pool in pools]


def words_of(captions: Captions, image: int, row: int) -> list[int]:
    return captions.words[image, row][captions.is_word[image, row]].tolist()

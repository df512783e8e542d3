"""Words and phrases that captions must contain: how much of each a hypothesis has, and which words it needs next.

Each phrase is followed by the automaton of Knuth, Morris and Pratt: a state is the number of its words that
the hypothesis ends on, and is final once the phrase has occurred. The number of required words that a hypothesis has is
its bank (Hokamp and Liu, ACL 2017; Post and Vilar, NAACL 2018): hypotheses compete only within
their bank, so that one with a costly required word is not displaced by those without it.
"""

from __future__ import annotations

import torch
from torch import Tensor

from showtell.text.vocabulary import Vocabulary


class Constraints:
    """Required phrases on a device."""

    def __init__(self, phrases: tuple[tuple[int, ...], ...], device: torch.device) -> None:
        self.words = sum(len(phrase) for phrase in phrases)  # C, the highest bank
        self._count = len(phrases)  # P
        longest = max((len(phrase) for phrase in phrases), default=0)
        symbols = torch.full((len(phrases), longest), -1)  # the distinct words of each phrase, then what is no word
        # State and word to next state; 0 is any other word.
        transitions = torch.zeros(len(phrases), longest + 1, longest + 1, dtype=torch.long)
        next_word = torch.full((len(phrases), longest + 1), Vocabulary.pad)  # state to next word
        for number, phrase in enumerate(phrases):
            distinct = sorted(set(phrase))
            symbols[number, : len(distinct)] = torch.tensor(distinct)
            next_word[number, : len(phrase)] = torch.tensor(phrase)
            transitions[number, len(phrase)] = len(phrase)
            for state in range(len(phrase)):
                for symbol, word in enumerate(distinct, 1):
                    prefix = (*phrase[:state], word)
                    transitions[number, state, symbol] = max(
                        n for n in range(len(prefix) + 1) if prefix[len(prefix) - n :] == phrase[:n]
                    )
        self._symbols, self._transitions, self._next_word = (x.to(device) for x in (symbols, transitions, next_word))
        self._phrase = torch.arange(len(phrases), device=device)

    def start(self, images: int) -> Tensor:
        """The states before the first word, (B, 1, P)."""
        return self._phrase.new_zeros(images, 1, self._count)

    def advance(self, states: Tensor, words: Tensor) -> Tensor:
        """The states (B, N, m, P) after each of m candidate words of a row: states (B, N, P), words (B, N, m)."""
        is_symbol = words.unsqueeze(-1).unsqueeze(-1) == self._symbols  # (B, N, m, P, distinct words)
        numbers = torch.arange(1, self._symbols.shape[-1] + 1, device=words.device)
        before = states.unsqueeze(2)
        after = self._transitions[self._phrase, before, (is_symbol * numbers).sum(-1)]
        return torch.where((words == Vocabulary.pad).unsqueeze(-1), before, after)  # pad is a caption cut off, no word

    def next_words(self, states: Tensor) -> Tensor:
        """The next word of each phrase, (B, N, P); pad where it has occurred."""
        return self._next_word[self._phrase, states]

    def is_met(self, states: Tensor) -> Tensor:
        """Whether states (..., P) have all required words, (...)."""
        return states.sum(-1) == self.words

"""Words and phrases that a caption must have: how far each hypothesis has come, and which words bring it on.

Each phrase is followed by the automaton of Knuth, Morris and Pratt: a state is how many of its words the hypothesis
ends on, and stays where it is once the phrase has occurred. The words of all phrases that are met so far are the
hypothesis's bank (Hokamp and Liu, ACL 2017; Post and Vilar, NAACL 2018): hypotheses compete only within their bank, so
that those which have just paid for a required word are not pushed out by those that have not.
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
        kinds = torch.full((len(phrases), longest), Vocabulary.pad)  # the different words of each phrase
        moves = torch.zeros(
            len(phrases), longest + 1, longest + 1, dtype=torch.long
        )  # state and word to next state; 0 is any other word
        wanted = torch.full((len(phrases), longest + 1), Vocabulary.pad)  # state to next word
        for number, phrase in enumerate(phrases):
            different = sorted(set(phrase))
            kinds[number, : len(different)] = torch.tensor(different)
            wanted[number, : len(phrase)] = torch.tensor(phrase)
            moves[number, len(phrase)] = len(phrase)
            for state in range(len(phrase)):
                for kind, word in enumerate(different, 1):
                    said = (*phrase[:state], word)
                    moves[number, state, kind] = max(
                        n for n in range(len(said) + 1) if said[len(said) - n :] == phrase[:n]
                    )
        self._kinds, self._moves, self._wanted = kinds.to(device), moves.to(device), wanted.to(device)
        self._which = torch.arange(len(phrases), device=device)

    def start(self, images: int) -> Tensor:
        """The states before the first word, (B, 1, P)."""
        return self._which.new_zeros(images, 1, self._count)

    def after(self, states: Tensor, words: Tensor) -> Tensor:
        """The states (B, N, m, P) after each of m words that rows may say; states (B, N, P), words (B, N, m)."""
        is_kind = words.unsqueeze(-1).unsqueeze(-1) == self._kinds  # (B, N, m, P, different words)
        numbers = torch.arange(1, self._kinds.shape[-1] + 1, device=words.device)
        before = states.unsqueeze(2)
        after = self._moves[self._which, before, (is_kind * numbers).sum(-1)]
        return torch.where((words == Vocabulary.pad).unsqueeze(-1), before, after)  # pad is a caption cut off, no word

    def next_words(self, states: Tensor) -> Tensor:
        """The word that each phrase waits for, (B, N, P); pad where it has occurred."""
        return self._wanted[self._which, states]

    def is_met(self, states: Tensor) -> Tensor:
        """Whether a row (..., P) has all that is required, (...)."""
        return states.sum(-1) == self.words

"""What a caption may say: the rules that every search keeps, as words and on tensors."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from showtell.text.vocabulary import Vocabulary


@dataclass(frozen=True)
class Rules:
    """What may be said and what must be, in ids of a vocabulary."""

    min_length: int = 0  # words before end may come
    no_repeat_ngram_size: int = 0  # no n words occur twice in a caption; 0 is no rule
    forbidden: tuple[tuple[int, ...], ...] = ()  # words and phrases that are never said
    bad_endings: tuple[int, ...] = ()  # words that no caption ends on
    required: tuple[tuple[int, ...], ...] = ()  # words and phrases that must occur; constrained search keeps this one


class LogitsProcessor:
    """Rules on a device: takes what is against them from the next words of many captions at once."""

    def __init__(self, rules: Rules, *, max_length: int, device: torch.device) -> None:
        self.rules = rules
        self.max_length = max_length
        never = {Vocabulary.pad, Vocabulary.begin, *(phrase[0] for phrase in rules.forbidden if len(phrase) == 1)}
        self._never = torch.tensor(sorted(never), device=device)
        self._phrases = [torch.tensor(phrase, device=device) for phrase in rules.forbidden if len(phrase) > 1]
        self._bad_endings = torch.tensor(rules.bad_endings, dtype=torch.long, device=device)
        # Without rules end is always allowed; with them a caption can get stuck.
        self.can_leave_nothing = rules != Rules()

    def forbid(self, logprobs: Tensor, said: Tensor) -> None:
        """Set what may not come next to -inf, in place; nothing is renormalised.

        Args:
            logprobs: (B, N, V) of the next word.
            said: (B, N, t) int64 the words so far; what follows an end does not matter.
        """
        rules, length = self.rules, said.shape[-1]
        nothing = float("-inf")
        logprobs.index_fill_(-1, self._never, nothing)
        if length < rules.min_length:
            logprobs[..., Vocabulary.end] = nothing
        if rules.bad_endings and length:
            logprobs[..., Vocabulary.end].masked_fill_(torch.isin(said[..., -1], self._bad_endings), nothing)
        if rules.bad_endings and length == self.max_length - 1:  # whatever is said now is the last word
            logprobs.index_fill_(-1, self._bad_endings, nothing)
        n = rules.no_repeat_ngram_size
        if 0 < n <= length:
            windows = said.unfold(-1, n, 1)  # (B, N, t - n + 1, n)
            again = (windows[..., :-1] == said[..., None, length - n + 1 :]).all(-1)
            logprobs.scatter_(-1, windows[..., -1].masked_fill(~again, Vocabulary.pad), nothing)
        for phrase in self._phrases:
            before = len(phrase) - 1
            if before <= length:
                is_next = (said[..., length - before :] == phrase[:-1]).all(-1)
                logprobs[..., phrase[-1]].masked_fill_(is_next, nothing)

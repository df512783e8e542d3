"""Rules for captions that every search keeps: which words may follow, as ids and on tensors."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from showtell.decoding_config import Rules
from showtell.text.vocabulary import Vocabulary

NO_RULES = Rules()
NEVER_GENERATED = (Vocabulary.pad, Vocabulary.begin)


class LogitsProcessor:
    """Rules on a device: sets the log-probability of words that they forbid to -inf, for many captions at once."""

    def __init__(self, rules: Rules, *, max_length: int, device: torch.device) -> None:
        self.rules = rules
        self.max_length = max_length
        singles = sorted({phrase[0] for phrase in rules.forbidden if len(phrase) == 1})
        lists = singles or None, rules.bad_endings or None, rules.repeatable
        self._singles, self._bad_endings, self._repeatable = (
            None if ids is None else torch.tensor(ids, dtype=torch.long, device=device) for ids in lists
        )
        self._phrases = [  # the words before the last, and the last
            (torch.tensor(phrase[:-1], device=device), phrase[-1]) for phrase in rules.forbidden if len(phrase) > 1
        ]
        # Without rules end is always allowed; with them all words can be forbidden.
        self.can_forbid_all = rules != NO_RULES

    def forbid(self, logprobs: Tensor, words: Tensor) -> None:
        """Set forbidden words to -inf in log-probabilities (B, N, V), in place, by the words so far, (B, N, t)."""
        rules, length = self.rules, words.shape[-1]
        minus_inf = float("-inf")
        if length < len(rules.prefix):
            prefix_word = logprobs[..., rules.prefix[length]].clone()
            logprobs.fill_(minus_inf)
            logprobs[..., rules.prefix[length]] = prefix_word
            return
        for word in NEVER_GENERATED:
            logprobs[..., word].fill_(minus_inf)  # item assignment makes a tensor of the number up to torch 2.14
        if self._singles is not None:
            logprobs.index_fill_(-1, self._singles, minus_inf)
        if length < rules.min_length:
            logprobs[..., Vocabulary.end].fill_(minus_inf)
        if self._bad_endings is not None and length:
            logprobs[..., Vocabulary.end].masked_fill_(_is_one_of(words[..., -1], self._bad_endings), minus_inf)
        if self._bad_endings is not None and length == self.max_length - 1:  # the next word is the last one
            logprobs.index_fill_(-1, self._bad_endings, minus_inf)
        n = rules.no_repeat_ngram_size
        if 0 < n <= length:
            windows = words.unfold(-1, n, 1)  # (B, N, t - n + 1, n)
            is_repeated = (windows[..., :-1] == words[..., None, length - n + 1 :]).all(-1)
            logprobs.scatter_(-1, windows[..., -1].masked_fill(~is_repeated, Vocabulary.pad), minus_inf)
        if self._repeatable is not None and length:
            logprobs.scatter_(-1, words.masked_fill(_is_one_of(words, self._repeatable), Vocabulary.pad), minus_inf)
        for before, word in self._phrases:
            if len(before) <= length:
                is_next = (words[..., length - len(before) :] == before).all(-1)
                logprobs[..., word].masked_fill_(is_next, minus_inf)


def mask_words(scores: Tensor, words: Iterable[int]) -> Tensor:
    """Scores (..., V) with those of a few words at -inf."""
    masked = scores.clone()
    for word in words:
        masked[..., word].fill_(float("-inf"))
    return masked


def _is_one_of(words: Tensor, some: Tensor) -> Tensor:
    """Whether each of the words (...) is one of some (n,). `torch.isin` waits for a GPU where there are many."""
    return (words.unsqueeze(-1) == some).any(-1)

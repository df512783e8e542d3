"""What tells that a caption is malformed: words that none should end with, for it was cut off, and repetitions."""

from __future__ import annotations

import re
from collections.abc import Sequence

BAD_ENDINGS = frozenset([
    "a", "an", "the", "and", "or", "but", "of", "with", "in", "on", "at", "to", "for", "from", "by", "into", "his",
    "her", "its", "their", "this", "that", "is", "are", "while", "as", "next",
])  # fmt: skip

ORDERS = 4  # words that `repeats_itself` looks for
_LOOP = re.compile(r"([^\x00-\x7f]{2,20}?)\1\1|([^\s\d]{1,20}?)\2{5}")  # without spaces, as in Chinese; or "!!!!!!"


def repeats_itself(words: Sequence[str], times: int = 2, longest: int = ORDERS) -> bool:
    """Whether one to `longest` words stand `times` times in a row: "a man a man", "red red"."""
    return any(
        words[start : start + n * (times - 1)] == words[start + n : start + n * times]
        for n in range(1, longest + 1)
        for start in range(len(words) - n * times + 1)
    )


def is_degenerate(caption: str) -> bool:
    """Whether a caption says up to a dozen words, or a piece of one, thrice in a row: "Topless, topless topless"."""
    words = [word for part in caption.casefold().split() if (word := re.sub(r"[\W_]+", "", part))]
    return repeats_itself(words, times=3, longest=12) or _LOOP.search(caption) is not None

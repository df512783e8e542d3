r"""METEOR's own preparation of a caption (`-norm`): quotes and dashes unified, hyphens split, punctuation separated.

Reconstructed from the output of the reference (METEOR 1.5, `-norm -writeAlignments`) for some 700,000 short strings
over the characters of its rules, with which it agrees. Its letters are Latin, Cyrillic and phonetic; those of other
scripts are separated one by one.
"""

from __future__ import annotations

import re
from typing import Any

_ALPHA = r"a-z\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u017e\u0400-\u0527\u1d00-\u1d7f\ua640-\ua66e\ua67e-\ua697"
_ALNUM = rf"0-9{_ALPHA}"
_PREFIXES = frozenset(["v", "vs", "i.e", "rev", "e.g"])  # of its list, those in lower case: they keep their dot
_NUMBERED = "pp"  # keeps it before a digit

_SIMPLE = re.compile(r"[a-z0-9 ]*")
_SPACES = re.compile(r"[ \t\n\r\f\v]+")
_LETTER = re.compile(rf"[{_ALPHA}]")
_HIDDEN = "\0"  # a full stop in a row of several, which stays one word
_STEPS: list[tuple[re.Pattern[str], Any]] = [
    (re.compile(pattern), replacement)
    for pattern, replacement in [
        (r"[“”]", '"'),
        (r"[‘’`]", "'"),
        (r"''", '"'),
        (rf"([^{_ALNUM} \t\n\r\f\v.',\-])", r" \1 "),
        (r"\.\.+", lambda dots: f" {_HIDDEN * len(dots[0])} "),
        (r"([^0-9]),([^0-9])", r"\1 , \2"),
        (r"([0-9]),([^0-9])", r"\1 , \2"),
        (r"([^0-9]),([0-9])", r"\1 , \2"),
        (r"--", "-"),
        (rf"([^{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
        (rf"([^{_ALNUM}])'([{_ALPHA}])", r"\1 ' \2"),
        (rf"([{_ALPHA}])'([^{_ALPHA}])", r"\1 ' \2"),
        (rf"([{_ALPHA}])'([{_ALPHA}])", r"\1 '\2"),
        (r"([0-9])'(s)", r"\1 '\2"),
        (rf"([{_ALNUM}.])-([{_ALNUM}])", r"\1 \2"),
    ]
]


def normalise(text: str) -> list[str]:
    """The words that METEOR aligns: of "the u.s. t-shirt do n't fit" the us t shirt do n 't fit."""
    if _SIMPLE.fullmatch(text):
        return text.split()
    text = f" {text.lower().strip(''.join(map(chr, range(33))))} "
    for pattern, replacement in _STEPS:
        text = pattern.sub(replacement, text)
    words = [word for word in _SPACES.split(text) if word]
    following = [*words[1:], ""]
    text = " ".join(_full_stop(word, after) for word, after in zip(words, following, strict=True))
    return text.replace(_HIDDEN, ".").replace("–", "-").split()


def _full_stop(word: str, after: str) -> str:
    """Separate a full stop from its word, unless it belongs to the word; "u.s." loses its dots."""
    before = word[:-1]
    if not before or word[-1] != ".":
        return word
    if "." in before and _LETTER.search(before):
        return before.replace(".", "")
    if before in _PREFIXES or "a" <= after[:1] <= "z" or (before == _NUMBERED and "0" <= after[:1] <= "9"):
        return word
    return f"{before} ."

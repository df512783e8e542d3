"""Alternative text of a photo on the web, made of a caption: one short sentence, without "a photo of"."""

from __future__ import annotations

import re

from showtell.text.endings import BAD_ENDINGS

MAX_CHARACTERS = 125  # screen readers of the past read so many at a time, and editors still ask for it
_IS_A_PHOTO = re.compile(
    r"^(?:(?:this|the|an?|here is an?)\s+)?(?:(?:close[- ]?up|blurry|stock|beautiful|nice)\s+)*"
    r"(?:image|photo|photograph|picture|pic)\s+(?:of|shows?|showing|depicts?|depicting|features?|featuring|captures?)\s+",
    re.IGNORECASE,
)
_SENTENCE_END = re.compile(r"(?<=[a-z]{2}[.!?])\s+(?=[\"'“(]?[A-Z])")  # not after "Dr."


def alt_text(caption: str, max_characters: int = MAX_CHARACTERS) -> str:
    """The first sentence of a caption as alternative text; one that is too long ends where it still makes sense."""
    text = _SENTENCE_END.split(_IS_A_PHOTO.sub("", " ".join(caption.split())))[0].rstrip(" .")
    if len(text) >= max_characters:  # with room for the full stop
        words = text[:max_characters].split(" ")[:-1] or [text[: max_characters - 1]]
        clause = max((number for number, word in enumerate(words, 1) if word[-1:] in ",;:"), default=0)
        words = words[:clause] if clause > len(words) / 2 else words
        while words and words[-1].strip(",;:").lower() in BAD_ENDINGS:
            words.pop()
        text = " ".join(words).rstrip(" ,;:.")
    end = "" if text.endswith(("!", "?")) or not text else "."
    return f"{text[:1].upper()}{text[1:]}{end}"

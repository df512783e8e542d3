"""What a question costs: a model that is at work on one cannot be stopped, so that one shall not hold up all others."""

from __future__ import annotations

from showtell.errors import UsageError
from showtell.serving.engine import Question

MAX_TEXT = 4_000  # characters of a prompt, a prefix or a phrase
MAX_PHRASES = 100  # that captions must or must not have
OCCLUSION = 16  # words that one word costs under occlusion, which asks for it once for each region


def require_affordable(question: Question, max_words: int) -> None:
    """Make sure that a question asks the model for so many words at most.

    Raises:
        UsageError: it asks for more.
    """
    settings = question.settings
    phrases = (*settings.bad_words, *settings.force_words)
    if len(phrases) > MAX_PHRASES:
        raise UsageError(
            f"bad_words and force_words have {len(phrases)} phrases, and this server takes {MAX_PHRASES}; leave some "
            "out."
        )
    longest = max(map(len, filter(None, (settings.prompt, settings.prefix, *phrases))), default=0)
    if longest > MAX_TEXT:
        raise UsageError(
            f"A setting has a text of {longest:,} characters, and this server takes {MAX_TEXT:,}; make it shorter."
        )
    if question.kind == "logprobs":
        # A word has two characters or more, a space among them; texts of one question are as long as the longest.
        words = len(question.texts) * (max(map(len, question.texts), default=0) // 2 + 1)
        if words > max_words:
            raise UsageError(
                f"The texts have up to {words:,} words, and this server takes {max_words:,} at a time (the longest "
                "counts for each); send fewer or shorter ones."
            )
        return
    beams = settings.num_beams * (1 + sum(len(phrase.split()) for phrase in settings.force_words))
    rows = max(beams, settings.num_return_sequences)
    words = rows * settings.max_length * (1 if question.occlusion is None else OCCLUSION)
    if words > max_words:
        times = "" if question.occlusion is None else f", times {OCCLUSION} for occlusion"
        raise UsageError(
            f"Beams or samples times max_length are {rows:,} x {settings.max_length:,} words{times}, and this server "
            f"takes {max_words:,} at a time; ask for fewer or shorter ones."
        )

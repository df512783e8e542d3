"""A caption that a person gives, along which a model is led."""

from __future__ import annotations

from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.decoding import DecodingConfig
from showtell.errors import UsageError


def settings_along(captioner: Captioner, caption: str, stage: int | None = None) -> DecodingConfig:
    """Decoding settings that lead a captioner along a caption: all words are given, so none is searched for.

    As in training, a word that the vocabulary lacks is the token of unknown words.

    Raises:
        UsageError: there is no word to follow, or the captioner has no words of its own.
    """
    if not isinstance(captioner, EncoderDecoderCaptioner):
        raise UsageError(f"{captioner.about.name} cannot follow a given caption; only the models of showtell can.")
    vocabulary = captioner.vocabulary
    words = vocabulary.decode(vocabulary.encode(vocabulary.split(caption))[1:-1])
    if not words:
        raise UsageError(f'The caption "{caption}" has no words to follow; give some, such as "a dog runs".')
    given = {"prefix": " ".join(words), "max_length": len(words), "stage": stage}
    return captioner.check(DecodingConfig.checked(given))

"""The shapes of answers, for the description of the API: what `to_json` of captions writes.

Answers are made by that method; the tests hold what they write to these shapes.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field


class Shape(BaseModel):
    """An object with exactly these keys."""

    model_config = ConfigDict(extra="forbid", protected_namespaces=())


class WordAnswer(Shape):
    """A word of a caption."""

    word: str
    logprob: float = Field(description="Natural logarithm of its probability, given the photo and the words before.")


class TokenAnswer(Shape):
    """A piece of a text, of captioners whose vocabulary is not made of words."""

    id: int
    token: str
    logprob: float


class CaptionAnswer(Shape):
    """A caption, as `showtell caption --format json` writes it."""

    text: str
    logprob: float = Field(description="Of the whole caption, its end included.")
    score: float | None = Field(description="What the search ranked it by.")
    confidence: float = Field(description="0 to 1; if calibrated, the chance that it is good.")
    calibrated: bool
    finished: bool = Field(description="False where the limit on the length cut it off.")
    words: list[WordAnswer]
    tokens: list[TokenAnswer] | None = Field(None, description="Of captioners of transformers.")


class CaptionsAnswer(Shape):
    """The captions of a photo, the best first."""

    image: str = Field(description="The name that was given, or photo.")
    captions: list[CaptionAnswer]

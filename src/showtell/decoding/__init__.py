"""Decoding: every walk over time, for any decoder, batched."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from showtell.config import Config
from showtell.decoding.beam import beam
from showtell.decoding.rollout import Captions, Forced, greedy, teacher_forced
from showtell.errors import UsageError
from showtell.models.contract import Decoder
from showtell.types import Features

__all__ = ["Captions", "DecodingConfig", "Forced", "beam", "greedy", "search", "teacher_forced"]


class DecodingConfig(Config):
    """How captions are searched for. The names are those of Hugging Face `generate`."""

    num_beams: int = Field(1, ge=1)  # 1 is greedy
    max_length: int = Field(20, ge=1)  # words, end not counted
    num_return_sequences: int = Field(1, ge=1)  # captions per image; at most num_beams
    search: Literal["greedy", "beam"] | None = None  # None: beam where num_beams is above 1

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.num_return_sequences > self.num_beams:
            raise ValueError(
                f"num_return_sequences={self.num_return_sequences} asks for more captions than num_beams="
                f"{self.num_beams} finds; raise num_beams"
            )
        if self.search == "greedy" and self.num_beams > 1:
            raise ValueError(f"search=greedy has one beam, not num_beams={self.num_beams}; use search=beam")
        return self

    @property
    def kind(self) -> str:
        """The name of the search."""
        return self.search or ("beam" if self.num_beams > 1 else "greedy")

    @classmethod
    def checked(cls, content: dict[str, Any]) -> Self:
        """The settings of some content; a bad value is a UsageError in words."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            problem = error.errors()[0]
            where = f"{problem['loc'][0]}: " if problem["loc"] else ""
            raise UsageError(f"{where}{problem['msg'].removeprefix('Value error, ')}.") from error


def search(decoder: Decoder, features: Features, config: DecodingConfig) -> Captions:
    """Captions by the search that the settings name."""
    if config.kind == "greedy":
        return greedy(decoder, features, config.max_length)
    return beam(decoder, features, config.max_length, config.num_beams)

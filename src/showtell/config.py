"""What all settings share: records in pydantic that are frozen and refuse unknown keys, and bounds of their numbers.

A setting is declared once, as a field with a type, a default and a description in `Field(...)`, from which the options
of the command line and the tables of the documentation are made.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from showtell.errors import UsageError, shorten

Size = Annotated[int, Field(ge=1, le=65_536)]  # a number of units, layers, samples, ...: memory is allocated by it
Pixels = Annotated[int, Field(ge=8, le=16_384)]  # of a side of an image
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class Config(BaseModel):
    """Settings that are checked when made and never change afterwards."""

    model_config = ConfigDict(  # of many settings few are used, so that a class is built when it is first needed
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=(), defer_build=True
    )

    @classmethod
    def checked(cls, content: Mapping[str, Any]) -> Self:
        """The settings of a mapping; a UsageError says in one sentence which key is unknown or which value bad."""
        try:
            return cls.model_validate(content)
        except ValidationError as error:
            raise UsageError(describe_problem(error)) from error

    @field_validator("*", mode="before")
    @classmethod
    def _fits_64_bits(cls, value: Any) -> Any:
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise ValueError("whole numbers have at most 64 bits here")
        return value


def describe_problem(error: ValidationError) -> str:
    """The first problem of settings, a sentence that begins with the key."""
    problem = error.errors()[0]
    where = f"{shorten('.'.join(map(str, problem['loc'])))}: " if problem["loc"] else ""
    return f"{where}{problem['msg'].removeprefix('Value error, ')}."


def flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones: {"model": {"name": "sat"}} as {"model.name": "sat"}."""
    dotted: dict[str, Any] = {}
    for key, value in content.items():
        dotted |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {f"{prefix}{key}": value}
    return dotted


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The keys in which two mappings differ, with both values; None for a key that one does not have."""
    pairs = {key: (before.get(key), now.get(key)) for key in sorted(before.keys() | now.keys())}
    return {key: (old, new) for key, (old, new) in pairs.items() if old != new}

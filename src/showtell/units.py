"""Values that people write with a unit: 5ms, 2s, 20MB.

    max_wait: Annotated[float, DURATION] = Field(0.005, ...)

takes 0.005 and "5ms" alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, core_schema


@dataclass(frozen=True, eq=False)
class Unit:
    """A kind of values with a unit, as an annotation of a setting."""

    name: str  # of the kind
    factors: Mapping[str, float]  # by unit, the largest last
    examples: str

    def parse(self, value: Any) -> Any:
        """The number of a text such as 5ms; what is no text is returned as it is.

        >>> DURATION.parse("5ms")
        0.005

        Raises:
            ValueError: it has no such form.
        """
        if not isinstance(value, str):
            return value
        match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,15})?) ?([a-z]*)", value.strip(), re.IGNORECASE | re.ASCII)
        factors = {unit.lower(): factor for unit, factor in self.factors.items()}
        if match is None or match[2].lower() not in factors:
            raise ValueError(f'"{value[:40]}" is no {self.name}; write {self.examples}')
        number = float(match[1]) * factors[match[2].lower()]
        return round(number) if number == round(number) else number

    def show(self, value: float) -> str:
        """A number with the largest unit in which it is not below 1.

        >>> DURATION.show(0.005), SIZE.show(20_000_000)
        ('5ms', '20MB')
        """
        units = list(self.factors.items())
        unit, factor = next((one for one in reversed(units) if value >= one[1]), units[0])
        return f"{value / factor:g}{unit}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Parse in front of what pydantic does with the number."""
        return core_schema.no_info_before_validator_function(self.parse, handler(source))


DURATION = Unit("duration", {"ms": 0.001, "s": 1, "m": 60, "h": 3600}, "5ms, 2s or 1m")
SIZE = Unit("size", {"B": 1, "kB": 1_000, "MB": 1_000_000, "GB": 1_000_000_000}, "500kB, 20MB or 1GB")

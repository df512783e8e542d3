"""The options of a source: plain values by their names, whose origin the report has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from showtell.errors import DataError, printable, shorten
from showtell.importing.report import Option
from showtell.torch_weights import StandIn

NumberT = TypeVar("NumberT", int, float)


class SourceOptions:
    """What a run was told, by the names that its project uses, with what the tensors contradict.

    Args:
        values: of the run.
        file: what messages call the file that they are in.
        origin: what the report calls where they are.
    """

    def __init__(self, values: Mapping[str, object], file: str, origin: str = "opt") -> None:
        self._values = values
        self.file = file
        self._origin = origin
        self.read: list[Option] = []
        self.contradictions: list[str] = []

    @classmethod
    def of(cls, value: object, file: str) -> SourceOptions:
        """The options in an argparse.Namespace or any kind of dict.

        Raises:
            DataError: it is none.
        """
        if isinstance(value, StandIn):
            value = {**value.entries, **value.attributes}
        if not isinstance(value, dict):
            raise DataError(f"The options (opt) in {file} should be a Namespace or a dict, not {_shown(value)}.")
        return cls({str(key): one for key, one in value.items()}, file)

    def __contains__(self, name: str) -> bool:
        return self._values.get(name) is not None

    def whole(self, name: str, default: int, *, at_least: int = 0, at_most: int = 65_536) -> int:
        """A whole number; booleans count as 0 and 1.

        Raises:
            DataError: it is none, or out of range.
        """
        value = self._number(name, default)
        if value != int(value) or not at_least <= value <= at_most:
            raise self._bad(name, f"a whole number from {at_least} to {at_most}")
        return self._note(name, int(value))

    def share(self, name: str, default: float) -> float:
        """A number from 0 to below 1, such as of dropout.

        Raises:
            DataError: it is none.
        """
        value = self._number(name, default)
        if not 0 <= value < 1:
            raise self._bad(name, "a number from 0 to below 1")
        return self._note(name, float(value))

    def text(self, name: str) -> str | None:
        """A text, without any mention; None where there is none."""
        value = self._values.get(name)
        return value if isinstance(value, str) else None

    def seen(self, name: str, value: int, origin: str) -> None:
        """An option that tensors show; what the options say instead is a contradiction.

        Args:
            name: of the option.
            value: that the tensors show.
            origin: which ones.
        """
        self.read.append(Option(name, value, origin, is_seen=True))
        given = self._values.get(name)
        if given is not None and (not isinstance(given, int | float) or given != value):
            self.contradictions.append(f"{self.file} has {name} {_shown(given)}, and by {origin} it is {value}")

    def _number(self, name: str, default: float) -> float:
        value = self._values.get(name)
        if value is None:
            return default
        if isinstance(value, int | float) and -1e9 < value < 1e9:
            return float(value)
        raise self._bad(name, "a number")

    def _bad(self, name: str, allowed: str) -> DataError:
        return DataError(f"The option {name} in {self.file} is {_shown(self._values[name])}; it should be {allowed}.")

    def _note(self, name: str, value: NumberT) -> NumberT:
        is_given = self._values.get(name) is not None
        self.read.append(Option(name, value, self._origin if is_given else "the default of the project"))
        return value


def _shown(value: object) -> str:
    if isinstance(value, str | int | float) or value is None:
        return printable(shorten(repr(value) if isinstance(value, str) else str(value), 40))
    return f"of type {value.path if isinstance(value, StandIn) else type(value).__name__}"

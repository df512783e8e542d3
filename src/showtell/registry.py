"""Registries: choices by name, from a visible dict and from the entry points of installed packages.

`docs/extending.md` lists the groups of entry points, and what an entry of each is: what the dict of its registry holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Generic, TypeVar

from showtell.config import Config
from showtell.errors import ExtensionError

Entry = TypeVar("Entry")


class Registry(Mapping[str, Entry], Generic[Entry]):
    """Entries by name: the built-in ones first, then those of installed packages, imported on first use."""

    def __init__(
        self,
        group: str,  # of entry points, such as "showtell.models"
        builtin: Mapping[str, Entry],
        *,
        expects: str = "an entry",  # what an entry is, for the message about one that is something else
        accepts: Callable[[str, Any], bool] = lambda name, entry: True,  # whether it is one, under its name
    ) -> None:
        self.group = group
        self.builtin = dict(builtin)
        self._expects = expects
        self._accepts = accepts
        self._loaded: dict[str, Entry] = {}

    @cached_property
    def installed(self) -> dict[str, list[EntryPoint]]:
        """The entry points of the group by name, sorted; more than one where packages clash."""
        points: dict[str, list[EntryPoint]] = {}
        for point in sorted(entry_points(group=self.group), key=lambda point: (point.name, _package(point))):
            points.setdefault(point.name, []).append(point)
        return points

    def __getitem__(self, name: str) -> Entry:
        """The entry of a name; an ExtensionError if the package that registers it is broken, or the name is taken."""
        points = self.installed.get(name, []) if isinstance(name, str) else []
        if not points:
            return self.builtin[name]
        if name in self.builtin or len(points) > 1:
            owners = ["showtell"] * (name in self.builtin) + [_package(point) for point in points]
            raise ExtensionError(
                f'The name "{name}" of {self.group} is taken more than once, by {" and by ".join(owners)}; rename the '
                f"entry point of {_package(points[-1])} or uninstall that package."
            )
        if name not in self._loaded:
            self._loaded[name] = self._load(points[0])
        return self._loaded[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.builtin
        yield from (name for name in self.installed if name not in self.builtin)

    def __repr__(self) -> str:
        return f"<Registry {self.group}: {', '.join(self)}>"

    def __len__(self) -> int:
        return len(self.builtin.keys() | self.installed.keys())

    def __contains__(self, name: object) -> bool:
        """Whether there is an entry of this name; imports nothing."""
        return isinstance(name, str) and (name in self.builtin or name in self.installed)

    def _load(self, point: EntryPoint) -> Entry:
        described = f'The entry point {point.name} = "{point.value}" ({self.group}) of {_package(point)}'
        try:
            entry: Entry = point.load()
        except Exception as error:
            reason = f"{type(error).__name__}: {error}".rstrip(". ")
            raise ExtensionError(f"{described} cannot be loaded: {reason}; mend or uninstall the package.") from error
        if not self._accepts(point.name, entry):
            given = f"the class {entry.__name__}" if isinstance(entry, type) else f"of type {type(entry).__name__}"
            raise ExtensionError(f"{described} is {given}; it should be {self._expects}.")
        return entry


def is_settings_and_part(name: str, entry: object, part: type | None = None, settings: type[Config] = Config) -> bool:
    """Whether an entry is a pair of settings, whose field `name` has that name as its default, and what they make."""
    if not isinstance(entry, tuple) or len(entry) != 2 or not isinstance(entry[0], type):
        return False
    if not issubclass(entry[0], settings) or "name" not in entry[0].model_fields:
        return False
    made = callable(entry[1]) if part is None else isinstance(entry[1], type) and issubclass(entry[1], part)
    return made and entry[0].model_fields["name"].default == name


def _package(point: EntryPoint) -> str:
    """The package that brings an entry point, with its version."""
    return f"the package {point.dist.name} {point.dist.version}" if point.dist else "a package without metadata"

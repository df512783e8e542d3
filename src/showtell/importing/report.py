"""What an import read, where each option came from, what contradicts what and what is missing, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from showtell.errors import printable

FROM_TENSORS = "the tensors"


@dataclass(frozen=True)
class TensorGroup:
    """Tensors of a source that share the beginning of their names."""

    name: str  # the beginning; * stands for numbers
    tensors: int
    weights: int
    becomes: str  # their name here, or "not used"


@dataclass(frozen=True)
class Option:
    """A setting that the forward pass or the search depends on."""

    name: str  # as the source calls it
    value: object
    origin: str  # what it was read from


@dataclass(frozen=True)
class ImportReport:
    """What was found in the files of a source."""

    model: str  # as the source calls it
    project: str
    address: str
    licence: str
    files: dict[str, str]  # by what they are: the path
    fingerprints: dict[str, str]  # SHA-256 of each
    tensors: tuple[TensorGroup, ...]
    options: tuple[Option, ...]
    words: str  # about the vocabulary, in a sentence
    features: str  # what the model looks at, in a sentence
    decoding: str  # the default settings of its searches, in a sentence
    contradictions: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what a person should know of the conversion
    scores: dict[str, float] | None = None  # that the authors' run recorded

    def to_json(self) -> dict[str, Any]:
        """Plain data."""
        return asdict(self)

    def warning(self) -> str | None:
        """A sentence where the files say different things; None where they agree."""
        if not self.contradictions:
            return None
        unproved = [f"{option.name}={option.value}" for option in self.options if option.origin != FROM_TENSORS]
        return (
            f"the files contradict each other, so they may be of two runs: {'; '.join(self.contradictions)}. Where "
            f"tensors show a value it is used; nothing but the options says {', '.join(unproved)}: if these are of "
            "another run, the captions are wrong."
        )

    def describe(self) -> str:
        """The report as text."""
        lines = [f"{self.model} of {self.project} ({self.address}; licence of its code: {self.licence})"]
        lines += [f"{kind}: {path}, SHA-256 {self.fingerprints[kind]}" for kind, path in self.files.items()]
        groups = [(group.name, f"{group.tensors}", f"{group.weights:,}", group.becomes) for group in self.tensors]
        sums = (sum(group.tensors for group in self.tensors), sum(group.weights for group in self.tensors))
        rows = [("read", "tensors", "weights", "becomes"), *groups, ("all", f"{sums[0]}", f"{sums[1]:,}", "")]
        lines += ["", *_table(rows)]
        options = [(option.name, str(option.value), option.origin) for option in self.options]
        lines += ["", *_table([("option", "value", "read from"), *options])]
        lines += ["", f"vocabulary: {self.words}", f"features: {self.features}", f"decoding: {self.decoding}"]
        if self.scores:
            scores = ", ".join(f"{name} {value:.4g}" for name, value in self.scores.items())
            lines.append(f"scores that its authors' run recorded: {scores}")
        lines += [f"note: {note}" for note in self.notes]
        return "\n".join(map(printable, lines))  # names and values are of a file that anybody may have made


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]

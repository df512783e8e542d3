"""What the files of another project hold: its weights, options and words, as the converters ask for them."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from showtell.errors import CheckpointError, DataError, UsageError, printable, shorten, summarise
from showtell.features import Encoder
from showtell.text.vocabulary import SPECIAL, Vocabulary, word_fault
from showtell.torch_weights import StandIn, is_plain

NEVER = -1e4  # bias of words that have no row in the source: e to that is 0
NameTable = dict[str, str | None]  # beginnings of names there and here; * is a number, None: the tensor is not used
_WRAPPER = "module."  # what DataParallel puts before each name
_COUNTER = "num_batches_tracked"  # of batch norm; files of before torch 0.4.1 lack it


@dataclass(frozen=True)
class Project:
    """The project whose weights are imported."""

    name: str
    address: str
    licence: str  # of the code


@dataclass
class Converted:
    """What a converter makes of the files of a source."""

    model: str  # as the source calls it
    config: dict[str, Any]  # settings of our model
    feature_size: int  # numbers of a feature vector
    features: str  # what the features are called; the source of an encoder that is not at hand
    features_described: str  # what they are, for people
    encoder_options: str  # of `showtell import`, that have them made from photos; empty if the source has an encoder
    state: dict[str, Tensor]  # of our decoder
    words: SourceWords
    options: SourceOptions
    decoding: dict[str, Any]  # default decoding settings
    notes: list[str] = field(default_factory=list)
    encoder: Encoder | None = None  # with its weights, if the source brings it


def find_file(folder: Path, patterns: Sequence[str], what: str, how: str) -> Path:
    """The only file of a folder with such a name, or that of the best weights; `what` and `how` are for messages."""
    files = sorted({path for pattern in patterns for path in folder.glob(pattern) if path.is_file()})
    files = [path for path in files if not path.name.startswith("optimizer")]
    files = [path for path in files if "best" in path.name.lower()] or files
    if len(files) != 1:
        names = summarise(path.name for path in files) or f"no {' or '.join(patterns)}"
        raise UsageError(f"The folder {folder} should have one file with {what} ({names}); {how}.")
    return files[0]


class SourceTensors:
    """The tensors of a file by their names."""

    def __init__(self, tensors: Mapping[str, Tensor], file: Path) -> None:
        wrapped = all(name.startswith(_WRAPPER) for name in tensors)
        self.named = {name.removeprefix(_WRAPPER) if wrapped else name: tensor for name, tensor in tensors.items()}
        self.file = str(file)

    def has(self, prefix: str) -> bool:
        """Whether a name begins like that."""
        return any(name.startswith(prefix) for name in self.named)

    def count_layers(self, prefix: str) -> int:
        """The number of modules 0, 1, 2, ... below a name, up to the first gap."""
        return next(number for number in itertools.count() if not self.has(f"{prefix}.{number}."))

    def shape(self, name: str, dimensions: int = 2) -> tuple[int, ...]:
        """The shape of a tensor; a `CheckpointError` if it is missing, empty or has another number of dimensions."""
        if (tensor := self.named.get(name)) is None:
            raise CheckpointError(
                f"There is no tensor {name} in {self.file}: the file is damaged, or of a model that is not supported."
            )
        if tensor.dim() != dimensions or not tensor.numel():
            raise CheckpointError(
                f"The tensor {name} in {self.file} has shape {tuple(tensor.shape)}; it should have {dimensions} "
                "dimensions, none of them empty: the file is damaged, or of a model that is not supported."
            )
        return tuple(tensor.shape)

    def count_words(self, embedding: str, output: str) -> int:
        """For how many words embedding and output layer, modules of these names, have rows, if they agree."""
        rows = self.shape(f"{embedding}.weight")[0]
        for own in (self.shape(f"{output}.weight")[0], self.shape(f"{output}.bias", 1)[0]):
            if own != rows:
                raise CheckpointError(
                    f"The embedding in {self.file} is for {rows} words and its output layer ({output}) for {own}: the "
                    "file is damaged."
                )
        return rows

    def rename(self, table: NameTable, model: str) -> dict[str, Tensor]:
        """All tensors by the names that they have here, float32; those that get one name are added.

        The first row of the table that fits a name is taken. A tensor in no row is a CheckpointError, as its model
        computes something else.
        """
        patterns = [re.compile(re.escape(theirs).replace(r"\*", r"(\d+)") + r"(?![^.])") for theirs in table]
        rules = list(zip(patterns, table.values(), strict=True))
        state: dict[str, Tensor] = {}
        unknown = []
        for name, tensor in self.named.items():
            pattern, ours = next((rule for rule in rules if rule[0].match(name)), (None, None))
            if pattern is None:
                unknown.append(name)
            elif ours is not None:
                own, single = pattern.sub(ours.replace("*", r"\1"), name), self._checked(name, tensor)
                if own in state and state[own].shape != single.shape:
                    raise CheckpointError(
                        f"The tensor {name} in {self.file} has another size than what it is added to."
                    )
                state[own] = state[own] + single if own in state else single
        if unknown:
            raise CheckpointError(
                f"{self.file} looks like {model} and has {len(unknown)} tensors that this model does not have "
                f"({summarise(unknown, 3)}), so it computes something else; it is not imported."
            )
        for name in [name for name in state if name.endswith("running_mean")]:
            state.setdefault(name.replace("running_mean", _COUNTER), torch.tensor(0))
        return state

    def _checked(self, name: str, tensor: Tensor) -> Tensor:
        if name.endswith(_COUNTER):
            return tensor
        single = tensor.detach().to(torch.float32, copy=True) if is_plain(tensor) else torch.tensor(torch.nan)
        if not tensor.is_floating_point() or not bool(torch.isfinite(single).all()):
            raise CheckpointError(
                f"The tensor {name} in {self.file} does not hold finite floating point numbers, all stored, so it is "
                "of a run that diverged or of a damaged file; use another checkpoint."
            )
        return single


class SourceOptions:
    """What a run was told, by the names that its project uses: an argparse.Namespace or any kind of dict."""

    def __init__(self, values: object, file: str) -> None:
        if isinstance(values, StandIn):
            values = {**values.entries, **values.attributes}
        if not isinstance(values, dict):
            raise DataError(f"The options (opt) in {file} should be a Namespace or a dict, not {_shown(values)}.")
        self.values = {name: value for name, value in values.items() if value is not None}
        self.file = file
        self.read: dict[str, int] = {}

    def whole(self, name: str, default: int, *, at_least: int = 0, at_most: int = 65_536) -> int:
        """A whole number, where booleans count as 0 and 1; a `DataError` if it is out of range or no number."""
        value = self.values.get(name, default)
        if not isinstance(value, int | float) or not at_least <= value <= at_most or value != int(value):
            raise DataError(
                f"The option {name} in {self.file} is {_shown(value)}; it should be a whole number from {at_least} to "
                f"{at_most}."
            )
        self.read[name] = int(value)
        return int(value)


def _shown(value: object) -> str:
    plain = isinstance(value, str | int | float)
    return printable(shorten(repr(value), 40)) if plain else f"of type {type(value).__name__}"


class SourceWords:
    """Our vocabulary made of the words of a source, and the row of the source for each id.

    Sources mark begin, end and padding by ids of their own, or all three by one. Ours are four different ids, unknown
    among them. A logit of the source stands in exactly one row of ours; a row that the source has not gets no weights
    and a bias so low that its probability is 0.
    """

    def __init__(self, words: Mapping[int, str], rows: int, marks: Mapping[str, int], file: str, weights: str) -> None:
        special = set(marks.values())
        if wrong := {*words, *special} ^ set(range(rows)):
            missing = sorted(index for index in wrong if index < rows)
            reason = f"no word has id {summarise(missing, 3)}"
            if not missing:
                reason = f"there are words of id {summarise(sorted(wrong), 3)}"
            raise DataError(
                f"{file} has {len(words):,} words and {weights} rows for {rows:,}, {len(special)} of them marks: "
                f"{reason}. The two files do not belong together; give those that were saved by one run."
            )
        ordinary = {index: words[index] for index in sorted(words) if index not in special}
        ids: dict[str, int] = {}
        for index, word in ordinary.items():
            fault = "marks something else here" if word in SPECIAL else word_fault(word)
            if word in ids:
                fault = f"is the word of id {ids[word]} too"
            if fault:
                raise DataError(f'The word of id {index} in {file}, "{printable(shorten(word, 40))}", {fault}.')
            ids[word] = index
        self.vocabulary = Vocabulary(list(ids))
        marked = [marks["pad"], marks["begin"], marks["end"], marks.get("unknown")]  # in the order of our ids
        predicted: list[int | None] = [None] * len(SPECIAL)
        for ours in (Vocabulary.end, Vocabulary.unknown, Vocabulary.begin, Vocabulary.pad):  # a shared row is the first
            if marked[ours] not in predicted:
                predicted[ours] = marked[ours]
        self._embedded = [*marked, *ordinary]  # for each of our ids, the row whose vector is fed; None: zeros
        self._predicted = [*predicted, *ordinary]  # for each of our ids, the row of its logit; None: it never occurs

    def reorder(self, state: dict[str, Tensor]) -> None:
        """Put the rows of embeddings and output layer, each (rows of the source, ...), in the order of our ids."""
        state["embedding.weight"] = _rows(state["embedding.weight"], self._embedded, 0.0)
        state["output.weight"] = _rows(state["output.weight"], self._predicted, 0.0)
        state["output.bias"] = _rows(state["output.bias"], self._predicted, NEVER)

    def describe(self) -> str:
        """The vocabulary in a sentence."""
        unknown = "" if self._predicted[Vocabulary.unknown] is None else " and one for unknown words"
        return f"{len(self.vocabulary) - len(SPECIAL):,} words{unknown}"


def _rows(table: Tensor, rows: list[int | None], otherwise: float) -> Tensor:
    made = table.new_full((len(rows), *table.shape[1:]), otherwise)
    present = [index for index, row in enumerate(rows) if row is not None]
    made[present] = table[[row for row in rows if row is not None]]
    return made

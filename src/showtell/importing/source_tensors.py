"""The tensors of a source, each of which is taken once, or left out for a reason that the report has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import torch
from torch import Tensor

from showtell.errors import CheckpointError, summarise
from showtell.importing.report import TensorGroup
from showtell.torch_weights import is_plain

_WRAPPER = "module."  # what DataParallel puts before each name
_MAX_SHARED = 2  # how often the bytes of a file may be claimed by tensors that share them
_COUNTER = "num_batches_tracked"  # of batch norm; files of before torch 0.4.1 lack it


class SourceTensors:
    """The tensors of a source by their names; what is taken from it is float32.

    Args:
        tensors: of the file.
        file: that they are in.

    Raises:
        CheckpointError: they claim more bytes than the file has.
    """

    def __init__(self, tensors: Mapping[str, Tensor], file: Path) -> None:
        claimed, size = sum(tensor.nbytes for tensor in tensors.values()), file.stat().st_size
        if claimed > _MAX_SHARED * size:
            raise CheckpointError(
                f"The tensors in {file} claim {claimed / 1e6:,.0f} MB of a file of {size / 1e6:,.0f} MB, so they are "
                "copies of each other; no checkpoint has that."
            )
        if tensors and all(name.startswith(_WRAPPER) for name in tensors):
            tensors = {name.removeprefix(_WRAPPER): tensor for name, tensor in tensors.items()}
        self.file = str(file)
        self._tensors = dict(tensors)
        self._modules: dict[str, list[str]] = {}  # the tensors of each module by its name
        for name in tensors:
            self._modules.setdefault(name.rpartition(".")[0], []).append(name)
        self._becomes: dict[str, str] = {}  # what has become of each name

    def __contains__(self, name: str) -> bool:
        return name in self._tensors

    def has(self, prefix: str) -> bool:
        """Whether a name begins like that."""
        return any(name.startswith(prefix) for name in self._tensors)

    def shape(self, name: str, dimensions: int = 2) -> tuple[int, ...]:
        """The shape of a tensor.

        Raises:
            CheckpointError: it is missing, is empty or has another number of dimensions.
        """
        tensor = self.look_at(name)
        if tensor.dim() != dimensions or not tensor.numel():
            raise CheckpointError(
                f"The tensor {name} in {self.file} has shape {tuple(tensor.shape)}; it should have {dimensions} "
                "dimensions, none of them empty: the file is damaged, or of a model that is not supported."
            )
        return tuple(tensor.shape)

    def look_at(self, name: str) -> Tensor:
        """A tensor as it is in the file, of which nothing becomes anything by that.

        Raises:
            CheckpointError: it is missing.
        """
        if name not in self._tensors:
            raise CheckpointError(
                f"There is no tensor {name} in {self.file}: the file is damaged, or of a model that is not supported."
            )
        return self._tensors[name]

    def words(self, embedding: str, output: str) -> int:
        """For how many words there are rows.

        Args:
            embedding: the name of the word embeddings.
            output: the name of the output layer.

        Raises:
            CheckpointError: a tensor is missing, or the two are for different numbers.
        """
        rows = self.shape(embedding)[0]
        for name, dimensions in ((f"{output}.weight", 2), (f"{output}.bias", 1)):
            if self.shape(name, dimensions)[0] != rows:
                raise CheckpointError(
                    f"The embedding in {self.file} is for {rows} words and its output layer ({output}) for "
                    f"{self.shape(name, dimensions)[0]}: the file is damaged."
                )
        return rows

    def take(self, name: str, becomes: str) -> Tensor:
        """A tensor as float32.

        Args:
            name: in the source.
            becomes: its name here.

        Raises:
            CheckpointError: it is missing, holds no real numbers, or some that are not finite.
        """
        tensor = self.look_at(name)
        self._becomes[name] = becomes
        if name.endswith(_COUNTER):
            if tensor.numel() != 1 or tensor.is_complex():
                raise CheckpointError(f"The tensor {name} in {self.file} should be a single number: it is damaged.")
            return tensor.long().reshape(())
        if not tensor.is_floating_point() or not is_plain(tensor):
            kind = str(tensor.dtype).removeprefix("torch.")
            raise CheckpointError(f"The tensor {name} in {self.file} holds {kind} instead of floating point numbers.")
        taken = tensor.detach().to(torch.float32, copy=True)
        if not bool(torch.isfinite(taken).all()):
            raise CheckpointError(
                f"The tensor {name} in {self.file} contains NaN or infinity, so it is of a run that diverged or of a "
                "damaged file; use another checkpoint."
            )
        return taken

    def take_sum(self, names: Sequence[str], becomes: str) -> Tensor:
        """The sum of tensors of one shape, such as of two biases that the source adds to each other.

        Raises:
            CheckpointError: one is missing, or they have different shapes.
        """
        parts = [self.take(name, becomes) for name in names]
        if any(part.shape != parts[0].shape for part in parts):
            raise CheckpointError(f"{' and '.join(names)} in {self.file} should have the same size: it is damaged.")
        return torch.stack(parts).sum(0)

    def module(self, prefix: str, becomes: str, *, nested: bool = False) -> dict[str, Tensor]:
        """The tensors of a module by the names that they have here.

        Args:
            prefix: its name.
            becomes: its name here.
            nested: take those of the modules within it, too.

        Raises:
            CheckpointError: it has none.
        """
        names = self._modules.get(prefix, [])
        if nested:
            names = [name for name in self._tensors if name.startswith(f"{prefix}.")]
        if not names:
            self.look_at(f"{prefix}.weight")
        taken = {}
        for name in names:
            own = f"{becomes}.{name.removeprefix(f'{prefix}.')}"
            taken[own] = self.take(name, own)
        return taken

    def count_layers(self, prefix: str) -> int:
        """How many modules with the numbers 0, 1, 2, ... there are below a name, without a gap."""
        start = f"{prefix}."
        rest = (name.removeprefix(start).partition(".")[0] for name in self._modules if name.startswith(start))
        numbers = {int(number) for number in rest if number.isdecimal() and len(number) < 6}
        return next(count for count in range(len(numbers) + 1) if count not in numbers)

    def batch_norm(self, prefix: str, becomes: str) -> dict[str, Tensor]:
        """The tensors of a batch norm, with the counter of batches that old files lack."""
        return {f"{becomes}.{_COUNTER}": torch.tensor(0), **self.module(prefix, becomes)}

    def leave_out(self, prefix: str, reason: str) -> None:
        """Account for tensors that the model does not use, if there are some and none of them became anything."""
        names = [name for name in self._tensors if name.startswith(prefix)]
        if not any(self._becomes.get(name) for name in names):
            self._becomes |= dict.fromkeys(names, f"not used: {reason}")

    def refuse_rest(self, model: str) -> None:
        """Make sure that nothing was overlooked.

        Raises:
            CheckpointError: there are tensors of which nothing has become anything.
        """
        rest = [name for name in self._tensors if name not in self._becomes]
        if rest:
            raise CheckpointError(
                f"{self.file} looks like {model} and has {len(rest)} tensors that this model does not have "
                f"({summarise(rest, 3)}), so it computes something else; it is not imported."
            )

    def groups(self) -> tuple[TensorGroup, ...]:
        """What was read and what has become of it, in the order of the file."""
        groups: dict[tuple[str, str], list[Tensor]] = {}
        for name, tensor in self._tensors.items():
            becomes = self._becomes[name]
            key = (_stem(name), becomes if becomes.startswith("not used") else _stem(becomes))
            groups.setdefault(key, []).append(tensor)
        return tuple(
            TensorGroup(name, len(tensors), sum(one.numel() for one in tensors), becomes)
            for (name, becomes), tensors in groups.items()
        )


def _stem(name: str) -> str:
    """The group of a tensor: its module; the numbered layers of a stack, or blocks of a stage, are one."""
    parts = name.split(".")
    for index, part in enumerate(parts[:-2]):
        if part.isdigit() and index:
            return ".".join(parts[: index + parts[index + 1].isdigit()])
    return ".".join(parts[:-1]) or name

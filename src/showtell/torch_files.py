"""What torch.save wrote, read without running any of it: tensors, plain values and records.

    content = read_torch_file(Path("BEST_checkpoint_coco.pth.tar"))
    tensors = module_tensors(content["encoder"])        # of a module that was saved whole: names and tensors

Two containers are known. Since torch 1.6 a file is an uncompressed zip archive of a pickle (`data.pkl`) and one entry
per storage; before, it is a row of pickles (a magic number, a version, facts of the machine, the object, the keys of
its storages) with the bytes of the storages behind. A plain pickle is read too, and in it tensors that pickle wrote.
The pickles run on the machine of `inert_pickle`; what a tensor claims of its storage, and a storage or an entry of its
file, is compared with what is there before memory is taken.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor

from showtell.errors import WeightsError, first_line
from showtell.inert_pickle import (
    MAX_STEPS,
    Arguments,
    Buffer,
    Call,
    Machine,
    Record,
    array_size,
    damaged,
    refuse_other_kinds,
)

MAX_ENTRIES = 100_000  # of an archive, and tensors and modules within one module
_MAX_DEPTH = 100  # of modules
_MAX_NAME = 1_000  # characters of a name, and of those around it
_STEPS_OF_TENSOR = 8  # a tensor takes as much memory as so many other values
_STEPS_OF_STORAGE = 100  # within a pickle
_STEPS_IN_STORAGE = 250  # more than the bytes take that pickle writes for one
_MAX_STRIDE = 1 << 48
_MAGIC = 0x1950A86A20F9469CFC6C
_VERSION = 1001

_STORAGE_DTYPES = {
    "DoubleStorage": torch.float64,
    "FloatStorage": torch.float32,
    "HalfStorage": torch.float16,
    "BFloat16Storage": torch.bfloat16,
    "LongStorage": torch.int64,
    "IntStorage": torch.int32,
    "ShortStorage": torch.int16,
    "CharStorage": torch.int8,
    "ByteStorage": torch.uint8,
    "BoolStorage": torch.bool,
    "ComplexDoubleStorage": torch.complex128,
    "ComplexFloatStorage": torch.complex64,
    "UntypedStorage": torch.uint8,
}
_NEW_DTYPES = (  # those that have no class of storages: their bytes are stored, and the tensor says what they are
    *(torch.uint16, torch.uint32, torch.uint64, torch.complex32),
    *(torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz),
)
_DTYPES = {str(dtype): dtype for dtype in (*_STORAGE_DTYPES.values(), *_NEW_DTYPES)}

Entries: TypeAlias = dict[str, tuple[int, int]]  # begin and size of each entry of an archive


def read_torch_file(path: Path) -> object:
    """The content of a file that torch.save or pickle wrote.

    Returns:
        Plain Python values, tensors on the processor (parameters are tensors, too), NumPy arrays of numbers, and a
        `Record` for everything else. Tensors that shared memory share it. The content may contain itself.

    Raises:
        WeightsError: the file is missing, damaged, of another kind, or made to do harm.
    """
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise WeightsError(f"{path} {what}; give a file that torch.save or pickle wrote.")
    try:
        if path.stat().st_size == 0:  # which cannot be mapped
            raise damaged(str(path), "it is empty")
        with path.open("rb") as stream, mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return _read(data, str(path))
    except OSError as error:
        raise WeightsError(f"{path} cannot be read ({first_line(error)}).") from error


def module_tensors(module: Record) -> dict[str, Tensor]:
    """The state dict of a module that was saved whole.

    Args:
        module: its record.

    Returns:
        Parameters and buffers by their names; those that a module shares with another have several.

    Raises:
        WeightsError: it contains itself, or has more parts than any model.
    """
    tensors: dict[str, Tensor] = {}
    waiting: list[tuple[str, Record, tuple[Record, ...]]] = [("", module, ())]
    count = 0  # of what was looked at: a small file can name the same parts very often
    while waiting:
        prefix, record, parents = waiting.pop()
        kinds = (record.attribute(kind) for kind in ("_parameters", "_buffers", "_modules"))
        parameters, buffers, modules = (kind if isinstance(kind, dict) else {} for kind in kinds)
        count += 1 + len(parameters) + len(buffers) + len(modules)
        if record in parents or count > MAX_ENTRIES or len(parents) > _MAX_DEPTH or len(prefix) > _MAX_NAME:
            raise WeightsError(f"The module {module.path} contains itself, or more parts than any model has.")
        transient = record.attribute("_non_persistent_buffers_set")
        if isinstance(transient, set):
            buffers = {name: value for name, value in buffers.items() if name not in transient}
        for name, value in (*parameters.items(), *buffers.items()):
            if _is_name(name) and isinstance(value, Tensor):
                tensors[prefix + name] = value
        children = [(name, value) for name, value in modules.items() if _is_name(name) and isinstance(value, Record)]
        waiting += [(f"{prefix}{name}.", child, (*parents, record)) for name, child in reversed(children)]
    return tensors


def _is_name(key: object) -> bool:
    return isinstance(key, str) and len(key) <= _MAX_NAME


def is_archive(data: Buffer) -> bool:
    """Whether a file is an archive, as torch.save has written them since torch 1.6."""
    return bytes(data[:4]) == b"PK\x03\x04"


def _read(data: Buffer, source: str, nested: bool = False) -> object:
    """The content of a file, or of bytes within one."""
    if is_archive(data) and not nested:
        return _read_archive(data, source)
    if not nested:
        refuse_other_kinds(data, source)
    calls, steps = ({}, MAX_STEPS - _STEPS_IN_STORAGE) if nested else (_PICKLED, 0)
    plain = Machine(data, source, calls=calls, constants=_DTYPES, keys=(Tensor,), steps=steps)
    first = plain.run()
    return _read_stream(data, source, plain.position, steps) if isinstance(first, int) and first == _MAGIC else first


# ---- the two containers


def _read_archive(data: Buffer, source: str) -> object:
    """The content of an archive: data.pkl, with a storage in each data/KEY."""
    entries = _archive_entries(data, source)
    folder = next(iter(entries), "").split("/")[0]
    if f"{folder}/constants.pkl" in entries:
        raise WeightsError(
            f"{source} is an archive of TorchScript, which is a program: save the state dict of the model alone."
        )
    packed = next((name for name, place in entries.items() if place == _PACKED), None)
    if packed is not None:
        raise damaged(source, f"the entry {packed[:80]} is compressed or encrypted, which torch.save does not do")
    if f"{folder}/data.pkl" not in entries:
        raise damaged(source, "an archive without data.pkl")
    begin, size = entries.get(f"{folder}/byteorder", (0, 0))
    if data[begin : begin + size] == b"big":
        raise WeightsError(
            f"{source} was written by a machine that puts the highest byte first; save it on another one."
        )
    storages = _Storages(source, len(data))

    def persistent(key: object) -> Tensor:
        match key:
            case ("storage", Record() as kind, str() | int() as name, _, int() as count):
                storage, is_new = storages.get(str(name), kind, count)
                begin, size = entries.get(f"{folder}/data/{name}", (0, -1))
                if size != storage.nbytes:
                    raise damaged(source, f"its storage {name} is missing or of another size than claimed")
                if is_new:
                    _fill(storage, data, begin)
                return storage
        raise damaged(source, "a persistent id is none of a storage")

    begin, size = entries[f"{folder}/data.pkl"]
    return Machine(
        data[begin : begin + size], source, calls=_TORCH, constants=_DTYPES, persistent=persistent, keys=(Tensor,)
    ).run()


def _read_stream(data: Buffer, source: str, start: int, steps: int) -> object:
    """The content of the format before torch 1.6, behind its magic number; each of its pickles has taken steps."""
    storages = _Storages(source, len(data))

    def persistent(key: object) -> object:
        match key:
            case ("storage", Record() as kind, str() | int() as name, _, int() as count, *view):
                storage, _ = storages.get(str(name), kind, count)
                match view:
                    case [] | [None]:
                        return storage
                    case [(_, int() as offset, int() as size)] if 0 <= offset <= offset + size <= count:
                        return storage[int(offset) : int(offset) + size]
            case ("module", Record() as kind, _, _):  # with the file and the text of its class
                return kind
        raise damaged(source, "a persistent id is none of a storage")

    def run(position: int) -> tuple[Any, int]:
        machine = Machine(
            data, source, start=position, calls=_TORCH, constants=_DTYPES, persistent=persistent, keys=(Tensor,),
            steps=steps,
        )  # fmt: skip
        return machine.run(), machine.position

    version, position = run(start)
    if not isinstance(version, int) or version != _VERSION:
        raise damaged(source, "its version is unknown")
    _, position = run(position)  # about the machine that wrote it: values are stored with the lowest byte first
    content, position = run(position)
    keys, position = run(position)
    names = [str(key) for key in keys if isinstance(key, (str, int))] if isinstance(keys, list) else [""]
    if sorted(names) != sorted(storages.tensors):
        raise damaged(source, "the keys of its storages are not those that its tensors name")
    for name in names:
        storage = storages.tensors[name]
        if len(data) - position < 8 + storage.nbytes:
            raise damaged(source, f"it ends within storage {name}")
        if struct.unpack("<q", data[position : position + 8])[0] != storage.numel():
            raise damaged(source, f"its storage {name} is of another size than claimed")
        _fill(storage, data, position + 8)
        position += 8 + storage.nbytes
    return content


@dataclass
class _Storages:
    """The storages of a file: flat tensors, made when they are first named, for no more bytes than the file has."""

    source: str
    left: int  # bytes that no storage has claimed

    def __post_init__(self) -> None:
        self.tensors: dict[str, Tensor] = {}

    def get(self, name: str, kind: Record, count: int) -> tuple[Tensor, bool]:
        """A storage of `count` values, (count,), and whether it is new."""
        dtype = _STORAGE_DTYPES.get(kind.name) if kind.module.split(".")[0] == "torch" else None
        if dtype is None:
            raise WeightsError(
                f"{self.source} holds tensors of a kind that is not read ({kind.path}); save it with tensors of "
                "floating point numbers or integers."
            )
        if name in self.tensors:
            storage = self.tensors[name]
            if storage.dtype != dtype or storage.numel() != count:
                raise damaged(self.source, f"its storage {name} has two sizes or types")
            return storage, False
        self.left -= count * dtype.itemsize
        if type(count) is bool or count < 0 or self.left < 0:
            raise damaged(
                self.source, f"its storages claim more bytes than it has, {name} being one of {count:,} values"
            )
        self.tensors[name] = storage = torch.empty(count, dtype=dtype)
        return storage, True


def _fill(storage: Tensor, data: Buffer, begin: int) -> None:
    """Give a storage the bytes at a position of the file."""
    if storage.numel():
        content = storage.view(torch.uint8)
        content.numpy()[:] = np.frombuffer(data, np.uint8, storage.nbytes, begin)
        if storage.dtype is torch.bool:
            content.ne_(0)  # a bool of another byte than 0 or 1 is none to torch's kernels


_END = struct.Struct("<4s4H2LH")  # of an archive: signature, ..., number of entries, size and begin of the list
_END_64 = struct.Struct("<4sQ2H2L4Q")
_END_64_LOCATOR = struct.Struct("<4sLQL")
_LISTED = struct.Struct("<4s6H3L5H2L")  # an entry in the list
_LOCAL = struct.Struct("<4s5H3L2H")  # an entry in front of its content
_PACKED = (-1, 0)  # in place of begin and size: an entry that is not stored as it is
_IN_EXTRA = 0xFFFFFFFF  # a number that does not fit, and stands in the extra field


def _archive_entries(data: Buffer, source: str) -> Entries:
    """The entries of an archive in the order of its list, by name.

    Nothing is decompressed, and what is stored as it is lies where the list has it, together no larger than the file.
    """
    try:
        return dict(_listed(data, source))
    except struct.error as error:
        raise damaged(source, "its archive ends too early") from error


def _listed(data: Buffer, source: str) -> Iterator[tuple[str, tuple[int, int]]]:
    end = data.rfind(b"PK\x05\x06", max(0, len(data) - _END.size - 0xFFFF))
    if end < 0:
        raise damaged(source, "its archive has no end")
    *_, count, size, begin, _ = _END.unpack_from(data, end)
    locator = end - _END_64_LOCATOR.size
    if locator >= 0 and data[locator : locator + 4] == b"PK\x06\x07":
        end = _END_64_LOCATOR.unpack_from(data, locator)[2]
        if end > locator - _END_64.size or data[end : end + 4] != b"PK\x06\x06":
            raise damaged(source, "its archive has no end")
        *_, count, size, begin = _END_64.unpack_from(data, end)
    if count > MAX_ENTRIES or begin + size != end:
        raise damaged(source, f"its archive claims {count:,} entries in {size:,} bytes")
    names, left, position = set(), begin, begin
    for _ in range(count):
        signature, _, _, flags, method, *_, packed, unpacked, name_size, extra_size, note_size, _, _, _, offset = (
            _LISTED.unpack_from(data, position)
        )
        position += _LISTED.size
        name = data[position : position + name_size].decode("utf-8", "replace")
        extra = data[position + name_size : position + name_size + extra_size]
        position += name_size + extra_size + note_size
        unpacked, packed, offset = _large(extra, (unpacked, packed, offset))
        if signature != b"PK\x01\x02" or position > end:
            raise damaged(source, "the list of its archive is broken")
        if name in names or name.startswith(("/", "\\")) or ".." in name.replace("\\", "/").split("/"):
            raise damaged(source, f"the entry {name[:80]} occurs twice or lies outside of the archive")
        names.add(name)
        if method or flags & 1 or packed != unpacked:
            yield name, _PACKED
            continue
        left -= unpacked
        start = offset + _LOCAL.size
        if left < 0 or start > begin:
            raise damaged(source, f"the entry {name[:80]} claims more bytes than there are")
        signature, *_, name_size, extra_size = _LOCAL.unpack_from(data, offset)
        start += name_size + extra_size
        if signature != b"PK\x03\x04" or start + unpacked > begin:
            raise damaged(source, f"the entry {name[:80]} is not where the list has it")
        yield name, (start, unpacked)


def _large(extra: bytes, numbers: tuple[int, ...]) -> Iterator[int]:
    """The numbers of an entry, with those that do not fit into 32 bits from its extra field."""
    fields = {}
    while len(extra) >= 4:
        kind, size = struct.unpack_from("<2H", extra)
        fields[kind], extra = extra[4 : 4 + size], extra[4 + size :]
    wide = fields.get(1, b"")
    for number in numbers:
        if number == _IN_EXTRA:
            (number,), wide = struct.unpack("<Q", wide[:8]), wide[8:]
        yield number


# ---- what a pickle calls to have a tensor


def _tensor(machine: Machine, args: Arguments) -> Tensor:
    """A view of a storage; none of its values lies outside, and no more of them are claimed than the storage has."""
    match args:
        case (Tensor() as storage, int() as offset, tuple() as size, tuple() as stride, *_) if storage.dim() == 1:
            machine.count_steps(_STEPS_OF_TENSOR)
            count = array_size(size)
            if count is None or len(stride) != len(size):
                machine.refuse("a tensor has no valid shape")
            if any(type(step) is not int or not 0 <= step <= _MAX_STRIDE for step in stride):
                machine.refuse("a tensor has no valid strides")
            if offset < 0:
                machine.refuse("a tensor has no valid offset")
            if count == 0:
                return storage.as_strided(size, stride, 0)  # whose offset may lie anywhere
            last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
            if max(count, last + 1) > storage.numel() or storage.stride() != (1,):
                machine.refuse(f"a tensor of {count:,} values reaches outside of its storage of {storage.numel():,}")
            return storage.as_strided(size, stride, storage.storage_offset() + offset)
    return machine.refuse("a tensor has no storage")


def _tensor_v2(machine: Machine, args: Arguments) -> Tensor:
    """(storage, offset, size, stride, requires_grad, hooks, flags)."""
    tensor = _tensor(machine, args)
    flags = args[6] if len(args) > 6 else None
    if not isinstance(flags, dict):
        return tensor
    if flags.get("conj") is True and tensor.is_complex():
        tensor = tensor.conj()
    return torch._neg_view(tensor) if flags.get("neg") is True and tensor.dtype is not torch.bool else tensor


def _tensor_v3(machine: Machine, args: Arguments) -> Tensor:
    """(untyped storage, offset, size, stride, requires_grad, hooks, dtype, flags)."""
    match args:
        case (Tensor() as storage, offset, size, stride, _, _, torch.dtype() as dtype, *_) if dtype in _NEW_DTYPES:
            if storage.dtype is not torch.uint8 or storage.dim() != 1 or storage.numel() % dtype.itemsize:
                machine.refuse("a tensor has no storage")
            return _tensor(machine, (storage.view(dtype), offset, size, stride))
    return machine.refuse("a tensor has no type that is read")


def _tensor_with_attributes(machine: Machine, args: Arguments) -> object:
    """(function, class, its arguments, attributes of the tensor)."""
    match args:
        case (Record() as function, _, tuple() as inner, *_) if function.path in _TORCH:
            return _TORCH[function.path](machine, inner)
    return machine.refuse("a tensor has no storage")


def _parameter(machine: Machine, args: Arguments) -> Tensor:
    """(tensor, requires_grad, ...)."""
    match args:
        case (Tensor() as tensor, *_):
            return tensor
    return machine.refuse("a parameter is no tensor")


def _size(machine: Machine, args: Arguments) -> tuple[int, ...]:
    match args:
        case ((tuple() | list()) as size,) if array_size(tuple(size)) is not None:
            return tuple(size)
    return machine.refuse("a size has something other than numbers")


def _device(machine: Machine, args: Arguments) -> torch.device:
    try:
        match args:
            case (str() as kind,):
                return torch.device(kind)
            case (str() as kind, int() as index):
                return torch.device(kind, int(index))
    except RuntimeError:  # a kind that this torch does not know
        pass
    return machine.refuse("a device has no name that is known")


def _unread_tensor(machine: Machine, args: Arguments) -> Tensor:
    raise WeightsError(
        f"{machine.source} holds sparse or quantised tensors, or tensors without values, which are not read; save it "
        "with dense tensors of floating point numbers or integers."
    )


def _storage_of_bytes(machine: Machine, args: Arguments) -> Tensor:
    """A storage as pickle itself writes it: as the bytes of a file of torch.save."""
    match args:
        case (bytes() as content,):
            machine.copy_bytes(len(content))
            machine.count_steps(_STEPS_OF_STORAGE)
            storage = _read(content, machine.source, nested=True)
            if isinstance(storage, Tensor):
                return storage
    return machine.refuse("a storage is none")


_TORCH: dict[str, Call] = {
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor_v2,
    "torch._utils._rebuild_tensor_v3": _tensor_v3,
    "torch._tensor._rebuild_from_type_v2": _tensor_with_attributes,
    "torch._utils._rebuild_parameter": _parameter,
    "torch._utils._rebuild_parameter_with_state": _parameter,
    "torch.nn.parameter.Parameter": _parameter,  # before torch 1.0
    "torch.autograd.variable.Variable": _parameter,
    "torch.Size": _size,
    "torch.device": _device,
    "torch._utils._rebuild_qtensor": _unread_tensor,
    "torch._utils._rebuild_sparse_tensor": _unread_tensor,
    "torch._utils._rebuild_nested_tensor": _unread_tensor,
    "torch._utils._rebuild_meta_tensor_no_storage": _unread_tensor,
    "torch._utils._rebuild_wrapper_subclass": _unread_tensor,
    "torch._utils._rebuild_device_tensor_from_numpy": _unread_tensor,
    "torch._utils._rebuild_device_tensor_from_cpu_tensor": _unread_tensor,
    "torch._utils._rebuild_xla_tensor": _unread_tensor,
}
_PICKLED: dict[str, Call] = {**_TORCH, "torch.storage._load_from_bytes": _storage_of_bytes}

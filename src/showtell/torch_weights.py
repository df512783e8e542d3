"""Files of torch.save and pickle, read without running anything that they name.

The unpickler knows tensors, numbers of NumPy and plain data; any other class or function (modules pickled whole,
options in an argparse.Namespace) is a `StandIn`, which keeps what it was given and does nothing.
"""

from __future__ import annotations

import io
import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
import torch
from torch import Tensor

from showtell.errors import WeightsError, first_line, printable, shorten
from showtell.files import open_file

_MAGIC = 0x1950A86A20F9469CFC6C  # the first pickle in files of torch.save before torch 1.6
_OTHER_KINDS = {  # how files begin that are often given by mistake
    b"version https://git-lfs": "what Git LFS has in place of the file: git lfs pull fetches it",
    b"<": "a page of HTML or XML, such as a download site shows in place of the file",
    b"\x89HDF": "an HDF5 file",
}
_DTYPES = {  # those that every operation of torch takes
    torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.bool,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8,
}  # fmt: skip


class StandIn:
    """An object of a class that is not looked up: its state and entries, as the file has them."""

    state: object
    entries: dict[Any, Any]
    dump_patches = False  # torch asks this of classes that were saved with their source

    def __new__(cls, *args: object, **kwargs: object) -> StandIn:
        """Keep the argument of a kind of dict."""
        made = super().__new__(cls)
        made.state = None
        made.entries = dict(args[0]) if args and isinstance(args[0], dict) else {}
        return made

    def __setstate__(self, state: object) -> None:
        self.state = state

    @property
    def attributes(self) -> dict[Any, Any]:
        """What the object's `__dict__` and `__slots__` had; empty if its state is of another kind."""
        parts = self.state if isinstance(self.state, tuple) else (self.state,)
        return {name: value for part in parts[:2] if isinstance(part, dict) for name, value in part.items()}

    def __setitem__(self, key: Any, value: object) -> None:
        self.entries[key] = value

    def append(self, value: object) -> None:
        """Items of a kind of list or set are not kept."""

    add = append


class _Function:
    """A known function. A file can give it a state, which would change what others call, so each has one of its own."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, *args: Any) -> Any:
        return self.function(*args)

    def __setstate__(self, state: object) -> None:
        """Nothing."""


def _bytes(content: bytes | str = b"", *_: object) -> bytes:
    """Bytes, which old protocols write as text in Latin-1."""
    return content.encode("latin-1") if isinstance(content, str) else b"".join([content])


# The only classes and functions that are used, by their names in Python 3 and NumPy 2.
_CLASSES: dict[str, Any] = {
    **{f"builtins.{kind.__name__}": kind for kind in (object, dict, set, frozenset, complex)},
    "collections.OrderedDict": OrderedDict,
    "collections.Counter": dict,
    "numpy.dtype": np.dtype,
    "numpy.ndarray": np.ndarray,
    "torch.Size": torch.Size,
    "torch.device": torch.device,
    "torch.storage.UntypedStorage": torch.UntypedStorage,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "builtins.bytes": _bytes,
    "builtins.bytearray": lambda *args: bytearray(_bytes(*args)),
    "_codecs.encode": _bytes,
    "copyreg._reconstructor": lambda kind, base, content: kind() if base is object else kind(content),
    "collections.defaultdict": lambda factory=None, *content: dict(*content),
    "numpy._core.multiarray.scalar": lambda kind, raw: np.frombuffer(_bytes(raw), kind, 1)[0].item(),
    "numpy._core.multiarray._reconstruct": lambda *_: np.empty(0),
    "numpy._core.numeric._frombuffer": lambda raw, kind, shape, order: (
        np.frombuffer(raw, kind).reshape(shape, order=order).copy(order=order)
    ),
    "torch._utils._rebuild_tensor": torch._utils._rebuild_tensor,
    "torch._utils._rebuild_tensor_v2": torch._utils._rebuild_tensor_v2,
    "torch._utils._rebuild_tensor_v3": torch._utils._rebuild_tensor_v3,
    "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
    "torch._utils._rebuild_parameter_with_state": lambda tensor, *_: tensor,
    "torch._tensor._rebuild_from_type_v2": lambda rebuild, kind, args, state: rebuild(*args),
    "torch.nn.parameter.Parameter": lambda tensor, *_: tensor,  # before torch 1.0
    "torch.autograd.variable.Variable": lambda tensor, *_: tensor,
    "torch.storage._load_from_bytes": lambda content: torch.load(
        io.BytesIO(content), "cpu", weights_only=False, pickle_module=_PICKLE, encoding="latin1"
    ),
}
_RENAMED = {"__builtin__": "builtins", "copy_reg": "copyreg", "numpy.core": "numpy._core"}


class _Unpickler(pickle.Unpickler):
    """Python's own, but for what a name stands for."""

    def find_class(self, module: str, name: str) -> Any:
        """What is known under a name, or else a kind of `StandIn`; nothing is imported."""
        for old, new in _RENAMED.items():
            if module == old or module.startswith(f"{old}."):
                module = new + module.removeprefix(old)
        if known := _CLASSES.get(f"{module}.{name}"):
            return known
        if function := _FUNCTIONS.get(f"{module}.{name}"):
            return _Function(function)
        dtype = vars(torch).get(name) if module == "torch" else None
        return dtype if isinstance(dtype, torch.dtype) else type(name, (StandIn,), {"__module__": module})


def _load(stream: BinaryIO, **_: object) -> Any:
    return _Unpickler(stream, encoding="latin1").load()


# What torch.load uses of the module.
_PICKLE: Any = SimpleNamespace(__name__="pickle", Unpickler=_Unpickler, load=_load)


def read_torch_file(path: Path) -> Any:
    """Plain values, tensors on the processor, arrays of numbers, else `StandIn`s, of a file of torch.save or pickle."""
    with open_file(path) as stream:
        head = stream.read(64)
    if kind := next((kind for magic, kind in _OTHER_KINDS.items() if head.lstrip().startswith(magic)), None):
        raise WeightsError(f"{path} is {kind}; give a file that torch.save or pickle wrote.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of torch, about classes whose source is not there
            return _read(path, is_archive=head.startswith(b"PK\x03\x04"))
    except WeightsError:
        raise
    except Exception as error:  # unpickling raises whatever the bytes lead to
        reason = shorten(printable(first_line(error)))
        raise WeightsError(
            f"{path} is damaged, or no file of torch.save or pickle ({reason}); fetch or write it again."
        ) from error


def _read(path: Path, is_archive: bool) -> Any:
    if is_archive:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
        if any(name.endswith("/constants.pkl") for name in names):
            raise WeightsError(f"{path} is a program in TorchScript; save the state dict of the model alone.")
    else:
        with path.open("rb") as stream:
            content = _load(stream)
        if type(content) is not int or content != _MAGIC:
            return content
    return torch.load(path, map_location="cpu", weights_only=False, pickle_module=_PICKLE, encoding="latin1")


def module_tensors(module: StandIn) -> dict[str, Tensor]:
    """The state dict of a module saved whole; empty for other objects; a WeightsError if it contains itself."""
    try:
        return dict(_named_tensors(module, ""))
    except RecursionError as error:
        raise WeightsError(f"The module {type(module).__name__} contains itself.") from error


def _named_tensors(module: StandIn, prefix: str) -> Iterator[tuple[str, Tensor]]:
    own = module.attributes
    parameters, buffers, modules = (
        dict(own[kind]) if isinstance(own.get(kind), dict) else {} for kind in ("_parameters", "_buffers", "_modules")
    )
    transient = own.get("_non_persistent_buffers_set") or ()
    kept = {name: value for name, value in buffers.items() if name not in transient}
    yield from ((f"{prefix}{name}", x) for name, x in (parameters | kept).items() if isinstance(x, Tensor))
    for name, child in modules.items():
        if isinstance(child, StandIn):
            yield from _named_tensors(child, f"{prefix}{name}.")


def is_plain(tensor: Tensor) -> bool:
    """Whether a tensor is a dense one of usual numbers, all of them stored: no sparse, 4-bit, meta or expanded one."""
    is_dense = tensor.layout is torch.strided and tensor.dtype in _DTYPES and tensor.device.type == "cpu"
    return is_dense and tensor.numel() * tensor.element_size() <= tensor.untyped_storage().nbytes()

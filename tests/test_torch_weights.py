"""What torch.save and pickle write is read; nothing that a file names is imported or called."""

import argparse
import collections
import io
import multiprocessing
import os
import pickle
import sys
import zipfile
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from showtell.errors import WeightsError
from showtell.torch_weights import StandIn, is_plain, module_tensors, read_torch_file

Write = Callable[[object, Path], None]
FORMATS: dict[str, Write] = {
    "archive": lambda content, path: torch.save(content, path),
    "before torch 1.6": lambda content, path: torch.save(content, path, _use_new_zipfile_serialization=False),
    "pickle": lambda content, path: path.write_bytes(pickle.dumps(content)),  # type: ignore[dict-item]
}
every_format = pytest.mark.parametrize("write", FORMATS.values(), ids=FORMATS)


def back(content: object, folder: Path, write: Write) -> Any:
    write(content, folder / "x.pth")
    return read_torch_file(folder / "x.pth")


def load(content: bytes, folder: Path) -> Any:
    (folder / "x.pkl").write_bytes(content)
    return read_torch_file(folder / "x.pkl")


def same(loaded: dict[str, Tensor], saved: dict[str, Tensor]) -> bool:
    pairs = zip(loaded.values(), saved.values(), strict=False)
    return list(loaded) == list(saved) and all(x.dtype == y.dtype and torch.equal(x, y) for x, y in pairs)


@every_format
def test_tensors_come_back(tmp_path: Path, write: Write) -> None:
    base = torch.randn(4, 6)
    saved = {
        "slice": base[1:, ::2], "transposed": base.t(), "scalar": torch.tensor(2.5), "empty": torch.empty(0, 3),
        "half": base.half(), "brain": base.bfloat16(), "int": torch.arange(3), "bool": base > 0,
        "parameter": nn.Parameter(torch.ones(3)), "last": torch.randn(1, 3, 2, 2).to(memory_format=torch.channels_last),
    }  # fmt: skip
    beside = {"tensors": saved, "options": argparse.Namespace(lr=0.1), "dtype": torch.bfloat16, "share": Fraction(1, 2)}
    assert same(back(saved, tmp_path, write), saved)
    loaded = back(beside, tmp_path, write)
    assert same(loaded["tensors"], saved) and loaded["dtype"] is torch.bfloat16
    assert loaded["options"].attributes == {"lr": 0.1} and isinstance(loaded["share"], StandIn)


class Net(nn.Module):
    """With what state dicts have of buffers, shared modules and shared weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", torch.ones(2))
        self.register_buffer("left_out", torch.ones(3), persistent=False)
        self.register_parameter("none", None)
        self.first = nn.Linear(2, 2)
        self.again = self.first
        self.rnn = nn.LSTM(2, 2)
        self.parts = nn.ModuleList([nn.Linear(2, 2), nn.Sequential(nn.ReLU(), nn.BatchNorm1d(2))])


@every_format
def test_a_module_of_a_class_that_is_not_there(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Net()
    write({"net": module, "optimiser": torch.optim.Adam(module.parameters())}, tmp_path / "x.pth")
    monkeypatch.delattr(f"{__name__}.Net")
    content = read_torch_file(tmp_path / "x.pth")
    assert same(module_tensors(content["net"]), module.state_dict())
    assert content["optimiser"].attributes["param_groups"][0]["lr"] == 1e-3


class Settings(dict[str, Any]):
    """As yacs has it: a dict with attributes."""


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_arrays_numbers_and_objects_come_back(tmp_path: Path, protocol: int) -> None:
    plain = np.arange(24).reshape(2, 3, 4)
    arrays = [plain.astype(kind) for kind in ("?", "i1", ">i4", "<f2", ">f8", "<c8")]
    arrays += [np.asfortranarray(plain), plain[:, ::2], plain[:0], np.array(1.5)]
    for array, loaded in zip(arrays, load(pickle.dumps(arrays, protocol), tmp_path), strict=True):
        assert loaded.dtype.newbyteorder("=") == array.dtype.newbyteorder("=")
        assert loaded.shape == array.shape and np.array_equal(loaded, array)
    plain_values = [None, True, "\xe9", b"\0", bytearray(b"x"), 1j, {"a"}, frozenset({1}), 2**70, -0.5, (1, [{2: 3}])]
    values = [*plain_values, collections.OrderedDict(a=1)]
    assert load(pickle.dumps(values, protocol), tmp_path) == values
    numbers = load(pickle.dumps([np.float32(0.5), np.int64(-3), np.bool_(True)], protocol), tmp_path)
    assert numbers == [0.5, -3, True] and [type(one) for one in numbers] == [float, int, bool]
    made = Settings(a=1)
    made.frozen = True  # type: ignore[attr-defined]
    mapping, options = load(pickle.dumps([made, argparse.Namespace(rnn_size=512)], protocol), tmp_path)
    assert mapping.entries == {"a": 1} and mapping.attributes == {"frozen": True}
    assert type(options).__module__ == "argparse" and options.attributes == {"rnn_size": 512}


# What pickle and cPickle of Python 2.7 write for {"opt": "caf\xe9", u"vocab": {"1": u"\xe9"}, "array": the array}.
OF_PYTHON_2 = (
    b"(dp0\nS'opt'\np1\nS'caf\\xe9'\np2\nsVvocab\np3\n(dp4\nS'1'\np5\nV\\u00e9\np6\nssS'array'\np7\n"
    b"cnumpy.core.multiarray\n_reconstruct\np8\n(cnumpy\nndarray\np9\n(I0\ntp10\nS'b'\np11\ntp12\nRp13\n(I1\n(I2\ntp14\n"
    b"cnumpy\ndtype\np15\n(S'f4'\np16\nI0\nI1\ntp17\nRp18\n(I3\nS'<'\np19\nNNNI-1\nI-1\nI0\ntp20\nbI00\n"
    b"S'\\x00\\x00\\x80?\\x00\\x00\\x00\\xc0'\np21\ntp22\nbs.",
    b"\x80\x02}q\x00(U\x03optq\x01U\x04caf\xe9q\x02X\x05\x00\x00\x00vocabq\x03}q\x04U\x011q\x05"
    b"X\x02\x00\x00\x00\xc3\xa9q\x06sU\x05arrayq\x07cnumpy.core.multiarray\n_reconstruct\nq\x08cnumpy\nndarray\nq\x09"
    b"K\x00\x85q\x0aU\x01bq\x0b\x87q\x0cRq\x0d(K\x01K\x02\x85q\x0ecnumpy\ndtype\nq\x0fU\x02f4q\x10K\x00K\x01\x87q\x11Rq\x12"
    b"(K\x03U\x01<q\x13NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x14b\x89U\x08\x00\x00\x80?\x00\x00\x00\xc0q\x15tq\x16bu.",
)


def test_text_of_python_2_is_latin_1(tmp_path: Path) -> None:
    for content in OF_PYTHON_2:
        value = load(content, tmp_path)
        assert value.pop("array").tolist() == [1.0, -2.0]
        assert value == {"opt": "caf\xe9", "vocab": {"1": "\xe9"}}
    options = load(b"(i__main__\nOptions\np0\n(dp1\nS'lr'\np2\nF0.5\nsb.", tmp_path)
    assert str(type(options)) == "<class '__main__.Options'>" and options.attributes == {"lr": 0.5}


MKDIR, TEXT = b"cos\nmkdir\n", b"X\x07\x00\x00\x00written"
CODE: dict[str, bytes] = {  # pickles that make a folder when Python's own unpickler opens them
    "REDUCE": b"\x80\x04" + MKDIR + TEXT + b"\x85R.",
    "REDUCE of Python 2": b"cos\nmkdir\n(S'written'\ntR.",
    "STACK_GLOBAL": b"\x80\x04X\x02\x00\x00\x00osX\x05\x00\x00\x00mkdir\x93" + TEXT + b"\x85R.",
    "INST": b"(" + TEXT + b"ios\nmkdir\n.",
    "OBJ": b"(" + MKDIR + TEXT + b"o.",
    "NEWOBJ": b"\x80\x04ctempfile\nTemporaryDirectory\n)\x81.",
    "eval": b"\x80\x04cbuiltins\neval\nX\x21\x00\x00\x00__import__('os').mkdir('written')\x85R.",
    "code that is thrown away": b"\x80\x04" + MKDIR + TEXT + b"\x85R0N.",
}


def read_watched(files: list[Path], answers: Any) -> None:
    """What happens to Python while files are read, in a process of its own: nobody can take such a hook away."""
    events: set[str] = set()
    for watch in (lambda *_: None, lambda event, _: events.add(event)):  # first, modules that are first used come along
        sys.addaudithook(watch)
        for file in files:
            read_torch_file(file)
    answers.put(set(events))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # torch has threads; the child starts none
def test_code_is_never_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, content in enumerate(CODE.values()):
        (tmp_path / f"{number}.pth").write_bytes(content)

    class Trap:
        def __reduce__(self) -> Any:
            return os.mkdir, ("written",)

    for name in ("archive", "before torch 1.6"):
        FORMATS[name]({"w": torch.ones(2), "x": Trap()}, tmp_path / f"{name}.pth")
    monkeypatch.chdir(tmp_path)
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=read_watched, args=(sorted(tmp_path.glob("*.pth")), answers))
    child.start()
    child.join(240)
    assert child.exitcode == 0
    allowed = {"open", "builtins.id", "object.__getattr__", "object.__setattr__", "sys._getframe", "sys.addaudithook"}
    assert answers.get() <= allowed
    assert not (tmp_path / "written").exists()
    pickle.loads(CODE["STACK_GLOBAL"])
    assert (tmp_path / "written").is_dir(), "the code would have run"


def test_what_is_known_is_not_changed_by_a_file(tmp_path: Path) -> None:
    """The state of anything but objects of the file is left out."""
    changed = b"\x80\x04ctorch._utils\n_rebuild_tensor_v2\nN}X\x0c\x00\x00\x00__defaults__)s\x86b."
    load(changed, tmp_path)
    assert torch._utils._rebuild_tensor_v2.__defaults__ == (None,)


def test_a_tensor_larger_than_what_is_stored_is_not_plain() -> None:
    assert is_plain(torch.ones(3, 2)[1:]) and is_plain(torch.ones(2, 3).t())
    assert not is_plain(torch.ones(1).expand(10**12)) and not is_plain(torch.ones(2).to_sparse())


def test_files_of_other_kinds_are_named(tmp_path: Path) -> None:
    jit = io.BytesIO()
    with zipfile.ZipFile(jit, "w") as archive:
        for name in ("data.pkl", "constants.pkl", "version"):
            archive.writestr(f"w/{name}", b"3\n")
    sent: dict[str, tuple[bytes, str]] = {
        "nothing": (b"", "is damaged, or no file of torch.save or pickle"),
        "HTML": (b"\n<html>404</html>", "is a page of HTML or XML, such as a download site shows"),
        "LFS": (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull fetches it"),
        "TorchScript": (jit.getvalue(), "is a program in TorchScript; save the state dict of the model alone"),
        "a call of text": (b"\x80\x04X\x01\x00\x00\x00a)R.", "is damaged, or no file of torch.save or pickle"),
        "endless bytes": (b"\x80\x04\x8e" + b"\xff" * 7 + b"\x00.", "is damaged, or no file of torch.save or pickle"),
    }
    for name, (content, message) in sent.items():
        with pytest.raises(WeightsError) as raised:
            load(content, tmp_path)
        assert message in str(raised.value) and str(raised.value).startswith(str(tmp_path / "x.pkl")), name

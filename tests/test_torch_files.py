from __future__ import annotations

import argparse
import collections
import io
import pickle
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from showtell.errors import WeightsError
from showtell.inert_pickle import Record
from showtell.torch_files import module_tensors, read_torch_file
from tests.fuzzing import Target
from tests.hostile_files import STORAGE, Called, Persistent, archive, stream, tensor

DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.complex128, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.uint16, torch.uint32, torch.uint64),
    *(torch.float8_e4m3fn, torch.float8_e5m2),
]

Write = Callable[[object, Path], None]


def write_archive(content: object, path: Path) -> None:
    torch.save(content, path)


def write_stream(content: object, path: Path) -> None:
    torch.save(content, path, _use_new_zipfile_serialization=False)


def write_pickle(content: object, path: Path) -> None:
    path.write_bytes(pickle.dumps(content))


every_format = pytest.mark.parametrize("write", [write_archive, write_stream, write_pickle])
formats_of_torch = pytest.mark.parametrize("write", [write_archive, write_stream])


def back(content: object, folder: Path, write: Write) -> Any:
    write(content, folder / "x.pth")
    return read_torch_file(folder / "x.pth")


def same(loaded: Tensor, saved: Tensor) -> bool:
    """Whether two tensors have the same type, layout and bytes."""
    if (loaded.dtype, loaded.shape, loaded.stride()) != (saved.dtype, saved.shape, saved.stride()):
        return False
    plain = [torch.empty(one.shape, dtype=one.dtype).copy_(one.detach()).flatten() for one in (loaded, saved)]
    return torch.equal(*(one.view(torch.uint8) for one in plain))


@every_format
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_tensors_of_all_types_come_back(tmp_path: Path, write: Write, dtype: torch.dtype) -> None:
    saved = torch.randint(0, 2, (2, 3)).to(dtype)
    assert same(back(saved, tmp_path, write), saved)


@every_format
def test_views_come_back(tmp_path: Path, write: Write) -> None:
    base = torch.randn(4, 6)
    saved = {
        "base": base,
        "slice": base[1:, ::2],
        "transposed": base.t(),
        "channels last": torch.randn(1, 3, 2, 2).to(memory_format=torch.channels_last),
        "scalar": torch.tensor(2.5),
        "empty": torch.empty(0, 3),
        "parameter": nn.Parameter(torch.ones(3)),
        "conjugate": torch.randn(3, dtype=torch.complex64).conj(),
        "negative": torch.randn(3, dtype=torch.complex64).conj().imag,
    }
    saved["with attributes"] = nn.Parameter(torch.ones(2))
    saved["with attributes"].is_special = True  # type: ignore[attr-defined]
    loaded = back(saved, tmp_path, write)
    assert loaded.keys() == saved.keys()
    assert all(same(loaded[name], saved[name]) for name in saved)
    assert all(type(value) is Tensor and not value.requires_grad for value in loaded.values())


@formats_of_torch
def test_tensors_that_shared_memory_share_it(tmp_path: Path, write: Write) -> None:
    base = torch.zeros(6)
    whole, half = back([base, base[3:]], tmp_path, write)
    half.fill_(1)
    assert whole.tolist() == [0, 0, 0, 1, 1, 1]


@formats_of_torch
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_view_comes_back(tmp_path: Path, write: Write, data: st.DataObject) -> None:
    shape = data.draw(st.lists(st.integers(0, 4), max_size=4))
    saved = torch.arange(max(1, torch.Size(shape).numel()), dtype=torch.int16)[: torch.Size(shape).numel()].view(shape)
    saved = saved.permute(data.draw(st.permutations(range(len(shape)))))
    for axis in range(saved.dim()):
        begin, step = data.draw(st.tuples(st.integers(0, 2), st.integers(1, 3)))
        saved = saved[(slice(None),) * axis + (slice(begin, None, step),)]
    assert same(back(saved, tmp_path, write), saved)


@formats_of_torch
def test_what_stands_beside_tensors(tmp_path: Path, write: Write) -> None:
    saved = {
        "epoch": 3,
        "size": torch.Size((1, 2)),
        "device": torch.device("cuda", 0),
        "dtype": torch.bfloat16,
        "order": collections.OrderedDict(b=1, a=2),
        "options": argparse.Namespace(lr=0.1),
        "storage": torch.arange(3.0).untyped_storage(),
    }
    loaded = back(saved, tmp_path, write)
    options, storage = loaded.pop("options"), loaded.pop("storage")
    assert options.attributes == {"lr": 0.1} and storage.view(torch.float32).tolist() == [0, 1, 2]
    assert loaded == {key: saved[key] for key in loaded} and list(loaded["order"]) == ["b", "a"]


# ---- modules


@every_format
def test_the_state_dict_of_a_whole_module(tmp_path: Path, write: Write) -> None:
    module = torchvision.models.resnet18()
    tensors = module_tensors(back(module, tmp_path, write))
    expected = module.state_dict()
    assert list(tensors) == list(expected)
    assert all(same(tensors[name], expected[name]) for name in expected)


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
        self.parts[0].weight = self.first.weight


@formats_of_torch
def test_a_module_of_a_class_that_is_not_there(tmp_path: Path, write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Net()
    write({"net": module, "optimiser": torch.optim.Adam(module.parameters())}, tmp_path / "x.pth")
    monkeypatch.delattr(f"{__name__}.Net")
    content: Any = read_torch_file(tmp_path / "x.pth")
    tensors, expected = module_tensors(content["net"]), module.state_dict()
    assert content["net"].name == "Net" and list(tensors) == list(expected)
    assert all(same(tensors[name], expected[name]) for name in expected)
    assert tensors["first.weight"] is tensors["again.weight"] is tensors["parts.0.weight"]
    groups = content["optimiser"].attributes["param_groups"]
    assert groups[0]["lr"] == 1e-3 and groups[0]["params"][0] is tensors["first.weight"]


@formats_of_torch
def test_an_optimiser_keeps_its_state_by_weight(tmp_path: Path, write: Write) -> None:
    module = nn.Linear(2, 1)
    optimiser = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 2)).sum().backward()
    optimiser.step()
    record = back({"optimiser": optimiser, "weight": module.weight}, tmp_path, write)
    state = record["optimiser"].attributes["state"]
    assert same(state[record["weight"]]["exp_avg"], optimiser.state[module.weight]["exp_avg"])


def _module(**state: object) -> Record:
    return Record("m", "M", (), {"_parameters": {}, "_buffers": {}, "_modules": {}, **state})


def test_modules_without_end_are_refused() -> None:
    itself = _module()
    itself.state["_modules"]["self"] = itself  # type: ignore[index]
    bomb = _module(_parameters={"w": torch.ones(1)})
    for _ in range(40):
        bomb = _module(_modules={"a": bomb, "b": bomb})
    deep, name = _module(), "n" * 900
    for _ in range(200):
        deep = _module(_modules={"a": deep})
    wide = _module(_modules={str(number): _module(_parameters=dict.fromkeys(range(50_000))) for number in range(9)})
    long = _module(_modules={name: _module(_modules={name: _module()})})
    for endless in (itself, bomb, deep, wide, long):
        with pytest.raises(
            WeightsError, match=r"^The module m\.M contains itself, or more parts than any model has\.$"
        ):
            module_tensors(endless)


def test_what_is_no_module_has_no_tensors() -> None:
    assert module_tensors(Record("m", "M")) == {}
    assert module_tensors(_module(_parameters=[1], _buffers={1: torch.ones(1)}, _modules={"a": 3})) == {}


# ---- files by hand


def test_the_files_by_hand_are_whole(tmp_path: Path) -> None:
    """What the hostile files differ from is read."""
    for content in (archive([tensor()]), stream([tensor()]), stream([tensor(function="_rebuild_tensor")])):
        (tmp_path / "x.pth").write_bytes(content)
        (loaded,) = read_torch_file(tmp_path / "x.pth")  # type: ignore[misc]
        assert loaded.tolist() == [[0, 1, 2], [3, 4, 5]]


@pytest.mark.parametrize("kind", ["torch.nn.parameter.Parameter", "torch.autograd.variable.Variable"])
def test_a_parameter_as_torch_0_3_has_it(tmp_path: Path, kind: str) -> None:
    parameter = Called(kind, (tensor(function="_rebuild_tensor"),), (True, False, None))
    (tmp_path / "x.pth").write_bytes(stream({"weight": parameter}))
    loaded = read_torch_file(tmp_path / "x.pth")
    assert isinstance(loaded, dict) and loaded["weight"].tolist() == [[0, 1, 2], [3, 4, 5]]


def test_a_view_of_a_storage_as_torch_0_4_has_it(tmp_path: Path) -> None:
    (tmp_path / "x.pth").write_bytes(stream([tensor((3,), (1,), 0, Persistent((*STORAGE, ("1", 2, 3))))]))
    assert read_torch_file(tmp_path / "x.pth")[0].tolist() == [2, 3, 4]  # type: ignore[index]


def test_an_archive_of_more_than_four_gigabytes(tmp_path: Path) -> None:
    """Its sizes and positions stand in extra fields; a hole takes the place of the large entry."""
    content, large = archive([tensor()]), (1 << 32) + 7
    begin = content.index(b"PK\x01\x02")
    shift = 30 + 3 + large  # the entry "w/x" comes first
    entries, position = [], begin
    for _ in range(2):  # 46 bytes, then the name; the last four bytes are the position
        size = 46 + content[position + 28]
        fixed, name = content[position : position + 46], content[position + 46 : position + size]
        offset = struct.unpack("<L", fixed[42:])[0] + shift
        extra = struct.pack("<2HQ", 1, 8, offset)
        entries.append(fixed[:30] + struct.pack("<H", len(extra)) + fixed[32:42] + b"\xff" * 4 + name + extra)
        position += size
    extra = struct.pack("<2HB2H2Q", 99, 1, 0, 1, 16, large, large)
    first = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", 45, 45, 0, 0, 0, 0, 0, 2**32 - 1, 2**32 - 1, 3, 25, 0, 0, 0, 0, 0)
    listing = b"".join([first + b"w/x" + extra, *entries])
    end = shift + begin + len(listing)
    with (tmp_path / "x.pth").open("wb") as stream:
        stream.write(struct.pack("<4s5H3L2H", b"PK\x03\x04", 45, 0, 0, 0, 0, 0, 2**32 - 1, 2**32 - 1, 3, 0) + b"w/x")
        stream.seek(large, io.SEEK_CUR)
        stream.write(content[:begin] + listing)
        stream.write(struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 3, 3, len(listing), shift + begin))
        stream.write(struct.pack("<4sLQL", b"PK\x06\x07", 0, end, 1))
        stream.write(struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 3, 3, 2**32 - 1, 2**32 - 1, 0))
    assert zipfile.ZipFile(tmp_path / "x.pth").namelist() == ["w/x", "w/data.pkl", "w/data/0"]
    assert read_torch_file(tmp_path / "x.pth")[0].tolist() == [[0, 1, 2], [3, 4, 5]]  # type: ignore[index]


def test_a_bool_is_0_or_1(tmp_path: Path) -> None:
    """Torch's kernels count on it."""
    torch.save(torch.tensor([False, True, True]), tmp_path / "x.pth")
    content = (tmp_path / "x.pth").read_bytes()
    assert content.count(b"\0\1\1") == 1
    (tmp_path / "x.pth").write_bytes(content.replace(b"\0\1\1", b"\0\xff\2"))
    loaded = read_torch_file(tmp_path / "x.pth")
    assert isinstance(loaded, Tensor) and loaded.view(torch.uint8).tolist() == [0, 1, 1]


def test_files_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match=r"none\.pth does not exist; give a file that torch\.save or pickle wrote"):
        read_torch_file(tmp_path / "none.pth")
    with pytest.raises(WeightsError, match="is a folder; give a file"):
        read_torch_file(tmp_path)
    (tmp_path / "x.pth").write_bytes(b"")
    with pytest.raises(WeightsError, match=r"x\.pth is damaged, or no file of torch\.save or pickle \(it is empty\)"):
        read_torch_file(tmp_path / "x.pth")


def test_tensors_of_other_kinds_are_named(tmp_path: Path) -> None:
    for other in (torch.eye(2).to_sparse(), torch.empty(2, device="meta")):
        with pytest.raises(WeightsError, match=r"x\.pth holds sparse or quantised tensors, or tensors without values"):
            back([other], tmp_path, write_archive)


# ---- damage


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Target:
    return Target("weights", tmp_path_factory.mktemp("damaged") / "case")


@settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(number=st.integers(0, 10**9))
def test_damaged_files_are_read_or_refused(target: Target, number: int) -> None:
    """A short round of what scripts/fuzz does for minutes."""
    case = target.case(0, number)
    try:
        case.run(case.path)
    except WeightsError as error:
        assert str(error).startswith(str(case.path)) and str(error).endswith(".")


@formats_of_torch
def test_every_beginning_of_a_file_is_refused(tmp_path: Path, write: Write) -> None:
    write({"w": torch.arange(3.0)}, tmp_path / "x.pth")
    whole = (tmp_path / "x.pth").read_bytes()
    for end in range(1, len(whole), 7):
        (tmp_path / "x.pth").write_bytes(whole[:end])
        with pytest.raises(WeightsError, match=r"x\.pth is damaged, or no file of torch\.save or pickle \("):
            read_torch_file(tmp_path / "x.pth")

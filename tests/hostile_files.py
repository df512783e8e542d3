"""Pickles and torch files that were made to do harm, or are broken in a way that could, each with what is said of it.

`python -m tests.hostile_files FOLDER` reads those in a folder, within little memory and under an audit hook that notes
all that Python is asked to do meanwhile, and prints what came of each as JSON; test_hostile_files.py looks at that.
"""

from __future__ import annotations

import io
import json
import pickle
import struct
import sys
import time
import warnings
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MEMORY = 400 << 20  # bytes that reading one file may add to the process
MAGIC = 0x1950A86A20F9469CFC6C


@dataclass(frozen=True)
class Name:
    """A class or function that a pickle names."""

    path: str

    def __call__(self, *args: Any) -> Called:
        return Called(self.path, args)


@dataclass(frozen=True)
class Called:
    """A call that a pickle makes, with a state that it gives the result."""

    path: str
    args: tuple[Any, ...]
    state: Any = None


@dataclass(frozen=True)
class Persistent:
    """Something outside the pickle."""

    key: Any


def code(value: Any) -> bytes:
    """Opcodes of protocol 2 and later that leave a value on the stack; names need not exist."""
    match value:
        case None | True | False:
            return {None: pickle.NONE, True: pickle.NEWTRUE, False: pickle.NEWFALSE}[value]
        case int():
            content = value.to_bytes(value.bit_length() // 8 + 1, "little", signed=True)
            return pickle.LONG1 + bytes([len(content)]) + content
        case float():
            return pickle.BINFLOAT + struct.pack(">d", value)
        case str():
            return pickle.BINUNICODE + struct.pack("<I", len(value.encode())) + value.encode()
        case bytes():
            return pickle.BINBYTES + struct.pack("<I", len(value)) + value
        case tuple():
            return pickle.MARK + b"".join(map(code, value)) + pickle.TUPLE
        case list():
            return pickle.MARK + b"".join(map(code, value)) + pickle.LIST
        case dict():
            return pickle.MARK + b"".join(code(key) + code(content) for key, content in value.items()) + pickle.DICT
        case Name(path):
            module, _, name = path.rpartition(".")
            return pickle.GLOBAL + f"{module}\n{name}\n".encode()
        case Called(path, args, state):
            build = b"" if state is None else code(state) + pickle.BUILD
            return code(Name(path)) + code(args) + pickle.REDUCE + build
        case Persistent(key):
            return code(key) + pickle.BINPERSID
    raise TypeError(value)


def pickled(value: Any) -> bytes:
    """A whole pickle of a value."""
    return b"\x80\x04" + code(value) + b"."


def raw(content: bytes) -> bytes:
    """A pickle of these opcodes."""
    return b"\x80\x04" + content + b"."


# ---- torch's containers

FLOATS = Name("torch.FloatStorage")
STORAGE = ("storage", FLOATS, "0", "cpu", 6)


def tensor(
    size: Any = (2, 3),
    stride: Any = (3, 1),
    offset: Any = 0,
    storage: Any = Persistent(STORAGE),
    function: str = "_rebuild_tensor_v2",
) -> Called:
    """A tensor of two rows, unless something else is said, as torch pickles it."""
    hooks = Name("collections.OrderedDict")()
    return Name(f"torch._utils.{function}")(storage, offset, size, stride, False, hooks)


SIX = struct.pack("<6f", *range(6))


def archive(content: Any, entries: Mapping[str, bytes] | None = None, **options: Any) -> bytes:
    """The format since torch 1.6; `content` is pickled unless it is bytes."""
    stream = io.BytesIO()
    data = content if isinstance(content, bytes) else pickled(content)
    with (
        warnings.catch_warnings(),
        zipfile.ZipFile(stream, "w", options.get("compression", zipfile.ZIP_STORED)) as file,
    ):
        warnings.simplefilter("ignore")  # of names that occur twice
        for name, value in {"w/data.pkl": data, **({"w/data/0": SIX} if entries is None else entries)}.items():
            file.writestr(name.removeprefix("again:"), value)
    return stream.getvalue()


def stream(content: Any, keys: Any = ("0",), storages: bytes = struct.pack("<q", 6) + SIX, **facts: Any) -> bytes:
    """The format before torch 1.6."""
    version, machine = facts.get("version", 1001), facts.get("machine", {"little_endian": True})
    return b"".join(map(pickled, (MAGIC, version, machine, content, list(keys)))) + storages


def patched(content: bytes, old: bytes, new: bytes, last: bool = True) -> bytes:
    """A file in which some bytes were exchanged, which must be there."""
    begin = content.rindex(old) if last else content.index(old)
    return content[:begin] + new + content[begin + len(old) :]


def end_of(content: bytes, count: int | None = None, size: int | None = None) -> bytes:
    """An archive whose end claims another number of entries, or size of their list."""
    begin = content.rindex(b"PK\x05\x06")
    fields = list(struct.unpack("<4s4H2LH", content[begin : begin + 22]))
    fields[4] = fields[4] if count is None else count
    fields[5] = fields[5] if size is None else size
    return content[:begin] + struct.pack("<4s4H2LH", *fields)


def listed(content: bytes, position: int, form: str, *values: int) -> bytes:
    """An archive whose list has other values at a position of its last entry."""
    begin = content.rindex(b"PK\x01\x02") + position
    return content[:begin] + struct.pack(form, *values) + content[begin + struct.calcsize(form) :]


def end_64(content: bytes) -> bytes:
    """An archive whose large end claims 2**60 entries."""
    begin = content.rindex(b"PK\x05\x06")
    size = begin - content.index(b"PK\x01\x02")
    large = struct.pack("<4sQ2H2L4Q", b"PK\x06\x06", 44, 45, 45, 0, 0, 1 << 60, 1 << 60, size, begin - size)
    return content[:begin] + large + struct.pack("<4sLQL", b"PK\x06\x07", 0, begin, 1) + content[begin:]


# ---- code in every opcode that can run some

TARGET = "written_by_a_pickle"
TEXT = code(TARGET)
MKDIR = pickle.GLOBAL + b"os\nmkdir\n"

CODE: dict[str, bytes] = {
    "REDUCE": raw(MKDIR + TEXT + b"\x85R"),
    "REDUCE of Python 2": b"cos\nmkdir\n(S'" + TARGET.encode() + b"'\ntR.",
    "STACK_GLOBAL": raw(code("os") + code("mkdir") + b"\x93" + TEXT + b"\x85R"),
    "INST": b"(" + TEXT + b"ios\nmkdir\n.",
    "OBJ": b"(" + MKDIR + TEXT + b"o.",
    "eval": raw(pickle.GLOBAL + b"builtins\neval\n" + code(f"__import__('os').mkdir('{TARGET}')") + b"\x85R"),
    "eval of Python 2": b"c__builtin__\neval\n(V__import__('os').mkdir('" + TARGET.encode() + b"')\ntR.",
    "exec": pickled(Name("builtins.exec")(f"import os; os.mkdir('{TARGET}')")),
    "a pickle in a pickle": pickled(Name("pickle.loads")(raw(MKDIR + TEXT + b"\x85R"))),
    "a call that builds": pickled(
        Called("functools.partial", (Name("os.getcwd"),), (Name("os.mkdir"), (TARGET,), {}, None))
    ),
    "code under a key": raw(b"}" + code("state_dict") + MKDIR + TEXT + b"\x85Rs"),
    "code that is thrown away": raw(MKDIR + TEXT + b"\x85R0N"),
    "a shell": pickled(Name("subprocess.check_output")(["mkdir", TARGET])),
    "runpy": pickled(Name("runpy.run_path")("code.py")),
}
# The same, by what no list of names can tell from what files need: nothing is said of these, and nothing happens.
DISGUISED: dict[str, bytes] = {
    "NEWOBJ": raw(pickle.GLOBAL + b"tempfile\nTemporaryDirectory\n" + b")\x81"),
    "NEWOBJ_EX": raw(
        pickle.GLOBAL + b"tempfile\nTemporaryDirectory\n)" + code({"prefix": TARGET, "dir": "."}) + b"\x92"
    ),
    "a method": raw(code("pathlib") + code("Path.mkdir") + b"\x93" + code((Name("pathlib.PosixPath")(TARGET),)) + b"R"),
    "getattr": pickled(Name("builtins.getattr")(Name("pathlib.PosixPath")(TARGET), "mkdir")),
    "a state that runs code": pickled(Called("logging.config.DictConfigurator", ({},), {"config": {"()": "os.mkdir"}})),
    "shelve": pickled(Name("shelve.open")(TARGET)),
    "a module of torch": pickled(Name("torch.hub.load")(TARGET, "x")),
    "an import": pickled(Name("antigravity.webbrowser")),
}

# ---- pickles that claim too much, contradict themselves, or are none

_MAX = (1 << 63) - 1
_A_LIST = b"(" + b"N" * 1_000_000 + b"lq\x00"
_ARRAY = ("numpy._core.multiarray._reconstruct", (Name("numpy.ndarray"), (0,), b"b"))
_FLOATS = Called("numpy.dtype", ("f8", False, True), (3, "<", None, None, None, -1, -1, 0))


def array(shape: Any, content: Any, dtype: Any = _FLOATS) -> bytes:
    """An array of NumPy."""
    return pickled(Called(*_ARRAY, (1, shape, dtype, False, content)))


def dtype_of(kind: str, order: str = "<") -> Called:
    """A type of NumPy."""
    return Called("numpy.dtype", (kind, False, True), (3, order, None, None, None, -1, -1, 0))


PICKLES: dict[str, tuple[Callable[[], bytes], str]] = {
    **{name: ((lambda content=content: content), "nothing of it was run here") for name, content in CODE.items()},
    "EXT1": (lambda: raw(b"\x82\x01"), "needs something that is not in it"),
    "EXT2": (lambda: raw(b"\x83\x01\x01"), "needs something that is not in it"),
    "EXT4": (lambda: raw(b"\x84\x01\x01\x01\x01"), "needs something that is not in it"),
    "PERSID": (lambda: b"P0\n.", "needs something that is not in it"),
    "BINPERSID": (lambda: raw(b"NQ"), "needs something that is not in it"),
    "NEXT_BUFFER": (lambda: raw(b"\x97"), "needs something that is not in it"),
    "READONLY_BUFFER": (lambda: raw(b"N\x98"), "needs something that is not in it"),
    "a call of a call": (lambda: raw(code(Name("f.f")()) + b")R"), "something is called that has no name"),
    "a call of text": (lambda: raw(code("os.mkdir") + TEXT + b"\x85R"), "something is called that has no name"),
    "a call without arguments": (lambda: raw(code(Name("f.f")) + b"NR"), "something is called that has no name"),
    "a class without a name": (lambda: raw(b"NN\x93"), "a class has no name"),
    "endless text": (lambda: raw(b"\x8d" + struct.pack("<Q", 1 << 62)), "more bytes are claimed, and 1 are left"),
    "endless bytes": (lambda: raw(b"\x8e" + struct.pack("<Q", _MAX)), "more bytes are claimed, and 1 are left"),
    "an endless bytearray": (lambda: raw(b"\x96" + struct.pack("<Q", 1 << 40)), "more bytes are claimed"),
    "endless bytes of Python 2": (lambda: raw(b"T" + struct.pack("<i", 2**31 - 1)), "more bytes are claimed"),
    "text of negative length": (lambda: raw(b"T" + struct.pack("<i", -2) + b"ab"), "-2 more bytes are claimed"),
    "an endless integer": (lambda: raw(b"\x8b" + struct.pack("<i", 2**31 - 1)), "more bytes are claimed"),
    "an integer of negative length": (lambda: raw(b"\x8b" + struct.pack("<i", -1)), "-1 more bytes are claimed"),
    "an integer of a megabyte": (
        lambda: raw(b"\x8b" + struct.pack("<i", 1 << 20) + b"\x01" * (1 << 20)),
        "an integer has 1,048,576 bytes",
    ),
    "an integer of a million digits": (lambda: b"I" + b"9" * 10**6 + b"\n.", "an integer has 1,000,000 digits"),
    "an integer that is none": (lambda: b"Ix\n.", "invalid literal"),
    "a number that is none": (lambda: b"Fx\n.", "could not convert"),
    "an endless frame": (lambda: raw(b"\x95" + struct.pack("<Q", 1 << 60) + b"N"), "a frame of 1,152,921,504,606"),
    "an endless line": (lambda: b"V" + b"x" * 10**6, "a line has no end"),
    "a newer protocol": (lambda: b"\x80\x06N.", "protocol 6 is not known"),
    "text that is no UTF-8": (lambda: raw(b"X\x02\x00\x00\x00\xff\xfe"), "codec can't decode"),
    "a name that is no UTF-8": (lambda: b"c\xff\n\xff\n.", "codec can't decode"),
    "text without quotes": (lambda: b"Stext\n.", "text has no quotes"),
    "text with half an escape": (lambda: b"S'\\x1'\n.", "invalid"),
    "nothing": (lambda: b"", "it is empty"),
    "the end at once": (lambda: b".", "a value is missing"),
    "no end": (lambda: b"\x80\x04N", "it ends too early"),
    "no pickle": (lambda: b"<html><body>404 Not Found</body></html>", "is a page of HTML or XML, such as"),
    "a JPEG": (lambda: b"\xff\xd8\xff\xe0\0\x10JFIF", "is a JPEG image; give"),
    "of Git LFS": (lambda: b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull fetches it"),
    "an unknown opcode": (lambda: raw(b"\xff"), "opcode 0xff is none that is read"),
    "a memo that is empty": (lambda: raw(b"j\xff\xff\xff\xff"), "value 4294967295 is used before it is there"),
    "a stack that is empty": (lambda: raw(b"\x85"), "a value is missing"),
    "a memo of nothing": (lambda: raw(b"q\x00"), "a value is missing"),
    "no mark": (lambda: raw(b"Nt"), "a mark is missing"),
    "values from below a mark": (lambda: raw(b"NN(\x86"), "a value is missing"),
    "a key without a value": (lambda: raw(b"}(Nu"), "a key has no value"),
    "keys for a list": (lambda: raw(b"](NNu"), "a key is put into a list"),
    "values for a dict": (lambda: raw(b"}Na"), "something is appended to a dict"),
    "values for a number": (lambda: raw(b"K\x01(N\x90"), "something is put into a int"),
    "a list as a key": (lambda: raw(b"}]Ns"), "a list is no key"),
    "a dict in a set": (lambda: raw(b"\x8f(}\x90"), "a dict is no key"),
    "a nested tuple as a key": (lambda: raw(b"})" + b"\x85" * 300_000 + b"Ns"), "a tuple is no key"),
    "a nested tuple in a frozenset": (lambda: raw(b"()" + b"\x85" * 300_000 + b"\x91"), "a tuple is no key"),
    "keys that collide": (
        lambda: pickled([{(-1 - (n & 1), -1 - (n >> 1 & 1)): n for n in range(4)}]),
        "a tuple is no key",
    ),
    "integers that collide": (lambda: pickled({n * (2**61 - 1) << 64: n for n in range(1, 9)}), "a int is no key"),
    "three million marks": (lambda: b"(" * 3_000_000 + b".", "takes more than 2,000,000 steps"),
    "three million sets": (lambda: b"\x8f" * 3_000_000 + b".", "takes more than 2,000,000 steps"),
    "three million classes": (lambda: b"ca\nb\n" * 3_000_000 + b".", "takes more than 2,000,000 steps"),
    "one list in many sets": (
        lambda: raw(b"cbuiltins\nset\nq\x01" + _A_LIST + b"h\x01h\x00\x85R" * 9000),
        "takes more than 2,000,000 steps",
    ),
    "one dict in many": (
        lambda: raw(
            b"ccollections\nOrderedDict\nq\x01}q\x00("
            + b"".join(code(number) + b"N" for number in range(90_000))
            + b"u"
            + b"h\x01h\x00\x85R" * 90_000
        ),
        "takes more than 2,000,000 steps",
    ),
    "one text as bytes again and again": (
        lambda: raw(
            b"c_codecs\nencode\nq\x01" + code("x" * 10**6) + code("latin1") + b"\x86q\x00" + b"h\x01h\x00R" * 90_000
        ),
        "the same bytes are copied many times over",
    ),
    "bytes that are no Latin-1": (lambda: pickled(Name("_codecs.encode")("\u20ac", "latin1")), "codec can't encode"),
    "bytes of another codec": (lambda: pickled(Name("_codecs.encode")("x", "zip")), "not written as text in Latin-1"),
    "bytes of a number": (lambda: pickled(Name("builtins.bytearray")(1 << 40)), "not written as text in Latin-1"),
    "a set of a number": (lambda: pickled(Name("builtins.set")(1 << 40)), "a set is made of a int"),
    "a dict of triples": (lambda: pickled(Name("collections.OrderedDict")([(1, 2, 3)])), "other than pairs"),
    "a complex number of text": (lambda: pickled(Name("builtins.complex")("1j", 0.0)), "no two parts"),
    "an array larger than its bytes": (lambda: array((1 << 40,), b"12345678"), "of another size has 8 bytes"),
    "an array of endless shape": (lambda: array((1 << 62, 1 << 62, 0), b""), "of another size has 0 bytes"),
    "an array of negative size": (lambda: array((-1,), b"12345678"), "of another size has 8 bytes"),
    "an array of a hundred dimensions": (lambda: array((1,) * 100, b"12345678"), "of another size"),
    "an array of objects": (lambda: array((1,), [Name("f.f")], dtype_of("O8", "|")), "something other than numbers"),
    "an array of pointers": (lambda: array((1,), b"12345678", dtype_of("O8", "|")), "something other than numbers"),
    "an array of records": (lambda: array((1,), b"12345678", dtype_of("V8", "|")), "something other than numbers"),
    "an array of text": (lambda: array((1,), b"12345678", dtype_of("U2")), "something other than numbers"),
    "an array without a type": (lambda: array((1,), b"12345678", None), "something other than numbers"),
    "an array of a list": (lambda: array((1,), [1.0]), "an array has no bytes"),
    "an array of an odd bool": (lambda: array((1,), b"\x02", dtype_of("b1", "|")), "other bytes than 0 and 1"),
    "an array of another class": (
        lambda: pickled(Name("numpy.core.multiarray._reconstruct")(Name("f.f"), (0,), b"b")),
        "none of numpy.ndarray",
    ),
    "one array again and again": (
        lambda: raw(
            code(b"\0" * 8 * 10**5) + b"q\x010"
            + b"cnumpy._core.numeric\n_frombuffer\nq\x03(h\x01" + code(_FLOATS) + code((10**5,)) + code("C")
            + b"tq\x040" + b"h\x03h\x04R" * 90_000
        ),
        "the same bytes are copied many times over",
    ),
    "a number of other size": (
        lambda: pickled(Name("numpy.core.multiarray.scalar")(_FLOATS, b"1234")),
        "another size than its type",
    ),
}  # fmt: skip
# Odd, but no harm: these are read.
HARMLESS: dict[str, Callable[[], bytes]] = {
    **{f"in disguise: {name}": (lambda content=content: content) for name, content in DISGUISED.items()},
    "a huge number in the memo": lambda: raw(b"Nr\xff\xff\xff\xffj\xff\xff\xff\xff"),
    "a list that contains itself": lambda: raw(b"]q\x00h\x00a"),
    "a dict that contains itself": lambda: raw(b"}q\x00" + code("state_dict") + b"h\x00s"),
    "many nested lists": lambda: raw(b"]" * 300_000 + b"a" * 299_999),
    "a million nested tuples": lambda: raw(b")" + b"\x85" * 1_000_000),
    "a billion laughs": lambda: raw(b"]" + b"q\x00h\x00\x86" * 100_000),
}

TORCH_FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    **{
        f"archive: {name}": ((lambda content=content: archive(content)), "nothing of it was run here")
        for name, content in CODE.items()
    },
    "stream: code in the facts": (
        lambda: stream([], machine=Name("os.mkdir")(TARGET)), "nothing of it was run here"
    ),
    "stream: code in the keys": (
        lambda: stream([], keys=[Name("os.mkdir")(TARGET)]), "nothing of it was run here"
    ),
    "stream: code in the content": (lambda: stream(Name("os.mkdir")(TARGET)), "nothing of it was run here"),
    "archive: compressed": (
        lambda: archive([tensor()], {"w/data/0": bytes(10**8)}, compression=zipfile.ZIP_DEFLATED),
        "is compressed or encrypted",
    ),
    "archive: encrypted": (lambda: listed(archive([tensor()]), 8, "<H", 1), "is compressed or encrypted"),
    "archive: unpacks to more": (lambda: listed(archive([tensor()]), 24, "<L", 1 << 30), "is compressed or encrypted"),
    "archive: twice the same": (
        lambda: archive([tensor()], {"w/data/0": SIX, "again:w/data/0": SIX}), "occurs twice or lies outside"
    ),
    "archive: above its folder": (
        lambda: archive([tensor()], {"w/data/0": SIX, "w/../../x": b"x"}), "occurs twice or lies outside"
    ),
    "archive: above, with backslashes": (
        lambda: archive([tensor()], {"w/data/0": SIX, "w\\..\\..\\x": b"x"}), "occurs twice or lies outside"
    ),
    "archive: at the root": (
        lambda: archive([tensor()], {"w/data/0": SIX, "/etc/x": b"x"}), "occurs twice or lies outside"
    ),
    "archive: no data.pkl": (lambda: patched(archive([]), b"data.pkl", b"date.pkl"), "without data.pkl"),
    "archive: TorchScript": (lambda: archive([], {"w/constants.pkl": b"N."}), "is an archive of TorchScript"),
    "archive: TorchScript, which is compressed": (
        lambda: archive([], {"w/constants.pkl": b"N."}, compression=zipfile.ZIP_DEFLATED), "is an archive of"
    ),
    "archive: no end": (lambda: archive([tensor()])[:-22], "its archive has no end"),
    "archive: half of it": (lambda: archive([tensor()])[:100], "its archive has no end"),
    "archive: more entries than it has": (lambda: end_of(archive([]), count=60_000), "ends too early"),
    "archive: endless entries": (lambda: end_64(archive([])), "claims 1,152,921,504,606,846,976 entries"),
    "archive: endless list": (lambda: end_of(archive([]), size=2**32 - 1), "entries in 4,294,967,295 bytes"),
    "archive: no list": (lambda: patched(archive([]), b"PK\x01\x02", b"PK\x01\x03"), "the list of its archive"),
    "archive: an entry somewhere else": (lambda: listed(archive([tensor()]), 42, "<L", 7), "not where the list has it"),
    "archive: an entry behind the end": (
        lambda: listed(archive([tensor()]), 42, "<L", 2**31), "claims more bytes than there are"
    ),
    "archive: an endless entry": (
        lambda: listed(archive([tensor()]), 20, "<2L", 2**31, 2**31), "claims more bytes than there are"
    ),
    "archive: entries that overlap": (
        lambda: listed(archive([tensor()]), 20, "<2L", 60, 60), "claims more bytes|not where the list has it"
    ),
    "archive: an entry larger than 32 bits, without its size": (
        lambda: listed(archive([tensor()]), 20, "<2L", 2**32 - 1, 2**32 - 1), "ends too early"
    ),
    "archive: highest byte first": (
        lambda: archive([tensor()], {"w/data/0": SIX, "w/byteorder": b"big"}), "puts the highest byte first"
    ),
    "archive: a storage is missing": (lambda: archive([tensor()], {}), "missing or of another size"),
    "archive: a storage of another size": (lambda: archive([tensor()], {"w/data/0": SIX * 2}), "of another size"),
    **{
        f"{kind}: {name}": ((lambda make=make, value=value: make(value)), sentence)
        for kind, make in (("archive", archive), ("stream", stream))
        for name, value, sentence in (
            ("an endless storage", [tensor(storage=Persistent((*STORAGE[:4], 1 << 60)))], "claim more bytes"),
            ("a storage of negative size", [tensor(storage=Persistent((*STORAGE[:4], -6)))], "claim more bytes"),
            ("a storage of a bool", [tensor(storage=Persistent((*STORAGE[:4], True)))], "claim more bytes"),
            ("a storage of text", [tensor(storage=Persistent((*STORAGE[:4], "6")))], "a persistent id is none"),
            ("an empty persistent id", [Persistent(())], "a persistent id is none"),
            ("a persistent id of text", [Persistent("0")], "a persistent id is none"),
            ("a persistent id of another kind", [Persistent(("module", 1))], "a persistent id is none"),
            ("quantised", [tensor(storage=Persistent(("storage", Name("torch.QInt8Storage"), "0", "cpu", 24)))],
             "of a kind that is not read .torch.QInt8Storage"),
            ("a storage of another library",
             [tensor(storage=Persistent(("storage", Name("f.FloatStorage"), "0", "cpu", 6)))], "of a kind that is"),
            ("one storage of two types",
             [tensor(), tensor(storage=Persistent(("storage", Name("torch.IntStorage"), "0", "cpu", 6)))],
             "has two sizes or types"),
            ("one storage of two sizes", [tensor(), tensor(storage=Persistent((*STORAGE[:4], 3)))], "has two sizes"),
            ("more values than there are", [tensor((3, 3))], "reaches outside of its storage"),
            ("an offset behind the end", [tensor(offset=1)], "reaches outside of its storage"),
            ("an offset before the beginning", [tensor(offset=-1)], "no valid offset"),
            ("an endless offset", [tensor((1,), (1,), 1 << 70)], "reaches outside of its storage"),
            ("a stride behind the end", [tensor(stride=(4, 1))], "reaches outside of its storage"),
            ("an endless stride", [tensor((1, 1), (1 << 62, 1))], "no valid strides"),
            ("a negative stride", [tensor(offset=5, stride=(-3, -1))], "no valid strides"),
            ("a stride of text", [tensor(stride=("3", 1))], "no valid strides"),
            ("one value a billion times", [tensor((1 << 30,), (0,))], "reaches outside of its storage"),
            ("an endless shape", [tensor((1 << 62, 1 << 62), (0, 0))], "no valid shape"),
            ("an endless shape of nothing", [tensor((1 << 39, 1 << 39, 0), (0, 0, 0))], "no valid shape"),
            ("a negative shape", [tensor((-2, -3))], "no valid shape"),
            ("a shape of bools", [tensor((True, True))], "no valid shape"),
            ("a hundred dimensions", [tensor((1,) * 100, (1,) * 100)], "no valid shape"),
            ("no strides", [tensor(stride=())], "no valid shape"),
            ("no storage", [tensor(storage=None)], "a tensor has no storage"),
            ("a storage of two dimensions", [tensor(storage=tensor())], "a tensor has no storage"),
            ("no arguments", [Name("torch._utils._rebuild_tensor_v2")()], "a tensor has no storage"),
            ("sparse", [Name("torch._utils._rebuild_sparse_tensor")("torch.sparse_coo", ())], "sparse or quantised"),
            ("without values", [Name("torch._utils._rebuild_meta_tensor_no_storage")()], "sparse or quantised"),
            ("a parameter of text", [Name("torch._utils._rebuild_parameter")("x", True, None)], "is no tensor"),
            ("a size of text", [Name("torch.Size")(("x",))], "a size has something other"),
            ("a device of no kind", [Name("torch.device")("nothing")], "a device has no name"),
            ("a tensor by something else",
             [Name("torch._tensor._rebuild_from_type_v2")(Name("f.f"), None, (), {})], "a tensor has no storage"),
        )
    },
    "stream: another version": (lambda: stream([], version=1), "its version is unknown"),
    "stream: no content": (lambda: stream([])[:60], "it ends too early"),
    "stream: no keys": (lambda: stream([tensor()], keys=()), "the keys of its storages are not"),
    "stream: keys twice": (lambda: stream([tensor()], keys=("0", "0")), "the keys of its storages are not"),
    "stream: keys of nothing": (lambda: stream([], keys=("0",)), "the keys of its storages are not"),
    "stream: a storage that ends": (lambda: stream([tensor()])[:-1], "it ends within storage 0"),
    "stream: a storage of another size": (
        lambda: stream([tensor()], storages=struct.pack("<q", 5) + SIX), "its storage 0 is of another size"
    ),
    "stream: a view behind the end": (
        lambda: stream([tensor(storage=Persistent((*STORAGE, ("1", 3, 6))))]), "a persistent id is none"
    ),
    "stream: a million tensors": (
        lambda: patched(
            stream([0.25, tensor()]), code(0.25),
            code(tensor()) + b"0ctorch._utils\n_rebuild_tensor\nq\x01" + code((Persistent(STORAGE), 0, (2, 3), (3, 1)))
            + b"q\x02" + b"h\x01h\x02R" * 600_000,
        ),
        "takes more than 2,000,000 steps",
    ),
    "pickle: a storage that takes long": (
        lambda: pickled(tensor(storage=Name("torch.storage._load_from_bytes")(stream([None] * 1000)))),
        "takes more than 2,000,000 steps",
    ),
    "pickle: storages without end": (
        lambda: raw(
            b"ctorch.storage\n_load_from_bytes\nq\x01" + code((stream(Persistent(STORAGE)),)) + b"q\x02"
            + b"h\x01h\x02R" * 100_000
        ),
        "the same bytes are copied many times over|takes more than 2,000,000 steps",
    ),
    "pickle: an archive in a storage": (
        lambda: pickled(tensor(storage=Name("torch.storage._load_from_bytes")(archive(Persistent(STORAGE))))),
        "codec can't decode|a line has no end",
    ),
    "pickle: a storage in a storage": (
        lambda: pickled(tensor(storage=Name("torch.storage._load_from_bytes")(
            pickled(Name("torch.storage._load_from_bytes")(b"N."))))), "a storage is none"
    ),
    "pickle: a storage of text": (
        lambda: pickled(tensor(storage=Name("torch.storage._load_from_bytes")(pickled("text")))), "a storage is none"
    ),
}  # fmt: skip


def _watched(events: list[str]) -> Callable[[str, tuple[Any, ...]], None]:
    """An audit hook that notes what Python is asked to do."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(arguments[1], str) and not set("wax+") & set(arguments[1]):
            return  # a file is read
        events.append(event)

    return hook


def main(folder: Path) -> None:
    """Read each file of a folder."""
    import resource

    from showtell.errors import ShowtellError
    from showtell.features.weights import read_weights

    results, events = {}, []
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY, size + MEMORY))
    files = sorted(folder.iterdir())
    (folder / "code.py").write_text(f"import os; os.mkdir({TARGET!r})")
    sys.addaudithook(_watched(events))
    for file in files:
        events.clear()
        begin = time.perf_counter()
        try:
            read_weights(file)
            answer = None
        except ShowtellError as error:
            answer = str(error)
        seconds = time.perf_counter() - begin
        results[file.name] = {"answer": answer, "seconds": seconds, "events": sorted(set(events))}
    sys.stdout.write(json.dumps(results))


if __name__ == "__main__":
    main(Path(sys.argv[1]))

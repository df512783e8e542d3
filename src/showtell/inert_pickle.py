"""Pickles read as data: nothing that stands in one is imported, called or changed.

A pickle is a program for a small stack machine, and Python's own one calls whatever the program names. The machine here
knows the same opcodes and no function: a class or function is a `Record` of its name, a call of it a `Record` with the
arguments, an object a `Record` with its state. Values that plain data consists of (dict and its kinds, sets, bytes,
complex, arrays of numbers) are made by the functions of `_CALLS`, which check what they are given.

    infos = load_pickle(Path("infos_fc-best.pkl").read_bytes(), "infos_fc-best.pkl")
    infos["opt"].attributes["rnn_size"]         # an argparse.Namespace is a Record

What a pickle may cost is bounded: the number of its steps, the elements and bytes that its calls copy, and every size
that it claims is compared with what is left of it before memory is taken. Text of Python 2 is read as Latin-1.
"""

from __future__ import annotations

import codecs
import math
import pickle
import struct
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NoReturn, TypeAlias

import numpy as np

from showtell.errors import WeightsError, printable, shorten

MAX_STEPS = 2_000_000  # opcodes, and elements that calls copy; at some hundred bytes each
_STEPS_OF_LARGE_VALUES = 3  # an empty set and a record take as much memory as so many others
MAX_DIMENSIONS = 32
MAX_ELEMENTS = 1 << 40  # of one array: sizes beyond it are not computed with
MAX_INTEGER_BYTES = 128

Buffer: TypeAlias = Any  # bytes or a mapped file: both have a length, slices that are bytes, and find()
Arguments: TypeAlias = tuple[object, ...]

# Modules and built-in functions that run code or touch files. A record of one is as inert as any other; but no weights
# need them, so that a file which names one was made to do harm when others open it, and that is worth a sentence.
_HARMFUL_MODULES = frozenset(
    (
        *("os", "posix", "nt", "sys", "subprocess", "commands", "pty", "shutil", "socket", "ctypes"),
        *("runpy", "importlib", "imp", "pickle", "marshal", "webbrowser"),
    )
)
_HARMFUL_BUILTINS = frozenset(
    ("eval", "exec", "execfile", "compile", "__import__", "open", "input", "apply", "breakpoint")
)
_OLD_MODULES = {"__builtin__": "builtins", "copy_reg": "copyreg"}  # names of Python 2

_NUMBERS = frozenset(("b1", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"))
_KEY_INTEGERS = range(-(1 << 63), 1 << 63)  # hashes of larger ones can be made to collide


@dataclass(frozen=True, eq=False, repr=False, slots=True)
class Record:
    """A class or function that a pickle names, a call of it, or an object: what the pickle says, and nothing done.

    Attributes:
        module: where the pickle finds the class or function.
        name: of the class or function.
        args: what it is called with, keyword arguments as a dict at the end; None for the class or function itself.
        state: what the object is said to be set to; most often a dict of its attributes.
        elements: what is appended to the object, if it is a kind of list or set.
        entries: what is put into the object, if it is a kind of dict.
    """

    module: str
    name: str
    args: Arguments | None = None
    state: object = None
    elements: list[object] = field(default_factory=list)
    entries: dict[Any, object] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """The class or function with its module, as Python 3 and NumPy 2 call them."""
        module = _OLD_MODULES.get(self.module, self.module)
        return f"{'numpy.core' + module[11:] if module.startswith('numpy._core') else module}.{self.name}"

    @property
    def attributes(self) -> dict[Any, object]:
        """The object's attributes by name; none if its state is of another kind."""
        return {key: value for part in self._state_dicts for key, value in part.items()}

    def attribute(self, name: str) -> object:
        """One of them; None if there is none of this name."""
        return next((part[name] for part in self._state_dicts if name in part), None)

    @property
    def _state_dicts(self) -> list[dict[Any, object]]:
        parts = self.state if isinstance(self.state, tuple) else (self.state,)  # (of __dict__, of __slots__)
        return [part for part in parts[:2] if isinstance(part, dict)]

    def __repr__(self) -> str:
        return f"<{self.path}{'' if self.args is None else ' object'}>"


Call: TypeAlias = Callable[["Machine", Arguments], object]


def load_pickle(data: Buffer, source: str) -> object:
    """The value of a pickle of any protocol, of Python 2 or 3.

    Args:
        data: bytes, or a mapped file.
        source: what messages call it, such as the file.

    Returns:
        Plain Python values, NumPy arrays of numbers, and a `Record` for everything else. It may contain itself.

    Raises:
        WeightsError: it is damaged, no pickle, larger than what is read, or names what could only do harm.
    """
    refuse_other_kinds(data, source)
    return Machine(data, source).run()


# What files begin with that are given in the place of a pickle most often.
_OTHER_KINDS = (
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"\x89PNG", "a PNG image"),
    (b"\x89HDF", "an HDF5 file"),
    (b"version https://git-lfs", "what Git LFS has in the place of the file: git lfs pull fetches it"),
    (b"<", "a page of HTML or XML, such as a download site shows in place of the file"),
)


def refuse_other_kinds(data: Buffer, source: str) -> None:
    """Refuse files of a known kind that is no pickle.

    Raises:
        WeightsError: it is one; the message says of which kind.
    """
    begin = bytes(data[:64]).lstrip() if data[:1] in (b"<", b" ", b"\n", b"\r", b"\t") else bytes(data[:64])
    kind = next((name for magic, name in _OTHER_KINDS if begin.startswith(magic)), None)
    if kind:
        raise WeightsError(f"{source} is {kind}; give a file that torch.save or pickle wrote.")


def damaged(source: str, reason: str) -> WeightsError:
    """The error of a file whose content contradicts itself."""
    what = shorten(printable(reason))
    return WeightsError(f"{source} is damaged, or no file of torch.save or pickle ({what}); fetch or write it again.")


def array_size(shape: object) -> int | None:
    """The number of elements of an array; None if the shape is no tuple of sizes that an array can have."""
    if not isinstance(shape, tuple) or len(shape) > MAX_DIMENSIONS:
        return None
    if any(type(size) is not int or not 0 <= size <= MAX_ELEMENTS for size in shape):
        return None
    return math.prod(shape) if math.prod(size or 1 for size in shape) <= MAX_ELEMENTS else None


class Machine:
    """Runs the opcodes of one pickle over a stack of plain values.

    Args:
        data: bytes, or a mapped file.
        source: what messages call it.
        start: where in `data` the pickle begins; after `run`, `position` is where it ends.
        calls: further functions by their path, for what a pickle calls.
        constants: values by the path under which a pickle names them.
        persistent: makes the value of a persistent id; without it there may be none.
        keys: further types whose values may be keys; they are told apart by identity.
        steps: how many count as taken, so that fewer are left of `MAX_STEPS`.
    """

    def __init__(
        self,
        data: Buffer,
        source: str,
        *,
        start: int = 0,
        calls: Mapping[str, Call] | None = None,
        constants: Mapping[str, object] | None = None,
        persistent: Callable[[object], object] | None = None,
        keys: tuple[type, ...] = (),
        steps: int = 0,
    ) -> None:
        self.source = source
        self.position = start
        self.stack: list[Any] = []
        self._data = data
        self._size = len(data)
        self._calls = {**_CALLS, **(calls or {})}
        self._constants = constants or {}
        self._persistent = persistent
        self._keys = (Record, *keys)
        self._below: list[list[Any]] = []  # the stacks below each mark
        self._memo: dict[int, object] = {}
        self._steps = steps
        self._copied = 0

    def run(self) -> object:
        """The value that the pickle leaves.

        Raises:
            WeightsError: see `load_pickle`.
        """
        while True:
            if self.position >= self._size:
                self.refuse("it ends too early")
            opcode = self._data[self.position]
            self.position += 1
            self._steps += 1
            if self._steps > MAX_STEPS:
                self.count_steps(0)
            if opcode == _STOP:
                return self.pop()
            try:
                if push := _PUSHES.get(opcode):
                    value = push(self)  # may exchange the stack
                    self.stack.append(value)
                elif act := _ACTS.get(opcode):
                    act(self)
                else:
                    self.refuse(f"opcode {opcode:#04x} is none that is read")
            except (ValueError, OverflowError, RuntimeError) as error:  # text or numbers that are none, or an array
                raise damaged(self.source, f"byte {self.position}: {str(error)[:100]}") from error

    def refuse(self, reason: str) -> NoReturn:
        """Stop, with the reason and the position."""
        raise damaged(self.source, f"byte {self.position}: {reason}")

    def count_steps(self, count: int) -> None:
        """Count opcodes, or elements that a call copies, and stop where there are too many of them."""
        self._steps += count
        if self._steps > MAX_STEPS:
            raise WeightsError(
                f"{self.source} takes more than {MAX_STEPS:,} steps to read, which no file of weights or settings "
                "does: save the weights alone, as torch.save(model.state_dict(), FILE)."
            )

    def copy_bytes(self, count: int) -> None:
        """Count the bytes that calls copy: a pickle that has the same ones copied again and again is stopped."""
        self._copied += count
        if self._copied > 4 * self._size:
            self.refuse("the same bytes are copied many times over")

    # ---- what follows an opcode

    def read(self, count: int) -> bytes:
        """The next bytes, which must be there."""
        end = self.position + count
        if count < 0 or end > self._size:
            self.refuse(f"{count:,} more bytes are claimed, and {self._size - self.position:,} are left")
        content: bytes = self._data[self.position : end]
        self.position = end
        return content

    def unpack(self, code: str) -> Any:
        """A number in the format of the module struct."""
        return struct.unpack(code, self.read(struct.calcsize(code)))[0]

    def counted(self, code: str) -> bytes:
        """Bytes behind their number."""
        return self.read(self.unpack(code))

    def line(self) -> bytes:
        """Bytes up to the end of the line."""
        end = self._data.find(b"\n", self.position)
        if end < 0:
            self.refuse("a line has no end")
        content = self.read(end - self.position)
        self.position += 1
        return content

    def integer(self, content: bytes) -> int:
        """An integer of any size, within reason."""
        if len(content) > MAX_INTEGER_BYTES:
            self.refuse(f"an integer has {len(content):,} bytes")
        return int.from_bytes(content, "little", signed=True)

    def decimal(self) -> int | bool:
        """An integer written out; 00 and 01 are false and true."""
        digits = self.line().removesuffix(b"L")
        if digits in (b"00", b"01"):
            return digits == b"01"
        if len(digits) > 2 * MAX_INTEGER_BYTES:
            self.refuse(f"an integer has {len(digits):,} digits")
        return int(digits)

    def quoted(self) -> str:
        """Text of Python 2 between quotes."""
        text = self.line()
        if len(text) < 2 or text[:1] != text[-1:] or text[:1] not in (b"'", b'"'):
            self.refuse("text has no quotes")
        if b"\\" not in text:
            return text[1:-1].decode("latin-1")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of escapes that are none, which stay as they are
            return codecs.escape_decode(text[1:-1])[0].decode("latin-1")

    # ---- the stack

    def pop(self) -> Any:
        """Take the value on top."""
        if not self.stack:
            self.refuse("a value is missing")
        return self.stack.pop()

    def top(self) -> Any:
        """The value on top, which stays."""
        if not self.stack:
            self.refuse("a value is missing")
        return self.stack[-1]

    def take(self, count: int) -> tuple[Any, ...]:
        """Take some values from the top, the lowest first."""
        values = tuple(self.stack[-count:])
        if len(values) < count:
            self.refuse("a value is missing")
        del self.stack[-count:]
        return values

    def mark(self) -> None:
        """Begin a stack above the present one."""
        self._below.append(self.stack)
        self.stack = []

    def to_mark(self) -> list[Any]:
        """Take all values above the last mark, and the mark."""
        if not self._below:
            self.refuse("a mark is missing")
        values, self.stack = self.stack, self._below.pop()
        return values

    def remember(self, index: int) -> None:
        """Keep the value on top in the memo."""
        self._memo[index] = self.top()

    def memorise(self) -> None:
        """Keep the value on top under the next number."""
        self.remember(len(self._memo))

    def recall(self, index: int) -> object:
        """A value of the memo."""
        if index not in self._memo:
            self.refuse(f"value {index} is used before it is there")
        return self._memo[index]

    # ---- values that hold others

    def key(self, value: object) -> Any:
        """A value that may be a key: its hash is cheap, and cannot be made to collide with those of many others."""
        if value is None or isinstance(value, (str, bytes, float, *self._keys)):
            return value
        if isinstance(value, int) and value in _KEY_INTEGERS:
            return value
        if isinstance(value, tuple) and all(isinstance(part, str) for part in value):
            return value
        return self.refuse(f"a {type(value).__name__} is no key that is read")

    def pairs(self, values: list[Any]) -> dict[Any, object]:
        """A dict of keys and values in turn."""
        if len(values) % 2:
            self.refuse("a key has no value")
        return {self.key(key): value for key, value in zip(values[::2], values[1::2], strict=True)}

    def mapping(self, value: object) -> dict[Any, object]:
        """A dict of a dict, or of a list of pairs."""
        if isinstance(value, dict):
            self.count_steps(len(value))
            return dict(value)
        if not isinstance(value, (list, tuple)) or any(
            not isinstance(pair, (list, tuple)) or len(pair) != 2 for pair in value
        ):
            self.refuse("a dict is made of something other than pairs")
        self.count_steps(len(value))
        return {self.key(key): content for key, content in value}

    def members(self, value: object) -> set[Any]:
        """A set of what a list, tuple or set holds."""
        if not isinstance(value, (list, tuple, set, frozenset)):
            self.refuse(f"a set is made of a {type(value).__name__}")
        self.count_steps(len(value))
        return {self.key(part) for part in value}

    def new_set(self) -> set[Any]:
        """An empty set, whose elements follow."""
        self.count_steps(_STEPS_OF_LARGE_VALUES)
        return set()

    def extend(self, values: list[Any]) -> None:
        """Append values to the list below them."""
        target = self.top()
        if not isinstance(target, (list, Record)):
            self.refuse(f"something is appended to a {type(target).__name__}")
        (target.elements if isinstance(target, Record) else target).extend(values)

    def add(self, values: list[Any]) -> None:
        """Put values into the set below them."""
        target = self.top()
        if isinstance(target, Record):
            target.elements.extend(values)
        elif isinstance(target, set):
            target.update(map(self.key, values))
        else:
            self.refuse(f"something is put into a {type(target).__name__}")

    def update(self, values: list[Any]) -> None:
        """Put keys and values into the dict below them."""
        target, pairs = self.top(), self.pairs(values)
        if not isinstance(target, (dict, Record)):
            self.refuse(f"a key is put into a {type(target).__name__}")
        (target.entries if isinstance(target, Record) else target).update(pairs)

    # ---- classes, functions and objects, none of which is looked up

    def named(self, module: object, name: object) -> object:
        """What stands for a class or function."""
        if not isinstance(module, str) or not isinstance(name, str):
            self.refuse("a class has no name")
        self.count_steps(_STEPS_OF_LARGE_VALUES)
        record = Record(module, name)
        first = _OLD_MODULES.get(module, module).split(".")[0]
        if first in _HARMFUL_MODULES or (first == "builtins" and name.split(".")[0] in _HARMFUL_BUILTINS):
            raise WeightsError(
                f"{self.source} asks for {shorten(printable(record.path))}, which no weights need and which would run "
                "code on a machine that unpickles it; nothing of it was run here: get the file from its publisher, as "
                ".safetensors if there is one."
            )
        return self._constants.get(record.path, record)

    def from_lines(self) -> object:
        """A class or function by two lines."""
        return self.named(self.line().decode(), self.line().decode())

    def call(self, function: object, args: object) -> object:
        """The value of a call: made here if the function is known, else a record of the call."""
        if not isinstance(function, Record) or function.args is not None or not isinstance(args, tuple):
            self.refuse("something is called that has no name")
        if known := self._calls.get(function.path):
            return known(self, args)
        self.count_steps(_STEPS_OF_LARGE_VALUES)
        return Record(function.module, function.name, args)

    def call_with_keywords(self) -> object:
        """An object whose class takes keyword arguments."""
        function, args, keywords = self.take(3)
        if not isinstance(args, tuple) or not isinstance(keywords, dict):
            self.refuse("a call has no arguments")
        return self.call(function, (*args, keywords) if keywords else args)

    def call_above_mark(self) -> object:
        """A call whose function and arguments lie above the mark."""
        function, *args = self.to_mark() or [None]
        return self.call(function, tuple(args))

    def call_from_lines(self) -> object:
        """A call whose arguments lie above the mark, and whose function follows."""
        function = self.from_lines()
        return self.call(function, tuple(self.to_mark()))

    def persistent(self, key: object) -> object:
        """What is stored outside the pickle."""
        if self._persistent is None:
            self.refuse("it needs something that is not in it")
        return self._persistent(key)

    def build(self) -> None:
        """Give the object on the stack its state."""
        state = self.pop()
        target = self.top()
        if isinstance(target, Record):
            object.__setattr__(target, "state", state)  # frozen for everyone but the machine that makes it
        elif isinstance(target, np.ndarray):
            _fill_array(self, target, state)
        # Attributes of a dict, a list or a tensor are no part of its value.

    def refuse_opcode(self) -> NoReturn:
        """Codes of a registry, or buffers, that no file has with it."""
        self.refuse("it needs something that is not in it")

    def check_protocol(self) -> None:
        """Refuse what is newer than this."""
        if (protocol := self.read(1)[0]) > 5:
            self.refuse(f"protocol {protocol} is not known")

    def check_frame(self) -> None:
        """Refuse a frame that is longer than what is left."""
        if (length := self.unpack("<Q")) > self._size - self.position:
            self.refuse(f"a frame of {length:,} bytes is claimed, and {self._size - self.position:,} are left")


_STOP = pickle.STOP[0]

# ---- opcodes that push a value

_PUSHES: dict[int, Callable[[Machine], object]] = {
    opcode[0]: push
    for opcode, push in (
        (pickle.NONE, lambda machine: None),
        (pickle.NEWTRUE, lambda machine: True),
        (pickle.NEWFALSE, lambda machine: False),
        (pickle.INT, Machine.decimal),
        (pickle.LONG, Machine.decimal),
        (pickle.BININT, lambda machine: machine.unpack("<i")),
        (pickle.BININT1, lambda machine: machine.unpack("<B")),
        (pickle.BININT2, lambda machine: machine.unpack("<H")),
        (pickle.LONG1, lambda machine: machine.integer(machine.counted("<B"))),
        (pickle.LONG4, lambda machine: machine.integer(machine.counted("<i"))),
        (pickle.FLOAT, lambda machine: float(machine.line())),
        (pickle.BINFLOAT, lambda machine: machine.unpack(">d")),
        (pickle.STRING, Machine.quoted),
        (pickle.BINSTRING, lambda machine: machine.counted("<i").decode("latin-1")),
        (pickle.SHORT_BINSTRING, lambda machine: machine.counted("<B").decode("latin-1")),
        (pickle.UNICODE, lambda machine: machine.line().decode("raw-unicode-escape")),
        (pickle.BINUNICODE, lambda machine: machine.counted("<I").decode("utf-8", "surrogatepass")),
        (pickle.SHORT_BINUNICODE, lambda machine: machine.counted("<B").decode("utf-8", "surrogatepass")),
        (pickle.BINUNICODE8, lambda machine: machine.counted("<Q").decode("utf-8", "surrogatepass")),
        (pickle.BINBYTES, lambda machine: machine.counted("<I")),
        (pickle.SHORT_BINBYTES, lambda machine: machine.counted("<B")),
        (pickle.BINBYTES8, lambda machine: machine.counted("<Q")),
        (pickle.BYTEARRAY8, lambda machine: bytearray(machine.counted("<Q"))),
        (pickle.EMPTY_LIST, lambda machine: []),
        (pickle.EMPTY_TUPLE, lambda machine: ()),
        (pickle.EMPTY_DICT, lambda machine: {}),
        (pickle.EMPTY_SET, Machine.new_set),
        (pickle.LIST, Machine.to_mark),
        (pickle.TUPLE, lambda machine: tuple(machine.to_mark())),
        (pickle.TUPLE1, lambda machine: machine.take(1)),
        (pickle.TUPLE2, lambda machine: machine.take(2)),
        (pickle.TUPLE3, lambda machine: machine.take(3)),
        (pickle.DICT, lambda machine: machine.pairs(machine.to_mark())),
        (pickle.FROZENSET, lambda machine: frozenset(machine.members(machine.to_mark()))),
        (pickle.DUP, Machine.top),
        (pickle.GET, lambda machine: machine.recall(int(machine.line()))),
        (pickle.BINGET, lambda machine: machine.recall(machine.unpack("<B"))),
        (pickle.LONG_BINGET, lambda machine: machine.recall(machine.unpack("<I"))),
        (pickle.GLOBAL, Machine.from_lines),
        (pickle.STACK_GLOBAL, lambda machine: machine.named(*machine.take(2))),
        (pickle.REDUCE, lambda machine: machine.call(*machine.take(2))),
        (pickle.NEWOBJ, lambda machine: machine.call(*machine.take(2))),
        (pickle.NEWOBJ_EX, Machine.call_with_keywords),
        (pickle.OBJ, Machine.call_above_mark),
        (pickle.INST, Machine.call_from_lines),
        (pickle.PERSID, lambda machine: machine.persistent(machine.line().decode())),
        (pickle.BINPERSID, lambda machine: machine.persistent(machine.pop())),
    )
}

# ---- opcodes that change what is there

_ACTS: dict[int, Callable[[Machine], object]] = {
    opcode[0]: act
    for opcode, act in (
        (pickle.PROTO, Machine.check_protocol),
        (pickle.FRAME, Machine.check_frame),
        (pickle.MARK, Machine.mark),
        (pickle.POP, lambda machine: machine.pop() if machine.stack else machine.to_mark()),
        (pickle.POP_MARK, Machine.to_mark),
        (pickle.PUT, lambda machine: machine.remember(int(machine.line()))),
        (pickle.BINPUT, lambda machine: machine.remember(machine.unpack("<B"))),
        (pickle.LONG_BINPUT, lambda machine: machine.remember(machine.unpack("<I"))),
        (pickle.MEMOIZE, Machine.memorise),
        (pickle.APPEND, lambda machine: machine.extend([machine.pop()])),
        (pickle.APPENDS, lambda machine: machine.extend(machine.to_mark())),
        (pickle.ADDITEMS, lambda machine: machine.add(machine.to_mark())),
        (pickle.SETITEM, lambda machine: machine.update(list(machine.take(2)))),
        (pickle.SETITEMS, lambda machine: machine.update(machine.to_mark())),
        (pickle.BUILD, Machine.build),
        (pickle.EXT1, Machine.refuse_opcode),
        (pickle.EXT2, Machine.refuse_opcode),
        (pickle.EXT4, Machine.refuse_opcode),
        (pickle.NEXT_BUFFER, Machine.refuse_opcode),
        (pickle.READONLY_BUFFER, Machine.refuse_opcode),
    )
}


# ---- calls that plain data needs, each with the arguments that pickles of Python and NumPy have there


def _dict(machine: Machine, args: Arguments) -> dict[Any, object]:
    match args:
        case ():
            return {}
        case (content,):
            return machine.mapping(content)
    return machine.refuse("a dict has more than one argument")


def _default_dict(machine: Machine, args: Arguments) -> dict[Any, object]:
    return _dict(machine, args[1:])  # the first argument makes what is missing


def _set(machine: Machine, args: Arguments) -> set[Any]:
    match args:
        case ():
            return set()
        case (content,):
            return machine.members(content)
    return machine.refuse("a set has more than one argument")


def _frozenset(machine: Machine, args: Arguments) -> frozenset[Any]:
    return frozenset(_set(machine, args))


def _encode(machine: Machine, args: Arguments) -> bytes:
    """Bytes, as protocols 0 to 2 write them: as text in Latin-1."""
    match args:
        case (str() as text, "latin1" | "latin-1"):
            machine.copy_bytes(len(text))
            return text.encode("latin-1")
    return machine.refuse("bytes are not written as text in Latin-1")


def _bytes(machine: Machine, args: Arguments) -> bytes:
    match args:
        case ():
            return b""
        case (bytes() as content,):
            return content
    return _encode(machine, args)


def _bytearray(machine: Machine, args: Arguments) -> bytearray:
    content = _bytes(machine, args)
    machine.copy_bytes(len(content))
    return bytearray(content)


def _complex(machine: Machine, args: Arguments) -> complex:
    match args:
        case (float() as real, float() as imaginary):
            return complex(real, imaginary)
    return machine.refuse("a complex number has no two parts")


def _object(machine: Machine, args: Arguments) -> object:
    """An object of a class: (class, base, content of the base) in protocols 0 and 1, else (class, arguments)."""
    match args:
        case (Record() as kind, Record() as base, content):
            return machine.call(kind, () if base.path == "builtins.object" else (content,))
    return machine.refuse("an object has no class")


def _new_object(machine: Machine, args: Arguments) -> object:
    return machine.call(args[0] if args else None, args[1:])


def _dtype(machine: Machine, args: Arguments) -> Record:
    return Record("numpy", "dtype", args)  # its byte order comes later, as its state


def _number_type(machine: Machine, record: object) -> np.dtype[Any]:
    """NumPy's type of a record of one, which must be of numbers."""
    if isinstance(record, Record) and record.path == "numpy.dtype" and record.args:
        code, order = record.args[0], "|"
        if isinstance(record.state, tuple) and len(record.state) > 1:
            order = record.state[1]
        if isinstance(code, str) and code in _NUMBERS and order in ("<", ">", "=", "|"):
            return np.dtype(f"{order}{code}")
    raise WeightsError(
        f"{machine.source} holds an array of something other than numbers, which is not read; save it without that one."
    )


def _scalar(machine: Machine, args: Arguments) -> object:
    """A number of NumPy, as one of Python's."""
    match args:
        case (dtype, (bytes() | str()) as content):
            kind = _number_type(machine, dtype)
            raw = content.encode("latin-1") if isinstance(content, str) else content
            if len(raw) == kind.itemsize:
                return np.frombuffer(raw, kind)[0].item()
    return machine.refuse("a number has another size than its type")


def _empty_array(machine: Machine, args: Arguments) -> np.ndarray[Any, Any]:
    match args:
        case (Record() as kind, tuple(), _) if kind.path == "numpy.ndarray":
            return np.empty(0)
    return machine.refuse("an array is none of numpy.ndarray")


def _checked_array(
    machine: Machine, shape: object, dtype: object, raw: bytes | bytearray
) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of an array, which must be as large as its bytes."""
    kind, size = _number_type(machine, dtype), array_size(shape)
    if size is None or not isinstance(shape, tuple) or size * kind.itemsize != len(raw):
        machine.refuse(f"an array of another size has {len(raw):,} bytes")
    if kind == np.bool_ and raw.translate(None, b"\0\1"):
        machine.refuse("an array of bools has other bytes than 0 and 1")
    machine.copy_bytes(len(raw))
    return shape, kind


def _fill_array(machine: Machine, array: np.ndarray[Any, Any], state: object) -> None:
    """Give an array of `_empty_array` its content: (version, shape, type, whether columns come first, bytes)."""
    match state:
        case (int(), shape, dtype, bool() | int() as fortran, (bytes() | str()) as content):
            raw = content.encode("latin-1") if isinstance(content, str) else content
            shape, kind = _checked_array(machine, shape, dtype, raw)
            array.__setstate__((1, shape, kind, bool(fortran), raw))  # type: ignore[arg-type]  # it takes no np.bool_
        case _:
            _number_type(machine, state[2] if isinstance(state, tuple) and len(state) > 2 else None)
            machine.refuse("an array has no bytes")


def _array_of_buffer(machine: Machine, args: Arguments) -> np.ndarray[Any, Any]:
    """An array as protocol 5 writes it: (bytes, type, shape, order)."""
    match args:
        case ((bytes() | bytearray()) as raw, dtype, shape, "C" | "F" as order):
            shape, kind = _checked_array(machine, shape, dtype, raw)
            return np.frombuffer(raw, kind).reshape(shape, order=order).astype(kind.newbyteorder("="), order="K")
    return machine.refuse("an array has no bytes")


_CALLS: dict[str, Call] = {
    "builtins.dict": _dict,
    "collections.OrderedDict": _dict,
    "collections.Counter": _dict,
    "collections.defaultdict": _default_dict,
    "builtins.set": _set,
    "builtins.frozenset": _frozenset,
    "builtins.bytes": _bytes,
    "builtins.bytearray": _bytearray,
    "builtins.complex": _complex,
    "_codecs.encode": _encode,
    "copyreg._reconstructor": _object,
    "copyreg.__newobj__": _new_object,
    "numpy.dtype": _dtype,
    "numpy.core.multiarray.scalar": _scalar,
    "numpy.core.multiarray._reconstruct": _empty_array,
    "numpy.core.numeric._frombuffer": _array_of_buffer,
}

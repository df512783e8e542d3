from __future__ import annotations

import argparse
import collections
import dataclasses
import enum
import functools
import math
import pickle
import random
from fractions import Fraction
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.errors import WeightsError
from showtell.inert_pickle import Record, load_pickle
from tests.fuzzing import mutated

PROTOCOLS = range(pickle.HIGHEST_PROTOCOL + 1)


def load(value: object, protocol: int = 4) -> Any:
    return load_pickle(pickle.dumps(value, protocol), "x.pkl")


# ---- plain values

KEYS = st.one_of(
    *(st.none(), st.booleans(), st.text(), st.binary(), st.floats(allow_nan=False), st.integers(-(2**63), 2**63 - 1)),
    st.tuples(st.text(), st.text()),
)
PLAIN = st.recursive(
    st.one_of(
        *(st.none(), st.booleans(), st.text(), st.binary(), st.floats(allow_nan=False), st.integers()),
        *(st.binary().map(bytearray), st.complex_numbers(allow_nan=False), st.sets(KEYS), st.frozensets(KEYS)),
    ),
    lambda part: st.one_of(
        *(st.lists(part), st.lists(part).map(tuple), st.dictionaries(KEYS, part)),
        st.dictionaries(KEYS, part).map(collections.OrderedDict),
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(value=PLAIN, protocol=st.sampled_from(PROTOCOLS))
def test_plain_values_come_back(value: object, protocol: int) -> None:
    assert load(value, protocol) == value


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_values_keep_their_types_and_what_they_share(protocol: int) -> None:
    shared = [1]
    values = load([True, 1, 1.0, -0.0, (shared, shared), b"", bytearray(), (), {}, set(), 2**70, -(2**70)], protocol)
    kinds = [bool, int, float, float, tuple, bytes, bytearray, tuple, dict, set, int, int]
    assert [type(value) for value in values] == kinds
    assert math.copysign(1, values[3]) == -1
    assert values[4][0] is values[4][1]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_contains_itself_is_read(protocol: int) -> None:
    itself: list[object] = []
    itself.append({"list": itself})
    value = load(itself, protocol)
    assert value[0]["list"] is value


def test_kinds_of_dicts_are_dicts() -> None:
    counts = collections.Counter("banana")
    default = collections.defaultdict(list, {"a": [1]})
    assert [load(value) for value in (counts, default)] == [dict(counts), dict(default)]
    assert type(load(counts)) is type(load(default)) is dict


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("kind", ["?", "i1", "<i2", ">i4", "<i8", "u1", "<u4", "<f2", "<f4", ">f8", "<c8", "<c16"])
def test_arrays_come_back(protocol: int, kind: str) -> None:
    plain = np.arange(24).reshape(2, 3, 4).astype(kind)
    arrays = [plain, np.asfortranarray(plain), plain[:, ::2], plain[:0], np.array(1, kind)]
    for array, loaded in zip(arrays, load(arrays, protocol), strict=True):
        assert (
            loaded.dtype == array.dtype.newbyteorder("=")
            and loaded.shape == array.shape
            and np.array_equal(loaded, array)
        )
        assert loaded.flags.writeable


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_numbers_of_numpy_are_those_of_python(protocol: int) -> None:
    values = load([np.float32(0.5), np.int64(-3), np.bool_(True), np.complex64(1j)], protocol)
    assert values == [0.5, -3, True, 1j] and [type(value) for value in values] == [float, int, bool, complex]


# ---- Python 2

# What pickle and cPickle of Python 2.7 write for {"opt": "caf\xe9", u"vocab": {"1": u"\xe9"}, "array": the array}.
OF_PYTHON_2 = {
    "protocol 0": b"(dp0\nS'opt'\np1\nS'caf\\xe9'\np2\nsVvocab\np3\n(dp4\nS'1'\np5\nV\\u00e9\np6\nssS'array'\np7\n"
    b"cnumpy.core.multiarray\n_reconstruct\np8\n(cnumpy\nndarray\np9\n(I0\ntp10\nS'b'\np11\ntp12\nRp13\n(I1\n(I2\ntp14\n"
    b"cnumpy\ndtype\np15\n(S'f4'\np16\nI0\nI1\ntp17\nRp18\n(I3\nS'<'\np19\nNNNI-1\nI-1\nI0\ntp20\nbI00\n"
    b"S'\\x00\\x00\\x80?\\x00\\x00\\x00\\xc0'\np21\ntp22\nbs.",
    "protocol 2": b"\x80\x02}q\x00(U\x03optq\x01U\x04caf\xe9q\x02X\x05\x00\x00\x00vocabq\x03}q\x04U\x011q\x05"
    b"X\x02\x00\x00\x00\xc3\xa9q\x06sU\x05arrayq\x07cnumpy.core.multiarray\n_reconstruct\nq\x08cnumpy\nndarray\nq\x09"
    b"K\x00\x85q\x0aU\x01bq\x0b\x87q\x0cRq\x0d(K\x01K\x02\x85q\x0ecnumpy\ndtype\nq\x0fU\x02f4q\x10K\x00K\x01\x87q\x11Rq\x12"
    b"(K\x03U\x01<q\x13NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tq\x14b\x89U\x08\x00\x00\x80?\x00\x00\x00\xc0q\x15tq\x16bu.",
}


@pytest.mark.parametrize("protocol", OF_PYTHON_2)
def test_text_of_python_2_is_latin_1(protocol: str) -> None:
    value: Any = load_pickle(OF_PYTHON_2[protocol], "infos.pkl")
    assert value["array"].tolist() == [1.0, -2.0]
    assert {key: value[key] for key in ("opt", "vocab")} == {"opt": "caf\xe9", "vocab": {"1": "\xe9"}}
    by_python = pickle.loads(OF_PYTHON_2[protocol], encoding="latin-1")
    assert by_python.keys() == value.keys() and by_python["array"].tolist() == [1.0, -2.0]


def test_text_of_python_2_may_have_odd_escapes() -> None:
    assert load_pickle(b"S'a\\-\\x41\\n'\n.", "x.pkl") == "a\\-A\n"


def test_an_object_of_an_old_class_is_a_record() -> None:
    record = load_pickle(b"(i__main__\nOptions\np0\n(dp1\nS'lr'\np2\nF0.5\nsb.", "x.pkl")
    assert isinstance(record, Record) and record.path == "__main__.Options" and record.attributes == {"lr": 0.5}


# ---- everything else


class Settings(dict):  # type: ignore[type-arg]
    """As yacs has it: a dict with attributes."""


class Slots:
    __slots__ = ("a", "b")


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Point:
    x: int
    y: object = None


def functions() -> None: ...


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_objects_are_records_of_their_state(protocol: int) -> None:
    options, point = load([argparse.Namespace(rnn_size=512, caption_model="fc"), Point(1)], protocol)
    assert options.path == "argparse.Namespace" and options.attributes == {"rnn_size": 512, "caption_model": "fc"}
    assert options.state == options.attributes and options.args == ()
    assert point.name == "Point" and point.module == __name__ and point.attributes == {"x": 1, "y": None}
    assert repr(options) == "<argparse.Namespace object>"


@pytest.mark.parametrize("protocol", PROTOCOLS[2:])
def test_kinds_of_objects(protocol: int) -> None:
    mapping = Settings(a=1)
    mapping.frozen = True  # type: ignore[attr-defined]
    slots = Slots()
    slots.a = 2  # type: ignore[attr-defined]
    loaded = load(
        [mapping, slots, Colour.RED, collections.deque([1, 2]), PurePosixPath("a/b"), Fraction(1, 2)], protocol
    )
    assert loaded[0].entries == {"a": 1} and loaded[0].attributes == {"frozen": True}
    assert loaded[1].attributes == {"a": 2}
    # Colour(1), or in Python 3.11.0 to 3.11.3 getattr(Colour, "RED")
    assert loaded[2].args in ((1,), (loaded[2].args[0], "RED"))
    assert loaded[3].elements == [1, 2]
    assert [record.path for record in loaded[3:]] == [
        "collections.deque",
        "pathlib.PurePosixPath",
        "fractions.Fraction",
    ]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_classes_and_functions_are_records_without_arguments(protocol: int) -> None:
    kind, function, partial = load([Point, functions, functools.partial(functions)], protocol)
    assert [kind.name, function.name, partial.name] == ["Point", "functions", "partial"]
    assert kind.args is function.args is None and repr(kind) == f"<{__name__}.Point>"
    assert partial.args[0].name == "functions"


def test_a_record_cannot_be_changed_or_called() -> None:
    record = load(argparse.Namespace(a=1))
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.state = None
    assert not callable(record) and not hasattr(record, "a")
    assert record != load(argparse.Namespace(a=1)) and len({record, record}) == 1


def test_only_the_state_of_a_dict_has_attributes() -> None:
    assert Record("a", "b", (), state=[1]).attributes == {}
    assert Record("a", "b", (), state=({"x": 1}, {"y": 2})).attributes == {"x": 1, "y": 2}
    assert Record("a", "b", (), state=(None, {"y": 2})).attributes == {"y": 2}


# ---- damage

SEEDS = [
    *(
        pickle.dumps([1, "a", {"b": (1.5, None)}, {2}, b"x", bytearray(b"y"), 2**70], protocol)
        for protocol in PROTOCOLS
    ),
    *(pickle.dumps([argparse.Namespace(a=Point(1, Colour)), Fraction(1, 2)], protocol) for protocol in PROTOCOLS),
    *(pickle.dumps({"a": np.arange(3), "b": np.float32(1)}, protocol) for protocol in PROTOCOLS),
    *OF_PYTHON_2.values(),
]


@settings(max_examples=300, deadline=None)
@given(number=st.integers(0, 10**9))
def test_damaged_pickles_are_read_or_refused(number: int) -> None:
    rng = random.Random(number)
    try:
        load_pickle(mutated(rng.choice(SEEDS), rng), "x.pkl")
    except WeightsError as error:
        assert str(error).startswith("x.pkl ") and str(error).endswith(".")


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_beginning_of_a_pickle_is_refused(protocol: int) -> None:
    whole = pickle.dumps({"a": [1, "text", np.arange(2)]}, protocol)
    for end in range(len(whole)):
        with pytest.raises(WeightsError, match=r"^x\.pkl is damaged, or no file of torch\.save or pickle \(byte \d+: "):
            load_pickle(whole[:end], "x.pkl")

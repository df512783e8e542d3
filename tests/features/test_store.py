from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import resource
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import lmdb
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from showtell.errors import DataError, UsageError
from showtell.features import build_encoder, encoder_config
from showtell.features.store import (
    METADATA,
    FeatureStore,
    ImageFeatures,
    StoreInfo,
    StoreWriter,
    collate_features,
    precision,
)

INFO = StoreInfo(encoder={"name": "eye"}, fingerprint="0123456789ab", dtype="fp16", feature_size=3)


def image(regions: int, seed: int = 0, **arrays: np.ndarray) -> ImageFeatures:
    chance = np.random.default_rng(seed)
    return ImageFeatures(chance.standard_normal((regions, 3)).astype("f2"), (640, 480), **arrays)


def write(path: Path, images: dict[str, ImageFeatures], info: StoreInfo = INFO) -> Path:
    with StoreWriter(path, info) as writer:
        writer.write(images)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


def change(path: Path, key: bytes, value: bytes) -> None:
    with lmdb.open(str(path), lock=False, map_size=2**26) as environment, environment.begin(write=True) as transaction:
        transaction.put(key, value)


def stored(path: Path, key: bytes) -> bytes:
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        return transaction.get(key)


@settings(max_examples=40, deadline=None)
@given(
    regions=st.integers(1, 9),
    size=st.integers(1, 7),
    dtype=st.sampled_from(["fp16", "fp32"]),
    with_boxes=st.booleans(),
    with_scores=st.booleans(),
    with_labels=st.booleans(),
    with_attributes=st.booleans(),
    photo=st.tuples(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    name=st.text(min_size=1, max_size=100).filter(lambda text: "\0" not in text and text.isprintable()),
)
def test_what_was_written_is_read(
    tmp_path_factory, regions, size, dtype, with_boxes, with_scores, with_labels, with_attributes, photo, name
):
    chance = np.random.default_rng(regions * 10 + size)
    given_one = ImageFeatures(
        chance.standard_normal((regions, size)).astype("f2"),
        photo,
        chance.random((regions, 4), dtype="f4") if with_boxes else None,
        chance.random(regions, dtype="f4") if with_scores else None,
        chance.integers(-1, 90, regions) if with_labels else None,
        chance.integers(-1, 40, regions) if with_attributes else None,
    )
    info = StoreInfo(encoder={"name": "eye"}, fingerprint="f" * 12, dtype=dtype, feature_size=size)
    store = FeatureStore(write(tmp_path_factory.mktemp("any") / "store", {name: given_one}, info))
    assert (store.ids(), len(store), name in store) == ([name], 1, True)
    entry = store[name]
    assert (entry.size, entry.vectors.dtype) == (photo, {"fp16": np.float16, "fp32": np.float32}[dtype])
    for array in ("vectors", "boxes", "scores", "labels", "attributes"):
        ours, theirs = getattr(entry, array), getattr(given_one, array)
        assert (ours is None) == (theirs is None)
        assert ours is None or np.array_equal(ours, theirs)


def test_an_entry_is_laid_out_as_documented(path):
    """Every byte of a value, by hand: the header's eight numbers, then boxes, scores, labels, attributes, vectors."""
    one = ImageFeatures(
        np.array([[1, -2, 0.5]], "f2"),
        (640, 480),
        np.array([[1, 2, 3, 4]], "f4"),
        np.array([0.25], "f4"),
        np.array([7]),
        np.array([-1]),
    )
    write(path, {"42": one})
    body = b"".join(number.to_bytes(4, "little") for number in (1, 3, 640, 480, 1 + 2 + 4 + 8 + 16, 0))
    body += bytes.fromhex("0000803f 00000040 00004040 00008040")  # 1, 2, 3, 4 in single precision
    body += bytes.fromhex("0000803e 07000000 ffffffff")  # 0.25, and 7 and -1 as integers
    body += bytes.fromhex("003c 00c0 0038")  # 1, -2, 0.5 in half precision
    assert stored(path, b"42") == b"STF1" + zlib.crc32(body).to_bytes(4, "little") + body


def test_one_key_an_image_and_one_of_metadata_in_the_main_database(path):
    write(path, {"a": image(2), "b/c.jpg": image(3), "é": image(1)})
    with lmdb.open(str(path), readonly=True, lock=False) as environment, environment.begin() as transaction:
        content = dict(transaction.cursor())
    assert set(content) == {b"a", b"b/c.jpg", "é".encode(), METADATA}
    assert json.loads(content[METADATA]) == {
        "format": 2,
        "encoder": {"name": "eye"},
        "fingerprint": "0123456789ab",
        "preprocessing": None,
        "dtype": "fp16",
        "feature_size": 3,
        "categories": [],
        "attributes": [],
    }


def test_reading_copies_nothing(path):
    store = FeatureStore(write(path, {"a": image(5)}))
    vectors = store["a"].vectors
    assert not vectors.flags.owndata
    assert not vectors.flags.writeable
    assert vectors.ctypes.data == store["a"].vectors.ctypes.data  # the same address in the file's mapping


def test_the_file_grows_beyond_its_first_mapping(path):
    """100 images of 1 MB in a mapping that begins with 64 MB, written in transactions of 40 MB."""
    info = INFO.model_copy(update={"feature_size": 1024})
    one = ImageFeatures(np.arange(512 * 1024, dtype="f4").reshape(512, 1024) % 1000)
    with StoreWriter(path, info) as writer:
        for first in range(0, 100, 40):
            writer.write({str(number): one for number in range(first, min(first + 40, 100))})
    store = FeatureStore(path)
    assert len(store) == 100
    assert np.array_equal(store["99"].vectors, one.vectors.astype("f2"))


def test_padding_goes_to_the_max_regions(path):
    boxes = np.arange(8, dtype="f4").reshape(2, 4)
    one, two = image(2, boxes=boxes, labels=np.array([3, 4])), image(3, 1, boxes=np.ones((3, 4), "f4"))
    store = FeatureStore(write(path, {"1": one, "2": two}))
    features = collate_features([store["1"], store["2"]])
    assert features.is_region.tolist() == [[True, True, False], [True, True, True]]
    assert features.vectors.dtype == torch.float16
    assert torch.equal(features.vectors[0, :2], torch.from_numpy(one.vectors))
    assert not features.vectors[0, 2].any()
    assert features.regions.boxes.tolist() == [[*boxes.tolist(), [0] * 4], [[1] * 4] * 3]
    assert (features.regions.scores, features.regions.labels) == (None, None)  # not both have labels
    assert collate_features([store["1"]]).regions.labels.tolist() == [[3, 4]]
    assert collate_features([store["1"]]).regions.labels.dtype == torch.int64


def _read(store: FeatureStore, answers: multiprocessing.SimpleQueue[list[float]]) -> None:
    answers.put([*store["a"].vectors.astype(float).ravel().tolist(), len(FeatureStore(store.path))])


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # torch has threads; the child starts none
def test_other_processes_read_the_same(path, method):
    store = FeatureStore(write(path, {"a": image(2)}))
    expected = [*store["a"].vectors.astype(float).ravel().tolist(), 1]
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()
    child = context.Process(target=_read, args=(store, answers))
    child.start()
    assert answers.get() == expected
    child.join()
    assert child.exitcode == 0
    assert store["a"].vectors.astype(float).ravel().tolist() == expected[:-1]  # and the parent still does
    assert np.array_equal(pickle.loads(pickle.dumps(store))["a"].vectors, store["a"].vectors)


def test_threads_read_the_same(path):
    images = {str(number): image(1 + number % 5, number) for number in range(200)}
    store = FeatureStore(write(path, images))
    with ThreadPoolExecutor(4) as pool:
        for name, entry in zip(images, pool.map(store.__getitem__, images), strict=True):
            assert np.array_equal(entry.vectors, images[name].vectors)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (b"", "it has 0 bytes, fewer than its header"),
        (b"nonsense" * 8, "it does not begin as an entry does"),
        (lambda good: good[:-1], r"it has 49 bytes instead of 50"),
        (lambda good: good[:40] + bytes([good[40] ^ 1]) + good[41:], "its checksum is another"),
        (lambda good: good[:16] + b"\xff" * 4 + good[20:], "its checksum is another"),  # the photo's width
    ],
)
def test_a_damaged_entry_is_named(path, value, reason):
    write(path, {"7": image(3), "8": image(3)})
    change(path, b"7", value if isinstance(value, bytes) else value(stored(path, b"7")))
    store = FeatureStore(path)
    assert store["8"].vectors.shape == (3, 3)
    with pytest.raises(DataError, match=f"The features of image 7 in .*store are damaged: {reason}; delete"):
        store["7"]


def test_an_image_that_is_not_there_is_named(path):
    store = FeatureStore(write(path, {"7": image(3)}))
    assert store.missing(["6", "7", "\0showtell"]) == ["6", "\0showtell"]
    for name in ("6", "\0showtell", "x" * 600, ""):
        assert name not in store
    with pytest.raises(DataError, match="store has no features of image 6; add them with showtell features"):
        store["6"]


def test_what_is_no_store_is_refused(tmp_path, path):
    with pytest.raises(
        DataError, match=r"There is no feature store .*store; write one with: showtell features DATASET"
    ):
        FeatureStore(path)
    path.mkdir()
    (path / "data.mdb").write_bytes(b"x" * 10_000)
    with pytest.raises(DataError, match=r"is not a feature store, or a damaged one \(.*not an LMDB file"):
        FeatureStore(path)
    (path / "data.mdb").write_bytes(b"")
    with pytest.raises(DataError, match="is not a feature store, or a damaged one"):
        FeatureStore(path)
    with lmdb.open(str(tmp_path / "other"), lock=False) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"a", b"b")
    with pytest.raises(DataError, match="is an LMDB database, and no feature store"):
        FeatureStore(tmp_path / "other")
    with pytest.raises(DataError, match="is an LMDB database, and no feature store"):
        StoreWriter(tmp_path / "other", INFO)
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(DataError, match="file is a file; a feature store is a folder"):
        StoreWriter(file, INFO)


def test_a_file_that_lost_its_end_is_refused_before_it_is_read(path):
    """Reading behind the end of a mapped file would kill the process with SIGBUS."""
    write(path, {str(number): image(2000, number) for number in range(20)})
    data = path / "data.mdb"
    with data.open("r+b") as stream:
        stream.truncate(data.stat().st_size // 2)
    with pytest.raises(DataError, match=r"damaged one \(the end of its file is missing\)"):
        FeatureStore(path)


METADATA_OF = INFO.model_dump(mode="json")
DAMAGED_METADATA = [
    *(b"", b"{", b"[1]", b"null", b"7", b'"a"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5000),
    *(json.dumps({**METADATA_OF, "format": value}).encode() for value in ("1", None, [1], {}, 1.5, True, -1)),
    *(json.dumps({**METADATA_OF, "encoder": value}).encode() for value in ("eye", None, [1], 3)),
    *(json.dumps({**METADATA_OF, "feature_size": value}).encode() for value in ("x", None, 0, -3, 2**40, [3], 1e300)),
    *(json.dumps({**METADATA_OF, key: 7}).encode() for key in ("fingerprint", "dtype", "preprocessing", "categories")),
    json.dumps({**METADATA_OF, "dtype": "fp64"}).encode(),
    *(json.dumps({k: v for k, v in METADATA_OF.items() if k != key}).encode() for key in ("encoder", "feature_size")),
]


@pytest.mark.parametrize("value", DAMAGED_METADATA, ids=lambda value: repr(value[:40]))
def test_damaged_metadata_is_refused(path, value):
    write(path, {"7": image(3)})
    change(path, METADATA, value)
    for opening in (lambda: FeatureStore(path), lambda: StoreWriter(path, INFO)):
        with pytest.raises(DataError) as caught:
            opening()
        assert str(caught.value) == (
            f"The feature store {path} is damaged: its metadata cannot be read; delete it and extract anew."
        )


def entry(regions: int, size: int, flags: int = 1, rest: bytes | None = None) -> bytes:
    """An entry with a good checksum, whatever its header says."""
    body = b"".join(number.to_bytes(4, "little") for number in (regions, size, 640, 480, flags, 0))
    body += bytes(2 * regions * size) if rest is None else rest
    return b"STF1" + zlib.crc32(body).to_bytes(4, "little") + body


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        (entry(0, 3), "it has 0 vectors of 3 numbers, in a store of 3"),
        (entry(3, 0), "it has 3 vectors of 0 numbers, in a store of 3"),
        (entry(2**32 - 1, 0, rest=b""), "it has 4294967295 vectors of 0 numbers, in a store of 3"),
        (entry(0, 0, rest=b""), "it has 0 vectors of 0 numbers, in a store of 3"),
        (entry(3, 2), "it has 3 vectors of 2 numbers, in a store of 3"),  # swapped
        (entry(2, 3, rest=b""), "it has 32 bytes instead of 44"),
        (entry(2**32 - 1, 3, rest=b"0"), "it has 33 bytes instead of 25769803802"),
        (entry(2, 3, flags=0, rest=bytes(24)), "its header contradicts the store's metadata"),  # fp32
        (entry(2, 3, flags=33), "its header contradicts the store's metadata"),
        (b"", "it has 0 bytes, fewer than its header"),
    ],
)
def test_an_entry_that_does_not_fit_its_store_is_refused(path, value, problem):
    write(path, {"7": image(3)})
    change(path, b"7", value)
    with pytest.raises(DataError) as caught:
        FeatureStore(path)["7"]
    assert str(caught.value) == (
        f"The features of image 7 in {path} are damaged: {problem}; delete the store and extract anew."
    )


def test_an_id_that_is_no_utf_8_is_stored_and_read(path):
    name = os.fsdecode(b"caf\xe9.jpg")
    write(path, {name: image(2), "b": image(1)})
    store = FeatureStore(path)
    assert store.ids() == ["b", name] and name in store
    assert np.array_equal(store[name].vectors, image(2).vectors)
    with StoreWriter(path.with_name("other"), INFO) as writer, pytest.raises(DataError, match="cannot be stored"):
        writer.write({"\ud800": image(1)})


@pytest.mark.parametrize("left", [0, 1, 16, 100, 4096, 5000])
def test_a_store_whose_creation_failed_is_begun_anew(path, left):
    """What a full disk leaves: the beginning of the file, or zeros."""
    write(path, {})
    begun = (path / "data.mdb").read_bytes()[:left]
    for content in (begun, bytes(left)):
        (path / "data.mdb").write_bytes(content)
        write(path, {"7": image(3)})
        assert FeatureStore(path).ids() == ["7"]


def test_a_short_file_of_somebody_else_is_left_alone(path):
    path.mkdir()
    (path / "data.mdb").write_text("my notes")
    with pytest.raises(DataError, match=r"Cannot write .*store: MDB_INVALID"):
        write(path, {"7": image(3)})
    assert (path / "data.mdb").read_text() == "my notes"


def test_a_newer_format_is_refused(path):
    write(path, {"7": image(3)})
    change(path, METADATA, json.dumps({**INFO.model_dump(), "format": 3, "novelty": 1}).encode())
    with pytest.raises(DataError, match="was written by a newer showtell, in format 3; this one reads formats up to 2"):
        FeatureStore(path)


def test_only_one_program_writes(path):
    with StoreWriter(path, INFO), pytest.raises(DataError, match=r"Another program is writing to .*store"):
        StoreWriter(path, INFO)
    write(path, {"7": image(3)})  # the lock is gone
    store = FeatureStore(path)
    with pytest.raises(DataError, match=r"store is open for reading in this program: let go of its FeatureStore first"):
        StoreWriter(path, INFO)
    del store
    write(path, {"8": image(3)})


def test_a_store_of_other_features_is_not_written_to(path):
    write(path, {"7": image(3)})
    other = INFO.model_copy(update={"encoder": {"name": "ear"}, "fingerprint": "ba9876543210"})
    message = r"of eye \(fingerprint 0123456789ab\), not of ear \(fingerprint ba9876543210\); use the encoder that made"
    with pytest.raises(DataError, match=message):
        StoreWriter(path, other)
    with pytest.raises(DataError, match=r"The features in .*store are fp16, not fp32: use fp16"):
        StoreWriter(path, INFO.model_copy(update={"dtype": "fp32"}))
    with StoreWriter(path, INFO) as writer:  # neither left the store locked
        assert "7" in writer


def test_features_that_do_not_fit_are_refused_and_nothing_is_written(path):
    with StoreWriter(path, INFO) as writer:
        for bad, message in (
            (np.full((1, 3), 1e5, "f4"), "image bad hold values beyond 65,504, the most that fp16 can hold: use fp32"),
            (np.full((1, 3), np.nan, "f4"), "image bad hold values that are no numbers"),
            (np.zeros((0, 3), "f4"), "There are no features of image bad: an image has one vector or more"),
            (np.zeros((1, 4), "f4"), r"image bad have 4 numbers each; those in .*store have 3"),
        ):
            with pytest.raises(DataError, match=message):
                writer.write({"good": image(2), "bad": ImageFeatures(bad)})
        for name in ("", "a\0b", "x" * 512):
            with pytest.raises(DataError, match="cannot be stored: an id has 1 to 511 bytes and no null byte"):
                writer.write({name: image(2)})
    assert FeatureStore(path).ids() == []


def test_a_full_disk_keeps_what_was_written(path):
    """A limit on the size of files stands for the disk; the transaction that meets it is gone, those before it stay."""
    info = INFO.model_copy(update={"feature_size": 1024})
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2**21, hard))
    try:
        with (
            StoreWriter(path, info) as writer,
            pytest.raises(DataError, match=r"Cannot write .*store: .*; what was written before is kept: run the same"),
        ):
            for number in range(9):
                writer.write({str(number): ImageFeatures(np.ones((256, 1024)))})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    store = FeatureStore(path)
    assert store.ids() == ["0", "1", "2"]  # of half a megabyte each
    assert all(np.array_equal(store[name].vectors, np.ones((256, 1024))) for name in store.ids())


def test_precisions_have_names():
    assert precision("fp16") == "fp16"
    with pytest.raises(UsageError, match='There is no precision "float16"; known are fp16, fp32'):
        precision("float16")


def test_a_fingerprint_is_of_the_weights_and_not_of_where_they_came_from():
    def info(seed: int, **changes: object) -> StoreInfo:
        torch.manual_seed(seed)
        settings = {"name": "resnet18", "weights": "random", "image_size": 32, "trained": False, **changes}
        return StoreInfo.of(build_encoder(encoder_config(settings)), "fp16")

    first = info(0)
    assert info(0) == first
    assert info(0, trained=True, learning_rate=0.1) == first
    assert info(1).fingerprint != first.fingerprint
    assert info(1).encoder == first.encoder
    assert info(0, image_size=64).fingerprint != first.fingerprint

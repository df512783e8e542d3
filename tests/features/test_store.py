import io
import json
import multiprocessing
import os
from pathlib import Path
from typing import Any

import lmdb
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from showtell.errors import DataError
from showtell.features import build_encoder, encoder_config
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.store import METADATA, FeatureStore, ImageFeatures, StoreInfo, StoreWriter, collate_features
from showtell.features.stored_images import choose_images
from tests.features.test_extraction import contents
from tests.toys import room_for

INFO = StoreInfo(encoder={"name": "eye"}, fingerprint="0123456789ab", dtype="fp16", feature_size=3)


def image(regions: int, seed: int = 0, **arrays: np.ndarray) -> ImageFeatures:
    return ImageFeatures(np.random.default_rng(seed).standard_normal((regions, 3)).astype("f2"), (640, 480), **arrays)


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


ARRAYS = {"boxes": (2, "f4"), "scores": (1, "f4"), "labels": (1, "i4"), "attributes": (1, "i4")}


IDS = st.text(min_size=1, max_size=100).filter(lambda text: "\0" not in text and text.isprintable())


@given(
    regions=st.integers(1, 9), dtype=st.sampled_from(["fp16", "fp32"]), names=st.sets(st.sampled_from(sorted(ARRAYS))),
    photo=st.tuples(*[st.integers(0, 2**32 - 1)] * 2), name=IDS | st.just(os.fsdecode(b"caf\xe9.jpg")),
)  # fmt: skip
def test_what_was_written_is_read(tmp_path_factory, regions, dtype, names, photo, name):
    chance = np.random.default_rng(regions)
    chosen = {array: ARRAYS[array] for array in names}
    arrays = {key: chance.integers(-1, 90, (regions, 4)[:axes]).astype(kind) for key, (axes, kind) in chosen.items()}
    written = ImageFeatures(chance.standard_normal((regions, 3)).astype("f2"), photo, **arrays)
    info = INFO.model_copy(update={"dtype": dtype})
    store = FeatureStore(write(tmp_path_factory.mktemp("any") / "store", {name: written}, info))
    assert (store.ids(), len(store), name in store) == ([name], 1, True)
    entry = store[name]
    assert (entry.size, entry.vectors.dtype) == (photo, {"fp16": np.float16, "fp32": np.float32}[dtype])
    for array in ("vectors", *ARRAYS):
        ours, theirs = getattr(entry, array), getattr(written, array)
        assert (ours is None) == (theirs is None)
        assert ours is None or np.array_equal(ours, theirs)


def _read_twice(path: Path, pipe: Any) -> None:
    store = FeatureStore(path)
    pipe.send(len(store))
    pipe.recv()
    try:
        pipe.send(len(store))
    except DataError as error:
        pipe.send(str(error))


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # torch has threads; the child starts none
def test_a_store_that_grows_while_it_is_read_is_not_called_damaged(path, monkeypatch):
    monkeypatch.setattr("showtell.features.store._FIRST_MAP", 2**21)
    write(path, {"a": image(2)})
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("fork").Process(target=_read_twice, args=(path, theirs))
    child.start()
    assert ours.recv() == 1
    write(path, {"b": image(2**21)})  # 12 MB, and readers map 10 at least
    ours.send("once more")
    assert ours.recv() == f"{path} is being filled by another program; wait until it has ended."
    child.join()
    assert np.array_equal(FeatureStore(path)["b"].vectors, image(2**21).vectors)


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


def test_a_damaged_entry_is_named_and_written_anew(path):
    write(path, {"7": image(3), "8": image(3)})
    good = contents(path)[b"7"]
    for value in (b"", b"nonsense" * 8, good[:-1], good[:40] + bytes([good[40] ^ 1]) + good[41:]):
        change(path, b"7", value)
        store = FeatureStore(path)
        assert store["8"].vectors.shape == (3, 3)
        with pytest.raises(DataError, match=r"features of image 7 in .*store are damaged; the showtell features comm"):
            store["7"]
        del store
        with StoreWriter(path, INFO) as writer:
            assert "7" not in writer and "8" in writer
            writer.write({"7": image(3)})
        assert contents(path)[b"7"] == good


def test_what_is_no_store_is_refused(tmp_path, path):
    with pytest.raises(DataError, match=r"There is no feature store .*store; write one with: showtell features DATA"):
        FeatureStore(path)
    path.mkdir()
    for content in (b"x" * 10_000, b""):
        (path / "data.mdb").write_bytes(content)
        with pytest.raises(DataError, match="is not a feature store, or a damaged one"):
            FeatureStore(path)
    with lmdb.open(str(tmp_path / "other"), lock=False) as environment, environment.begin(write=True) as transaction:
        transaction.put(b"a", b"b")
    for opening in (FeatureStore, lambda path: StoreWriter(path, INFO)):
        with pytest.raises(DataError, match="is an LMDB database, and no feature store"):
            opening(tmp_path / "other")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").touch()
    for folder, message in (("notes", r"holds other files \(mine\.txt\) and no"), ("notes/mine.txt", "Cannot write")):
        with pytest.raises(DataError, match=message):
            StoreWriter(tmp_path / folder, INFO)


def test_a_file_that_lost_its_end_is_refused_before_it_is_read(path):
    """Reading behind the end of a mapped file would kill the process with SIGBUS."""
    write(path, {str(number): image(2000, number) for number in range(20)})
    data = path / "data.mdb"
    with data.open("r+b") as stream:
        stream.truncate(data.stat().st_size // 2)
    for opening in (FeatureStore, lambda path: StoreWriter(path, INFO)):
        with pytest.raises(DataError, match=r"damaged one \(the end of its file is missing\); delete it"):
            opening(path)


def test_damaged_metadata_and_other_formats_are_refused(path):
    write(path, {"7": image(3)})
    whole = INFO.model_dump(mode="json")
    damaged, older = (json.dumps({**whole, **change}).encode() for change in ({"feature_size": 0}, {"format": 2}))
    for value, message in (
        *((value, "store is damaged: its metadata cannot be read; delete it") for value in (b"", b"\xff\xfe", damaged)),
        (older, r"is of another version of showtell \(format 2\); delete it and extract"),
    ):
        change(path, METADATA, value)
        for opening in (FeatureStore, lambda path: StoreWriter(path, INFO)):
            with pytest.raises(DataError, match=message):
                opening(path)


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
    for changes, message in (
        ({"encoder": {"name": "ear"}}, r"of eye \(fingerprint 0123456789ab\), not of ear: name 'eye' instead of 'ear'"),
        ({"fingerprint": "ba9876543210"}, r"weights are not \(fingerprint ba9876543210; random ones are the same with"),
        ({"dtype": "fp32"}, "store are fp16, not fp32: use fp16"),
    ):
        with pytest.raises(DataError, match=message):
            StoreWriter(path, INFO.model_copy(update=changes))
    with StoreWriter(path, INFO) as writer:  # none left the store locked
        assert "7" in writer


def test_features_that_do_not_fit_are_refused_and_nothing_is_written(path):
    with StoreWriter(path, INFO) as writer:
        for bad, message in (
            (np.full((1, 3), 1e5, "f4"), "image bad hold values beyond 65,504, the most that fp16 can hold: use fp32"),
            (np.full((1, 3), np.nan, "f4"), "image bad hold values that are no numbers"),
            (np.zeros((0, 3), "f4"), r"image bad have the shape \(0, 3\); this store has \(R, 3\), with one vector or"),
            (np.zeros((1, 4), "f4"), r"image bad have the shape \(1, 4\); this store has \(R, 3\)"),
        ):
            with pytest.raises(DataError, match=message):
                writer.write({"good": image(2), "bad": ImageFeatures(bad)})
        for name in ("", "a\0b", "x" * 512, "\ud800"):
            with pytest.raises(DataError, match="cannot be stored: an id has 1 to 511 bytes and no null byte"):
                writer.write({name: image(2)})
    assert FeatureStore(path).ids() == []


def test_a_full_disk_keeps_what_was_written(path):
    """A limit on the size of files stands for the disk; the transaction that meets it is gone, those before it stay."""
    info = INFO.model_copy(update={"feature_size": 1024})
    with (
        room_for(2**21),
        StoreWriter(path, info) as writer,
        pytest.raises(DataError, match=r"Cannot write .*store: .*; what was written before is kept: run the same"),
    ):
        for number in range(9):
            writer.write({str(number): ImageFeatures(np.ones((256, 1024)))})
    store = FeatureStore(path)
    assert store.ids() == ["0", "1", "2"]  # of half a megabyte each
    assert all(np.array_equal(store[name].vectors, np.ones((256, 1024))) for name in store.ids())


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


def store_of(folder: Path, *ids: str) -> FeatureStore:
    info = StoreInfo.of(Precomputed(PrecomputedConfig(feature_size=2, source="a test")), "fp32")
    return FeatureStore(write(folder / "store", {one: ImageFeatures(np.ones((3, 2), "f4")) for one in ids}, info))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of three files with the names of photos."""
    photos = tmp_path / "photos"
    photos.mkdir()
    for name in ("COCO_val2014_000000000009.jpg", "COCO_val2014_000000000010.jpg", "COCO_val2014_000000000042.jpg"):
        (photos / name).touch()
    return photos


def test_without_arguments_all_images_are_meant(tmp_path: Path) -> None:
    chosen = choose_images(store_of(tmp_path, "9", "10", "42"), [])
    assert [(image.image_id, image.path) for image in chosen.images] == [("9", None), ("10", None), ("42", None)]
    assert chosen.missing == () and chosen.note is None


def test_photos_are_matched_by_one_kind_of_name(tmp_path: Path, folder: Path) -> None:
    for name, kind in (
        ("{}", "number at the end of the file name"),
        ("COCO_val2014_{:012}", "file name without suffix"),
        ("val2014/COCO_val2014_{:012}.jpg", "file name"),
    ):
        ids = [name.format(one) for one in (9, 10, 42)]
        store = store_of(tmp_path / kind, *ids)
        chosen = choose_images(store, [str(folder)])
        assert [image.image_id for image in chosen.images] == ids
        assert [image.path for image in chosen.images] == sorted(folder.iterdir())
        assert chosen.note == f"3 photos are matched to images of {store.path} by {kind}."


def test_ids_and_photos_go_together_and_each_image_is_meant_once(tmp_path: Path, folder: Path) -> None:
    store = store_of(tmp_path, "9", "10", "42")
    photo = folder / "COCO_val2014_000000000010.jpg"
    chosen = choose_images(store, ["42", "10", "42", str(photo)])
    assert [(image.image_id, image.path) for image in chosen.images] == [("42", None), ("10", photo)]
    piped = choose_images(store, ["-"], io.BytesIO(f"{photo}\nelsewhere/000009.jpg".encode()))
    assert [(image.image_id, str(image)) for image in piped.images] == [("10", str(photo)), ("9", "9")]


def test_what_the_store_lacks_is_told(tmp_path: Path, folder: Path) -> None:
    store = store_of(tmp_path, "9", "42")
    chosen = choose_images(store, ["9", "77", str(folder)])
    assert [image.image_id for image in chosen.images] == ["9", "42"]
    assert chosen.missing == (
        f"{store.path} has no features of 77",
        f"{store.path} has no features of {folder / 'COCO_val2014_000000000010.jpg'}",
    )
    (tmp_path / "9.jpg").touch()
    for arguments, message in (
        (["77", "dog.jpg"], r"has features of 42, 9, and none of 77, dog\.jpg: name images by their ids, or"),
        ([folder, tmp_path / "9.jpg"], r"By number at the end of the file name, .* are both image 9 of .*store; name"),
    ):
        with pytest.raises(DataError, match=message):
            choose_images(store, list(map(str, arguments)))

"""What other tools extracted, in files written here as those tools write them."""

from __future__ import annotations

import base64
from pathlib import Path

import h5py
import numpy as np
import pytest

from showtell.errors import DataError
from showtell.features.foreign import convert, read_foreign
from showtell.features.store import FeatureStore

CHANCE = np.random.default_rng(0)
VECTORS = {"9": CHANCE.random((3, 5), dtype="f4"), "10": CHANCE.random((2, 5), dtype="f4")}
BOXES = {name: CHANCE.random((len(vectors), 4), dtype="f4") * 99 for name, vectors in VECTORS.items()}


def encoded(array: np.ndarray) -> str:
    return base64.b64encode(array.tobytes()).decode()


def bottom_up(path: Path, names: tuple[str, ...] = ("9", "10")) -> Path:
    rows = [[n, "640", "480", str(len(VECTORS[n])), encoded(BOXES[n]), encoded(VECTORS[n])] for n in names]
    path.write_text("".join("\t".join(row) + "\r\n" for row in rows))  # as Python's csv writes it
    return path


def lxmert(path: Path) -> Path:
    rows = []
    for name, vectors in VECTORS.items():
        ids, sure = np.arange(len(vectors), dtype="i8"), np.full(len(vectors), 0.5, "f4")
        columns = [encoded(ids), encoded(sure), encoded(ids), encoded(sure), str(len(vectors))]
        rows.append("\t".join([name, "480", "640", *columns, encoded(BOXES[name]), encoded(vectors)]))
    path.write_text("\n".join(rows))
    return path


def bottom_up_in_parts(path: Path) -> Path:
    path.mkdir()
    bottom_up(path / "karpathy_val_resnet101_faster_rcnn_genome.tsv", ("9",))
    bottom_up(path / "karpathy_train_resnet101_faster_rcnn_genome.tsv.0", ("10", "9"))  # 9 twice
    return path


def att_folder(path: Path) -> Path:
    folder, boxes = path.with_name(f"{path.name}_att"), path.with_name(f"{path.name}_box")
    folder.mkdir()
    boxes.mkdir()
    for name, vectors in VECTORS.items():
        np.savez_compressed(folder / f"{name}.npz", feat=vectors)
        np.save(boxes / f"{name}.npy", BOXES[name])
    return folder


def detectron_folder(path: Path) -> Path:
    path.mkdir()
    for name, vectors in VECTORS.items():
        sizes = {"image_w": 640, "image_h": 480, "num_bbox": len(vectors)}
        np.savez_compressed(path / name, x=vectors, bbox=BOXES[name], info={"objects_id": [1]}, **sizes)
    return path


def meshed_memory(path: Path) -> Path:
    with h5py.File(path.with_suffix(".hdf5"), "w") as file:
        for name, vectors in VECTORS.items():
            file[f"{name}_features"], file[f"{name}_boxes"] = vectors, BOXES[name]
            file[f"{name}_cls_prob"] = np.ones((len(vectors), 7), "f4")
    return path.with_suffix(".hdf5")


def groups(path: Path) -> Path:
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        for name, vectors in VECTORS.items():
            group = file.create_group(name)
            group["features"], group["boxes"] = vectors, BOXES[name]
    return path.with_suffix(".h5")


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (bottom_up, (640, 480)),
        (lxmert, (640, 480)),
        (bottom_up_in_parts, (640, 480)),
        (att_folder, (0, 0)),
        (detectron_folder, (640, 480)),
        (meshed_memory, (0, 0)),
        (groups, (0, 0)),
    ],
)
def test_every_layout_becomes_the_same_store(make, size, tmp_path):
    path = make(tmp_path / "foreign")
    assert convert(path, tmp_path / "store", source="x", dtype="fp32") == 2
    store = FeatureStore(tmp_path / "store")
    assert store.info.encoder == {"name": "precomputed", "feature_size": 5, "source": "x"}
    assert sorted(store.ids()) == ["10", "9"]
    for name, vectors in VECTORS.items():
        entry = store[name]
        assert np.array_equal(entry.vectors, vectors)
        assert np.array_equal(entry.boxes, BOXES[name])
        assert entry.size == size
    del store, entry
    assert convert(path, tmp_path / "store", source="x", dtype="fp32") == 0  # goes on: nothing twice
    with pytest.raises(DataError, match=r"of precomputed .*, not of precomputed .*: source 'x' instead of 'y'"):
        convert(path, tmp_path / "store", source="y", dtype="fp32")


def test_lxmert_brings_classes_and_how_sure_the_detector_was(tmp_path):
    entries = dict(read_foreign(lxmert(tmp_path / "x.tsv")))
    assert entries["9"].labels.tolist() == [0, 1, 2]
    assert entries["9"].scores.tolist() == [0.5] * 3


@pytest.mark.parametrize(
    ("vectors", "rows"), [(np.arange(6.0), 1), (np.arange(24.0).reshape(2, 2, 6), 4), (np.ones((3, 6), "f2"), 3)]
)
def test_pooled_vectors_maps_and_regions(vectors, rows, tmp_path):
    np.save(tmp_path / "7.npy", vectors)
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["7"] = vectors
    for path in (tmp_path, tmp_path / "x.h5"):
        ((name, entry),) = read_foreign(path)
        assert (name, entry.boxes) == ("7", None)
        assert np.array_equal(entry.vectors, vectors.reshape(rows, 6))


def test_what_is_damaged_is_named(tmp_path):
    good = bottom_up(tmp_path / "good.tsv").read_text()
    for text, message in (
        (good.replace("640", "wide"), r"line 1 is damaged or no row of features: invalid literal"),
        (good.replace("\t3\t", "\t4\t"), r"line 1 is damaged or no row of features: cannot reshape"),
        (good[:-30] + "\n", r"line 2 is damaged or no row of features"),
        (good.replace("\t3\t", "\t3 "), r"line 1 has 5 columns; bottom-up-attention writes 6 and LXMERT 10"),
        ("", r"holds no features"),
    ):
        (tmp_path / "bad.tsv").write_text(text)
        with pytest.raises(DataError, match=message):
            convert(tmp_path / "bad.tsv", tmp_path / "store", source="x")
    folder = tmp_path / "arrays"
    folder.mkdir()
    for name, save, message in (
        ("a.npz", lambda file: file.write_bytes(b"PK\3\4nonsense"), "a.npz cannot be read as an array of numbers"),
        (
            "a.npz",
            lambda file: np.savez(file, other=np.ones(3)),
            "a.npz has no vectors: none of features, feat, x, att",
        ),
        ("a.npy", lambda file: file.write_bytes(b"nonsense"), "a.npy cannot be read as an array of numbers"),
        ("a.npy", lambda file: np.save(file, np.array([{}])), "a.npy .* is damaged or holds Python objects"),
        (
            "a.npy",
            lambda file: np.save(file, np.ones((2, 2), "i4")),
            r"array of int32 and shape \(2, 2\); features are",
        ),
        (
            "a.npz",
            lambda file: np.savez(file, x=np.ones((3, 2)), bbox=np.ones((2, 4))),
            r"boxes of shape \(2, 4\) for 3",
        ),
    ):
        save(folder / name)
        with pytest.raises(DataError, match=message):
            list(read_foreign(folder))
        (folder / name).unlink()
    (tmp_path / "x.h5").write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"x\.h5 cannot be read as HDF5"):
        list(read_foreign(tmp_path / "x.h5"))
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file["image_features"] = np.ones((3, 36, 8))
    with pytest.raises(DataError, match="numbers its images by a pickle beside it, which is not opened here"):
        list(read_foreign(tmp_path / "x.h5"))
    for path in (folder, tmp_path / "lost"):
        with pytest.raises(DataError, match=r"There is no file or folder|holds no features that are understood"):
            read_foreign(path)


def test_a_folder_of_boxes_is_not_taken_for_vectors(tmp_path):
    att_folder(tmp_path / "cocobu")
    with pytest.raises(DataError, match=r"cocobu_box holds boxes, not vectors; name the folder of vectors beside it"):
        list(read_foreign(tmp_path / "cocobu_box"))


# --- hostile files ---


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        list(read_foreign(path))
    return str(caught.value).replace(str(path), "…")


def with_external_storage(file: h5py.File, folder: Path) -> None:
    (folder / "secret").write_bytes(b"0123456789abcdef")
    file.create_dataset("7", (1, 4), "f4", external=[(str(folder / "secret"), 0, 16)])


def with_external_link(file: h5py.File, folder: Path) -> None:
    with h5py.File(folder / "other.hdf5", "w") as other:
        other["7"] = np.ones((1, 4), "f4")
    file["7"] = h5py.ExternalLink(str(folder / "other.hdf5"), "/7")


def with_virtual_dataset(file: h5py.File, folder: Path) -> None:
    with_external_link(file, folder)
    del file["7"]
    layout = h5py.VirtualLayout((1, 4), "f4")
    layout[:] = h5py.VirtualSource(str(folder / "other.hdf5"), "7", (1, 4))
    file.create_virtual_dataset("7", layout)


def with_link(target: str) -> object:
    def make(file: h5py.File, folder: Path) -> None:
        file["7"] = h5py.SoftLink(target)

    return make


NOT_FOLLOWED = "which is not followed; write the numbers themselves into …."


@pytest.mark.parametrize("where", ["file", "group", "beside"])
@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (with_external_storage, f"keeps its numbers in other files, {NOT_FOLLOWED}"),
        (with_external_link, f"is a link, {NOT_FOLLOWED}"),
        (with_virtual_dataset, f"keeps its numbers in other files, {NOT_FOLLOWED}"),
        (with_link("/nowhere"), f"is a link, {NOT_FOLLOWED}"),
        (with_link("/7"), f"is a link, {NOT_FOLLOWED}"),
        (with_link("7"), f"is a link, {NOT_FOLLOWED}"),
        (lambda file, _: file.__setitem__("7", np.dtype("f4")), f"is a group or a type, {NOT_FOLLOWED}"),
        (
            lambda file, _: file.__setitem__("7", h5py.Empty("f4")),
            "holds no array of numbers (float32); features are floats.",
        ),
        (lambda file, _: file.__setitem__("7", "text"), "holds no array of numbers (object); features are floats."),
        (
            lambda file, _: file.__setitem__("7", np.array([b"ab"])),
            "holds no array of numbers (|S2); features are floats.",
        ),
        (
            lambda file, _: file.create_dataset("7", (2**20, 2**20), "f4", chunks=(8, 8)),
            "is an array of 4,096.0 GB, more than the features of an image may have (1 GB).",
        ),
    ],
)
def test_what_an_hdf5_file_may_not_hold_is_named_and_nothing_else_is_read(make, problem, where, tmp_path):
    path = tmp_path / "x.h5"
    with h5py.File(path, "w") as file:
        make(file, tmp_path)
        if where != "file":  # the same thing under the name of vectors in a group, or of boxes beside
            name = "8/features" if where == "group" else "8_boxes"
            file.move("7", name)
        if where == "beside":
            file["8_features"] = np.ones((1, 4), "f4")
    name = {"file": "7", "group": "8/features", "beside": "8_boxes"}[where]
    assert refusal(path) == f"…, {name} {problem}"


def test_an_empty_group_has_no_vectors(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as file:
        file.create_group("7")
    assert refusal(tmp_path / "x.h5") == "…, 7 has no vectors: none of features, feat, x, att is in it."


@pytest.mark.parametrize("seed", range(30))
def test_a_damaged_hdf5_file_is_one_sentence_or_features(seed, tmp_path):
    path = meshed_memory(tmp_path / "x") if seed % 2 else groups(tmp_path / "x")
    content = bytearray(path.read_bytes())
    chance = np.random.default_rng(seed)
    for index in chance.integers(0, len(content), 40):
        content[index] = chance.integers(0, 256)
    path.write_bytes(content)
    try:
        list(read_foreign(path))
    except DataError as error:
        assert len(str(error)) < 600


SIZES = [0, -1, np.inf, -np.inf, np.nan, 2**32, 1e300, "wide", np.array([640, 480]), np.array([])]


@pytest.mark.parametrize("width", SIZES, ids=str)
def test_an_archive_with_a_photo_of_no_size_is_named(width, tmp_path):
    np.savez(tmp_path / "a.npz", x=np.ones((1, 2)), image_w=width, image_h=480)
    assert refusal(tmp_path) == f"…/a.npz has a photo of {np.asarray(width)} x 480 pixels, which is no size."


@pytest.mark.parametrize("width", ["0", "-1", str(2**32), "9" * 100])
def test_a_row_with_a_photo_of_no_size_is_named(width, tmp_path):
    path = bottom_up(tmp_path / "x.tsv")
    path.write_text(path.read_text().replace("\t640\t", f"\t{width}\t", 1))
    assert refusal(path) == f"…, line 1 has a photo of {width[:40]} x 480 pixels, which is no size."


@pytest.mark.parametrize("value", ["text", np.nan, np.inf, 1e30, 1j, True], ids=str)
def test_boxes_that_are_no_numbers_are_named(value, tmp_path):
    boxes = np.full((2, 4), value)
    np.savez(tmp_path / "a.npz", x=np.ones((2, 3)), bbox=boxes)
    assert refusal(tmp_path) == f"…/a.npz has boxes of {boxes.dtype} that are no numbers a store can hold."


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': " + b"(" * 9000 + b")" * 9000 + b"}",
        b"{'descr': " + b"[" * 9000 + b"]" * 9000 + b", 'fortran_order': False, 'shape': (1,)}",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999,)}",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-1,)}",
        b"{'descr': 'nonsense', 'fortran_order': False, 'shape': (1,)}",
        b"{}",
        b"0" * 5000,
    ],
    ids=lambda header: header[:60].decode(),
)
def test_a_header_that_is_none_is_named(header, tmp_path):
    (tmp_path / "a.npy").write_bytes(b"\x93NUMPY\x02\x00" + len(header).to_bytes(4, "little") + header)
    assert refusal(tmp_path).startswith("…/a.npy cannot be read as an array of numbers: ")
    assert len(refusal(tmp_path)) < 400

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


def test_every_layout_becomes_the_same_store(tmp_path):
    sizes = {bottom_up: (640, 480), lxmert: (640, 480), bottom_up_in_parts: (640, 480), att_folder: (0, 0)}
    sizes |= {detectron_folder: (640, 480), meshed_memory: (0, 0), groups: (0, 0)}
    for make, size in sizes.items():
        place = tmp_path / make.__name__
        path = make(place)
        out = tmp_path / f"store of {make.__name__}"
        assert convert(path, out, source="x", dtype="fp32") == 2
        store = FeatureStore(out)
        assert store.info.encoder == {"name": "precomputed", "feature_size": 5, "source": "x"}
        assert sorted(store.ids()) == ["10", "9"]
        for name, vectors in VECTORS.items():
            entry = store[name]
            assert np.array_equal(entry.vectors, vectors)
            assert np.array_equal(entry.boxes, BOXES[name])
            assert entry.size == size
            if make is lxmert:
                assert (entry.labels.tolist(), set(entry.scores)) == ([*range(len(vectors))], {0.5})
        del store, entry
        assert convert(path, out, source="x", dtype="fp32") == 0  # goes on: nothing twice
    with pytest.raises(DataError, match=r"of precomputed .*, not of precomputed: source 'x' instead of 'y'"):
        convert(path, out, source="y", dtype="fp32")


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
    folder, three = tmp_path / "arrays", np.ones((3, 2))
    folder.mkdir()
    for name, save, message in (
        ("a.npz", lambda file: file.write_bytes(b"PK\3\4nonsense"), "a.npz cannot be read as an array of numbers"),
        ("a.npz", lambda file: np.savez(file, other=three), "a.npz has no vectors: none of features, feat, x, att"),
        ("a.npy", lambda file: file.write_bytes(b"nonsense"), "a.npy cannot be read as an array of numbers"),
        ("a.npy", lambda file: np.save(file, np.array([{}])), "a.npy .* is damaged or holds Python objects"),
        ("a.npy", lambda file: np.save(file, np.ones((2, 2), "i4")), r"array of int32 and shape \(2, 2\); features"),
        ("a.npz", lambda file: np.savez(file, x=three, bbox=np.ones((2, 4))), r"boxes of float64 and shape \(2, 4\)"),
        ("a.npz", lambda file: np.savez(file, x=three, bbox=np.full((3, 4), np.nan)), "should be finite numbers of"),
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
    (tmp_path / "x_box").mkdir()
    for path, message in ((folder, "holds no features that"), (tmp_path / "x_box", "x_box holds boxes, not vectors")):
        with pytest.raises(DataError, match=message):
            read_foreign(path)

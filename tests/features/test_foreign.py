"""What other tools extracted, in files written here as those tools write them."""

import base64
from pathlib import Path

import numpy as np
import pytest

from showtell.errors import DataError
from showtell.features.precomputed import convert, read_foreign
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


def coco_folder(path: Path) -> Path:
    path.mkdir()
    for name, photo in (("9", "COCO_val2014_000000000009"), ("10", "000000000010")):
        np.savez(path / photo, x=VECTORS[name], bbox=BOXES[name], image_w=640, image_h=480)
    return path


def test_every_layout_becomes_the_same_store(tmp_path):
    for make in (bottom_up, bottom_up_in_parts, att_folder, detectron_folder, coco_folder):
        path, out = make(tmp_path / make.__name__), tmp_path / f"store of {make.__name__}"
        assert convert(path, out, source="x", dtype="fp32") == 2
        store = FeatureStore(out)
        assert store.info.encoder == {"name": "precomputed", "feature_size": 5, "source": "x"}
        assert sorted(store.ids()) == ["10", "9"]
        for name, vectors in VECTORS.items():
            entry = store[name]
            assert np.array_equal(entry.vectors, vectors) and np.array_equal(entry.boxes, BOXES[name])
            assert entry.size == ((0, 0) if make is att_folder else (640, 480))
        del store, entry
        assert convert(path, out, source="x", dtype="fp32") == 0  # resumes: nothing twice
    with pytest.raises(DataError, match=r"of precomputed .*, not of precomputed: source 'x' instead of 'y'"):
        convert(path, out, source="y", dtype="fp32")


@pytest.mark.parametrize(
    ("vectors", "rows"), [(np.arange(6.0), 1), (np.arange(24.0).reshape(2, 2, 6), 4), (np.ones((3, 6), "f2"), 3)]
)
def test_pooled_vectors_maps_and_regions(vectors, rows, tmp_path):
    np.save(tmp_path / "7.npy", vectors)
    ((name, entry),) = read_foreign(tmp_path)
    assert (name, entry.boxes) == ("7", None)
    assert np.array_equal(entry.vectors, vectors.reshape(rows, 6))


def test_what_is_damaged_is_named(tmp_path):
    good, three = bottom_up(tmp_path / "good.tsv").read_text(), np.ones((3, 2))
    for text, message in (
        (good.replace("640", "wide"), r"line 1 is damaged or no row of features: invalid literal"),
        (good.replace("\t3\t", "\t4\t"), r"line 1 is damaged or no row of features: cannot reshape"),
        (good[:-30] + "\n", r"line 2 is damaged or no row of features"),
        (good.replace("\t3\t", "\t3 "), r"line 1 has 5 columns; bottom-up-attention writes 6, separated by tabs: imag"),
        ("", r"holds no features"),
    ):
        (tmp_path / "bad.tsv").write_text(text)
        with pytest.raises(DataError, match=message):
            convert(tmp_path / "bad.tsv", tmp_path / "store", source="x")
    (tmp_path / "arrays").mkdir()
    for name, save, message in (
        ("a.npz", lambda file: file.write_bytes(b"PK\3\4nonsense"), "a.npz cannot be read as an array of numbers"),
        ("a.npz", lambda file: np.savez(file, other=three), "a.npz has no vectors: none of features, feat, x, att"),
        ("a.npy", lambda file: file.write_bytes(b"nonsense"), "a.npy cannot be read as an array of numbers"),
        ("a.npy", lambda file: np.save(file, np.array([{}])), "a.npy .* is damaged or holds Python objects"),
        ("a.npy", lambda file: np.save(file, np.ones((2, 2), "i4")), r"array of int32 and shape \(2, 2\); features"),
        ("a.npz", lambda file: np.savez(file, x=three, bbox=np.ones((2, 4))), r"boxes of float64 and shape \(2, 4\)"),
        ("a.npz", lambda file: np.savez(file, x=three, bbox=np.full((3, 4), np.nan)), "should be finite numbers of"),
    ):
        save(tmp_path / "arrays" / name)
        with pytest.raises(DataError, match=message):
            list(read_foreign(tmp_path / "arrays"))
        (tmp_path / "arrays" / name).unlink()
    (tmp_path / "x_box").mkdir()
    (tmp_path / "x.h5").touch()
    for name, message in (("arrays", "holds no f"), ("x.h5", "holds no f"), ("x_box", "x_box holds boxes, not vec")):
        with pytest.raises(DataError, match=message):
            read_foreign(tmp_path / name)

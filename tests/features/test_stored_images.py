"""Which images of a store the arguments of a command mean."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest

from showtell.errors import DataError
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.store import FeatureStore, ImageFeatures, StoreInfo, StoreWriter
from showtell.features.stored_images import choose_images


def store_of(folder: Path, *ids: str) -> FeatureStore:
    info = StoreInfo.of(Precomputed(PrecomputedConfig(feature_size=2, source="a test")), "fp32")
    with StoreWriter(folder / "store", info) as writer:
        writer.write({one: ImageFeatures(np.ones((3, 2), "f4")) for one in ids})
    return FeatureStore(folder / "store")


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

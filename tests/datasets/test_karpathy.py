import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from showtell.datasets import Box, coco, read_dataset
from tests.datasets.makers import captioned, in_folders, listed, sentences, write_coco, write_table


def image(name: str, split: object = "train", *captions: object, **more: object) -> dict[str, Any]:
    """An entry as Karpathy's files have it."""
    sentences = [{"raw": text, "tokens": str(text).lower().split()} for text in captions or ("A dog runs.",)]
    return {"filename": name, "split": split, "sentences": sentences, **more}


def write(folder: Path, *images: object, name: str = "dataset_mine.json", photos: str = "", **more: object) -> Path:
    return write_table(folder, json.dumps({"images": images, **more}), photos, name)


def test_layouts(tmp_path: Path) -> None:
    photos = ["val2014/a.jpg", "images/val2014/a.jpg", "a.jpg", "images/a.jpg", "Flicker8k_Dataset/a.jpg"]
    cases = itertools.product(["dataset_coco.json", "annotations/mine.json"], photos)
    for folder, (file, photo) in in_folders(tmp_path, cases):
        write(folder, image("a.jpg", filepath="val2014"), name=file, photos=photo)
        for path in (folder, folder / file):
            (record,) = read_dataset(path).records
            assert (record.image_id, record.path) == ("val2014/a.jpg", folder / photo)
            assert record.captions == ("A dog runs.",)
            assert sentences(path) == ([], [])


def test_captions_are_raw_texts_else_words(tmp_path: Path) -> None:
    only_words = {"filename": "b.jpg", "split": "val", "sentences": [{"tokens": ["a", "cat"]}]}
    write(tmp_path, image("a.jpg", "train", "A dog.", " ", "Two\tdogs"), only_words, photos="a.jpg b.jpg")
    assert [record.captions for record in read_dataset(tmp_path).records] == [("A dog.", "Two\tdogs"), ("a cat",)]
    assert sentences(tmp_path) == ([], ["1 image has empty captions in dataset_mine.json, left out: a.jpg."])


def test_beside_coco_captions_they_count_once_its_splits_hold_and_boxes_stay(tmp_path: Path) -> None:
    write_coco(tmp_path / "annotations/captions_train.json", listed(1, 2), captioned(1, 1, 2))
    boxes = [{"id": 7, "image_id": 2, "category_id": 3, "bbox": [1, 2, 3, 4]}]
    write_coco(tmp_path / "annotations/instances_train.json", [], boxes, categories=[{"id": 3, "name": "dog"}])
    images = [image("001.png", "restval", "One.", "Two.", cocoid=1), image("002.png", "test", cocoid=2)]
    write(tmp_path, *images, name="annotations/dataset_karpathy.json")
    dataset = read_dataset(tmp_path)
    assert dataset.format == "karpathy" and dataset.problems == dataset.warnings == ()
    assert [(record.split, len(record.captions)) for record in dataset.records] == [("train", 2), ("test", 1)]
    assert [record.boxes for record in dataset.records] == [(), (Box(7, 1, 2, 3, 4, "dog"),)]


@pytest.mark.shared
def test_coco_mini_says_the_same_by_both_readers(shared_data: Path) -> None:
    def content(dataset: Any) -> dict[str, Any]:
        return {r.image_id: (r.path, r.split, sorted(r.captions), sorted(r.boxes, key=str)) for r in dataset.records}

    dataset = read_dataset(shared_data / "coco-mini")
    assert (dataset.format, dataset.name, dataset.problems, dataset.warnings) == ("karpathy", "coco-mini", (), ())
    assert content(dataset) == content(coco.read(shared_data / "coco-mini"))
    assert sum(len(record.captions) for record in dataset.records) == 725


UNUSABLE = '1 entry of "images" in dataset_mine.json cannot be used: 2; each needs a "filename", a "split" and a list "'
MISTAKES = [
    (7, UNUSABLE),
    ({"filename": "b.jpg", "sentences": 3, "split": "val"}, UNUSABLE),
    ({"filename": "b.jpg", "sentences": []}, UNUSABLE),
    (image("b.jpg", " "), "1 image has no split in dataset_mine.json, though others have: b.jpg."),
    (image("b.jpg") | {"sentences": [{"raw": 5}]}, UNUSABLE),
]


def test_mistakes(tmp_path: Path) -> None:
    for folder, (entry, problem) in in_folders(tmp_path, MISTAKES):
        write(folder, image("a.jpg"), entry, photos="a.jpg b.jpg")
        assert sentences(folder)[0][0].startswith(problem)

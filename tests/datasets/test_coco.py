import itertools
import json
import math
from pathlib import Path
from typing import Any

import pytest

from showtell.datasets import Box, Grounding, coco, read_dataset
from tests.datasets.makers import captioned, in_folders, listed, sentences, write_coco, write_files, write_photo

LAYOUTS = [
    ("annotations/captions_train2014.json", "train2014", "COCO_train2014_{:012}.jpg", "train"),
    ("annotations/captions_val2017.json", "val2017", "{:012}.jpg", "val"),
    ("annotations/captions_val2017.json", "images/val2017", "{:012}.jpg", "val"),
    ("annotations/captions_test.json", "test", "{:03}.png", "test"),
    ("annotations/captions_test_compositional.json", "images", "{:03}.png", "test_compositional"),
    ("annotations/captions_train.json", "images", "sub/{:03}.png", "train"),
    ("annotations/captions_train.json", "photos", "{:03}.png", "train"),
    ("annotations/captions_train2014.json", "", "COCO_train2014_{:012}.jpg", "train"),
    ("captions_train.json", "", "{:03}.png", "train"),
    ("captions_validation.json", "images", "{:03}.png", "val"),
    ("val_captions.json", "images", "{:03}.png", "val"),
]


def test_layouts(tmp_path: Path) -> None:
    cases = itertools.product(["the folder", "the file"], LAYOUTS)
    for folder, (named, (captions, photos, name, split)) in in_folders(tmp_path, cases):
        write_coco(folder / captions, listed(7, 8, name=name), captioned(7, 8, 7), photos=None)
        for number in (7, 8):
            write_photo(folder / photos / name.format(number))
        dataset = read_dataset(folder if named == "the folder" else folder / captions)
        assert (dataset.format, dataset.problems, dataset.warnings) == ("coco", (), ())
        assert dataset.splits == {split: 2}
        assert dataset.records[0].image_id == "7"
        assert dataset.records[0].captions == ("Caption 1 of 7.", "Caption 3 of 7.")
        assert dataset.records[1].path == folder / photos / name.format(8)
        assert dataset.records[1].boxes is None and dataset.records[1].groundings is None


def test_splits_come_in_their_usual_order_with_images_of_the_same_name_kept_apart(tmp_path: Path) -> None:
    for number, split in enumerate(("val", "test", "train"), start=1):
        images = [{"id": number, "file_name": "001.png"}]
        write_coco(tmp_path / f"annotations/captions_{split}2017.json", images, captioned(number), photos=None)
        write_photo(tmp_path / f"{split}2017" / "001.png", number)
    dataset = read_dataset(tmp_path)
    assert dataset.problems == ()
    assert list(dataset.splits.items()) == [("train", 1), ("val", 1), ("test", 1)]
    assert [record.path.parent.name for record in dataset.records] == ["train2017", "val2017", "test2017"]


def test_a_file_recognised_by_its_content_alone(tmp_path: Path) -> None:
    write_coco(tmp_path / "annotations" / "mine.json", listed(*range(40)), captioned(*range(40)))
    write_coco(tmp_path / "annotations" / "other.json", [], [{"id": 1}], photos=None)  # no captions in it
    dataset = read_dataset(tmp_path)
    assert dataset.format == "coco" and sum(dataset.splits.values()) == 40
    assert list(dataset.splits) != ["train"] and set(dataset.splits) == {"train", "val", "test"}
    splits = dataset.splits
    assert dataset.warnings == (
        "annotations/mine.json has no splits, so they were drawn by the images' names: "
        f"{splits['train']} train, {splits['val']} val, {splits['test']} test; files called captions_train.json, "
        "captions_val.json and captions_test.json would choose them.",
    )


FILE = "annotations/captions_train.json"
UNUSABLE = f'of "annotations" in {FILE} cannot be used'
CAPTION = 'each needs the "image_id" of a listed image and a text as "caption".'
# Further images and captions beside image 1 with its caption, and the problem that they make.
MISTAKES: list[tuple[list[Any], list[Any], str]] = [
    ([], captioned(5, 6, 5, first=2), f"3 entries {UNUSABLE}: 2, 3, 4; {CAPTION}"),
    (["2", {"id": 2}, {"id": 2, "file_name": ""}, {"id": True, "file_name": "a"}, {"id": 1.5, "file_name": "a"}], [],
     f'5 entries of "images" in {FILE} cannot be used: 2, 3, 4, 5, 6; each needs an "id" and a "file_name".'),
    ([], [None, {"id": 2, "caption": "A dog."}, {"id": 3, "image_id": 1, "caption": None}],
     f"3 entries {UNUSABLE}: 2, 3, 4; {CAPTION}"),
    ([{"id": 1, "file_name": "002.png"}], [],
     f"1 id stands for different images in {FILE}: 1; give every image an id of its own."),
]  # fmt: skip


def test_mistakes(tmp_path: Path) -> None:
    for number in range(1, 10):
        write_photo(tmp_path / "images" / f"{number:03}.png")
    for images, annotations, problem in MISTAKES:
        write_coco(tmp_path / FILE, [*listed(1), *images], [*captioned(1), *annotations], photos=None)
        assert sentences(tmp_path)[0] == [problem]


LISTS = "is not a COCO file: it should be an object with the lists images and annotations, and has no"
NO_CAPTIONS = [
    ("[]", f"…/{FILE} {LISTS} images and no annotations."),
    ('{"images": [], "annotations": {}}', f"…/{FILE} {LISTS} annotations."),
    ('{"images": [], "annotations": []}', "… holds no image with captions."),
]


def test_a_captions_file_that_is_none(tmp_path: Path) -> None:
    for folder, (content, expected) in in_folders(tmp_path, NO_CAPTIONS):
        write_files(folder, {FILE: content})
        assert sentences(folder) == ([expected], [])


def test_two_years_of_captions_are_not_mixed(tmp_path: Path) -> None:
    for number, name in enumerate(("train2014", "val2014", "train2017"), start=1):
        write_coco(tmp_path / f"annotations/captions_{name}.json", listed(number), captioned(number))
    assert sentences(tmp_path)[0] == [
        "… holds the captions of several years, which share photos across splits; name one of the files "
        "(annotations/captions_train2014.json, annotations/captions_train2017.json, annotations/captions_val2014.json),"
        " or move the others out."
    ]
    assert read_dataset(tmp_path / "annotations/captions_train2017.json").splits == {"train": 1}


CATEGORIES = [{"id": 1, "name": "dog"}, {"id": 18, "name": "cat"}]


def instance(number: int, image: int, category: int = 18, **more: Any) -> dict[str, Any]:
    return {"id": number, "image_id": image, "category_id": category, "bbox": [1, 2.5, 3, 4], **more}


def with_instances(tmp_path: Path, *annotations: Any) -> Path:
    write_coco(tmp_path / FILE, listed(1, 2), captioned(1, 2))
    instances = tmp_path / "annotations/instances_train.json"
    write_coco(instances, [], annotations, photos=None, categories=CATEGORIES)
    return instances


def test_boxes_with_the_names_of_their_categories(tmp_path: Path) -> None:
    outlines = {"segmentation": [[1.5, 2, 3e1, -4], [5]], "area": 3}
    counts = {"segmentation": {"counts": [1, 2], "size": [3, 4]}, "iscrowd": 1}
    with_instances(tmp_path, instance(7, 1, **outlines), instance(8, 1, category=1, **counts))
    one, two = read_dataset(tmp_path).records
    assert one.boxes == (Box(7, 1.0, 2.5, 3.0, 4.0, "cat"), Box(8, 1.0, 2.5, 3.0, 4.0, "dog"))
    assert two.boxes == ()
    assert read_dataset(tmp_path / FILE).records == (one, two)


A_WRONG_BOX_IS_LEFT_OUT = [
    *(None, instance(9, 1, category=2), instance(9, 1, category=[1])),
    *(instance(9, 1, bbox=bbox) for bbox in (None, [1, 2, 3])),
    *(instance(9, 1, bbox=[edge, 2, 3, 4]) for edge in ("left", math.nan, math.inf, [1])),
    *({"category_id": 1, "bbox": [1, 2, 3, 4], **ids} for ids in ({"id": 9}, {"image_id": 1})),
]


def test_a_wrong_box_is_left_out(tmp_path: Path) -> None:
    for folder, wrong in in_folders(tmp_path, A_WRONG_BOX_IS_LEFT_OUT):
        with_instances(folder, instance(7, 1), wrong)
        problems, warnings = sentences(folder)
        assert problems == [] and warnings == [
            '1 entry of "annotations" in annotations/instances_train.json left out: 2; each needs an "id", an '
            '"image_id", a "bbox" of four numbers and a listed category.'
        ]
        assert len(read_dataset(folder).records[0].boxes or ()) == 1


def grounded(tmp_path: Path, *groundings: Any) -> Path:
    """Image 1 with a caption of three words and a box 7; then a caption that has no groundings."""
    with_instances(tmp_path, instance(7, 1))
    caption = {"id": 1, "image_id": 1, "caption": "A  black cat.", "grounding": list(groundings)}
    write_coco(tmp_path / FILE, listed(1, 2), [caption, *captioned(1, 2)])
    return tmp_path


def test_groundings_stand_beside_their_captions(tmp_path: Path) -> None:
    dataset = read_dataset(grounded(tmp_path, {"first": 0, "end": 3, "boxes": [7]}))
    assert dataset.warnings == ()
    assert dataset.records[0].groundings == ((Grounding(0, 3, (7,)),), ())
    assert dataset.records[1].groundings == ((),)


A_WRONG_GROUNDING_IS_LEFT_OUT = [
    *({"first": first, "end": end, "boxes": [7]} for first, end in ((0, 4), (1, 1), (-1, 1), ("0", 1))),
    *({"first": 0, "end": 1, **boxes} for boxes in ({"boxes": [8]}, {}, {"boxes": 7})),
    "cat",
]


def test_a_wrong_grounding_is_left_out(tmp_path: Path) -> None:
    for folder, wrong in in_folders(tmp_path, A_WRONG_GROUNDING_IS_LEFT_OUT):
        grounded(folder, wrong)
        expected = f'1 caption in {FILE} with a "grounding" that does not fit, left out, of image: 1.'
        assert sentences(folder) == ([], [expected])
        assert read_dataset(folder).records[0].groundings == ((), ())


@pytest.mark.shared
def test_coco_mini_is_read_whole(shared_data: Path) -> None:
    """Counted with json alone: what the reader says must be what the files hold."""
    dataset = coco.read(shared_data / "coco-mini")
    assert (dataset.format, dataset.problems, dataset.warnings) == ("coco", (), ())
    assert dataset.splits == {"train": 101, "val": 22, "test": 22}
    for split in ("train", "val", "test"):
        folder = shared_data / "coco-mini" / "annotations"
        captions = json.loads((folder / f"captions_{split}.json").read_text())
        boxes = json.loads((folder / f"instances_{split}.json").read_text())
        names = {category["id"]: category["name"] for category in boxes["categories"]}
        records = {record.image_id: record for record in dataset[split]}
        assert {image["file_name"] for image in captions["images"]} == {r.path.name for r in records.values()}
        written = sorted((str(a["image_id"]), a["caption"]) for a in captions["annotations"])
        assert written == sorted((r.image_id, caption) for r in records.values() for caption in r.captions)
        assert sorted(
            (str(a["image_id"]), a["id"], *a["bbox"], names[a["category_id"]]) for a in boxes["annotations"]
        ) == sorted(
            (r.image_id, b.id, b.x, b.y, b.width, b.height, b.category) for r in records.values() for b in r.boxes or ()
        )
    assert sum(len(record.captions) for record in dataset.records) == 725

import itertools
import json
import os
import re
import shutil
import string
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.datasets import READERS, open_dataset, read_dataset, table
from showtell.datasets.check import check_dataset
from showtell.datasets.image_files import ImageFiles
from showtell.errors import DataError, one_line
from showtell.scores import image_facts
from tests.datasets.makers import captioned, in_folders, listed, sentences, write_coco, write_files, write_photo

EXAMPLE_FILES = [
    *(("karpathy", "dataset_mine.json"), ("coco", "annotations/captions_train.json"), ("table", "captions.csv")),
    *(("flickr", "Flickr8k.token.txt"), ("jsonl", "captions.jsonl"), ("text_files", "dog.txt")),
]


def refusal(path: Path, read: Callable[[Path], Any] = read_dataset) -> str:
    with pytest.raises(DataError) as caught:
        read(path)
    return str(caught.value).replace(str(path), "…")


FORMATS = f" The formats are {', '.join(READERS)}: docs/datasets.md."
TABLE = table.EXAMPLE
NO_CAPTIONS = f"but without captions: write {TABLE}, or each beside its photo, in dog.txt.{FORMATS}"
COLUMNS_ARE = "image, label, which lacks one for images or one for captions; call one column image and one caption."
COCO_OR_KARPATHY = (
    'COCO captions need lists "images" (id, file_name) and "annotations" (image_id, caption), Karpathy\'s a list '
    '"images" (filename, split, sentences).'
)
# Files, photos, what of them is read, and what the refusal says that it is: the nearest form, and what is missing.
REFUSED: list[tuple[dict[str, str], str, str, str]] = [
    ({}, "", ".", f"a folder with 0 images and nothing else, but neither photos nor captions.{FORMATS}"),
    ({"notes.txt": "", "more/x": ""}, "1.png 2.png", ".", f"2 images and more/, notes.txt, {NO_CAPTIONS}"),
    ({}, "images/1.png", ".", f"a folder with 1 image and images/, {NO_CAPTIONS}"),
    ({"a.csv": "image;label\na.jpg;dog\n"}, "", "a.csv", f"a table with the columns {COLUMNS_ARE}"),
    ({"a.csv": "image;label\na.jpg;dog\n"}, "", ".", f"a folder with a.csv, a table with the columns {COLUMNS_ARE}"),
    ({"a.json": '{"images": [], "a": 2}'}, "", "a.json", f"JSON with the keys images, a; {COCO_OR_KARPATHY}"),
    ({"a.json": '{"dog.jpg": ["A dog."]}'}, "", "a.json", "JSON with the keys dog.jpg; write captions.jsonl with"),
    ({"a.json": '[{"caption": ""}]'}, "", "a.json", "a list of objects with the keys caption; write captions.jsonl"),
    ({"00000.tar": "", "00000_stats.json": "{}"}, "", ".", "00000.tar, 00000_stats.json: unpack each tar"),
    ({"a.json": '{"1.jpg": ["A."]}'}, "1.jpg", ".", "a.json, JSON with the keys 1.jpg; write captions"),
    ({"data/train.parquet": ""}, "", ".", "0 images and data/: write photos and captions.jsonl from it"),
    ({"train.parquet": ""}, "", "train.parquet", "packed: write photos and captions.jsonl from it"),
    ({"a.txt": "A dog."}, "", "a.txt", f"a file of another kind; write {TABLE}"),
]  # fmt: skip


def test_a_refusal_names_the_nearest_form_and_what_is_missing(tmp_path: Path) -> None:
    for folder, (files, photos, read, expected) in in_folders(tmp_path, REFUSED):
        write_files(folder, files, photos)
        message = refusal(folder / read)
        assert message.startswith("… is not a dataset: it is ") and expected in message
        assert len(message) <= 400 and message == one_line(message)


KEYS = '{"' + '": 0, "'.join(letter * 300 for letter in string.ascii_letters) + '": 0}'


@given(
    st.dictionaries(
        st.text(string.ascii_letters + ".-_ ", min_size=1, max_size=80), st.sampled_from(["", "[]", "{}", "a,b", KEYS])
    )
)
def test_a_refusal_is_never_longer_than_can_be_read(files: dict[str, str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for name, content in files.items():
            if name.strip(". ") and not Path(folder, name.lower()).exists() and not name.lower().endswith(".xmp"):
                Path(folder, name.lower()).write_text(content)
        assert len(refusal(Path(folder))) <= 400


LATIN = {
    "captions.csv": ("CSV", "photo,caption\n001.png,Un gar\u00e7on\n"),
    "captions.jsonl": ("JSON lines", '{"image": "001.png", "caption": "A."}\n{"image": "b", "caption": "\u00e7"}'),
    "Flickr8k.token.txt": ("text", "001.png#0\tA boy .\n001.png#1\tUn gar\u00e7on .\n"),
}


def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    for folder, (name, (form, text)) in in_folders(tmp_path, LATIN.items()):
        write_photo(folder / "001.png")
        for encoding, ending in (
            ("latin-1", f"is not in UTF-8: line 2 cannot be read; save it as {form} in UTF-8."),
            ("utf-16", f"is in UTF-16; save it as {form} in UTF-8."),
        ):
            (folder / name).write_bytes(text.encode(encoding))
            try:
                problem = sentences(folder / name)[0][0]
            except DataError as error:
                problem = str(error)
            assert problem.endswith(ending), (name, encoding)


def test_examples_are_datasets(tmp_path: Path) -> None:
    """Whoever imitates the example of a message gets a dataset without problems."""
    for folder, (name, file) in in_folders(tmp_path, EXAMPLE_FILES):
        example = READERS[name].EXAMPLE.partition(" beside ")[0]
        if name == "text_files":
            text = READERS[name].EXAMPLE.rpartition(" line ")[2]
        elif name == "table":
            text = example.partition("the lines ")[2].replace(" and ", "\n")
        else:
            text = re.split(" with the line | with ", example)[1]
        photo = "images/dog.jpg" if name in ("karpathy", "coco", "flickr") else "dog.jpg"
        write_files(folder, {file: text.replace("<TAB>", "\t") + "\n"}, photo)
        dataset = read_dataset(folder)
        assert (dataset.format, dataset.problems) == (name, ())
        assert [(record.path, record.captions) for record in dataset.records] == [(folder / photo, ("A dog runs.",))]


def test_missing_files_and_the_place_where_they_should_be(tmp_path: Path) -> None:
    write_coco(tmp_path / "annotations/captions_train.json", listed(*range(1, 9)), captioned(*range(1, 9)))
    for number in range(1, 8):
        (tmp_path / f"images/{number:03}.png").unlink()
    assert sentences(tmp_path)[0] == [
        "7 image files are missing: images/001.png, images/002.png, images/003.png, images/004.png, "
        "images/005.png and 2 more; put the files there or take their captions out."
    ]


APART = "what is scored must not have been trained on, so keep each in one split."


def test_the_same_image_in_two_splits(tmp_path: Path) -> None:
    write_coco(tmp_path / "annotations/captions_train.json", listed(1, 2, 3), captioned(1, 2, 3))
    write_coco(tmp_path / "annotations/captions_val.json", listed(4), captioned(4))
    write_coco(tmp_path / "annotations/captions_test.json", listed(2, 3, 4), captioned(2, 3, 4))
    assert sentences(tmp_path)[0] == [
        f"2 images are in both train and test: 2, 3; {APART}",
        f"1 image is in both val and test: 4; {APART}",
    ]


def test_the_same_file_under_two_ids(tmp_path: Path) -> None:
    same = [{"id": number, "file_name": "001.png"} for number in (1, 2, 3)]
    write_coco(tmp_path / "annotations/captions_train.json", same[:2], captioned(1, 2))
    write_coco(tmp_path / "annotations/captions_test.json", same[2:], captioned(3))
    warning = (
        "1 file is listed under more than one id in the same split: images/001.png; their captions would "
        "count as those of different images."
    )
    assert sentences(tmp_path) == ([f"1 image is in both train and test: 3; {APART}"], [warning])


def test_ids_and_images_that_stand_twice(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_coco(tmp_path / f"a/captions_{split}.json", listed(1, name=split + "{}.png"), captioned(1), photos="a")
    own = "give every image of the dataset an id of its own, across all splits."
    assert sentences(tmp_path / "a")[0] == [f"1 id stands for different images: 1; {own}"]
    for name in ("val", "dev"):
        write_coco(tmp_path / f"b/captions_{name}.json", listed(1), captioned(1), photos="b")
    assert sentences(tmp_path / "b")[0] == ["1 image is listed twice in one split: 1; keep one entry of each."]


def test_a_dataset_with_problems_is_refused_with_the_first_three(tmp_path: Path) -> None:
    images = [*listed(1, 2, 3), {"id": 4}]
    write_coco(tmp_path / "annotations/captions_train.json", images, captioned(1, 2, 9), photos=None)
    assert refusal(tmp_path, open_dataset) == (
        '… cannot be used. 1 entry of "images" in annotations/captions_train.json cannot be used: 4; each needs an '
        '"id" and a "file_name". 1 entry of "annotations" in annotations/captions_train.json cannot be used: 3; each '
        'needs the "image_id" of a listed image and a text as "caption". 1 image has no caption: 3; write captions or '
        "take the images out, for nothing can be learned or scored from them. There is 1 more problem: showtell data "
        "check …"
    )


def test_no_image_is_looked_at_when_a_dataset_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 looks take seconds on a disk and minutes over a network; a listing of the folder takes one."""
    for split, numbers in (("train", range(1, 500)), ("val", range(1001, 1500))):
        entries = listed(*numbers)
        write_coco(tmp_path / f"annotations/captions_{split}.json", entries, captioned(*numbers), photos=None)
        (tmp_path / split).mkdir()
        for entry in entries:
            (tmp_path / split / entry["file_name"]).touch()
    looks: list[str] = []
    stat = os.stat

    def counting(path: str, *args: object, **more: object) -> os.stat_result:
        looks.append(str(path))
        return stat(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", counting)
    assert read_dataset(tmp_path).problems == ()
    assert 0 < len(looks) < 40 and not [path for path in looks if path.endswith(".png")]


def test_several_datasets_are_one(tmp_path: Path) -> None:
    """Each has its own splits, one has no validation; ids that both have do not collide; a photo in two is told."""
    for part, splits in (("birds", "train val test"), ("dogs", "train test")):
        for number, split in enumerate(splits.split()):
            write_photo(tmp_path / part / f"{split}.jpg", number + 10 * (part == "dogs"))
        lines = [f"{split}.jpg,a caption of {split},{split}" for split in splits.split()]
        (tmp_path / part / "captions.csv").write_text("\n".join(["image,caption,split", *lines]))
    both = [tmp_path / "birds", tmp_path / "dogs"]
    dataset = open_dataset(both)
    assert dataset == open_dataset(f"[{both[0]}, {both[1]}]") and dataset.splits == {"train": 2, "val": 1, "test": 2}
    assert [record.image_id for record in dataset["train"]] == ["birds/train.jpg", "dogs/train.jpg"]
    assert list(image_facts(dataset)) == [record.image_id for record in dataset.records]
    assert [len(dataset.limited(1)[name]) for name in ("train", "val", "test")] == [1, 1, 1]
    assert check_dataset(dataset).problems == ()
    shutil.copy(both[0] / "train.jpg", both[1] / "test.jpg")
    assert "the same, byte for byte, in train and test" in check_dataset(open_dataset(both)).problems[0]
    (both[1] / "test.jpg").unlink()
    (both[1] / "test.jpg").symlink_to(both[0] / "train.jpg")
    assert "is the same file in train and test: birds/train.jpg = dogs/test.jpg" in read_dataset(both).problems[0]
    (both[1] / "captions.csv").unlink()
    refused = read_dataset([*both, tmp_path / "none", both[0]]).problems
    assert [str(path) in " ".join(refused) for path in (both[1], tmp_path / "none")] == [True, True]
    assert "names no dataset, or one twice" in " ".join(refused) and not any(str(both[0]) == one for one in refused)


def test_parts_of_one_name_are_told_apart(tmp_path: Path) -> None:
    for folder in ("a/photos", "b/photos"):
        write_files(tmp_path / folder, {"captions.csv": "image,caption,split\n1.jpg,a dog,train"}, "1.jpg")
    ids = [one.image_id for one in open_dataset([tmp_path / "a/photos", tmp_path / "b/photos"]).records]
    assert ids == [f"{tmp_path}/{folder}/photos/1.jpg" for folder in "ab"]


NAMING = {
    "karpathy": ("d.json", '{"images": [{"filename": "NAME", "split": "train", "sentences": [{"raw": "A."}]}]}'),
    "coco": ("captions_train.json", json.dumps({"images": listed(1, name="NAME"), "annotations": captioned(1)})),
    "flickr": ("F.token", "NAME#0\tA dog .\n"),
    "table": ("captions.csv", 'image,caption,split\n"NAME",A.,train\n'),
    "jsonl": ("train.jsonl", '{"image": "NAME", "caption": "A."}\n'),
}


def test_no_reader_opens_a_file_that_a_name_leads_to_outside_the_folder(tmp_path: Path) -> None:
    names = ["../secret.jpg", "a/../../secret.jpg", "{absolute}", "..\\secret.jpg", "C:\\secret.jpg"]
    for folder, (reader, name) in in_folders(tmp_path, itertools.product(NAMING, names)):
        write_photo(folder / "secret.jpg")
        name = name.replace("{absolute}", str(folder / "secret.jpg"))
        folder = folder / "data"
        write_photo(folder / "a" / "secret.jpg")  # by its bare name it would be found
        file, form = NAMING[reader]
        (folder / file).write_text(form.replace('"NAME"', json.dumps(name)).replace("NAME", name))
        dataset = read_dataset(folder)
        assert dataset.format == reader and dataset.records == ()
        (problem,) = [problem for problem in dataset.problems if "outside its folder" in problem]
        assert problem.startswith(f"1 image file named in {file} outside its folder: ")
        assert problem.endswith("secret.jpg; put them into the folder and name them from there.")


def test_names_that_stay_inside(tmp_path: Path) -> None:
    for folder, name in in_folders(tmp_path, ["a/../b.jpg", "..b.jpg", "a..jpg", "./b.jpg", "a/b/../../b.jpg"]):
        assert ImageFiles([folder]).find([name]) == Path(folder, name)

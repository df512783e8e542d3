import os
import re
from pathlib import Path

import pytest

from showtell.datasets import READERS, open_dataset, read_dataset
from showtell.errors import DataError
from tests.datasets.makers import captioned, in_folders, listed, sentences, write_coco, write_photo, write_table

KNOWN_FORMATS = f" Known formats are {'; '.join(f'{name}: {reader.EXAMPLE}' for name, reader in READERS.items())}"


EXAMPLE_FILES = [
    *(("karpathy", "dataset_mine.json"), ("coco", "annotations/captions_train.json"), ("table", "captions.csv")),
    *(("flickr", "Flickr8k.token.txt"), ("jsonl", "captions.jsonl"), ("text_files", "dog.txt")),
]


def refusal(path: Path) -> str:
    with pytest.raises(DataError) as caught:
        read_dataset(path)
    return str(caught.value).replace(str(path), "…")


# --- what is no dataset ---


def test_what_is_not_there_and_folders_without_captions(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none") == "There is no file or folder …."
    assert refusal(tmp_path) == "… is not a dataset: it is a folder with 0 images and nothing else." + KNOWN_FORMATS
    for number in range(3):
        write_photo(tmp_path / f"{number}.png")
    (tmp_path / "notes.txt").touch()
    (tmp_path / "more").mkdir()
    expected = "… is not a dataset: it is a folder with 3 images and more/, notes.txt."
    assert refusal(tmp_path) == expected + KNOWN_FORMATS


def test_a_table_of_something_else(tmp_path: Path) -> None:
    file = write_table(tmp_path, "image;label\na.jpg;dog\n")
    expected = (
        "a table with the columns image, label, which lacks one for images or one for captions; "
        "call one column image and one caption."
    )
    assert refusal(file) == f"… is not a dataset: it is {expected}"
    assert refusal(tmp_path) == f"… is not a dataset: it is a folder whose captions.csv is {expected}"


FILES_THAT_ARE_NO_DATASETS = [
    ("a.json", "", "… is empty; it should hold JSON."),
    ("a.json", "{]", "… is not valid JSON: Expecting property name enclosed in double quotes at line 1, column 2."),
    ("a.json", '{"a": 1, "b": 2}', "… is not a dataset: it is JSON with the keys a, b." + KNOWN_FORMATS),
    ("a.json", '[{"caption": ""}]', "… is not a dataset: it is JSON without keys." + KNOWN_FORMATS),
    ("a.txt", "A dog.", "… is not a dataset: it is a file of another kind." + KNOWN_FORMATS),
]


def test_files_that_are_no_datasets(tmp_path: Path) -> None:
    for folder, (name, content, expected) in in_folders(tmp_path, FILES_THAT_ARE_NO_DATASETS):
        (folder / name).write_text(content)
        assert refusal(folder / name) == expected


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
        photo = folder / ("images/dog.jpg" if name in ("karpathy", "coco", "flickr") else "dog.jpg")
        write_photo(photo)
        (folder / file).parent.mkdir(exist_ok=True)
        (folder / file).write_text(text.replace("<TAB>", "\t") + "\n")
        dataset = read_dataset(folder)
        assert (dataset.format, dataset.problems) == (name, ())
        assert [(record.path, record.captions) for record in dataset.records] == [(photo, ("A dog runs.",))]


# --- what every dataset is examined for ---


def test_missing_files_and_the_place_where_they_should_be(tmp_path: Path) -> None:
    write_coco(tmp_path / "annotations/captions_train.json", listed(*range(1, 9)), captioned(*range(1, 9)))
    for number in range(1, 8):
        (tmp_path / f"images/{number:03}.png").unlink()
    assert sentences(tmp_path)[0] == [
        "7 image files are missing: images/001.png, images/002.png, images/003.png, images/004.png, "
        "images/005.png and 2 more; put the files there or take their captions out."
    ]


def test_the_same_image_in_two_splits(tmp_path: Path) -> None:
    write_coco(tmp_path / "annotations/captions_train.json", listed(1, 2, 3), captioned(1, 2, 3))
    write_coco(tmp_path / "annotations/captions_val.json", listed(4), captioned(4))
    write_coco(tmp_path / "annotations/captions_test.json", listed(2, 3, 4), captioned(2, 3, 4))
    ending = "; what is scored must not have been trained on, so keep each in one split."
    assert sentences(tmp_path)[0] == [
        "2 images are in both train and test: 2, 3" + ending,
        "1 image is in both val and test: 4" + ending,
    ]


def test_the_same_file_under_two_ids(tmp_path: Path) -> None:
    same = [{"id": number, "file_name": "001.png"} for number in (1, 2, 3)]
    write_coco(tmp_path / "annotations/captions_train.json", same[:2], captioned(1, 2))
    write_coco(tmp_path / "annotations/captions_test.json", same[2:], captioned(3))
    assert sentences(tmp_path) == (
        [
            "1 image is in both train and test: 3; what is scored must not have been trained on, so keep each in one "
            "split."
        ],
        [
            "1 file is listed under more than one id in the same split: images/001.png; their captions would "
            "count as those of different images."
        ],
    )


def test_ids_and_images_that_stand_twice(tmp_path: Path) -> None:
    for split in ("train", "test"):
        write_coco(tmp_path / f"a/captions_{split}.json", listed(1, name=split + "{}.png"), captioned(1), photos="a")
    own = "give every image of the dataset an id of its own, across all splits."
    assert sentences(tmp_path / "a")[0] == [f"1 id stands for different images: 1; {own}"]
    for name in ("val", "dev"):
        write_coco(tmp_path / f"b/captions_{name}.json", listed(1), captioned(1), photos="b")
    assert sentences(tmp_path / "b")[0] == ["1 image is listed twice in one split: 1; keep one entry of each."]


# --- reading and opening ---


def test_a_dataset_with_problems_is_refused_with_the_first_three(tmp_path: Path) -> None:
    images = [*listed(1, 2, 3), {"id": 4}]
    write_coco(tmp_path / "annotations/captions_train.json", images, captioned(1, 2, 9), photos=None)
    with pytest.raises(DataError) as caught:
        open_dataset(tmp_path)
    assert str(caught.value).replace(str(tmp_path), "…") == (
        '… cannot be used. 1 entry of "images" in annotations/captions_train.json cannot be used: 4; each needs an '
        '"id" and a "file_name". 1 entry of "annotations" in annotations/captions_train.json cannot be used: 3; each '
        'needs the "image_id" of a listed image and a text as "caption". 1 image has no caption: 3; write captions or '
        "take the images out, for nothing can be learned or scored from them. There is 1 more problem: showtell data "
        "check …"
    )


def test_no_image_is_looked_at_when_a_dataset_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 looks take seconds on a disk and minutes over a network; a listing of the folder takes one."""
    for split in ("train", "val"):
        start = 1000 if split == "val" else 0
        numbers = range(start + 1, start + 500)
        entries = listed(*numbers)
        write_coco(tmp_path / f"annotations/captions_{split}.json", entries, captioned(*numbers), photos=None)
        folder = tmp_path / f"{split}"
        folder.mkdir()
        for entry in entries:
            (folder / entry["file_name"]).touch()
    looks: list[str] = []
    stat = os.stat

    def counting(path: str, *args: object, **more: object) -> os.stat_result:
        looks.append(str(path))
        return stat(path, *args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "stat", counting)
    assert read_dataset(tmp_path).problems == ()
    assert 0 < len(looks) < 40 and not [path for path in looks if path.endswith(".png")]

import json
from pathlib import Path

import pytest

from showtell.datasets import jsonl, read_dataset
from tests.datasets.makers import sentences, write_photo

A = {"image": "a.jpg", "captions": ["A dog.", "A dog, running."], "split": "train"}
B = {"image": "b.jpg", "caption": "A cat.", "split": "dev"}


def write(folder: Path, *entries: object, name: str = "captions.jsonl", photos: str = "a.jpg b.jpg") -> Path:
    """Entries as JSON lines, those that are texts as they are; or as a list for a name with .json."""
    file = folder / name
    lines = [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
    file.write_text("\n".join(lines) if name != "captions.json" else f"[{', '.join(lines)}]")
    for photo in photos.split():
        write_photo(folder / photo)
    return file


@pytest.mark.parametrize("name", ["captions.jsonl", "Captions.NDJSON", "captions.json"])
@pytest.mark.parametrize("photos", ["a.jpg b.jpg", "images/a.jpg images/b.jpg"])
def test_lines_and_lists(tmp_path: Path, name: str, photos: str) -> None:
    file = write(tmp_path, A, {"image": "a.jpg", "caption": "Again.", "split": "train"}, B, name=name, photos=photos)
    for path in (tmp_path, file):
        dataset = read_dataset(path)
        assert (dataset.format, dataset.problems, dataset.warnings) == ("jsonl", (), ())
        assert [(r.image_id, r.split, r.captions) for r in dataset.records] == [
            ("a.jpg", "train", ("A dog.", "A dog, running.", "Again.")),
            ("b.jpg", "val", ("A cat.",)),
        ]
        assert dataset.records[1].path == tmp_path / photos.split()[1]


@pytest.mark.parametrize(
    "entry",
    [
        {"file_name": "a.jpg", "text": "A dog.", "id": 7, "split": "val"},
        {"Image Path": "a.jpg", "Caption 1": "A dog.", "caption_2": None, "image-id": "7", "subset": "val"},
        {"filename": "a.jpg", "sentences": ["A dog."], "img_id": 7, "split": "val", "extra": {"deep": []}},
    ],
)
def test_keys_are_called_as_columns_are(tmp_path: Path, entry: object) -> None:
    write(tmp_path, entry, photos="a.jpg")
    (record,) = read_dataset(tmp_path).records
    assert (record.image_id, record.split, record.captions) == ("7", "val", ("A dog.",))
    assert sentences(tmp_path) == ([], [])


def test_a_file_for_each_split(tmp_path: Path) -> None:
    for name in ("train", "val"):
        write(tmp_path, {"image": f"{name}.jpg", "caption": "A."}, name=f"{name}.jsonl", photos=f"{name}.jpg")
    assert read_dataset(tmp_path).splits == {"train": 1, "val": 1}
    assert sentences(tmp_path)[0] == []
    write(tmp_path, A, name="more.jsonl", photos="")
    assert sentences(tmp_path)[0] == [
        "… holds 3 files of JSON captions, and more.jsonl does not say for which split it is; join them to one, or "
        "name them train.jsonl, val.jsonl, test.jsonl."
    ]


UNUSABLE = (
    'captions.jsonl has no object with an image and its captions on line 2; an object is like {"image": "dog.jpg", '
    '"captions": ["A dog runs."], "split": "train"}.'
)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("7", UNUSABLE),
        ("null", UNUSABLE),
        ({"image": ["b.jpg"], "caption": "A."}, UNUSABLE),
        ({"image": "b.jpg", "caption": 5}, UNUSABLE),
        ({"image": "b.jpg", "captions": ["A.", 5]}, UNUSABLE),
        ({"image": "b.jpg", "captions": {"a": 1}}, UNUSABLE),
        ({"image": "b.jpg", "caption": "A.", "split": True}, UNUSABLE),
        ({"image": "b.jpg", "label": "A."}, UNUSABLE),
        ({"image": " ", "caption": "A."}, "captions.jsonl names no image on line 2."),
        (
            {"image": "/etc/passwd", "caption": "A.", "split": "train"},
            "captions.jsonl names 1 image file outside its folder: /etc/passwd; put the images into the folder and "
            "name them from there.",
        ),
        (
            {"image": "x/../../b.jpg", "caption": "A.", "split": "train"},
            "captions.jsonl names 1 image file outside its folder: ../b.jpg; put the images into the folder and "
            "name them from there.",
        ),
        (
            {"image": "C:\\b.jpg", "caption": "A.", "split": "train"},
            "captions.jsonl names 1 image file outside its folder: C:/b.jpg; put the images into the folder and "
            "name them from there.",
        ),
        ('{"image": "b.jpg", "capt', "captions.jsonl, line 2, is not valid JSON: Unterminated string starting at at "
         "line 1, column 20."),
        ('{"image": "b.jpg", "image": "a.jpg"}', 'captions.jsonl, line 2, has the key "image" twice in one object; '
         "keep one of them."),
        ("[" * 50_000, "captions.jsonl, line 2, cannot be read as JSON: its lists and objects are nested too deeply."),
        ("1" * 5_000, "captions.jsonl, line 2, cannot be read as JSON: it holds a number of too many digits."),
        ({"image": "b.jpg", "captions": [], "split": "val"}, "1 image has no caption: b.jpg; write captions or take "
         "the images out, for nothing can be learned or scored from them."),
    ],
)  # fmt: skip
def test_mistakes(tmp_path: Path, line: object, problem: str) -> None:
    write(tmp_path, A, line)
    assert sentences(tmp_path)[0] == [problem]


def test_of_many_broken_lines_the_first_are_shown(tmp_path: Path) -> None:
    write(tmp_path, A, *["{"] * 8)
    problems = sentences(tmp_path)[0]
    assert len(problems) == 4
    assert problems[3] == "captions.jsonl is not valid JSON on 5 more lines: 5, 6, 7, 8, 9."


def test_encodings(tmp_path: Path) -> None:
    file = write(tmp_path, A)
    good = file.read_bytes()
    file.write_bytes(good + '\n{"image": "b.jpg", "caption": "garçon"}'.encode("latin-1"))
    assert sentences(tmp_path)[0] == ["…/captions.jsonl is not in UTF-8: line 2 cannot be read; save it as JSON lines in UTF-8."]  # fmt: skip  # noqa: E501
    file.write_bytes(good + b"\n\0")
    assert sentences(tmp_path)[0] == ["…/captions.jsonl has null bytes, the first on line 2; save it as JSON lines in UTF-8."]  # fmt: skip  # noqa: E501
    file.write_bytes(good.decode().encode("utf-16"))
    assert sentences(tmp_path)[0] == ["…/captions.jsonl is in UTF-16; save it as JSON lines in UTF-8."]


def test_half_a_character_can_be_said(tmp_path: Path) -> None:
    write(tmp_path, '{"image": "\\ud83d.jpg", "caption": "A \\ud83d dog.", "split": "train"}', photos="")
    problems = read_dataset(tmp_path).problems
    assert problems and all(problem.encode("utf-8") for problem in problems)


def test_one_line_of_ten_megabytes(tmp_path: Path) -> None:
    write(tmp_path, {**A, "captions": ["A dog. " * 1_500_000]}, photos="a.jpg")
    (tmp_path / "captions.jsonl").rename(tmp_path / "b.jsonl")
    assert not jsonl.recognises(tmp_path)  # a first object of more than 64 kB is no caption's
    write(tmp_path, A, {**A, "captions": ["A dog. " * 1_500_000]}, name="b.jsonl", photos="")
    assert len(read_dataset(tmp_path).records[0].captions[2]) == 10_500_000


def test_what_is_not_recognised(tmp_path: Path) -> None:
    write(tmp_path, {"image_id": 1, "caption": "A."}, name="captions.json", photos="")  # results, not a dataset
    write(tmp_path, {"image": "a.jpg"}, name="a.jsonl", photos="")
    write(tmp_path, "A dog.", name="b.jsonl", photos="")
    write(tmp_path, "", name="c.jsonl", photos="")
    (tmp_path / "d.json").write_text("[" * 100_000)
    assert not jsonl.recognises(tmp_path) and not any(map(jsonl.recognises, tmp_path.iterdir()))

import itertools
import json
from pathlib import Path

from showtell.datasets import read_dataset
from tests.datasets.makers import in_folders, sentences, write_table

A = {"image": "a.jpg", "captions": ["A dog.", "A dog, running."], "split": "train"}
B = {"image": "b.jpg", "caption": "A cat.", "split": "dev"}


def write(folder: Path, *entries: object, name: str = "captions.jsonl", photos: str = "a.jpg b.jpg") -> Path:
    """Entries as JSON lines, those that are texts as they are; or as a list for a name with .json."""
    lines = [entry if isinstance(entry, str) else json.dumps(entry) for entry in entries]
    text = "\n".join(lines) if name != "captions.json" else f"[{', '.join(lines)}]"
    return write_table(folder, text, photos, name)


NAMES = ["captions.jsonl", "Captions.NDJSON", "captions.json"]
RECORDS = [("a.jpg", "train", ("A dog.", "A dog, running.", "Again.")), ("b.jpg", "val", ("A cat.",))]


def test_lines_and_lists(tmp_path: Path) -> None:
    cases = itertools.product(["a.jpg b.jpg", "images/a.jpg images/b.jpg"], NAMES)
    for folder, (photos, name) in in_folders(tmp_path, cases):
        file = write(folder, A, {"image": "a.jpg", "caption": "Again.", "split": "train"}, B, name=name, photos=photos)
        for path in (folder, file):
            dataset = read_dataset(path)
            assert (dataset.format, dataset.problems, dataset.warnings) == ("jsonl", (), ())
            assert [(record.image_id, record.split, record.captions) for record in dataset.records] == RECORDS
            assert dataset.records[1].path == folder / photos.split()[1]


KEYS = [
    {"file_name": "a.jpg", "text": "A dog.", "id": 7, "split": "val"},
    {"Image Path": "a.jpg", "Caption 1": "A dog.", "caption_2": None, "image-id": "7", "subset": "val"},
    {"filename": "a.jpg", "sentences": ["A dog."], "img_id": 7, "split": "val", "extra": {"deep": []}},
]


def test_keys_are_called_as_columns_are(tmp_path: Path) -> None:
    for folder, entry in in_folders(tmp_path, KEYS):
        write(folder, entry, photos="a.jpg")
        (record,) = read_dataset(folder).records
        assert (record.image_id, record.split, record.captions) == ("7", "val", ("A dog.",))
        assert sentences(folder) == ([], [])


def test_a_file_for_each_split(tmp_path: Path) -> None:
    for name in ("train", "val"):
        write(tmp_path, {"image": f"{name}.jpg", "caption": "A."}, name=f"{name}.jsonl", photos=f"{name}.jpg")
    assert read_dataset(tmp_path).splits == {"train": 1, "val": 1}
    assert sentences(tmp_path)[0] == []
    write(tmp_path, {"image": "a.jpg", "caption": "A."}, name="more.jsonl", photos="")
    assert sentences(tmp_path)[0] == [
        "… holds 3 files of captions, and more.jsonl says nothing about splits; join them to one, name them train, val "
        "and test, or name datasets of their own as a list, [A,B]; a table may have a column split."
    ]


UNUSABLE = (
    '1 line of captions.jsonl cannot be used: 2; each is like {"image": "dog.jpg", "captions": ["A dog runs."], '
    '"split": "train"}.'
)
MISTAKES = [
    ("7", UNUSABLE),
    ("null", UNUSABLE),
    ({"image": ["b.jpg"], "caption": "A."}, UNUSABLE),
    ({"image": "b.jpg", "caption": 5}, UNUSABLE),
    ({"image": "b.jpg", "captions": ["A.", 5]}, UNUSABLE),
    ({"image": "b.jpg", "captions": {"a": 1}}, UNUSABLE),
    ({"image": "b.jpg", "caption": "A.", "split": True}, UNUSABLE),
    ({"image": "b.jpg", "label": "A."}, UNUSABLE),
    ({"image": " ", "caption": "A."}, UNUSABLE),
    ('{"image": "b.jpg", "capt', "captions.jsonl, line 2, is not valid JSON: Unterminated string at "
     "line 1, column 20; it seems cut off, get it whole."),
]  # fmt: skip


def test_mistakes(tmp_path: Path) -> None:
    for folder, (line, problem) in in_folders(tmp_path, MISTAKES):
        write(folder, A, line)
        assert sentences(folder)[0] == [problem]

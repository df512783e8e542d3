"""The examples of docs/datasets.md, imitated to the letter, and its program, run."""

import io
import re
from pathlib import Path

import pytest
from PIL import Image

from showtell.datasets import READERS, Box, open_dataset, read_dataset
from tests.datasets.makers import in_folders, write_files, write_photo

PAGE = (Path(__file__).resolve().parents[2] / "docs/datasets.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"^```text\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
DOG, CAT = ("A brown dog runs over the grass.", "A dog, running"), ("A cat asleep on a sofa.",)
BOTH = [("dog.jpg", "train", DOG), ("cat.jpg", "val", CAT)]
# How an example begins, of which format it is, its file, where its photos lie, and its records.
CASES = [
    ("image,caption,split", "table", "captions.csv", "", BOTH),
    ("image,caption_1", "table", "captions.csv", "", BOTH),
    ('{"image": "dog.jpg", "captions"', "jsonl", "captions.jsonl", "", BOTH),
    ('{"images"', "coco", "annotations/captions_train.json", "images", [("1", "train", DOG[:1])]),
    ('{"dataset"', "karpathy", "dataset_mine.json", "images", [("images/dog.jpg", "train", DOG[:1])]),
    ("dog.jpg#0", "flickr", "train.token.txt", "Flicker8k_Dataset", None),
]


def example(opening: str) -> str:
    (text,) = [block for block in EXAMPLES if block.startswith(opening)]
    return text


def test_examples_are_datasets(tmp_path: Path) -> None:
    for folder, (opening, form, file, photos, records) in in_folders(tmp_path, CASES):
        for photo in ("dog.jpg", "cat.jpg") if records is BOTH else ("dog.jpg",):
            write_photo(folder / photos / photo)
        write_files(folder, {file: example(opening).replace("<TAB>", "\t")})
        if form == "coco":
            (folder / "annotations/instances_train.json").write_text(example('{"categories"'))
        dataset = read_dataset(folder)
        assert (dataset.format, dataset.problems) == (form, ())
        if records is None:  # of Flickr, whose captions have spaces before their punctuation
            assert dataset.records[0].captions == ("A brown dog runs over the grass .", "A dog , running .")
        else:
            assert [(one.image_id, one.split, one.captions) for one in dataset.records] == records
            assert dataset.warnings == ()
        if form == "coco":
            assert dataset.records[0].boxes == (Box(7, 12.0, 30.5, 200.0, 110.0, "dog"),)


def test_a_text_file_for_each_image_and_a_list(tmp_path: Path) -> None:
    (layout,) = [block for block in EXAMPLES if block.startswith("mydata/") and "dog.txt" in block]
    texts = dict.fromkeys(re.findall(r"\w+\.txt", layout), "One.\nTwo.\n")
    photos = " ".join(re.findall(r"\w+\.jpg", layout))
    write_files(tmp_path, {**texts, "test.txt": example("dog.jpg\ncat\n")}, photos)
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.problems, dataset.warnings) == ("text_files", (), ())
    records = [(record.image_id, record.split, record.captions) for record in dataset.records]
    assert records == [(name, "test", ("One.", "Two.")) for name in ("cat.jpg", "dog.jpg")]


def test_the_table_of_formats_names_every_reader_in_order() -> None:
    table = PAGE.partition("| format | is recognised by |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(READERS)


def test_the_program_of_the_page_writes_what_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset of the Hugging Face Hub becomes one of ours; there is no network here."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()
    features = datasets.Features({"image": datasets.Image(), "caption": [datasets.Value("string")]})
    photos = []
    for split, captions in (("train", ["One.", "Again."]), ("validation", ["Two."])):
        stream = io.BytesIO()
        Image.new("RGB", (4, 4), (len(photos), 0, 0)).save(stream, "PNG")
        photos.append(stream.getvalue())
        rows = {"image": [{"bytes": photos[-1], "path": None}], "caption": [captions]}
        datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "saved" / f"{split}.parquet")
    (program,) = re.findall(r"^```python\n(import json\n.*?)^```", PAGE, re.M | re.S)
    exec(program.replace("OWNER/NAME", "saved"), {})
    dataset = open_dataset(tmp_path / "mydata")
    found = [(record.split, record.captions, record.path.read_bytes()) for record in dataset.records]
    assert found == [("train", ("One.", "Again."), photos[0]), ("val", ("Two.",), photos[1])]

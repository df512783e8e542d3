"""The examples of docs/datasets.md, imitated to the letter."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

from showtell.datasets import Box, read_dataset
from tests.datasets.makers import write_photo

DOCS = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"
EXAMPLES = [dedent(block) for block in re.findall(r"(?:^    .*\n)+", DOCS.read_text(encoding="utf-8"), re.MULTILINE)]


def examples(opening: str) -> list[str]:
    return [example for example in EXAMPLES if example.startswith(opening)]


@pytest.mark.parametrize("example", examples("image,caption"))
def test_tables(tmp_path: Path, example: str) -> None:
    assert len(examples("image,caption")) == 2
    for photo in ("dog.jpg", "cat.jpg"):
        write_photo(tmp_path / photo)
    (tmp_path / "captions.csv").write_text(example)
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.problems, dataset.warnings) == ("table", (), ())
    assert [(r.image_id, r.split, r.captions) for r in dataset.records] == [
        ("dog.jpg", "train", ("A brown dog runs over the grass.", "A dog, running")),
        ("cat.jpg", "val", ("A cat asleep on a sofa.",)),
    ]


def test_coco(tmp_path: Path) -> None:
    write_photo(tmp_path / "images" / "dog.jpg")
    (tmp_path / "annotations").mkdir()
    for name, opening in (("captions", '{"images"'), ("instances", '{"categories"')):
        (example,) = examples(opening)
        (tmp_path / "annotations" / f"{name}_train.json").write_text(example)
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.problems, dataset.warnings) == ("coco", (), ())
    (record,) = dataset.records
    assert (record.split, record.captions) == ("train", ("A brown dog runs over the grass.",))
    assert record.boxes == (Box(7, 12.0, 30.5, 200.0, 110.0, "dog"),)

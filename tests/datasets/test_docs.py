"""The examples of docs/datasets.md and docs/dataset_formats.md, imitated to the letter."""

import re
from pathlib import Path

from showtell.datasets import READERS, Box, read_dataset
from tests.datasets.makers import write_photo

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = [(DOCS / name).read_text(encoding="utf-8") for name in ("datasets.md", "dataset_formats.md")]
EXAMPLES = [block for page in PAGES for block in re.findall(r"^```text\n(.*?)^```", page, re.MULTILINE | re.DOTALL)]


def examples(opening: str) -> list[str]:
    return [example for example in EXAMPLES if example.startswith(opening)]


def test_tables(tmp_path: Path) -> None:
    for number, example in enumerate(examples("image,caption")):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert len(examples("image,caption")) == 2
        for photo in ("dog.jpg", "cat.jpg"):
            write_photo(folder / photo)
        (folder / "captions.csv").write_text(example)
        dataset = read_dataset(folder)
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


def test_json_lines(tmp_path: Path) -> None:
    (example,) = examples('{"image": "dog.jpg", "captions"')
    for photo in ("dog.jpg", "cat.jpg"):
        write_photo(tmp_path / photo)
    (tmp_path / "captions.jsonl").write_text(example)
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.problems, dataset.warnings) == ("jsonl", (), ())
    assert [(r.image_id, r.split, r.captions) for r in dataset.records] == [
        ("dog.jpg", "train", ("A brown dog runs over the grass.", "A dog, running")),
        ("cat.jpg", "val", ("A cat asleep on a sofa.",)),
    ]


def test_a_text_file_for_each_image_and_a_list(tmp_path: Path) -> None:
    (layout,) = [example for example in examples("mydata/") if "dog.txt" in example]
    for name in re.findall(r"\w+\.(?:jpg|txt)", layout):
        if name.endswith("jpg"):
            write_photo(tmp_path / name)
        else:
            (tmp_path / name).write_text("One.\nTwo.\n")
    (names,) = examples("dog.jpg\ncat\n")
    (tmp_path / "test.txt").write_text(names)
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.problems, dataset.warnings) == ("text_files", (), ())
    assert [(r.image_id, r.split, r.captions) for r in dataset.records] == [
        ("cat.jpg", "test", ("One.", "Two.")),
        ("dog.jpg", "test", ("One.", "Two.")),
    ]


def test_karpathy(tmp_path: Path) -> None:
    (example,) = examples('{"dataset"')
    write_photo(tmp_path / "images" / "dog.jpg")
    (tmp_path / "dataset_mine.json").write_text(example)
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.name, dataset.problems, dataset.warnings) == ("karpathy", "mine", (), ())
    (record,) = dataset.records
    assert (record.image_id, record.captions) == ("images/dog.jpg", ("A brown dog runs over the grass.",))


def test_flickr(tmp_path: Path) -> None:
    (example,) = examples("dog.jpg#0")
    write_photo(tmp_path / "Flicker8k_Dataset" / "dog.jpg")
    (tmp_path / "Flickr8k.token.txt").write_text(example.replace("<TAB>", "\t"))
    dataset = read_dataset(tmp_path)
    assert (dataset.format, dataset.problems) == ("flickr", ())
    assert dataset.records[0].captions == ("A brown dog runs over the grass .", "A dog , running .")


def test_the_table_of_formats_names_every_reader_in_order() -> None:
    table = PAGES[0].partition("| format | is recognised by |")[2].partition("\n\n")[0]
    assert re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE) == list(READERS)

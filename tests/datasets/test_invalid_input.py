"""Input that is damaged, by class of mistake: it is read, or refused in one sentence, and nothing hangs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from showtell.cli import main
from showtell.datasets import read_dataset
from showtell.datasets.check import check_dataset
from showtell.errors import DataError
from tests.datasets.makers import captioned, listed, write_photo

COCO = {"images": listed(1), "annotations": captioned(1)}
PIPES = (
    *("captions_train.json", "dataset_mine.json", "instances_train.json", "captions.jsonl", "captions.csv"),
    *("list.json", "Flickr8k.token.txt", "train.txt", "a.txt", "a.png"),
)


def sentences_of(path: Path) -> list[str]:
    try:
        return list(check_dataset(read_dataset(path)).problems)
    except DataError as error:
        return [str(error)]


def written(folder: Path, files: dict[str, Any]) -> Path:
    """A dataset of these files, as JSON unless they are text, and one photo."""
    folder.mkdir()
    write_photo(folder / "001.png")
    for name, content in files.items():
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


@pytest.mark.timeout(60)
def test_named_pipes_do_not_hang(tmp_path: Path) -> None:
    """A pipe in the place of each file of a dataset, and of the dataset itself."""
    for name in PIPES:
        folder = written(tmp_path / name, {"captions_train.json": COCO})
        (folder / name).unlink(missing_ok=True)
        os.mkfifo(folder / name)
        sentences_of(folder)
        assert sentences_of(folder / name) == [
            f"{folder / name} is not a dataset: it is a device, a pipe or a socket; name a file or a folder."
        ]


def test_text_that_is_not_utf_8_is_refused_with_its_line(tmp_path: Path) -> None:
    for name, form in {"captions.csv": "CSV", "captions.jsonl": "JSON lines", "Flickr8k.token.txt": "text"}.items():
        lines = {
            "captions.csv": "photo,caption\n001.png,Un gar\u00e7on\n",
            "captions.jsonl": '{"image": "001.png", "caption": "A."}\n{"image": "001.png", "caption": "gar\u00e7on"}',
            "Flickr8k.token.txt": "001.png#0\tA boy .\n001.png#1\tUn gar\u00e7on .\n",
        }
        folder = written(tmp_path / name, {})
        for encoding, ending in {
            "latin-1": f"is not in UTF-8: line 2 cannot be read; save it as {form} in UTF-8.",
            "utf-16": f"is in UTF-16; save it as {form} in UTF-8.",
        }.items():
            (folder / name).write_bytes(lines[name].encode(encoding))
            assert sentences_of(folder / name)[0].endswith(ending), (name, encoding)


def test_photos_whose_names_are_not_utf_8_work(tmp_path: Path) -> None:
    name = os.fsdecode(b"caf\xe9.png")
    write_photo(tmp_path / name, shade=7)
    (tmp_path / os.fsdecode(b"caf\xe9.txt")).write_text("A cup.")
    (record,) = read_dataset(tmp_path).records
    assert (record.image_id, record.path, record.captions) == ("caf\\xe9.png", tmp_path / name, ("A cup.",))


def test_what_messages_quote_is_shortened(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = {"captions.jsonl": {"image": "001.png", "id": "i" * 100_000, "split": "train", "caption": ""}}
    for number, files in enumerate([long, {"captions.csv": "a,b," + "x" * 30_000}, {"mine.json": {"k" * 50_000: 1}}]):
        with pytest.raises(SystemExit, match="2"):
            main(["data", "check", str(written(tmp_path / str(number), files))])
        out, err = capsys.readouterr()
        assert err.startswith("showtell: ") and err.count("\n") == 1
        assert len(err) < 2_100 and all(len(line) < 2_100 for line in out.splitlines())

"""Input that is damaged, by class of mistake: it is read, or refused in one sentence, and nothing hangs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from showtell.datasets import read_dataset
from showtell.datasets.check import check_dataset
from showtell.errors import DataError
from tests.datasets.makers import write_photo


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

"""A dataset of the Hugging Face Hub: the program of the page writes one that is read. There is no network here."""

import io
import re
from pathlib import Path

import pytest
from PIL import Image as Pillow

from showtell.datasets import open_dataset

datasets = pytest.importorskip("datasets")
PAGE = Path(__file__).resolve().parents[2] / "docs" / "datasets.md"


def test_the_program_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    datasets.disable_progress_bars()
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "saved").mkdir()
    features = datasets.Features({"image": datasets.Image(), "caption": [datasets.Value("string")]})
    photos = []
    for split, captions in (("train", ["One.", "Again."]), ("validation", ["Two."])):
        stream = io.BytesIO()
        Pillow.new("RGB", (4, 4), (len(photos), 0, 0)).save(stream, "PNG")
        photos.append(stream.getvalue())
        rows = {"image": [{"bytes": photos[-1], "path": None}], "caption": [captions]}
        datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "saved" / f"{split}.parquet")
    (program,) = re.findall(r"^```python\n(import json\n.*?)^```", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    exec(program.replace("OWNER/NAME", "saved"), {})
    dataset = open_dataset(tmp_path / "mydata")
    found = [(record.split, record.captions, record.path.read_bytes()) for record in dataset.records]
    assert found == [("train", ("One.", "Again."), photos[0]), ("val", ("Two.",), photos[1])]

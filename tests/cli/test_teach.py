"""A small captioner taught by a larger one, with the captions that the larger one is sure of."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from tests.cli.test_caption import run

SMALL = [
    "encoder.image_size=48", "encoder.widths=[8,16]", "model.embedding_size=16", "model.hidden_size=32",
    "model.attention_size=8", "model.dropout=0", "training.batch_size=4", "training.learning_rate=0.005",
    "training.epochs=60", "training.patience=null", "training.validate_every=20", "training.schedule=constant",
    "training.warmup_steps=0", "training.trackers=[]", "vocabulary.min_count=1",
]  # fmt: skip


@pytest.fixture
def photos(tiny_scenes: Path, tmp_path: Path) -> Path:
    """Sixteen photos without captions."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for photo in sorted((tiny_scenes / "images").iterdir())[:16]:
        shutil.copy(photo, folder)
    return folder


def test_a_student_says_what_its_teacher_is_sure_of(capsys, tiny_checkpoint, photos, tmp_path):
    teacher = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    settings = teacher.settings(max_length=8, no_unknown=True)
    captions = {path.name: made[0] for path, made in teacher.caption_photos(sorted(photos.iterdir()), settings)}
    confidences = sorted(caption.confidence for caption in captions.values())
    sure = (confidences[7] + confidences[8]) / 2
    data = photos / "captions.csv"
    how = ["--format", "corrections", "--out", data]
    assert run(capsys, "caption", tiny_checkpoint, photos, "--max-length", 8, *how, "--accept-above", sure)[0] == 0
    accepted = {name: caption.text for name, caption in captions.items() if caption.confidence >= sure}
    assert len(accepted) == 8
    student = tmp_path / "student"
    status, _, err = run(capsys, "train", "folder/sat_soft", f"data.path={data}", *SMALL, "--out", student)
    assert status == 0, err
    assert "photos are too few to learn from scratch" in err
    dataset = open_dataset(data)
    assert {record.path.name for record in dataset.records if record.split != "unchecked"} == set(accepted)
    learned = {record.path: record.captions for record in dataset.split("train")}
    assert json.loads((student / "best" / "config.json").read_text())["about"]["train_images"] == len(learned)
    taught = Captioner.from_pretrained(student / "last", device="cpu")
    right = sum(taught.caption(path)[0].text == accepted[path.name] for path in learned)
    assert 2 * right >= len(learned)

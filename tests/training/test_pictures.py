"""Pictures of validation captions in TensorBoard: what they show, and that the run does not notice them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from PIL import Image
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.training import train
from showtell.training.pictures import add_pictures
from tests.training.test_loop import fingerprints


class Writer:
    """A `SummaryWriter` that keeps what it is given."""

    def __init__(self) -> None:
        self.figures: dict[str, tuple[Figure, int]] = {}

    def add_figure(self, tag: str, figure: Figure, global_step: int) -> None:
        self.figures[tag] = (figure, global_step)


def test_a_picture_for_each_photo_with_its_greedy_caption(tiny_checkpoint: Path, tiny_scenes: Path) -> None:
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    records = open_dataset(tiny_scenes).split("val")[:2]
    writer = Writer()
    add_pictures(writer, captioner, records, 7)
    assert list(writer.figures) == [f"captions/{record.image_id}" for record in records]
    for record, (figure, step) in zip(records, writer.figures.values(), strict=True):
        (caption,) = captioner.caption(record.path, search="greedy", num_beams=1, num_return_sequences=1)
        titles = [axes.get_title().rpartition(" ")[0] for axes in figure.axes if axes.get_title()]
        assert titles == [word.word for word in caption.words] + ["(end)"] * caption.finished
        assert step == 7


def test_a_photo_that_cannot_be_opened_has_no_picture(tiny_checkpoint: Path, tiny_scenes: Path, tmp_path: Path) -> None:
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    dataset = tmp_path / "photos"
    dataset.mkdir()
    Image.new("RGB", (32, 32)).save(dataset / "a.png")
    (dataset / "b.png").write_text("no image")
    (dataset / "captions.csv").write_text("image,caption,split\na.png,a,val\nb.png,b,val\n")
    writer = Writer()
    add_pictures(writer, captioner, open_dataset(dataset).split("val"), 1)
    assert list(writer.figures) == ["captions/a.png"]


def test_a_run_with_pictures_is_the_same_to_the_bit(tiny_recipe: dict[str, Any], tmp_path: Path) -> None:
    tiny_recipe["training"] |= {"ema_decay": 0.9, "sample_captions": 2, "epochs": 2}
    train(tiny_recipe, tmp_path / "without", quiet=True)
    tiny_recipe["training"]["trackers"] = ["tensorboard"]
    train(tiny_recipe, tmp_path / "with", quiet=True)
    without, pictured = fingerprints(tmp_path / "without"), fingerprints(tmp_path / "with")
    assert without.pop("recipe.yaml") != pictured.pop("recipe.yaml")  # it names the tracker
    assert pictured == without

    (events,) = (tmp_path / "with" / "tensorboard").rglob("events*")
    kept = EventAccumulator(str(events)).Reload()
    ids = [record.image_id for record in open_dataset(tiny_recipe["data"]["path"]).split("val")[:2]]
    assert kept.Tags()["images"] == [f"captions/{image_id}" for image_id in ids]
    for image_id in ids:
        pictures = kept.Images(f"captions/{image_id}")
        assert [picture.step for picture in pictures] == [7, 14]
        assert len({picture.encoded_image_string for picture in pictures}) == 2

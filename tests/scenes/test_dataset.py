"""The dataset on disk: splits, determinism, COCO files, and refusals."""

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from PIL import Image

from showtell.cli import main
from showtell.errors import DataError, UsageError
from showtell.scenes import dataset, read_scenes, write_scenes
from showtell.scenes.annotations import SPLITS
from showtell.scenes.dataset import sample_image, split_sizes
from showtell.scenes.rendering import render
from showtell.scenes.truth import judge
from showtell.scenes.world import SHAPES

IMAGES = 60
# Of scenes, captions, verdicts and pictures, as language version 1 drew them when version 0.1 of showtell was written.
DRAWN = "940e43b693c83d6e570af6ca7fa8f3c9eca73fe5c93c4d1af35f532a9552bc85"


def test_scenes_captions_truth_and_pictures_are_what_they_always_were() -> None:
    """Scores of truth are comparable only as long as a seed draws the same scenes and the checker says the same."""
    content = hashlib.sha256()
    for seed in (0, 7):
        for split in SPLITS:
            drawn = [sample_image(seed, split, k) for k in range(20)]
            for (scene, captions), (other, _) in zip(drawn, drawn[1:] + drawn[:1], strict=True):
                content.update(repr((scene, captions)).encode())
                content.update(repr([judge(c.text, s) for c in captions for s in (scene, other)]).encode())
                content.update(render(scene, 48 if seed else 96).tobytes())
    assert content.hexdigest() == DRAWN


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small dataset; tests only read it."""
    path = tmp_path_factory.mktemp("scenes") / "drawn"
    write_scenes(path, images=IMAGES, seed=5)
    return path


def load(folder: Path, name: str) -> dict:
    return json.loads((folder / "annotations" / f"{name}.json").read_text())


def digests(folder: Path) -> dict[str, str]:
    """Every file of a folder with its content."""
    files = filter(Path.is_file, folder.rglob("*"))
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def test_the_files_are_coco(folder: Path) -> None:
    assert split_sizes(5000) == {"train": 4200, "val": 200, "test": 300, "test_compositional": 300}
    assert list(split_sizes(4).values()) == [1, 1, 1, 1]
    ids = []
    for split, count in split_sizes(IMAGES).items():
        captions, instances = load(folder, f"captions_{split}"), load(folder, f"instances_{split}")
        assert captions["images"] == instances["images"]
        assert (len(captions["images"]), len(captions["annotations"])) == (count, 5 * count)
        assert [category["name"] for category in instances["categories"]][:2] == ["circle", "square"]
        ids += [image["id"] for image in captions["images"]]
        for image in captions["images"]:
            assert (folder / "images" / image["file_name"]).is_file()
            assert (image["width"], image["height"]) == (96, 96)
    assert ids == list(range(1, IMAGES + 1))
    for kind in ("captions", "instances"):
        of_kind = [one["id"] for split in SPLITS for one in load(folder, f"{kind}_{split}")["annotations"]]
        assert len(of_kind) == len(set(of_kind))


def test_boxes_are_those_of_the_scene(folder: Path) -> None:
    scenes = read_scenes(folder)
    for split in SPLITS:
        for box in load(folder, f"instances_{split}")["annotations"]:
            item = scenes[str(box["image_id"])].items[box["id"] - 10 * box["image_id"] - 1]
            assert SHAPES[box["category_id"] - 1] == item.shape
            assert box["attributes"] == {"colour": item.colour, "size": item.size, "pattern": item.pattern}
            left, top, width, height = box["bbox"]
            assert left <= item.x <= left + width and top <= item.y <= top + height
            assert 0 < box["area"] <= width * height + 0.01


def test_scenes_read_back_are_those_that_were_drawn(folder: Path) -> None:
    scenes = read_scenes(folder)
    expected = [sample_image(5, split, k)[0] for split, count in split_sizes(IMAGES).items() for k in range(count)]
    assert list(scenes.values()) == expected
    assert list(scenes) == [str(number) for number in range(1, IMAGES + 1)]
    for number in (1, IMAGES):
        with Image.open(folder / "images" / f"{number:06d}.png") as image:
            assert image.tobytes() == render(scenes[str(number)]).tobytes()


def test_the_number_of_processes_does_not_matter(tmp_path: Path) -> None:
    drawn = []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        (folder / "images").mkdir(parents=True)
        drawn.append(dataset.draw_all(folder, 30, seed=1, size=96, processes=processes, progress=lambda done: None))
    assert drawn[0] == drawn[1]
    assert digests(tmp_path / "1") == digests(tmp_path / "2")


def test_refusals_write_nothing(tmp_path: Path) -> None:
    (tmp_path / "here").touch()
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letter.txt").write_text("dear")
    write_scenes(tmp_path / "drawn", images=8, seed=3)
    write_scenes(tmp_path / "damaged", images=4)
    (tmp_path / "damaged" / "annotations" / "scenes.json").write_text("{")
    before = digests(tmp_path)
    for name, settings, error, sentence in [
        ("new", {"images": 3}, UsageError, "3 images are too few: scenes has 4 splits of at least one image each"),
        ("new", {"images": 10**40}, UsageError, f"{10**40} images are too many: scenes has 999,999 at most"),
        ("new", {"images": 4, "size": 47}, UsageError, "47 pixels cannot be drawn; 48 to 4096 are allowed"),
        ("here", {"images": 4}, DataError, "here holds no scenes dataset and is not empty"),
        ("letters", {"images": 4}, DataError, "letters holds no scenes dataset and is not empty; nothing was written"),
        ("drawn", {"images": 9, "seed": 4}, DataError, r"drawn with other settings \(images 8, seed 3\)"),
        ("damaged", {"images": 4}, DataError, "is not valid JSON"),
    ]:
        with pytest.raises(error, match=sentence):
            write_scenes(tmp_path / name, **settings)
    assert digests(tmp_path) == before and not (tmp_path / "new").exists()


@pytest.mark.skipif((os.cpu_count() or 1) < 2, reason="one core draws in its own process")
@pytest.mark.parametrize("how", ["SIGINT", "SIGKILL"])
def test_the_workers_end_with_their_parent_and_the_same_command_finishes(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "drawn"
    command = [sys.executable, "-m", "showtell", "data", "scenes", str(folder), "--images", "500"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        limit = time.monotonic() + 60
        while not any(tmp_path.glob(".drawn*/images/*.png")) and time.monotonic() < limit:
            time.sleep(0.02)
        with pytest.raises(DataError, match="Another program is drawing scenes into"):
            write_scenes(folder, images=8)
        process.send_signal(getattr(signal, how))
        out, err = process.communicate(timeout=240)  # until nobody, no worker either, holds the pipes
    assert out == "" and not folder.exists()
    if how == "SIGINT":
        assert not {"Traceback", "Warning", "InvalidState"} & {*err.replace(":", " ").split()}, err
        assert process.returncode == 130 and err.startswith("showtell: interrupted; nothing was written")
        assert list(tmp_path.iterdir()) == []
    write_scenes(folder, images=8)
    assert len(read_scenes(folder) or {}) == 8 and list(tmp_path.iterdir()) == [folder]
    times = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    write_scenes(folder, images=8)  # what is complete is left as it is
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == times


def test_the_verb(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(tmp_path / "drawn")
    for options in ([], ["--json"]):
        with pytest.raises(SystemExit, match="0"):
            main(["data", "scenes", folder, "--images", "20", "--seed", "2", *options])
    words, result = capsys.readouterr().out.rstrip("\n").rsplit("\n", 1)
    assert words.splitlines()[0].split() == ["train", "17", "images", "85", "captions"]
    assert words.splitlines()[-1] == f"Next: showtell data check {folder}"
    splits = {"train": 17, "val": 1, "test": 1, "test_compositional": 1}
    assert json.loads(result) == {"path": folder, "images": 20, "captions": 100, "seed": 2, "splits": splits}

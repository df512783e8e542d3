"""A small world to make mistakes in: pictures, a recipe, a run, a store and captions."""

import shlex
import shutil
from pathlib import Path

import pytest
import yaml

from showtell.datasets import open_dataset
from showtell.features import build_encoder, encoder_config
from showtell.features.extraction import extract
from showtell.scenes import write_scenes
from showtell.training import train
from tests.cli.test_caption import Captured
from tests.cli.test_caption import run as run_command

RECIPE = {
    "data": {"path": "scenes", "captions_per_image": 1},
    "vocabulary": {"min_count": 1},
    "encoder": {"name": "small_cnn", "image_size": 48, "widths": [8, 16]},
    "model": {"name": "sat", "embedding_size": 16, "hidden_size": 16, "attention_size": 8},
    "objective": {"name": "cross_entropy"},
    "training": {"epochs": 1, "batch_size": 8, "learning_rate": 0.004, "trackers": []},
    "decoding": {"num_beams": 2, "max_length": 8},
}


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The world as it is before anybody does anything wrong."""
    folder = tmp_path_factory.mktemp("made") / "world"
    with pytest.MonkeyPatch.context() as patch:
        folder.mkdir()
        patch.chdir(folder)
        write_scenes(Path("scenes"), images=20, seed=1, size=48)
        Path("r.yaml").write_text(yaml.safe_dump(RECIPE, sort_keys=False))
        train("r.yaml", "run", quiet=True)
        extract(build_encoder(encoder_config(RECIPE["encoder"])), open_dataset("scenes").records, Path("store"))
        Path("pred.json").write_text('{"1": "a dog"}')
        Path("ref.json").write_text('{"1": ["a dog runs"]}')
    return folder


@pytest.fixture
def world(made_once: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the world, which is the working directory."""
    folder = tmp_path / "world"
    shutil.copytree(made_once, folder)
    monkeypatch.chdir(folder)
    return folder


def everything(folder: Path) -> dict[str, bytes | None]:
    """Each file and folder with its content, but for locks, which may stay."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in folder.rglob("*")
        if not path.name.endswith(".lock")
    }


def run(capsys: Captured, command: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command line."""
    return run_command(capsys, *shlex.split(command))


def refused(capsys: Captured, command: str) -> str:
    """What a refused command prints after what its captioner knows: one line, and the problems of a recipe."""
    status, out, err = run(capsys, command)
    assert (status, out) == (2, ""), err
    sentence, *problems = [line for line in err.removesuffix("\n").split("\n") if " words, learned from " not in line]
    assert sentence.startswith("showtell: ") and all(problem.startswith("  ") for problem in problems)
    return " ".join((sentence, *problems)).removeprefix("showtell: ")

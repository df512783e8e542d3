"""The wheel: built, installed into a folder of its own and used from another directory, without the repository."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from showtell import __version__
from showtell.recipes import FOLDER, recipe_names

ROOT = Path(__file__).resolve().parents[1]
Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for sys.path with showtell from its wheel alone; other packages come from the environment."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True, timeout=240)
    (wheel,) = folder.glob("*.whl")
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*install, "--target", folder / "site", wheel], check=True, capture_output=True, timeout=240)
    return folder / "site"


@pytest.fixture
def showtell(site: Path, tmp_path: Path) -> Run:
    """Runs the installed command in an empty folder."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [site / "bin" / "showtell", *arguments]
        environment = {**os.environ, "PYTHONPATH": str(site)}
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)

    return run


def test_the_command_and_its_version(showtell: Run):
    done = showtell("--version")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"showtell {__version__}\n", "")


def test_it_holds_every_recipe_and_template(site: Path):
    inside = site / "showtell"
    names = {file.relative_to(inside / "recipes").as_posix() for file in (inside / "recipes").rglob("*.yaml")}
    assert names == {f"{name}.yaml" for name in recipe_names()}
    for file in (ROOT / "src" / "showtell").rglob("*"):
        if file.is_file() and file.suffix != ".pyc":
            assert (inside / file.relative_to(ROOT / "src" / "showtell")).is_file(), file


def test_a_recipe_is_trained_by_its_name(showtell: Run, tiny_scenes: Path, tmp_path: Path):
    small = [
        "training.epochs=1",
        "data.limit=4",
        "encoder.image_size=32",
        "training.trackers=[]",
        "decoding.num_beams=1",
    ]
    done = showtell("train", "folder/sat_soft", f"data.path={tiny_scenes}", *small)
    assert done.returncode == 0, done.stderr
    saved = yaml.safe_load((tmp_path / "runs" / "folder-sat_soft" / "recipe.yaml").read_text())
    recipe = yaml.safe_load((FOLDER / "folder" / "sat_soft.yaml").read_text())
    assert saved["model"]["hidden_size"] == recipe["model"]["hidden_size"]

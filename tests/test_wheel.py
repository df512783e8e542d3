"""The wheel and the sdist: built, installed into folders of their own and used without the repository."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from showtell import __version__
from showtell.recipes import list_recipes

ROOT = Path(__file__).resolve().parents[1]


def build(root: Path, out: Path, *targets: str) -> list[Path]:
    """Build what is asked for from a checkout or an unpacked sdist."""
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(out)]
    command += [part for target in targets for part in ("-t", target)]
    subprocess.run(command, cwd=root, check=True, capture_output=True, timeout=240)
    return [next(out.glob({"wheel": "*.whl", "sdist": "*.tar.gz"}[target])) for target in targets]


def install(wheel: Path, target: Path) -> None:
    """Install a wheel alone."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index", "--no-compile"]
    subprocess.run([*command, "--target", target, wheel], check=True, capture_output=True, timeout=240)


def content(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel of this checkout."""
    sdist, wheel = build(ROOT, tmp_path_factory.mktemp("dist"), "sdist", "wheel")
    return sdist, wheel


@pytest.fixture(scope="module")
def site(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for sys.path with showtell from its wheel alone; other packages come from the environment."""
    folder = tmp_path_factory.mktemp("wheel") / "site"
    install(built[1], folder)
    return folder


def test_the_command_finds_a_recipe_by_its_name(site: Path, tmp_path: Path):
    command = [site / "bin" / "showtell", "train", "folder/sat_soft", "data.path=nowhere"]
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("showtell: There is no file or folder nowhere, the data.path of the recipe")


def test_it_holds_every_recipe_and_template(site: Path):
    inside = site / "showtell"
    names = {file.relative_to(inside / "recipes").as_posix() for file in (inside / "recipes").rglob("*.yaml")}
    assert names == {f"{name}.yaml" for name in list_recipes()}
    for file in (ROOT / "src" / "showtell").rglob("*"):
        if file.is_file() and file.suffix != ".pyc":
            assert (inside / file.relative_to(ROOT / "src" / "showtell")).is_file(), file


def test_the_metadata_say_what_is_true(built: tuple[Path, Path]):
    files = content(built[1])
    (name,) = (name for name in files if name.endswith(".dist-info/METADATA"))
    metadata = message_from_bytes(files[name])
    assert (metadata["Name"], metadata["Version"]) == ("showtell", __version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata.get_payload().startswith("# showtell\n")
    assert "showtell/py.typed" in files
    assert any(name.endswith("licenses/LICENSE") for name in files)


def test_the_sdist_holds_what_its_tests_need_and_nothing_that_was_built(built: tuple[Path, Path], tmp_path: Path):
    with tarfile.open(built[0]) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        archive.extractall(tmp_path)
    root = tmp_path / f"showtell-{__version__}"
    assert {path.name for path in root.iterdir()} == {
        *("src", "tests", "docs", "benchmarks", "scripts", "pyproject.toml", "Makefile", ".gitignore", "PKG-INFO"),
        *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"),
    }
    assert not [path for path in root.rglob("*") if path.name == "__pycache__" or path.suffix in (".pyc", ".so")]
    (wheel,) = build(root, tmp_path / "dist", "wheel")
    assert content(wheel) == content(built[1])

"""The sdist, and the wheel that is built of it: complete, and used without the repository."""

import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest
from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from showtell import __version__
from showtell.recipes import list_recipes

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the sdist of this checkout holds."""
    folder = tmp_path_factory.mktemp("sdist")
    (file,) = SdistBuilder(str(ROOT)).build(directory=str(folder / "dist"), versions=["standard"])
    with tarfile.open(file) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # Python 3.11.4 and later
        archive.extractall(folder)
    return folder / f"showtell-{__version__}"


@pytest.fixture(scope="module")
def site(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of the wheel, as a folder for sys.path; other packages come from the environment."""
    folder = tmp_path_factory.mktemp("wheel")
    (file,) = WheelBuilder(str(sdist)).build(directory=str(folder / "dist"), versions=["standard"])
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_sdist_holds_what_its_tests_need_and_nothing_that_was_built(sdist: Path):
    assert {path.name for path in sdist.iterdir()} == {
        *("src", "tests", "docs", "benchmarks", "scripts", "pyproject.toml", "Makefile", ".gitignore", "PKG-INFO"),
        *("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE"),
    }
    assert not [path for path in sdist.rglob("*") if path.name == "__pycache__" or path.suffix in (".pyc", ".so")]


def test_the_wheel_holds_every_file_and_lists_its_recipes(site: Path, tmp_path: Path):
    for file in (ROOT / "src" / "showtell").rglob("*"):
        if file.is_file() and file.suffix != ".pyc":
            assert (site / file.relative_to(ROOT / "src")).is_file(), file
    code = "import showtell; print(showtell.__file__, *showtell.list_recipes())"
    environment = {**os.environ, "PYTHONPATH": str(site)}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.stdout.split() == [str(site / "showtell" / "__init__.py"), *list_recipes()], done.stderr


def test_the_metadata_say_what_is_true(site: Path):
    (about,) = site.glob("*.dist-info")
    metadata = message_from_bytes((about / "METADATA").read_bytes())
    assert (metadata["Name"], metadata["Version"]) == ("showtell", __version__)
    assert (metadata["License-Expression"], metadata["Requires-Python"]) == ("Apache-2.0", ">=3.11")
    assert "Typing :: Typed" in metadata.get_all("Classifier")
    assert metadata.get_payload().startswith("# showtell\n")
    assert (about / "entry_points.txt").read_text() == "[console_scripts]\nshowtell = showtell.cli:main\n"
    assert (site / "showtell" / "py.typed").is_file() and [*about.rglob("licenses/LICENSE")]

"""Data flows one way: images, features, decoder, captions, scores. Nothing there knows what is beside the line."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "showtell"
BESIDE: dict[str, set[str]] = {  # each with those beside the line that it may import from
    "objectives": set(),
    "recipes": set(),
    "explanations": set(),
    "laboratory": set(),
    "bulk": set(),
    "training": {"explanations", "objectives", "recipes"},
    "diagnosis": {"training"},
    "quickstart": {"explanations", "training"},
}
BESIDE["cli"] = set(BESIDE)
DOORS = {"captioner.py": {"explanations"}}  # what a call on the line opens, and nothing before that call
# What each package of the line may import from; the plain modules at the root count by their own names.
LINE = {
    "images": {"config", "errors", "types"},
    "text": {"errors"},
    "datasets": {"errors", "files", "images", "counter_rng", "progress", "registry", "text"},
    "features": {"config", "datasets", "errors", "files", "images", "registry", "renamed", "types"},
    "models": {"config", "counter_rng", "registry", "types"},
    "decoding": {"config", "decoding_config", "errors", "models", "registry", "counter_rng", "text", "types"},
    "scenes": {"datasets", "errors", "files"},
    "objectives": {"config", "decoding", "errors", "models", "counter_rng", "registry", "scores", "text", "types"},
}


def imports(file: Path) -> set[str]:
    """The parts of showtell that a file imports: the name of the package or module below it."""
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) and node.module else []
        if isinstance(node, ast.ImportFrom) and node.module == "showtell":
            names = [f"showtell.{alias.name}" for alias in node.names]
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        found |= {name.split(".")[1] for name in names if name.startswith("showtell.")}
    return found


@pytest.mark.parametrize("package", sorted(LINE))
def test_a_package_imports_only_what_comes_before_it(package):
    for file in (SOURCE / package).rglob("*.py"):
        assert imports(file) - {package} <= LINE[package], file


def test_nothing_on_the_line_knows_what_stands_beside_it():
    for file in SOURCE.rglob("*.py"):
        if file.relative_to(SOURCE).parts[0] not in BESIDE and file.name not in ("__init__.py", "__main__.py"):
            assert imports(file) & BESIDE.keys() <= DOORS.get(file.name, set()), file


@pytest.mark.parametrize("package", sorted(BESIDE))
def test_what_stands_beside_the_line_does_not_go_in_circles(package):
    for file in (SOURCE / package).rglob("*.py"):
        assert imports(file) & BESIDE.keys() - {package} <= BESIDE[package], file


def test_captioning_works_with_all_that_stands_beside_it_gone(tiny_checkpoint, tiny_scenes):
    program = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({[f'showtell.{package}' for package in BESIDE]}))\n"
        "from showtell import Captioner\n"
        "print(Captioner.from_pretrained(sys.argv[1]).caption(sys.argv[2]))"
    )
    photo = next((tiny_scenes / "images").iterdir())
    command = [sys.executable, "-c", program, str(tiny_checkpoint), str(photo)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "Caption(text=" in done.stdout

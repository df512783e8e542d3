"""The notebooks of docs/notebooks: what their cells import is public; slow: they run."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.md"))
CELL = re.compile(r"^```\{code-cell\} ipython3\n(.*?)^```$", re.M | re.S)


def cells(file: Path) -> list[str]:
    return CELL.findall(file.read_text(encoding="utf-8"))


def code(file: Path) -> str:
    """All cells as one program."""
    return "\n".join(cells(file)).replace(";\n", "\n")


def test_each_says_what_it_needs_and_uses_public_names_alone():
    for file in NOTEBOOKS:
        text = file.read_text(encoding="utf-8")
        introduction = text.partition("```{code-cell}")[0]
        for needed in ("pip install -e .", "runs/notebooks", "\n  name: python3\n"):
            assert needed in introduction, file
        assert text.count("```{code-cell}") == len(cells(file)) > 10
        assert len(set(re.findall(r"^from (showtell\.\S+) import", code(file), re.M))) <= 3, file
        for node in ast.walk(ast.parse(code(file))):
            assert not (isinstance(node, ast.Attribute) and node.attr.startswith("_")), file
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "showtell":
                module = importlib.import_module(node.module or "")
                names = {name.name for name in node.names}
                assert names <= set(getattr(module, "__all__", vars(module))) and not any(n[0] == "_" for n in names)


@pytest.mark.slow
@pytest.mark.parametrize("file", NOTEBOOKS, ids=lambda file: file.stem)
def test_it_runs_with_few_pictures(file: Path, tmp_path: Path):
    small, count = re.subn(r"IMAGES, EPOCHS = \d+, \d+", "IMAGES, EPOCHS = 200, 1", code(file))
    assert count == 1
    environment = os.environ | {"MPLBACKEND": "agg", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, "-W", "error::UserWarning:__main__", "-"],
        input=small, cwd=tmp_path, env=environment, capture_output=True, text=True,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    assert "largest difference from step() and readout()" in run.stdout
    assert str(tmp_path) not in run.stdout

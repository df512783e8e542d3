"""What the package promises from outside: its public names, loaded on first use, and a light start."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import showtell

ROOT = Path(__file__).resolve().parents[1]


def test_every_public_name_exists():
    assert sorted(showtell.__all__) == showtell.__all__ == dir(showtell)
    for name in showtell.__all__:
        assert getattr(showtell, name) is not None
    with pytest.raises(AttributeError, match="module 'showtell' has no attribute 'nonsense'"):
        showtell.nonsense  # noqa: B018


def test_type_checkers_see_what_is_loaded_on_first_use():
    tree = ast.parse((ROOT / "src" / "showtell" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imported = {alias.asname: node.module for node in block.body for alias in node.names}
    assert imported == showtell._PUBLIC


def test_threads_sleep_after_a_short_wait_unless_told_otherwise():
    """Set before torch is loaded, which reads it as it is loaded."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    program = f"import os, sys, showtell; assert 'torch' not in sys.modules; print(*map(os.environ.get, {names}))"
    for given, kept in (
        ({}, "PASSIVE 10000"), ({"GOMP_SPINCOUNT": "0"}, "PASSIVE 0"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE None"),
    ):  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if name not in names} | given
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert (done.stdout.strip(), done.stderr) == (kept, "")


def test_help_and_version_load_nothing_heavy():
    program = (
        "import sys, showtell; assert 'typer' not in sys.modules\n"
        "from showtell.cli import main\n"
        "for option in ('--version', '--help'):\n"
        "    try:\n        main([option])\n    except SystemExit as ended:\n        assert not ended.code\n"
        "assert not {'torch', 'numpy', 'PIL', 'timm', 'pydantic'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.startswith(f"showtell {showtell.__version__}\n"), done.stderr
    assert "quickstart" in done.stdout


def test_the_version_is_that_of_the_project_and_of_the_changelog():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]  # hatch reads showtell.__version__; tests/test_wheel.py has the outcome
    assert f"## {showtell.__version__}" in (ROOT / "CHANGELOG.md").read_text()

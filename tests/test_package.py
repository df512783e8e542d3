"""What the package promises from outside: its public names, loaded on first use, and a light start."""

import ast
import importlib
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import showtell

ROOT = Path(__file__).resolve().parents[1]


def test_every_public_name_exists():
    assert sorted(showtell.__all__) == dir(showtell)
    assert None not in [getattr(showtell, name) for name in showtell.__all__]
    with pytest.raises(AttributeError, match="module 'showtell' has no attribute 'nonsense'"):
        showtell.nonsense  # noqa: B018


def test_type_checkers_see_what_is_loaded_on_first_use():
    tree = ast.parse((ROOT / "src" / "showtell" / "__init__.py").read_text(encoding="utf-8"))
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imported = {alias.asname: node.module for node in block.body for alias in node.names}
    assert imported == showtell._PUBLIC


def test_no_subpackage_has_the_name_of_a_public_function():
    parts = {path.stem for path in (ROOT / "src" / "showtell").iterdir()}
    assert not parts & {name for name in showtell.__all__ if name[0].islower()}


def test_the_command_line_is_ready_at_once_and_its_threads_sleep_after_a_short_wait():
    """Help, the version and a missing checkpoint load nothing heavy; torch reads the variables as it is loaded."""
    program = (
        "import os, sys, showtell; assert 'typer' not in sys.modules\nfrom showtell.cli import main\n"
        "missing = [[verb, '/no/such/folder', 'data'] for verb in ('caption', 'explain', 'calibrate')]\n"
        "for command in (['--version'], ['--help'], *missing):\n"
        "    try:\n        main(command)\n    except SystemExit as ended:\n        print('status', ended.code)\n"
        "    assert '/no/such/folder' in command or not {'numpy', 'PIL', 'timm', 'pydantic'} & set(sys.modules)\n"
        "assert 'torch' not in sys.modules\nprint(os.environ['OMP_WAIT_POLICY'], os.environ['GOMP_SPINCOUNT'])"
    )
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {name: value for name, value in os.environ.items() if name not in names}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    lines = done.stdout.splitlines()
    assert lines[0] == f"showtell {showtell.__version__}" and "quickstart" in done.stdout
    assert [line for line in lines if line.startswith("status")] == [*["status 0"] * 2, *["status 2"] * 3]
    assert done.stderr.count("There is no checkpoint folder /no/such/folder") == 3
    assert lines[-1] == "PASSIVE 10000"


def test_the_version_is_that_of_the_project_and_of_the_changelog():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["dynamic"] == ["version"]  # hatch reads showtell.__version__; tests/test_wheel.py has the outcome
    assert f"## {showtell.__version__}" in (ROOT / "CHANGELOG.md").read_text()


FILES = sorted((ROOT / "src" / "showtell").rglob("__init__.py"))
PACKAGES = [".".join(file.parent.relative_to(ROOT / "src").parts) for file in FILES]


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_exact(package: str):
    module = importlib.import_module(package)
    listed = list(getattr(module, "__all__", []))
    assert len(listed) == len(set(listed)), "a name is listed twice"
    assert [name for name in listed if not hasattr(module, name)] == []
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert {name for name in defined if not name.startswith("_")} <= set(listed), "defined here and not listed"


def test_documents_and_notebooks_import_what_is_public():
    block = re.compile(r"^```(?:python|\{code-cell\} ipython3)\n(.*?)^```", re.DOTALL | re.MULTILINE)
    for file in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]):
        for code in block.findall(file.read_text(encoding="utf-8")):
            for node in ast.walk(ast.parse(code.replace(";\n", "\n"))):
                if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "showtell":
                    module = importlib.import_module(node.module or "")
                    public = getattr(module, "__all__", None) or [name for name in vars(module) if name[0] != "_"]
                    submodules = {one.name for one in pkgutil.iter_modules(getattr(module, "__path__", ()))}
                    assert {alias.name for alias in node.names} <= {*public, *submodules}, (file, node.lineno)

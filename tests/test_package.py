"""What the package promises from outside: its public names, loaded on first use, and a light start."""

import ast
import importlib
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import showtell

ROOT = Path(__file__).resolve().parents[1]


def test_every_public_name_exists():
    assert sorted(showtell.__all__) == dir(showtell)
    for name in showtell.__all__:
        assert getattr(showtell, name) is not None
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


def test_importing_it_changes_no_variable_and_loads_nothing_of_transformers():
    program = (
        "import os, sys; before = dict(os.environ)\nimport showtell\n"
        "assert dict(os.environ) == before and 'torch' not in sys.modules\n"
        "from showtell import evaluate, load_recipe, train\nload_recipe('scenes/sat_soft')\n"
        "print([name for name in sys.modules if 'hugging_face' in name or name == 'transformers'])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_threads_of_the_command_line_sleep_after_a_short_wait_unless_told_otherwise():
    """Set before torch is loaded, which reads it as it is loaded."""
    names = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    program = (
        "import os, sys\nfrom showtell.cli import main\ntry: main(['--version'])\nexcept SystemExit: pass\n"
        f"assert 'torch' not in sys.modules; print(*map(os.environ.get, {names}))"
    )
    for given, kept in (
        ({}, "PASSIVE 10000"), ({"GOMP_SPINCOUNT": "0"}, "PASSIVE 0"), ({"OMP_WAIT_POLICY": "ACTIVE"}, "ACTIVE None"),
    ):  # fmt: skip
        environment = {name: value for name, value in os.environ.items() if name not in names} | given
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
        assert (done.stdout.splitlines()[-1], done.stderr) == (kept, "")


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


SOURCE = ROOT / "src"
PACKAGES = sorted(
    ".".join(file.parent.relative_to(SOURCE).parts) for file in (SOURCE / "showtell").rglob("__init__.py")
)


@cache
def imports() -> list[tuple[Path, ast.ImportFrom]]:
    """Every `from module import name` there is, in files and in the blocks of the documents, with its file."""
    codes = [(file, file.read_text(encoding="utf-8")) for top in ("src", "tests", "benchmarks")
             for file in sorted((ROOT / top).rglob("*.py"))]  # fmt: skip
    for file in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]):
        blocks = re.findall(r"^```python\n(.*?)^```", file.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)
        codes += [(file, block) for block in blocks]
    nodes = ((file, node) for file, code in codes for node in ast.walk(ast.parse(code)))
    return [(file, node) for file, node in nodes if isinstance(node, ast.ImportFrom) and not node.level]


def imported_from(package: str) -> dict[str, Path]:
    """The names that files outside a package import from it, each with one such file; its modules do not count."""
    folder = SOURCE / package.replace(".", "/")
    names: dict[str, Path] = {}
    for file, node in imports():
        if node.module == package and (folder not in file.parents or package == "showtell"):
            names |= {alias.name: file for alias in node.names}
    modules = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()}
    return {name: file for name, file in names.items() if name not in modules}


@pytest.mark.parametrize("package", PACKAGES)
def test_all_is_exact(package: str):
    module = importlib.import_module(package)
    listed = list(getattr(module, "__all__", []))
    assert len(listed) == len(set(listed)), "a name is listed twice"
    assert [name for name in listed if not hasattr(module, name)] == []
    tree = ast.parse(Path(str(module.__file__)).read_text(encoding="utf-8"))
    defined = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    assert {name for name in defined if not name.startswith("_")} <= set(listed), "defined here and not listed"
    unlisted = {name: str(file) for name, file in imported_from(package).items() if name not in listed}
    assert unlisted == {}, "imported from the package and not listed"

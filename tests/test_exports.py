"""Each package's `__all__` is exact: what it lists exists, and what anyone imports from the package is listed."""

from __future__ import annotations

import ast
import importlib
import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SOURCE = ROOT / "src"
PACKAGES = sorted(
    ".".join(file.parent.relative_to(SOURCE).parts) for file in (SOURCE / "showtell").rglob("__init__.py")
)


@cache
def imports() -> list[tuple[Path, ast.ImportFrom]]:
    """Every `from module import name` there is, in files and in the blocks of the documents, with its file."""
    codes = [(file, file.read_text(encoding="utf-8")) for top in ("src", "tests", "benchmarks")
             for file in sorted((ROOT / top).rglob("*.py"))]  # fmt: skip
    for file in sorted([ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]):
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

"""A line for each file of the package, in the order in which data flows (tests/test_flow.py)."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src" / "showtell"
COMMENT = re.compile(r"^[^\w`]*(.*?\.)\W*$")  # a line of comment, whatever marks the kind of file puts around it


def tree() -> str:
    """The block of lines."""
    parts = [SOURCE / name if (SOURCE / name).is_dir() else SOURCE / f"{name}.py" for name in _order()]
    rows = [row for part in parts for row in _rows(part)]
    width = max(len(name) for name, _ in rows)
    lines = ["src/showtell/", *[f"  {name:{width}}  {text}" for name, text in rows]]
    return "```text\n" + "\n".join(lines) + "\n```"


def _order() -> list[str]:
    """The packages and modules at the root."""
    tree = ast.parse((ROOT / "tests" / "test_flow.py").read_text(encoding="utf-8"))
    declared = {node.target.id: node.value for node in tree.body
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}  # fmt: skip
    assert declared["MAY_IMPORT"] is not None
    return list(ast.literal_eval(declared["MAY_IMPORT"]))


def _rows(path: Path, indent: str = "") -> Iterator[tuple[str, str]]:
    """The lines of a file, or of a package with its files; folders of data are not listed."""
    if path.is_file():
        yield indent + path.name, first_line(path)
    elif (path / "__init__.py").is_file():
        yield f"{indent}{path.name}/", first_line(path / "__init__.py")
        for inner in sorted(path.iterdir()):
            if inner.name != "__init__.py" and inner.suffix not in (".json", ".md"):
                yield from _rows(inner, indent + "  ")


def first_line(file: Path) -> str:
    """The first line of a docstring, or of the comment that a file begins with."""
    text = file.read_text(encoding="utf-8")
    if file.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0]
    opening = COMMENT.match(text.partition("\n")[0])
    assert opening, f"{file} should begin with a comment that says what it is"
    return opening[1]

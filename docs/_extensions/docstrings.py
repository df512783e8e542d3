"""Docstrings of this project as reStructuredText, and the comments beside its fields.

A docstring is plain text in Google's style with `code`; indented blocks, which hold equations, and tables are kept as
they are, and numbered lines are a list. A field of a record and a constant are described by the comment at the end of
their line or in the lines above it: `vectors: Tensor  # (B, R, D) one vector per region or grid cell`.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from textwrap import dedent, indent

_SECTION = re.compile(r"(Args|Raises|Returns|Yields):$", re.MULTILINE)
_ITEM = re.compile(r" ?(\d+)\. +(.*)")
_SPECIAL = re.compile(r"[*|\\]|(?<=\w)_(?!\w)")


def escape(text: str) -> str:
    """Plain text in which nothing but `code` has a meaning."""
    parts = text.split("`")
    parts[::2] = [_SPECIAL.sub(r"\\\g<0>", part) for part in parts[::2]]
    return "`".join(parts)


def to_rest(text: str) -> str:
    """A docstring as reStructuredText with sections as napoleon reads them."""
    paragraphs = ["\n".join(lines) for blank, lines in groupby(text.splitlines(), lambda line: not line.strip())
                  if not blank]  # fmt: skip
    blocks: list[str] = []
    in_section = False
    for paragraph in paragraphs:
        in_section = bool(_SECTION.match(paragraph)) or (in_section and paragraph.startswith(" "))
        if paragraph.startswith(">>>"):
            blocks.append(paragraph)
        elif in_section:
            blocks.append(escape(paragraph))
        else:
            blocks += _blocks(paragraph.splitlines())
    return "\n\n".join(blocks)


def _blocks(lines: Sequence[str]) -> Iterator[str]:
    """The blocks of one paragraph: text, what is kept as it is, and lists."""
    make = {"text": _text, "kept": _kept, "item": _list}
    for kind, pairs in groupby(_kinds(lines), key=itemgetter(0)):
        yield make[kind]([line for _, line in pairs])


def _kinds(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Each line with what it is part of."""
    kind = ""
    for line in lines:
        if _ITEM.match(line) and (kind in ("", "item") or line.startswith((" ", "1. "))):
            kind = "item"
        elif kind != "item" or not line.startswith(" "):  # an item goes on in lines that are indented
            kind = "kept" if line.startswith((" ", "|")) else "text"
        yield kind, line


def _text(lines: Sequence[str]) -> str:
    return escape("\n".join(lines))


def _kept(lines: Sequence[str]) -> str:
    return ".. code-block:: text\n\n" + indent(dedent("\n".join(lines)), "   ")


def _list(lines: Sequence[str]) -> str:
    items: list[list[str]] = []
    for line in lines:
        if match := _ITEM.match(line):
            items.append([match[1], match[2]])
        else:
            items[-1].append(line.strip())
    return "\n".join(_item(f"{number}. ", escape("\n".join(rest))) for number, *rest in items)


def _item(mark: str, text: str) -> str:
    return mark + indent(text, " " * len(mark))[len(mark) :]


@dataclass(frozen=True)
class Declaration:
    """A field of a class or a constant of a module, as the source declares it."""

    name: str
    annotation: str | None
    value: str | None
    comment: str


@cache
def declarations(file: Path, class_name: str = "") -> dict[str, Declaration]:
    """The declarations of a class, or of a module outside of its classes."""
    source = file.read_text(encoding="utf-8")
    tree: ast.Module | ast.ClassDef = ast.parse(source)
    if class_name:
        tree = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name)
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0]: token for token in tokens if token.type == tokenize.COMMENT}
    kept = {}
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(target, ast.Name):
            annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else None
            comment = _comment(comments, node.lineno, node.end_lineno or node.lineno)
            kept[target.id] = Declaration(target.id, annotation, _default(node.value), comment)
    return kept


def _comment(comments: dict[int, tokenize.TokenInfo], first: int, last: int) -> str:
    """The comment in the lines of a declaration, or else the one directly above."""
    texts = [comments[line].string for line in range(first, last + 1) if line in comments]
    if not texts:
        line = first - 1
        while line in comments and comments[line].line.lstrip().startswith("#"):
            texts.insert(0, comments[line].string)
            line -= 1
    return " ".join(text.lstrip("#: ") for text in texts if not text.startswith(("# type:", "# ---")))


def _default(value: ast.expr | None) -> str | None:
    """The default of a field, also of one that is declared by `field(...)`."""
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "field":
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in value.keywords}
        return given.get("default") or (f"{given['default_factory']}()" if "default_factory" in given else None)
    return None if value is None else ast.unparse(value)

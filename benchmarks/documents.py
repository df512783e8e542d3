"""Tables in Markdown, and the places of a document where they stand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from showtell.errors import DataError
from showtell.files import write_text


def write_between(document: Path, text: str, table: str) -> None:
    """Put text between the two lines of a document that name a table.

    Raises:
        DataError: it does not have both of them.
    """
    first, last = (f"<!-- {table}: {edge} -->" for edge in ("begin", "end"))
    head, begin, rest = document.read_text(encoding="utf-8").partition(first)
    _, end, tail = rest.partition(last)
    if not begin or not end:
        raise DataError(f"{document} needs the lines {first} and {last}; the tables go between them.")
    write_text(document, f"{head}{first}\n\n{text}\n\n{last}{tail}")


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

"""Tables of runs that `old_papers.py` made, on the screen and between the markers of a document."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from showtell.errors import DataError, ShowtellError
from showtell.files import write_text

Lines = Sequence[dict[str, Any]]  # a row of the tables each
ResultT = TypeVar("ResultT")


def publish(
    program: str,
    given: argparse.Namespace,
    markers: tuple[str, str],
    find: Callable[[], ResultT],
    tables: Callable[[ResultT], str],
    ratios: Callable[[ResultT], Lines],
) -> int:
    """Find something, write its tables into --docs, and print them, or its ratios with --json; the exit status."""
    try:
        result = find()
        if given.docs is not None:
            write_between(given.docs, tables(result), markers)
    except ShowtellError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 2
    print(json.dumps(ratios(result)) if given.json else tables(result))
    return 0


def markers_of(table: str) -> tuple[str, str]:
    """What stands before and behind a table in a document."""
    return f"<!-- {table}: begin -->", f"<!-- {table}: end -->"


def write_between(document: Path, text: str, markers: tuple[str, str]) -> None:
    """Put text between the markers of a document.

    Raises:
        DataError: it does not have both of them.
    """
    head, _, tail = _split(document, markers)
    first, last = markers
    write_text(document, f"{head}{first}\n\n{text}\n\n{last}{tail}")


def read_between(document: Path, markers: tuple[str, str]) -> str:
    """The text between the markers of a document.

    Raises:
        DataError: it does not have both of them.
    """
    return _split(document, markers)[1]


def _split(document: Path, markers: tuple[str, str]) -> tuple[str, str, str]:
    """What a document has in front of, between and behind its markers."""
    first, last = markers
    head, begin, rest = document.read_text(encoding="utf-8").partition(first)
    inside, end, tail = rest.partition(last)
    if not begin or not end:
        raise DataError(f"{document} needs the lines {first} and {last}; the tables go between them.")
    return head, inside, tail


def table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

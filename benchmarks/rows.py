"""The rows that a benchmark ends with: a value, what it is held against, and their ratio."""

import json
from collections.abc import Mapping, Sequence
from typing import Any


def show(rows: Sequence[Mapping[str, Any]], as_json: bool) -> None:
    """Print rows, each with name, value, unit, against and ratio: as one JSON list, or a line for each."""
    if as_json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['name']:28} {row['value']:10.2f} {row['unit']:9} {row['ratio']:7.2f} x {row['against']}")

"""How captions are written: text, JSON, JSON lines, CSV, and a table that a person corrects.

A format is a function from results (`captions.caption_result`) to pieces of text, each as soon as its result is there.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from showtell.errors import UsageError, printable

if TYPE_CHECKING:
    from showtell.captions import CaptionResult

UNCHECKED = "unchecked"  # the split of captions that nobody has looked at yet, and so no split to train on


def _as_text(records: Iterable[CaptionResult], calibrated: bool = False) -> Iterator[str]:
    for record in records:
        yield "".join(
            "\t".join([printable(record["image"]), printable(caption["text"]), *_chance(caption, calibrated)]) + "\n"
            for caption in record.get("captions", ())
        )


def _as_json(records: Iterable[CaptionResult], calibrated: bool = False) -> Iterator[str]:
    opening = "[\n"
    for record in records:
        yield opening + _dumped(record)
        opening = ",\n"
    yield "\n]\n"


def _as_json_lines(records: Iterable[CaptionResult], calibrated: bool = False) -> Iterator[str]:
    for record in records:
        yield _dumped(record) + "\n"


def _as_csv(records: Iterable[CaptionResult], calibrated: bool = False) -> Iterator[str]:
    yield _row("image", "caption", "logprob", *(["confidence"] if calibrated else []))
    for record in records:
        for caption in record.get("captions", ()):
            yield _row(record["image"], caption["text"], f"{caption['logprob']:.4f}", *_chance(caption, calibrated))


def _chance(caption: dict[str, Any], calibrated: bool) -> list[str]:
    return [f"{caption['confidence']:.3f}"] if calibrated else []


# With `calibrated` the tables have a last column for the confidence; JSON has it anyway.
FORMATS: dict[str, Callable[..., Iterator[str]]] = {
    "text": _as_text,
    "json": _as_json,
    "jsonl": _as_json_lines,
    "csv": _as_csv,
}


def as_corrections(records: Iterable[CaptionResult], table: Path, least_sure_first: bool) -> Iterator[str]:
    """A table that a person corrects and `showtell train` takes as a dataset.

    Its columns are CORRECTIONS: the image is named from the table's folder, the confidence is calibrated, or else the
    geometric mean of the probabilities of the words, and the split says "unchecked" until a person writes "train".

    Args:
        records: of photos that `refuse_outside` let pass.
        table: where the table will be.
        least_sure_first: sort photos by the confidence of their first caption, instead of leaving them as they came.
    """
    from showtell.captions import Caption
    from showtell.datasets.table import CORRECTIONS

    photos: list[tuple[float, str]] = []
    for record in records:
        captions = [Caption.from_json(caption) for caption in record.get("captions", ())]
        name = Path(os.path.relpath(record["image"], table.parent)).as_posix()
        rows = [_row(name, caption.text, f"{caption.confidence:.3f}", UNCHECKED) for caption in captions]
        if rows:
            photos.append((captions[0].confidence, "".join(rows)))
    if least_sure_first:
        photos.sort(key=lambda photo: photo[0])
    yield "\ufeff" + _row(*CORRECTIONS)  # the mark tells spreadsheets that this is UTF-8
    yield from (rows for _, rows in photos)


def refuse_outside(photos: Sequence[Path], table: Path) -> None:
    """Make sure that a table of corrections can name its photos, which is from its own folder downwards.

    Raises:
        UsageError: it is no CSV file by its name, is there already, or lies in another folder than the photos.
    """
    if table.suffix.lower() != ".csv":
        raise UsageError(f'--correct writes a CSV file; give "{table}" the suffix .csv.')
    if table.exists():
        raise UsageError(f"{table} is there already and may hold corrections; choose another name for --correct.")
    folder = os.path.abspath(table.parent)  # noqa: PTH100 (resolve() would follow links)
    places = [os.path.abspath(photo) for photo in photos]  # noqa: PTH100
    outside = next((place for place in places if not place.startswith(folder.rstrip(os.sep) + os.sep)), None)
    if outside is not None:
        above = os.path.commonpath([os.path.dirname(place) for place in places])  # noqa: PTH120
        raise UsageError(
            f"{outside} lies outside the folder of {table}, and a dataset names its images from its own folder; write "
            f"the corrections to a folder that holds all the photos: --correct {Path(above, table.name)}."
        )


def _dumped(record: CaptionResult) -> str:
    """JSON; a file name that is no UTF-8 is escaped, so that what is written always is."""
    text = json.dumps(record, ensure_ascii=False)
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return json.dumps(record)
    return text


def _row(*cells: str) -> str:
    stream = io.StringIO()
    csv.writer(stream, lineterminator="\n").writerow(cells)
    return stream.getvalue()

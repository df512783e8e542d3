"""A folder of captions in parts: what `showtell caption --engine ray` writes, and resumes after a kill.

    plan.jsonl      which photos each part has; written once, so that photos that come later change nothing
    manifest.jsonl  what the captions are made with, then a line for each part that is whole, with the photos in it
                    that could not be captioned, then a line that says that all are there
    part-00000.*    captions in one of the formats of `caption_formats.py`
    failed.jsonl    at the end, all that could not be captioned, with the reasons

A part is written whole before the manifest says so, and again if it does not: nothing is lost and nothing there twice.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from showtell.bulk import CaptionedBatch, Part, part_from_json, part_to_json
from showtell.cli.arguments import raise_failures
from showtell.cli.caption_formats import FORMATS
from showtell.cli.caption_journal import Journal, is_caption_result
from showtell.errors import DataError, notify
from showtell.files import parse_json, write_bytes
from showtell.progress import reporting

if TYPE_CHECKING:
    from showtell.captions import CaptionResult

MANIFEST, PLAN, FAILED = "manifest.jsonl", "plan.jsonl", "failed.jsonl"
END = "end"  # what the manifest has in place of a part when all are there


def write_parts(
    plan: Callable[[], list[Part]],
    caption_parts: Callable[[Iterable[tuple[int, Part]]], Iterator[CaptionedBatch]],
    formatter: Callable[[Iterable[CaptionResult]], Iterator[str]],
    suffix: str,
    folder: Path,
    made_with: dict[str, Any],
) -> None:
    """Caption the parts that are not captioned yet.

    Args:
        plan: finds the parts; asked only if none is captioned.
        caption_parts: parts with their numbers to their results.
        formatter: how results are written.
        suffix: of the files, and the name of the format.
        folder: where they are written.
        made_with: whatever the captions depend on, for `Journal`.

    Raises:
        DataError: the folder is of something else or cannot be written to, or some photos could not be captioned, which
            then are named; all others were.
    """
    _require_own_folder(folder)
    with Journal(
        folder / MANIFEST,
        made_with | {"format": suffix},
        1,
        key="part",
        things="parts",
        is_record=_is_manifest_record,
        in_place=True,
    ) as manifest:
        parts = _planned(folder / PLAN, plan, is_begun=len(manifest) > 0)
        names = [f"part-{number:05}.{suffix}" for number in range(len(parts))]
        remaining = {number: part for number, part in enumerate(parts) if names[number] not in manifest}
        if len(remaining) < len(parts):
            notify(f"resuming {folder}: {len(parts) - len(remaining)} of {len(parts)} parts are done.")
        try:
            with reporting("captioning") as report:
                for number, records in _whole_parts(caption_parts(remaining.items()), remaining, report):
                    write_bytes(folder / names[number], "".join(formatter(records)).encode("utf-8", "surrogateescape"))
                    failed = [record for record in records if "error" in record]
                    manifest.append([{"part": names[number], "photos": len(records), "failed": failed}])
        except KeyboardInterrupt as error:
            notify(
                f"interrupted; {len(manifest)} of {len(parts)} parts are kept in {folder}; the same command resumes."
            )
            raise typer.Exit(130) from error
        done = list(manifest.records(names))
        failed = [record for line in done for record in line["failed"]]
        photos = sum(line["photos"] for line in done)
        if END not in manifest:
            write_bytes(folder / FAILED, "".join(FORMATS["jsonl"](failed)).encode())
            manifest.append([{"part": END, "photos": photos, "failed": len(failed)}])
    count = f"{len(parts)} part{'s' * (len(parts) != 1)}"
    notify(f"{folder} has the captions of {photos - len(failed)} photos in {count}.")
    reasons = [record["error"] for record in failed]
    raise_failures(reasons, f"of {photos} photos could not be captioned, as {folder / FAILED} says")


def _is_manifest_record(record: dict[str, Any]) -> bool:
    """Whether this is a line about a part that is whole, or about all of them."""
    failed = record["failed"]
    if record["part"] == END:
        return type(record["photos"]) is int and type(failed) is int
    return type(record["photos"]) is int and isinstance(failed, list) and all(map(is_caption_result, failed))


def _whole_parts(
    captioned: Iterable[CaptionedBatch], remaining: dict[int, Part], report: Callable[[int, int | None], None]
) -> Iterator[tuple[int, list[CaptionResult]]]:
    """The records of each part that has come to its end."""
    open_parts: dict[int, dict[int, list[CaptionResult]]] = defaultdict(dict)  # by the number of the first record
    counts: dict[int, int] = {}  # photos in parts that are whole
    expected = _expected(remaining, counts)
    for batch in captioned:
        if not batch.is_end:
            open_parts[batch.number][batch.first] = batch.records
            report(len(batch.records), expected)
            continue
        batches = open_parts.pop(batch.number, {})
        records = [record for first in sorted(batches) for record in batches[first]]
        assert len(records) == batch.first, f"part {batch.number} has {len(records)} of {batch.first} photos"
        yield batch.number, records
        counts[batch.number] = len(records)
        expected = _expected(remaining, counts)


def _expected(remaining: dict[int, Part], counts: dict[int, int]) -> int | None:
    """How many photos parts have: of tars that are not read yet as many as of those that are."""
    known = [counts.get(number, part.photos) for number, part in remaining.items()]
    read = [counts[number] for number, part in remaining.items() if part.photos is None and number in counts]
    if None in known and not read:
        return None
    return round(sum(sum(read) / len(read) if count is None else count for count in known))


def _planned(file: Path, plan: Callable[[], list[Part]], is_begun: bool) -> list[Part]:
    """The parts: those of the plan that was begun, or of a new one."""
    if is_begun:
        try:
            with file.open("rb") as lines:
                return [part_from_json(parse_json(line.decode(), str(file))) for line in lines]
        except (OSError, ValueError, DataError) as error:
            raise DataError(
                f"{file} says what the parts are and is damaged; choose another --out, or delete {file.parent} to "
                "begin anew."
            ) from error
    parts = plan()
    write_bytes(file, b"".join(json.dumps(part_to_json(part)).encode() + b"\n" for part in parts))
    return parts


def _require_own_folder(folder: Path) -> None:
    """Make sure that a folder is new, or of this command.

    Raises:
        DataError: it is a file, or holds something and no manifest.
    """
    if folder.exists() and not folder.is_dir():
        raise DataError(f"{folder} is a file; --out of --engine ray needs the name of a folder.")
    if not folder.is_dir() or (folder / MANIFEST).exists():
        return
    if any(path.name != PLAN and not path.name.startswith(".") for path in folder.iterdir()):
        raise DataError(f"{folder} holds other things and no {MANIFEST}; choose a new folder for --out.")

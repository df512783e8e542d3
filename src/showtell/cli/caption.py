"""`showtell caption`: photos to captions, printed as they are found."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from showtell.captioner import Caption


class Search(StrEnum):
    """How captions are searched for."""

    greedy = "greedy"
    beam = "beam"


class Format(StrEnum):
    """How captions are written."""

    text = "text"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"


def caption(
    checkpoint: Annotated[
        str,
        typer.Argument(help="A checkpoint folder, or owner/name on the Hugging Face hub.", show_default=False),
    ],
    photos: Annotated[
        list[str],
        typer.Argument(
            help="Files, folders or patterns in quotes.", metavar="IMAGE|FOLDER|GLOB...", show_default=False
        ),
    ],
    search: Annotated[
        Search | None,
        typer.Option(help="How to search; the checkpoint's own way if not given.", show_default=False),
    ] = None,
    num_beams: Annotated[int | None, typer.Option(help="Width of the beam.", show_default=False)] = None,
    num_return_sequences: Annotated[
        int | None, typer.Option(help="Captions per photo, at most num_beams.", show_default=False)
    ] = None,
    max_length: Annotated[int | None, typer.Option(help="At most so many words.", show_default=False)] = None,
    format: Annotated[Format, typer.Option(help="How to write them.")] = Format.text,
    as_json: Annotated[bool, typer.Option("--json", help="The same as --format json.")] = False,
    out: Annotated[Path | None, typer.Option(help="Write to a file instead of the screen.", show_default=False)] = None,
    batch_size: Annotated[int, typer.Option(help="Photos at a time.", min=1)] = 16,
) -> None:
    """Caption photos. A file that is no image is named at the end, the others are captioned all the same."""
    import sys

    from showtell.captioner import Captioner
    from showtell.errors import DataError, ImageError, summarise
    from showtell.files import write_text
    from showtell.images.photo import find_photos

    paths = find_photos(photos)
    captioner = Captioner.from_pretrained(checkpoint)
    wanted: dict[str, Any] = {
        "search": search.value if search else None,
        "num_beams": num_beams,
        "num_return_sequences": num_return_sequences,
        "max_length": max_length,
    }
    if search is Search.greedy and num_beams is None:
        wanted |= {"num_beams": 1, "num_return_sequences": num_return_sequences or 1}
    settings = captioner.settings(**{name: value for name, value in wanted.items() if value is not None})
    style = Format.json if as_json else format
    parts: list[str] = []
    failures: list[tuple[Path, ImageError]] = []

    def put(text: str) -> None:
        parts.append(text)
        if out is None:
            sys.stdout.write(text)
            sys.stdout.flush()

    put(_OPENING.get(style, ""))
    for number, (path, found) in enumerate(captioner.caption_files(paths, settings, batch_size)):
        if isinstance(found, ImageError):
            failures.append((path, found))
        put(_WRITERS[style](path, found, number == 0))
    put(_CLOSING.get(style, ""))
    if out is not None:
        write_text(out, "".join(parts))
    if failures:
        raise DataError(
            f"{len(failures)} of {len(paths)} files could not be captioned: "
            + summarise([str(error).rstrip(".") for _, error in failures])
            + "."
        )


def _text(path: Path, found: list[Caption] | Exception, first: bool) -> str:
    if isinstance(found, Exception):
        return ""
    return "".join(f"{path}\t{one.text}\n" for one in found)


def _record(path: Path, found: list[Caption] | Exception) -> str:
    import json

    if isinstance(found, Exception):
        return json.dumps({"image": str(path), "error": str(found)}, ensure_ascii=False)
    return json.dumps({"image": str(path), "captions": [one.to_json() for one in found]}, ensure_ascii=False)


def _json(path: Path, found: list[Caption] | Exception, first: bool) -> str:
    return ("\n" if first else ",\n") + _record(path, found)


def _jsonl(path: Path, found: list[Caption] | Exception, first: bool) -> str:
    return _record(path, found) + "\n"


def _csv(path: Path, found: list[Caption] | Exception, first: bool) -> str:
    import csv
    import io

    stream = io.StringIO()
    if not isinstance(found, Exception):
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerows([str(path), one.text, f"{one.logprob:.4f}"] for one in found)
    return stream.getvalue()


_OPENING = {Format.json: "[", Format.csv: "image,caption,logprob\n"}
_CLOSING = {Format.json: "\n]\n"}
_WRITERS = {Format.text: _text, Format.json: _json, Format.jsonl: _jsonl, Format.csv: _csv}

"""`showtell caption`: photos to captions, printed as they are found, or kept until a file of them is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from showtell.captioner import Captioner
    from showtell.cli.caption_formats import Record
    from showtell.decoding import DecodingConfig


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
            help="Files, folders, patterns in quotes, or - for paths from standard input.",
            metavar="IMAGE|FOLDER|GLOB|-...",
            show_default=False,
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
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write to a file, which appears when it is whole; the same command again goes on where it stopped.",
            show_default=False,
        ),
    ] = None,
    correct: Annotated[
        Path | None,
        typer.Option(
            help="Write a table to correct, which train takes as a dataset, into a folder above the photos.",
            metavar="FILE.csv",
            show_default=False,
        ),
    ] = None,
    least_sure_first: Annotated[
        bool, typer.Option("--least-sure-first", help="Sort the table of --correct by confidence.")
    ] = False,
    batch_size: Annotated[int, typer.Option(help="Photos at a time.", min=1)] = 32,
) -> None:
    """Caption photos. A file that is no image is named at the end, the others are captioned all the same."""
    import sys

    from showtell import checkpoint as checkpoints
    from showtell.captioner import Captioner
    from showtell.cli.caption_formats import FORMATS, as_corrections, refuse_outside
    from showtell.errors import DataError, UsageError, summarise
    from showtell.images.photo import find_photos

    if correct is not None and out is not None:
        raise UsageError("--correct names the file to write, so it takes no --out beside it.")
    if least_sure_first and correct is None:
        raise UsageError("--least-sure-first sorts the table of --correct; give that too.")
    paths = find_photos(photos, sys.stdin.buffer if "-" in photos else None)
    style = FORMATS[Format.json if as_json else format]
    if correct is not None:
        refuse_outside(paths, correct)
        style = lambda records: as_corrections(records, correct, least_sure_first)  # noqa: E731
    folder = checkpoints.find_checkpoint(checkpoint)
    captioner = Captioner.from_pretrained(folder)
    wanted: dict[str, Any] = {
        "search": search.value if search else None,
        "num_beams": num_beams,
        "num_return_sequences": num_return_sequences,
        "max_length": max_length,
    }
    if search is Search.greedy and num_beams is None:
        wanted |= {"num_beams": 1, "num_return_sequences": num_return_sequences or 1}
    settings = captioner.settings(**{name: value for name, value in wanted.items() if value is not None})
    file = correct or out
    if file is None:
        failures = _print(captioner, paths, settings, batch_size, style)
    else:
        made_with = {"checkpoint": checkpoints.fingerprints(folder), "decoding": settings.model_dump(mode="json")}
        failures = _write(captioner, paths, settings, batch_size, style, file, made_with)
    if failures:
        raise DataError(
            f"{len(failures)} of {len(paths)} files could not be captioned: "
            + summarise([failure.rstrip(".") for failure in failures], MOST_NAMED)
            + "."
        )


Style = Callable[[Iterable["Record"]], Iterator[str]]
MOST_NAMED = 20  # files that could not be captioned; JSON has them all


def _print(
    captioner: Captioner, paths: Sequence[Path], settings: DecodingConfig, batch_size: int, style: Style
) -> list[str]:
    """Print captions as they are found; the sentences about those that are not."""
    import sys
    from io import TextIOWrapper

    from showtell.cli.caption_formats import record_of
    from showtell.progress import counting

    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(errors="surrogateescape")  # file names as they are, even those that are no UTF-8
    failures: list[str] = []
    done = 0
    try:
        with counting("captioning", len(paths), quiet=sys.stdout.isatty()) as progress:

            def records() -> Iterator[Record]:
                nonlocal done
                for path, found in captioner.caption_files(paths, settings, batch_size):
                    record = record_of(path, found)
                    if "error" in record:
                        failures.append(record["error"])
                    yield record
                    done += 1
                    progress(1)

            for text in style(records()):
                sys.stdout.write(text)
                sys.stdout.flush()
    except KeyboardInterrupt as error:
        sys.stderr.write(
            f"showtell: interrupted after {done} of {len(paths)} photos; with --out FILE it could go on.\n"
        )
        raise typer.Exit(130) from error
    return failures


def _write(
    captioner: Captioner,
    paths: Sequence[Path],
    settings: DecodingConfig,
    batch_size: int,
    style: Style,
    file: Path,
    made_with: dict[str, Any],
) -> list[str]:
    """Caption what is not captioned yet, then write the file; the sentences about photos that could not be."""
    import sys
    from itertools import islice

    from showtell.cli.caption_formats import record_of
    from showtell.cli.caption_journal import Journal
    from showtell.progress import counting

    failures: list[str] = []

    def noting(records: Iterable[Record]) -> Iterator[Record]:
        for record in records:
            if "error" in record:
                failures.append(record["error"])
            yield record

    with Journal(file, made_with, batch_size) as journal:
        left = [path for path in paths if path not in journal]
        if len(left) < len(paths):
            sys.stderr.write(f"showtell: going on in {journal.part}: {len(paths) - len(left)} photos are done.\n")
        try:
            with counting("captioning", len(left)) as progress:
                found = captioner.caption_files(left, settings, batch_size, first_alone=False)
                while batch := [record_of(*one) for one in islice(found, batch_size)]:
                    journal.append(batch)
                    progress(len(batch))
        except KeyboardInterrupt as error:
            sys.stderr.write(
                f"showtell: interrupted; {len(paths) - sum(path not in journal for path in paths)} of {len(paths)} "
                f"photos are kept in {journal.part}; the same command goes on.\n"
            )
            raise typer.Exit(130) from error
        journal.finish(paths, lambda records: style(noting(records)))
    return failures

"""`showtell caption`: photos to captions, printed as they are found, or kept until a file of them is whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import BatchSize, Checkpoint, Ensemble, Photos, out_file, out_path
from showtell.cli.decoding_options import Decoding, open_captioner, settings_of

if TYPE_CHECKING:
    from showtell.captioner import Captioner
    from showtell.captions import Caption, CaptionResult
    from showtell.decoding import DecodingConfig
    from showtell.errors import ImageError


class Engine(StrEnum):
    """What captions photos."""

    plain = "plain"
    ray = "ray"


class Format(StrEnum):
    """How captions are written."""

    text = "text"
    json = "json"
    jsonl = "jsonl"
    csv = "csv"


def caption(
    checkpoint: Checkpoint,
    photos: Photos,
    ensemble: Ensemble = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Add the probability that a caption is good (see showtell calibrate).")
    ] = False,
    attention: Annotated[bool, typer.Option("--attention", help="Add the attention of each word to the JSON.")] = False,
    format: Annotated[
        Format | None, typer.Option(help="Output format.", show_default="text; jsonl with --engine ray")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    out: Annotated[
        Path | None,
        out_path(
            "Write the captions to a file once all are there; the same command resumes after an interruption.",
            default="standard output",
        ),
    ] = None,
    correct: Annotated[
        Path | None,
        out_file(
            "Write a table for corrections, which train reads as a dataset, to a folder above the photos.", "FILE.csv"
        ),
    ] = None,
    least_sure_first: Annotated[
        bool, typer.Option("--least-sure-first", help="Sort the table of --correct by confidence, lowest first.")
    ] = False,
    batch_size: BatchSize = 32,
    engine: Annotated[
        Engine,
        typer.Option(
            help="plain, or ray for very many photos, also in tars, parquet files and object stores (writes parts).",
            rich_help_panel="Many photos",
        ),
    ] = Engine.plain,
    workers: Annotated[
        int | None,
        typer.Option(
            help="Number of processes of --engine ray, each with a model.",
            min=1,
            show_default="one per GPU, without a GPU one per core",
            rich_help_panel="Many photos",
        ),
    ] = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="Column of parquet files with the photos or their paths.",
            show_default="the first known name",
            rich_help_panel="Many photos",
        ),
    ] = None,
    *,
    decoding: Decoding,
) -> None:
    """Caption photos. A file that is no image is named at the end, the others are captioned all the same."""
    import sys
    from functools import partial

    from showtell.checkpoint import find_checkpoint, fingerprints
    from showtell.cli.caption_formats import FORMATS, as_corrections, refuse_outside
    from showtell.errors import DataError, UsageError, summarise
    from showtell.files import refuse_overwriting
    from showtell.images.photo_files import find_photos

    if correct is not None and out is not None:
        raise UsageError("--correct names the file to write, so it takes no --out beside it.")
    if least_sure_first and correct is None:
        raise UsageError("--least-sure-first sorts the table of --correct; give that too.")
    is_ray = engine is Engine.ray
    if is_ray and (out is None or correct is not None):
        raise UsageError("--engine ray writes parts into a folder; name it with --out FOLDER, without --correct.")
    if not is_ray and (workers is not None or column is not None):
        raise UsageError("--workers and --column are of --engine ray; give that too.")
    written = Format.json if as_json else format or (Format.jsonl if is_ray else Format.text)
    if attention and (correct is not None or written not in (Format.json, Format.jsonl)):
        raise UsageError("--attention is written into JSON; give --format json or jsonl with it.")
    if "" in photos:
        raise UsageError("A photo has an empty name; is a variable of the shell not set?")
    if "-" in photos and sys.stdin is None:
        raise UsageError("Standard input is closed, so there are no paths for -; name the photos, or pipe paths in.")
    stdin = sys.stdin.buffer if "-" in photos else None
    paths = [] if is_ray else find_photos(photos, stdin)
    style: Style = partial(FORMATS[written], calibrated=calibrated)
    if correct is not None:
        refuse_outside(paths, correct)
        style = partial(as_corrections, table=correct, least_sure_first=least_sure_first)
    folders = [find_checkpoint(name) for name in (checkpoint, *(ensemble or ()))]
    if out is not None and not is_ray:
        refuse_overwriting(out, "--out", [*paths, *folders])
    captioner = open_captioner(folders[0], folders[1:])
    settings = settings_of(captioner, decoding)
    if calibrated:
        _calibrate(captioner, folders, settings)
    made_with: dict[str, Any] = {
        "checkpoint": fingerprints(folders[0]),
        "decoding": settings.model_dump(mode="json"),
    }
    made_with |= {"ensemble": [fingerprints(folder) for folder in folders[1:]]} if ensemble else {}
    made_with |= {"attention": True} if attention else {}
    made_with |= {"calibration": captioner.calibration.to_json()} if captioner.calibration else {}
    work = partial(captioner.caption_photos, settings=settings, batch_size=batch_size, attention=attention)
    file = correct or out
    if file is None:
        failures = _print(work, paths, style)
    elif is_ray:
        from showtell.bulk import caption_parts, plan_parts, require_ray
        from showtell.cli.caption_parts import write_parts

        require_ray()
        write_parts(
            partial(plan_parts, photos, batch_size, column=column, stdin=stdin),
            partial(
                caption_parts,
                captioner,
                settings=settings,
                batch_size=batch_size,
                attention=attention,
                workers=workers,
            ),
            style,
            written.value,
            file,
            made_with | {"photos": photos, "folder": str(Path.cwd()), "column": column, "batch_size": batch_size},
        )
        return
    else:
        failures = _write(work, paths, style, file, made_with, batch_size)
    if failures:
        raise DataError(
            f"{len(failures)} of {len(paths)} files could not be captioned: "
            + summarise([failure.rstrip(".") for failure in failures], MOST_NAMED)
            + "."
        )


Style = Callable[[Iterable["CaptionResult"]], Iterator[str]]
Work = Callable[..., Iterator[tuple[Path, "list[Caption] | ImageError"]]]  # paths to what is found of each
MOST_NAMED = 20  # files that could not be captioned; JSON has them all


def _calibrate(captioner: Captioner, folders: Sequence[Path], settings: DecodingConfig) -> None:
    """Give a captioner the calibration of its checkpoint."""
    from showtell.confidence import load_calibration
    from showtell.errors import UsageError

    if len(folders) > 1:
        raise UsageError("--calibrated is about one checkpoint and --ensemble asks for several; leave one of them out.")
    captioner.calibration = load_calibration(folders[0], settings)


def _print(work: Work, paths: Sequence[Path], style: Style) -> list[str]:
    """Print captions as they are found; the sentences about those that are not."""
    import sys

    from showtell.captions import caption_result
    from showtell.progress import counting

    failures: list[str] = []
    done = 0
    try:
        with counting("captioning", len(paths), quiet=sys.stdout.isatty()) as progress:

            def records() -> Iterator[CaptionResult]:
                nonlocal done
                for path, found in work(paths):
                    record = caption_result(str(path), found)
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
    work: Work, paths: Sequence[Path], style: Style, file: Path, made_with: dict[str, Any], batch_size: int
) -> list[str]:
    """Caption what is not captioned yet, then write the file; the sentences about photos that could not be."""
    import sys
    from itertools import islice

    from showtell.captions import caption_result
    from showtell.cli.caption_journal import Journal
    from showtell.progress import counting

    failures: list[str] = []

    def noting(records: Iterable[CaptionResult]) -> Iterator[CaptionResult]:
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
                found = work(left, first_alone=False)
                while batch := [caption_result(str(path), one) for path, one in islice(found, batch_size)]:
                    journal.append(batch)
                    progress(len(batch))
        except KeyboardInterrupt as error:
            sys.stderr.write(
                f"showtell: interrupted; {len(paths) - sum(path not in journal for path in paths)} of {len(paths)} "
                f"photos are kept in {journal.part}; the same command goes on.\n"
            )
            raise typer.Exit(130) from error
        journal.finish(paths, lambda records: style(noting(records)))
    sys.stderr.write(f"showtell: {file} has the captions of {len(paths) - len(failures)} photos.\n")
    return failures

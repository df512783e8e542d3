"""`showtell caption`: captions of photos, printed as they come, or written to a file once all are there."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import (
    BatchSize,
    Checkpoint,
    Dtype,
    Ensemble,
    FeatureStore,
    Photos,
    open_stored_images,
    out_file,
    out_path,
    raise_failures,
    require_photos,
    standard_input,
)
from showtell.cli.decoding_options import Decoding, open_captioner, settings_of
from showtell.errors import UsageError, nearest, notify

if TYPE_CHECKING:
    from showtell.captions import Caption, CaptionResult
    from showtell.errors import ImageError
    from showtell.features.store import StoredImage

MANY = 100  # photos from which on a line says with what they are captioned


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
    photos: Photos = None,
    ensemble: Ensemble = None,
    features: FeatureStore = None,
    calibrated: Annotated[
        bool, typer.Option("--calibrated", help="Add the probability that a caption is good (see showtell calibrate).")
    ] = False,
    attention: Annotated[bool, typer.Option("--attention", help="Add the attention of each word to the JSON.")] = False,
    format: Annotated[
        Format | None, typer.Option(help="Output format.", show_default="from the suffix of --out, else text")
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
            "Write a CSV table to correct by hand and to train on, into a folder above the photos.",
            "FILE.csv",
        ),
    ] = None,
    least_sure_first: Annotated[
        bool, typer.Option("--least-sure-first", help="Sort the table of --correct by confidence, lowest first.")
    ] = False,
    sidecar: Annotated[
        bool,
        typer.Option(
            "--sidecar", help="Write dog.txt beside dog.jpg, a caption per line; photos that have a text are skipped."
        ),
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Caption photos that have a text, too, and replace it.")
    ] = False,
    accept_above: Annotated[
        float | None,
        typer.Option(
            help="Minimum confidence (0 to 1) of captions to train on unseen: --correct marks them train or val, "
            "--sidecar writes no others.",
            min=0,
            max=1,
            show_default="none is marked, all are written",
        ),
    ] = None,
    batch_size: BatchSize = 32,
    dtype: Dtype = None,
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
    """Caption photos. Unreadable files are reported at the end and skipped.

    With --features images are named by their ids in the store, or by photos whose names are these; without any name all
    are captioned.
    """
    from functools import partial

    from showtell.checkpoint import find_checkpoint
    from showtell.cli.caption_formats import FORMATS, as_corrections, refuse_foreign, refuse_outside
    from showtell.cli.caption_journal import made_with_of
    from showtell.cli.caption_sidecars import write_sidecars
    from showtell.cores import describe_threads
    from showtell.files import refuse_overwriting
    from showtell.images.photo_files import find_photos

    arguments = require_photos(photos, features, "IMAGE|FOLDER|GLOB|-...", "caption")
    is_ray = engine is Engine.ray
    _check_options(is_ray, out, correct, least_sure_first, workers, column)
    others = {"--out": out, "--correct": correct, "--engine ray": is_ray, "--format": format or as_json}
    _check_training_options(sidecar, overwrite, accept_above, others | {"--attention": attention})
    written = Format.json if as_json else format or _default_format(out, is_ray)
    if attention and (correct is not None or written not in (Format.json, Format.jsonl)):
        raise UsageError("--attention is written into JSON; give --format json or jsonl with it.")
    if features is not None and (is_ray or sidecar):
        raise UsageError(f"{'--engine ray' if is_ray else '--sidecar'} is about photos; leave --features out.")
    stdin = standard_input(arguments)
    chosen = None if features is None else open_stored_images(features, arguments, stdin)
    paths: list[Path] = []
    if chosen is not None:
        paths = [image.path for image in chosen.images if image.path is not None]
    elif not is_ray:
        paths = find_photos(arguments, stdin)
    formatter: Formatter = partial(FORMATS[written], calibrated=calibrated)
    if correct is not None and chosen is not None and len(paths) < len(chosen.images):
        raise UsageError("--correct writes the names of photos; name photos, which are matched to ids of the store.")
    if correct is not None:
        refuse_outside(paths, correct)
        formatter = partial(as_corrections, table=correct, least_sure_first=least_sure_first, accept_above=accept_above)
    folders = [find_checkpoint(name) for name in (checkpoint, *(ensemble or ()))]
    if out is not None and not is_ray:
        refuse_overwriting(out, "--out", [*paths, *folders, *([features] if features is not None else [])])
        refuse_foreign(out, written.value)
    captioner = open_captioner(checkpoint, ensemble, dtype)
    if (sidecar or correct) and not calibrated and "no_unknown" in captioner.abilities.settings:
        decoding = {"no_unknown": True, **decoding}  # nobody wants to train on it; a calibration has its own search
    settings = settings_of(captioner, decoding)
    if calibrated:
        captioner.load_calibration(settings)
    made_with = made_with_of(captioner, settings, attention=attention)
    images: Sequence[Path | StoredImage] = paths
    if chosen is not None:
        images = chosen.images
        made_with |= {"features": images[0].store.info.model_dump(mode="json", include={"fingerprint", "dtype"})}
    options: dict[str, Any] = {"settings": settings, "batch_size": batch_size, "attention": attention}
    if is_ray and out is not None:
        from showtell.bulk import caption_parts, plan_parts, require_ray
        from showtell.cli.caption_parts import write_parts

        made_with |= {"photos": arguments, "folder": str(Path.cwd()), "column": column, "batch_size": batch_size}
        require_ray()
        plan = partial(plan_parts, arguments, batch_size, column=column, stdin=stdin)
        run = partial(caption_parts, captioner, **options, workers=workers)
        write_parts(plan, run, formatter, written.value, out, made_with)
        return
    if len(images) >= MANY:
        notify(f"captioning {len(images):,} photos on {captioner.device}, {describe_threads()}.")
    caption_photos = partial(captioner.caption_photos, **options)
    file = correct or out
    if sidecar:
        failures = write_sidecars(caption_photos, paths, overwrite=overwrite, accept_above=accept_above or 0.0)
    elif file is None:
        failures = _print(caption_photos, images, formatter, is_table=written is Format.csv)
    else:
        failures = _write(caption_photos, images, formatter, file, made_with, batch_size)
    if correct is not None and accept_above is not None:
        notify(_describe_splits(correct))
    missing = () if chosen is None else chosen.missing
    raise_failures([*failures, *missing], f"of {len(images) + len(missing)} files could not be captioned")


Formatter = Callable[[Iterable["CaptionResult"]], Iterator[str]]
CaptionPhotos = Callable[..., Iterator[tuple[Any, "list[Caption] | ImageError"]]]


def _describe_splits(table: Path) -> str:
    """How many rows of a table of corrections are in which split, a sentence."""
    import csv
    from collections import Counter

    with table.open(encoding="utf-8-sig", newline="") as stream:
        counts = Counter(row["split"] for row in csv.DictReader(stream))
    rows = ", ".join(f"{count} {name}" for name, count in counts.items())
    return f"the table has {rows or 'no'} rows; a lower --accept-above accepts more."


def _check_options(
    is_ray: bool,
    out: Path | None,
    correct: Path | None,
    least_sure_first: bool,
    workers: int | None,
    column: str | None,
) -> None:
    """Make sure that options go together.

    Raises:
        UsageError: they do not.
    """
    if correct is not None and out is not None:
        raise UsageError("--correct names the file to write, so it takes no --out beside it.")
    if least_sure_first and correct is None:
        raise UsageError("--least-sure-first sorts the table of --correct; give that too.")
    if is_ray and (out is None or correct is not None):
        raise UsageError("--engine ray writes parts into a folder; name it with --out FOLDER, without --correct.")
    if not is_ray and (workers is not None or column is not None):
        raise UsageError("--workers and --column are of --engine ray; give that too.")


def _check_training_options(
    sidecar: bool, overwrite: bool, accept_above: float | None, others: Mapping[str, object]
) -> None:
    """Make sure that the options about captions to train on go together, and with the others.

    Raises:
        UsageError: they do not.
    """
    given = [option for option, value in others.items() if value]
    if sidecar and given:
        raise UsageError(f"--sidecar writes plain captions beside the photos; leave {' and '.join(given)} out.")
    if overwrite and not sidecar:
        raise UsageError("--overwrite replaces the texts of --sidecar; give that too.")
    if accept_above is not None and not sidecar and others["--correct"] is None:
        raise UsageError("--accept-above chooses captions to train on; give --correct FILE.csv or --sidecar too.")


def _default_format(out: Path | None, is_ray: bool) -> Format:
    """The format that the suffix of --out names; parts are JSON lines, standard output and devices get text.

    Raises:
        UsageError: there is no such format.
    """
    if is_ray:
        return Format.jsonl
    if out is None or (out.exists() and not out.is_file()):  # a folder is refused by whoever writes
        return Format.text
    suffix = out.suffix.lower()
    formats = {".txt": Format.text, **{f".{format}": format for format in Format}}
    if suffix not in formats:
        raise UsageError(
            f"The suffix of --out {out} selects no format: {nearest(suffix, formats)}; or give --format with it."
        )
    return formats[suffix]


def _watch(results: Iterable[CaptionResult], failures: list[str]) -> Iterator[CaptionResult]:
    """The same results; sentences about photos without captions are kept, and unknown words in captions are told."""
    from showtell.text.vocabulary import SPECIAL, Vocabulary

    token, unknown = SPECIAL[Vocabulary.unknown], 0
    for result in results:
        if "error" in result:
            failures.append(result["error"])
        captions = result.get("captions", ())
        unknown += sum(any(word["word"] == token for word in caption["words"]) for caption in captions)
        yield result
    if unknown:
        notify(
            f"{token} stands for a word that the checkpoint does not know, in {unknown} of the captions; --no-unknown "
            "lets it choose a word that it knows."
        )


def _print(
    caption_photos: CaptionPhotos, paths: Sequence[Path | StoredImage], formatter: Formatter, *, is_table: bool
) -> list[str]:
    """Print captions as they come; returns the sentences about photos without any."""

    from showtell.captions import caption_result
    from showtell.cli.caption_formats import without_controls
    from showtell.progress import counting

    failures: list[str] = []
    done = 0
    try:
        with counting("captioning", len(paths), quiet=sys.stdout.isatty()) as progress:

            def results() -> Iterator[CaptionResult]:
                nonlocal done
                for path, captions in caption_photos(paths):
                    result = caption_result(str(path), captions)
                    yield without_controls(result) if is_table else result
                    done += 1
                    progress(1)

            for text in formatter(_watch(results(), failures)):
                sys.stdout.write(text)
                sys.stdout.flush()
    except KeyboardInterrupt as error:
        notify(f"interrupted after {done} of {len(paths)} photos; with --out FILE it could resume.")
        raise typer.Exit(130) from error
    return failures


def _write(
    caption_photos: CaptionPhotos,
    paths: Sequence[Path | StoredImage],
    formatter: Formatter,
    file: Path,
    made_with: dict[str, Any],
    batch_size: int,
) -> list[str]:
    """Caption what is not captioned yet, then write the file; returns the sentences about photos without captions."""
    from itertools import islice

    from showtell.captions import caption_result
    from showtell.cli.caption_journal import Journal
    from showtell.progress import counting

    failures: list[str] = []
    with Journal(file, made_with, batch_size) as journal:
        remaining = [path for path in paths if path not in journal]
        if len(remaining) < len(paths):
            notify(f"resuming {journal.part}: {len(paths) - len(remaining)} photos are done.")
        try:
            with counting("captioning", len(remaining)) as progress:
                captioned = caption_photos(remaining, first_alone=False)
                results = (caption_result(str(path), captions) for path, captions in captioned)
                while batch := list(islice(results, batch_size)):
                    journal.append(batch)
                    progress(len(batch))
        except KeyboardInterrupt as error:
            notify(
                f"interrupted; {len(paths) - sum(path not in journal for path in paths)} of {len(paths)} "
                f"photos are kept in {journal.part}; the same command resumes."
            )
            raise typer.Exit(130) from error
        journal.finish(paths, lambda results: formatter(_watch(results, failures)))
    notify(f"{file} has the captions of {len(paths) - len(failures)} photos.")
    return failures

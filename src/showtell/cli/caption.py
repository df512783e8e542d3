"""`showtell caption`: captions of photos, printed as they come, or written to files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from showtell.cli.arguments import (
    MANY,
    BatchSize,
    Checkpoint,
    Dtype,
    Ensemble,
    FeatureStore,
    Photos,
    out_file,
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

    Writer = Callable[[Iterable[CaptionResult]], Iterator[str]]
    CaptionPhotos = Callable[..., Iterator[tuple[Any, list[Caption] | ImageError]]]

IF_INTERRUPTED = "with --out or --format sidecar the same command resumes"


Format = Literal["text", "json", "jsonl", "csv", "corrections", "sidecar"]  # `caption_formats.py` has the writers
_TO_TRAIN_ON: tuple[Format, ...] = ("corrections", "sidecar")  # a person reads them before a model does
_FORMATS_OF: dict[str, tuple[Format, ...]] = {
    "--attention": ("json", "jsonl"),
    "--least-sure-first": ("corrections",),
    "--overwrite": ("sidecar",),
    "--accept-above": _TO_TRAIN_ON,
}


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
        Format | None,
        typer.Option(
            help="Output format. corrections: a CSV table to correct by hand and to train on, in a folder above the "
            "photos; sidecar: dog.txt beside dog.jpg, a caption per line, photos that have a text are skipped.",
            show_default="from the suffix of --out, else text",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        out_file(
            "Write the captions to a file once all are there; the same command resumes after an interruption.",
            default="standard output",
        ),
    ] = None,
    least_sure_first: Annotated[
        bool, typer.Option("--least-sure-first", help="Sort corrections by confidence, lowest first.")
    ] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Caption photos that have a sidecar, too, and replace it.")
    ] = False,
    accept_above: Annotated[
        float | None,
        typer.Option(
            help="Minimum confidence (0 to 1) of captions to train on unseen: corrections have them in train or val, "
            "sidecars have no others.",
            min=0,
            max=1,
            show_default="none is marked, all are written",
        ),
    ] = None,
    batch_size: BatchSize = 32,
    dtype: Dtype = None,
    *,
    decoding: Decoding,
) -> None:
    """Caption photos. Unreadable files are reported at the end and skipped.

    With --features images are named by their ids in the store, or by photos whose names are these; without any name all
    are captioned.
    """
    from functools import partial

    from showtell.cli.caption_formats import WRITERS, FormatOptions
    from showtell.cli.caption_journal import made_with_of
    from showtell.cli.caption_sidecars import write_sidecars
    from showtell.cores import describe_threads

    arguments = require_photos(photos, features, "IMAGE|FOLDER|GLOB|-...", "caption")
    style = format or _format_of(out)
    options = FormatOptions(out, calibrated, least_sure_first, accept_above, overwrite)
    _check_options(style, options, attention=attention)
    images, missing = _images(arguments, features)
    inputs = [checkpoint, *(ensemble or ()), *([str(features)] if features else ())]
    _check_out(style, out, images, inputs)
    captioner = open_captioner(checkpoint, ensemble, dtype)
    if style in _TO_TRAIN_ON and not calibrated and "no_unknown" in captioner.abilities.settings:
        decoding = {"no_unknown": True, **decoding}  # nobody wants to train on it; a calibration has its own search
    settings = settings_of(captioner, decoding)
    if calibrated:
        captioner.load_calibration(settings)
    if len(images) >= MANY:
        notify(f"captioning {len(images):,} photos on {captioner.device}, {describe_threads()}.")
    caption_photos = partial(captioner.caption_photos, settings=settings, batch_size=batch_size, attention=attention)

    def write(results: Iterable[CaptionResult]) -> Iterator[str]:
        return WRITERS[style](results, options)

    if style == "sidecar":
        failures = write_sidecars(caption_photos, [Path(str(image)) for image in images], options)
    elif out is None:
        failures = _print(caption_photos, images, write)
    else:
        made_with = made_with_of(captioner, settings, attention=attention)
        if images and not isinstance(images[0], Path):
            made_with["features"] = images[0].store.info.model_dump(mode="json", include={"fingerprint", "dtype"})
        failures = _write(caption_photos, images, write, out, made_with, batch_size)
    raise_failures([*failures, *missing], f"of {len(images) + len(missing)} files could not be captioned")


def _format_of(out: Path | None) -> Format:
    """The format that the suffix of --out names; standard output and devices get text."""
    if out is None or (out.exists() and not out.is_file()):
        return "text"
    suffix = out.suffix.lower()
    formats: dict[str, Format] = {".txt": "text", ".json": "json", ".jsonl": "jsonl", ".csv": "csv"}
    if suffix not in formats:
        raise UsageError(
            f"The suffix of --out {out} selects no format: {nearest(suffix, formats)}; or give --format with it."
        )
    return formats[suffix]


def _check_options(style: Format, options: Any, *, attention: bool) -> None:
    """Refuse options that have no effect on the format."""
    given = {
        "--attention": attention,
        "--least-sure-first": options.least_sure_first,
        "--overwrite": options.overwrite,
        "--accept-above": options.accept_above is not None,
    }
    for option, is_given in given.items():
        if is_given and style not in _FORMATS_OF[option]:
            raise UsageError(f"{option} goes with --format {' or '.join(_FORMATS_OF[option])}, not with {style}.")
    if style == "sidecar" and options.out is not None:
        raise UsageError("--format sidecar writes beside the photos; leave --out out.")
    if style == "corrections" and (options.out is None or options.out.suffix.lower() != ".csv"):
        raise UsageError("--format corrections writes a table; name it with --out FILE.csv.")


def _images(arguments: Sequence[str], features: Path | None) -> tuple[Sequence[Path | StoredImage], Sequence[str]]:
    """The images that arguments name, and a sentence for each that the feature store lacks."""
    from showtell.features.store import FeatureStore
    from showtell.features.stored_images import choose_images
    from showtell.images.photo_files import find_photos

    stdin = standard_input(arguments)
    if features is None:
        return find_photos(arguments, stdin), ()
    chosen = choose_images(FeatureStore(features), arguments, stdin)
    if chosen.note is not None:
        notify(chosen.note)
    return chosen.images, chosen.missing


def _check_out(style: Format, out: Path | None, images: Sequence[Path | StoredImage], inputs: Sequence[str]) -> None:
    """Make sure, before any work, that the captions can be written where they should be."""
    from showtell.cli.caption_formats import require_inside, require_replaceable
    from showtell.files import refuse_overwriting

    paths = [image if isinstance(image, Path) else image.path for image in images]
    files = [path for path in paths if path is not None]
    if style in _TO_TRAIN_ON and len(files) < len(images):
        raise UsageError(f"--format {style} needs photos; name photos, which are matched to ids of the store.")
    if out is not None:
        refuse_overwriting(out, "--out", [*files, *map(Path, inputs)])
        require_replaceable(style, out)
        if style == "corrections":
            require_inside(files, out)


def _watch(results: Iterable[CaptionResult], failures: list[str]) -> Iterator[CaptionResult]:
    """The same results; sentences about photos without captions are kept, and unknown words in captions are told."""
    from showtell.cli.caption_formats import has_unknown
    from showtell.text.vocabulary import SPECIAL, Vocabulary

    unknown = 0
    for result in results:
        if "error" in result:
            failures.append(result["error"])
        unknown += sum(map(has_unknown, result.get("captions", ())))
        yield result
    if unknown:
        notify(
            f"{SPECIAL[Vocabulary.unknown]} stands for a word that the checkpoint does not know, in {unknown} of the "
            "captions; --no-unknown lets it choose a word that it knows."
        )


def _print(caption_photos: CaptionPhotos, images: Sequence[Path | StoredImage], writer: Writer) -> list[str]:
    """Print captions as they come; returns the sentences about photos without any."""
    from showtell.captions import caption_result
    from showtell.progress import counting

    failures: list[str] = []
    with counting("captioning", len(images), quiet=sys.stdout.isatty()) as progress:

        def results() -> Iterator[CaptionResult]:
            for image, captions in caption_photos(images):
                yield caption_result(str(image), captions)
                progress(1)

        for text in writer(_watch(results(), failures)):
            sys.stdout.write(text)
            sys.stdout.flush()
    return failures


def _write(
    caption_photos: CaptionPhotos,
    images: Sequence[Path | StoredImage],
    writer: Writer,
    file: Path,
    made_with: dict[str, Any],
    batch_size: int,
) -> list[str]:
    """Caption what is not captioned yet, then write the file; returns the sentences about photos without captions."""
    from itertools import islice

    from showtell.captions import caption_result
    from showtell.cli.caption_journal import open_journal
    from showtell.progress import counting

    failures: list[str] = []
    with open_journal(file, made_with, batch_size) as journal:
        remaining = [image for image in images if str(image) not in journal.offsets]
        if len(remaining) < len(images):
            notify(f"resuming {journal.part}: {len(images) - len(remaining)} photos are done.")
        with counting("captioning", len(remaining)) as progress:
            captioned = caption_photos(remaining, first_alone=False)
            results = (caption_result(str(image), captions) for image, captions in captioned)
            while batch := list(islice(results, batch_size)):
                journal.append(batch)
                progress(len(batch))
        journal.finish(map(str, images), lambda results: writer(_watch(results, failures)))
    notify(f"{file} has the captions of {len(images) - len(failures)} photos.")
    return failures

"""`showtell caption`: captions of photos, printed as they come, or written to files."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from showtell.cli import arguments as common
from showtell.cli.decoding_options import Decoding, open_captioner, short_names
from showtell.errors import NoAnswerError, UsageError, nearest, notify, summarise
from showtell.images.photo_files import SidecarName

if TYPE_CHECKING:
    from showtell.captions import CaptionResult
    from showtell.datasets.corrections import Correction
    from showtell.errors import ImageError
    from showtell.features.store import StoredImage
    from showtell.sidecars import CaptionPhotos, SidecarPlan

    Writer = Callable[[Iterable[CaptionResult]], Iterator[str]]

MAX_LISTED = 20  # photos and corrections that a message names
IF_INTERRUPTED = "with --out, --xmp or --format sidecar the same command resumes"
# Sidecars are written by `sidecars.py`, the others by `caption_formats.py`.
Format = Literal["text", "json", "jsonl", "csv", "corrections", "sidecar"]
_FOR_PEOPLE = ("corrections", "sidecar", "xmp")  # who do not want <unknown>, and no doubtful captions


def caption(
    checkpoint: common.Checkpoint,
    photos: common.Photos = None,
    features: common.FeatureStore = None,
    format: Annotated[
        Format | None,
        typer.Option(
            help="Output format. corrections: a CSV table to correct by hand and to train on, in a folder above the "
            "photos; sidecar: dog.txt beside dog.jpg, one line, photos that have a text are skipped.",
            show_default="from the suffix of --out, else text",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        common.out_file(
            "Write the captions to a file once all are there; the same command resumes after an interruption.",
            default="standard output",
        ),
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace --out, sidecars, and descriptions by a captioner, that exist.")
    ] = False,
    accept_above: Annotated[
        float | None,
        typer.Option(
            help="Minimum confidence (0 to 1) of captions that nobody checks: a table to correct has them in train or "
            "val, files beside photos have no others; 0 writes all.",
            min=0,
            max=1,
            show_default="what the captioner does not doubt; none in train or val",
        ),
    ] = None,
    xmp: Annotated[
        bool,
        typer.Option(
            "--xmp",
            help="Write captions into XMP sidecars, as description and alternative text, with what else is there left "
            "as it is; photos that have a description are skipped.",
        ),
    ] = False,
    xmp_name: Annotated[
        SidecarName, typer.Option(help="Name of a new sidecar of dog.jpg; one that is there is used.")
    ] = "dog.jpg.xmp",
    keywords: Annotated[
        bool, typer.Option("--keywords", help="With --xmp: the things that the caption names as keywords (dc:subject).")
    ] = False,
    corrections: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Corrections of showtell serve: photos that they hold, by whatever name, get the person's caption.",
            show_default="none",
        ),
    ] = None,
    batch_size: common.BatchSize = 32,
    dtype: common.Dtype = None,
    *,
    decoding: Decoding,
) -> None:
    """Caption photos. Unreadable files are reported at the end and skipped.

    A calibrated captioner says how likely each caption is to be good, and marks those that it would not rely on.
    With --features images are named by their ids in the store, or by photos whose names are these; without any name all
    are captioned.
    """
    from showtell.captions import Caption, without_gibberish
    from showtell.cli.caption_formats import WRITERS
    from showtell.cli.caption_journal import provenance
    from showtell.cores import describe_threads

    arguments = common.require_photos(photos, features, "caption")
    if xmp and format is not None:
        raise UsageError("--xmp and --format each choose a form; give one of them.")
    style = "xmp" if xmp else format or _format_of(out)
    if keywords and not xmp:
        raise UsageError("--keywords goes with --xmp; JSON and CSV have keywords anyway.")
    if accept_above is not None and style not in _FOR_PEOPLE:
        raise UsageError(f"--accept-above goes with {', '.join(_FOR_PEOPLE)}, not with {style}.")
    images, missing = _images(arguments, features)
    by_file = {path: image for image in images if (path := image if isinstance(image, Path) else image.path)}
    files = list(by_file)
    if style in _FOR_PEOPLE and len(files) < len(images):
        raise UsageError(f"{style} needs photos; name photos, which are matched to ids of the store.")
    inputs = [*files, Path(checkpoint), *filter(None, [features])]
    _check_out(style, out, files, inputs, overwrite=overwrite)
    corrected = {} if corrections is None else _match(corrections, files)
    captioner = open_captioner(checkpoint, dtype)
    if style in _FOR_PEOPLE and captioner.calibration is None and "no_unknown" in captioner.abilities.settings:
        decoding = {"no_unknown": True, **decoding}  # nobody wants it there; a calibration has its own search
    settings = captioner.settings(**decoding)
    notify(f"{checkpoint} {captioner.about.knows}")
    if captioner.calibration is not None and not captioner.calibration.fits(settings):
        notify("confidences are not calibrated: the calibration beside the weights is for another search.")
    if len(images) - len(corrected) >= common.MANY:
        notify(f"captioning {len(images) - len(corrected):,} photos on {captioner.device}, {describe_threads()}.")

    def caption_photos(photos: Sequence[Any], **how: Any) -> Iterator[tuple[Any, list[Caption] | ImageError]]:
        of_people = [corrected.get(photo if isinstance(photo, Path) else photo.path) for photo in photos]
        others = (by_file.get(photo, photo) for photo, own in zip(photos, of_people, strict=True) if own is None)
        results = captioner.caption_photos(others, settings, batch_size, **how)
        for photo, own in zip(photos, of_people, strict=True):
            if own is None:
                yield photo, without_gibberish(next(results)[1], str(photo))
            else:
                yield photo, [Caption.of_person(own.caption)]

    def write(results: Iterable[CaptionResult]) -> Iterator[str]:
        return WRITERS[style](results, out, accept_above)

    if style in ("sidecar", "xmp"):
        from showtell.hub import IN_THE_BOX
        from showtell.sidecars import SidecarPlan, TextSidecars, XmpSidecars  # lxml is loaded for these alone

        is_here = Path(checkpoint).exists() or checkpoint in IN_THE_BOX
        name = short_names([checkpoint])[0] if is_here else captioner.about.name
        kind = XmpSidecars(name, xmp_name, keywords) if xmp else TextSidecars()
        plan = SidecarPlan.of(files, kind, corrected, overwrite=overwrite)
        failures = _write_sidecars(caption_photos, plan, accept_above)
    elif out is None:
        failures = _print(caption_photos, images, write)
    else:
        made_with = provenance(captioner, settings)
        failures = _write(caption_photos, images, write, out, made_with, batch_size, {*map(str, corrected)})
    common.raise_failures([*failures, *missing], f"of {len(images) + len(missing)} files could not be captioned")


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


def _images(arguments: Sequence[str], features: Path | None) -> tuple[Sequence[Path | StoredImage], Sequence[str]]:
    """The images that arguments name, and a sentence for each that the feature store lacks."""
    from showtell.images.photo_files import find_photos

    stdin = common.standard_input(arguments)
    if features is None:
        return find_photos(arguments, stdin), ()
    from showtell.features.store import FeatureStore
    from showtell.features.stored_images import choose_images

    chosen = choose_images(FeatureStore(features), arguments, stdin)
    if chosen.note is not None:
        notify(chosen.note)
    return chosen.images, chosen.missing


def _match(corrections: Path, photos: Sequence[Path]) -> dict[Path, Correction]:
    """What people corrected of some photos; corrections that cannot be used are told."""
    from showtell.datasets.corrections import match_corrections

    matched = match_corrections(corrections, photos)
    notify(f"{len(matched.by_photo)} photos have a caption by a person in {corrections}.")
    if matched.edited:
        listed = summarise(matched.edited, MAX_LISTED)
        notify(f"{len(matched.edited)} photos were edited since somebody corrected them; correct them again: {listed}.")
    if matched.missing:
        listed = summarise((row.name for row in matched.missing), MAX_LISTED)
        notify(f"{len(matched.missing)} corrections are of none of these photos: {listed}.")
    return matched.by_photo


def _check_out(
    style: str, out: Path | None, photos: Sequence[Path], inputs: Iterable[Path], *, overwrite: bool
) -> None:
    """Make sure, before any work, that the captions can be written where they should be."""
    from showtell.cli.caption_formats import require_inside
    from showtell.files import refuse_overwriting

    if style in ("sidecar", "xmp") and out is not None:
        raise UsageError("Sidecars stand beside the photos; leave --out out.")
    if style == "corrections" and (out is None or out.suffix.lower() != ".csv"):
        raise UsageError("--format corrections writes a table; name it with --out FILE.csv.")
    if out is None:
        return
    refuse_overwriting(out, "--out", inputs)
    if out.is_file() and out.stat().st_size and not overwrite:
        raise UsageError(f"{out} exists already; choose another name for --out, or replace it with --overwrite.")
    if style == "corrections":
        require_inside(photos, out)


def _watch(results: Iterable[CaptionResult], failures: list[str]) -> Iterator[CaptionResult]:
    """The same results; sentences about photos without captions are kept, unknown words and unfamiliar photos told."""
    from showtell.captions import UNFAMILIAR
    from showtell.cli.caption_formats import has_unknown
    from showtell.text.vocabulary import SPECIAL, Vocabulary

    unknown = unfamiliar = 0
    for result in results:
        if "error" in result:
            failures.append(result["error"])
        unknown += sum(map(has_unknown, result.get("captions", ())))
        unfamiliar += any(caption["doubt"] == UNFAMILIAR for caption in result.get("captions", ()))
        yield result
    if unfamiliar:
        notify(f"photos unlike those that the captioner knows: {unfamiliar}; their captions are guesses.")
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
    anew: Set[str],  # what a person may have corrected since it was kept
) -> list[str]:
    """Caption what is not captioned yet, then write the file; returns the sentences about photos without captions."""
    import json
    from itertools import islice

    from showtell.captions import caption_result
    from showtell.cli.caption_journal import open_journal
    from showtell.files import writing
    from showtell.progress import counting

    failures: list[str] = []
    unanswered: list[str] = []  # sentences about photos that are asked for again next time
    part = file.with_name(f"{file.name}.part")
    with open_journal(file, made_with) as (kept, keep):
        remaining = [image for image in images if str(image) not in kept or str(image) in anew]
        if len(remaining) < len(images):
            notify(f"resuming {part}: {len(images) - len(remaining)} photos are done.")
        with counting("captioning", len(remaining)) as progress:
            captioned = caption_photos(remaining, first_alone=False)
            while batch := list(islice(captioned, batch_size)):
                unanswered += [str(error) for _, error in batch if isinstance(error, NoAnswerError)]
                keep(caption_result(str(image), of) for image, of in batch if not isinstance(of, NoAnswerError))
                progress(len(batch))
        if unanswered:
            notify(f"{part} keeps {len(kept)} photos; the same command asks for the others again.")
            return unanswered
        with writing(file) as stream:
            for text in writer(_watch((json.loads(kept[str(image)]) for image in images), failures)):
                stream.write(text.encode("utf-8", "surrogateescape"))
        part.unlink()
    notify(f"{file} has the captions of {len(images) - len(failures)} photos.")
    return failures


def _write_sidecars(caption_photos: CaptionPhotos, plan: SidecarPlan, least: float | None) -> list[str]:
    """Write files beside photos, and tell which were not; returns the sentences about photos that cannot have one."""
    from showtell.progress import counting

    with counting("captioning", len(plan.files)) as progress:

        def captions() -> Iterator[Any]:
            for captioned in caption_photos(list(plan.files), first_alone=False):
                progress(1)
                yield captioned

        plan.write(captions(), least)
    kind = plan.kind
    if plan.taken:
        files = summarise(there.file for there in plan.taken.values())
        rest = " but for keywords" if kind.with_keywords else ""
        notify(f"{len(plan.taken)} photos have a {kind.noun} already and are skipped{rest}: {files}; {kind.remedy}.")
    if plan.done:
        notify(f"{len(plan.done)} photos have the person's caption already.")
    if plan.rejected:
        lack = (
            "a doubtful caption, which is not written"
            if least is None
            else f"no caption of confidence {least:g} or more"
        )
        remedy = "; --accept-above 0 writes it" if least is None else ""
        notify(f"{len(plan.rejected)} photos have {lack}: {summarise(plan.rejected, MAX_LISTED)}{remedy}.")
    notify(f"{len(plan.written)} files are written beside their photos.")
    return plan.failures

"""`showtell explain`: explanations of captions as a page, as figures or as JSON."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from showtell.cli.arguments import (
    BatchSize,
    Checkpoint,
    Dtype,
    FeatureStore,
    Split,
    out_path,
    raise_failures,
    require_photos,
    standard_input,
)
from showtell.cli.decoding_options import DecodingOfOne, looks_at_photos, open_captioner, settings_of, short_names
from showtell.cli.score import ScoreModelChoice, open_score_models
from showtell.errors import DataError, UsageError, notify, summarise

if TYPE_CHECKING:
    from showtell.explanations import Explanation
    from showtell.explanations.photo_set import PhotoSet


Format = Literal["html", "png", "json"]
OcclusionMethod = Literal["mean", "remove", "pixels"]


def explain(
    checkpoint: Checkpoint,
    photos: Annotated[
        list[str] | None,
        typer.Argument(
            help="Image files, folders, glob patterns in quotes, - to read paths from standard input, or datasets; "
            "with --features also image ids.",
            metavar="IMAGE|FOLDER|DATASET...",
            show_default=False,
        ),
    ] = None,
    caption: Annotated[
        str | None,
        typer.Option(
            help="Explain this caption, word by word as given, instead of searching for one (teacher forcing).",
            show_default="search for one",
        ),
    ] = None,
    against: Annotated[
        list[str] | None,
        typer.Option(
            help="Explain the photos with another checkpoint too; can be repeated.",
            metavar="CHECKPOINT",
            show_default="none",
        ),
    ] = None,
    format: Annotated[
        Format | None, typer.Option(help="Output format.", show_default="inferred from the suffix of --out, else html")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Same as --format json.")] = False,
    out: Annotated[
        Path | None,
        out_path("Write the page, figure or JSON to a file, several figures to a folder.", "standard output for JSON"),
    ] = None,
    split: Split = "test",
    limit: Annotated[
        int, typer.Option(help="Explain at most this many photos of a dataset, the same ones in each run.", min=1)
    ] = 50,
    references: Annotated[
        Path | None,
        typer.Option(help="References of the photos: a dataset, or JSON of {id: \\[texts]}.", show_default="none"),
    ] = None,
    occlusion: Annotated[
        OcclusionMethod | None,
        typer.Option(help="Hide each region in turn and measure the drop of each word.", show_default="no occlusion"),
    ] = None,
    features: FeatureStore = None,
    batch_size: BatchSize = 32,
    dtype: Dtype = None,
    *,
    decoding: DecodingOfOne,
    score_models: ScoreModelChoice,
) -> None:
    """Explain captions: word probabilities, where the model looked.

    With references the worst captions come first. Unreadable photos are reported at the end and skipped.
    """
    import json

    from showtell.explanations.explanation import display_name
    from showtell.explanations.photo_set import add_references, choose_photos
    from showtell.features.store import FeatureStore as FeatureStoreReader
    from showtell.files import write_json
    from showtell.grounding.judging import explain_and_judge
    from showtell.grounding.teacher_forcing import settings_along
    from showtell.progress import counting

    output = "json" if as_json else format or _format_of(out)
    if out is None and output != "json":
        raise UsageError(f"--format {output} writes a file; name it with --out FILE, or use --format json.")
    if occlusion is not None and output == "png":
        raise UsageError("--format png does not draw --occlusion; use --format html or json, or leave --occlusion out.")
    arguments = require_photos(photos, features, "IMAGE|FOLDER|DATASET...", "explain")
    store = None if features is None else FeatureStoreReader(features)
    photo_set = choose_photos(arguments, split, limit, standard_input(arguments), store)
    if photo_set.note is not None:
        notify(photo_set.note)
    if references is not None:
        photo_set = add_references(photo_set, references)
    paths = [photo.path for photo in photo_set.photos]
    if store is None and not any(os.path.exists(path) for path in paths):  # noqa: PTH110 (any name)
        raise DataError(f"There is no photo to explain: {summarise(paths)} cannot be found; check the path.")
    names = [checkpoint, *(against or ())]
    inputs = [*paths, *map(Path, names), *filter(None, (references, features))]
    files = {} if out is None else _files_to_write(photo_set, output, out, inputs)
    models = open_score_models(score_models)
    opened = [open_captioner(name, dtype=dtype) for name in names]
    captioners = dict(zip(short_names(names), opened, strict=True))
    for title, one in list(captioners.items())[1:]:
        looks_at_photos(one, title, store)
    if caption is None:
        own = {**decoding, "num_return_sequences": 1}
        settings = {title: settings_of(one, own) for title, one in captioners.items()}
    else:
        stage = decoding.pop("stage", None)
        if decoding:
            raise UsageError(
                f"--caption gives all words, so there is no search that {summarise(decoding)} could change."
            )
        settings = {title: settings_along(one, caption, stage) for title, one in captioners.items()}
    with counting("explaining", len(paths)) as progress:
        explanations, failures = explain_and_judge(
            captioners,
            photo_set,
            settings,
            occlusion=occlusion,
            batch_size=batch_size,
            score_models=models,
            progress=progress,
        )
    if output == "json":
        errors = [{"image": display_name(path), "error": str(error)} for path, error in failures.items()]
        content = [*(one.to_json() for one in explanations), *errors]
        if out is not None:
            write_json(out, content)
        typer.echo(json.dumps(content, ensure_ascii=False) if out is None else out)
    elif explanations:
        _draw(explanations, output, files)
        typer.echo(out)
    if photo_set.num_skipped:
        of = f"split {split}" if arguments else "store"
        notify(f"{photo_set.num_skipped} more photos of the {of} were skipped; --limit includes more.")
    unexplained = [*failures.values(), *photo_set.missing]
    raise_failures(unexplained, f"of {len(paths) + len(photo_set.missing)} files could not be explained")


def _format_of(out: Path | None) -> Format:
    formats: dict[str, Format] = {".png": "png", ".json": "json"}
    return formats.get("" if out is None else out.suffix.lower(), "html")


def _files_to_write(photo_set: PhotoSet, output: Format, out: Path, inputs: Iterable[Path]) -> dict[str, Path]:
    """The file of each photo, by the photo's name; of a page or of JSON one for all of them, by the empty name.

    Raises:
        UsageError: one of them is an input, or a file that is not of showtell; or there is one name for several files.
    """
    from showtell.explanations.explanation import display_name
    from showtell.files import refuse_overwriting, require_writable_file
    from showtell.reports.base import refuse_foreign

    sources = [photo.source for photo in photo_set.photos]
    files = {"": out}
    if output == "png" and len(sources) == 1 and out.suffix:
        files = {display_name(sources[0]): out}
    elif output == "png":
        if out.suffix or out.is_file():
            raise UsageError(
                f"--out {out} is one file and there are {len(sources)} photos, each of which gets a picture; name a "
                "folder, or use --format html."
            )
        stems = [Path(str(source)).stem for source in sources]
        files = {
            display_name(source): out / f"{stem}{f'-{number + 1}' if (number := stems[:index].count(stem)) else ''}.png"
            for index, (source, stem) in enumerate(zip(sources, stems, strict=True))
        }
    inputs = list(inputs)
    for file in files.values():
        require_writable_file(file, "--out")
        refuse_overwriting(file, "--out", inputs)
        refuse_foreign(file, "--out")
    return files


def _draw(explanations: Sequence[Explanation], output: Format, files: dict[str, Path]) -> None:
    """Write explanations as a page, or each as a picture; each file whole or not at all."""
    from showtell.files import write_bytes
    from showtell.reports.explanation_page import write_page
    from showtell.reports.figure import to_png

    if output == "html":
        write_page(files[""], explanations)
        return
    for one in explanations:
        write_bytes(files[one.image], to_png(one))

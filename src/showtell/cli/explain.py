"""`showtell explain`: explanations of captions as a page, as figures or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
from showtell.cli.decoding_options import DecodingOfOne, looks_at_photos, open_captioner, settings_of
from showtell.cli.score_model_options import ScoreModelChoice, open_score_models
from showtell.errors import DataError, UsageError, notify, summarise

if TYPE_CHECKING:
    from showtell.errors import ImageError
    from showtell.explanations import Explanation
    from showtell.explanations.photo_set import PhotoSet
    from showtell.features.store import StoredImage


class Format(StrEnum):
    """Output formats."""

    html = "html"
    png = "png"
    json = "json"


class OcclusionMethod(StrEnum):
    """How a region is hidden."""

    mean = "mean"
    remove = "remove"
    pixels = "pixels"


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
        out_path(
            "Write the page, figure or JSON to a file, several figures to a folder.", default="standard output for JSON"
        ),
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
    from showtell.explanations.photo_set import add_references, choose_photos
    from showtell.features.store import FeatureStore as FeatureStoreReader
    from showtell.grounding.judging import explain_and_judge
    from showtell.progress import counting

    output = Format.json if as_json else format or _format_of(out)
    if out is None and output is not Format.json:
        raise UsageError(f"--format {output} writes a file; name it with --out FILE, or use --format json.")
    if occlusion is not None and output is Format.png:
        raise UsageError("--format png does not draw --occlusion; use --format html or json, or leave --occlusion out.")
    arguments = require_photos(photos, features, "IMAGE|FOLDER|DATASET...", "explain")
    store = None if features is None else FeatureStoreReader(features)
    photo_set = choose_photos(arguments, split, limit, standard_input(arguments), store)
    if photo_set.note is not None:
        notify(photo_set.note)
    if references is not None:
        photo_set = add_references(photo_set, references)
    paths = [photo.path for photo in photo_set.photos]
    if store is None and not any(map(_exists, paths)):
        raise DataError(f"There is no photo to explain: {summarise(paths)} cannot be found; check the path.")
    names = [checkpoint, *(against or ())]
    files = _files_to_write(photo_set, output, out, names, [one for one in (references, features) if one is not None])
    models = open_score_models(score_models)
    opened = [open_captioner(name, dtype=dtype) for name in names]
    captioners = dict(zip(short_names(names), opened, strict=True))
    for title, one in list(captioners.items())[1:]:
        looks_at_photos(one, title, store)
    settings = {title: settings_of(one, {**decoding, "num_return_sequences": 1}) for title, one in captioners.items()}
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
    if explanations or output is Format.json:
        _write(explanations, failures, output, out, files)
    if photo_set.num_skipped:
        of = f"split {split}" if arguments else "store"
        notify(f"{photo_set.num_skipped} more photos of the {of} were skipped; --limit includes more.")
    unexplained = [*failures.values(), *photo_set.missing]
    raise_failures(unexplained, f"of {len(paths) + len(photo_set.missing)} files could not be explained")


def short_names(checkpoints: Sequence[str]) -> list[str]:
    """Short names of checkpoints: as many last parts of their paths as distinguish them.

    `best` and `last` of a run are left out if the run's name suffices.

    >>> short_names(["runs/soft/best", "runs/hard/best"])
    ['soft', 'hard']
    >>> short_names(["runs/soft/0/best", "runs/hard/0/best"])
    ['soft/0', 'hard/0']
    >>> short_names(["runs/soft/best", "runs/soft/last"])
    ['soft/best', 'soft/last']
    >>> short_names(["owner/blip@refs/pr/7", "owner/git"])
    ['blip', 'git']
    >>> short_names(["runs/soft/best", "runs/soft/best"])
    ['soft (1)', 'soft (2)']
    """
    from showtell.explanations.explanation import unique_titles

    distinct = list(dict.fromkeys(checkpoints))
    # of a name on the hub, its revision, which may have slashes, is no part of a path
    whole = [Path(name if Path(name).exists() else name.partition("@")[0]).parts for name in distinct]
    runs = [parts[:-1] if parts[-1:] in (("best",), ("last",)) and len(parts) > 1 else parts for parts in whole]
    least, ends = (1, runs) if len(set(runs)) == len(runs) else (2, whole)
    tails = [["/".join(end[-parts:]) for end in ends] for parts in range(least, max(map(len, ends)) + 1)]
    titles = next((tail for tail in tails if len(set(tail)) == len(tail)), distinct)
    return unique_titles([titles[distinct.index(name)] for name in checkpoints])


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # such as a name that is too long
        return False


def _format_of(out: Path | None) -> Format:
    suffix = "" if out is None else out.suffix.lower().removeprefix(".")
    return Format(suffix) if suffix in set(Format) else Format.html


def _files_to_write(
    photo_set: PhotoSet, output: Format, out: Path | None, checkpoints: Sequence[str], inputs: Sequence[Path]
) -> dict[str, Path]:
    """The file of each photo, by the photo's name; of a page or of JSON one for all of them, by the empty name.

    Raises:
        UsageError: one of them is an input, or a file that is not of showtell; or there is one name for several files.
    """
    from showtell.files import refuse_overwriting, require_writable_file
    from showtell.hub import find_checkpoint
    from showtell.reports.base import refuse_foreign

    folders = [find_checkpoint(name) for name in checkpoints]
    if out is None:
        return {}
    files = _pictures([photo.source for photo in photo_set.photos], out) if output is Format.png else {"": out}
    for file in files.values():
        require_writable_file(file, "--out")
        refuse_overwriting(file, "--out", [*(photo.path for photo in photo_set.photos), *folders, *inputs])
        refuse_foreign(file, "--out")
    return files


def _pictures(photos: Sequence[Path | StoredImage], out: Path) -> dict[str, Path]:
    """The PNG file of each photo, by the photo's name: `out` itself, or a file in that folder.

    Raises:
        UsageError: `out` is a file, and there are several photos.
    """
    from showtell.explanations.explanation import display_name

    if len(photos) == 1 and out.suffix:
        return {display_name(photos[0]): out}
    if out.suffix or out.is_file():
        raise UsageError(
            f"--out {out} is one file and there are {len(photos)} photos, each of which gets a picture; name a folder, "
            "or use --format html."
        )
    pictures = {}
    taken: Counter[str] = Counter()
    for photo in photos:
        stem = Path(str(photo)).stem
        taken[stem] += 1
        pictures[display_name(photo)] = out / f"{stem if taken[stem] == 1 else f'{stem}-{taken[stem]}'}.png"
    return pictures


def _write(
    explanations: Sequence[Explanation],
    failures: Mapping[Path | StoredImage, ImageError],
    output: Format,
    out: Path | None,
    files: Mapping[str, Path],
) -> None:
    """Write the explanations, each file whole or not at all."""
    import json

    from showtell.explanations.explanation import display_name
    from showtell.files import write_bytes, write_json
    from showtell.reports.explanation_page import write_page
    from showtell.reports.figure import to_png

    if output is Format.json:
        errors = [{"image": display_name(path), "error": str(error)} for path, error in failures.items()]
        content = [*(one.to_json() for one in explanations), *errors]
        if out is None:
            typer.echo(json.dumps(content, ensure_ascii=False))
            return
        write_json(out, content)
    elif output is Format.html:
        write_page(files[""], explanations)
    else:
        for one in explanations:
            write_bytes(files[one.image], to_png(one))
    typer.echo(out)

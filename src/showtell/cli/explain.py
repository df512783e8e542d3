"""`showtell explain`: explanations of captions as a page, as figures or as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from showtell.cli import arguments as common
from showtell.cli.decoding_options import DecodingOfOne, looks_at_photos, open_captioner, short_names
from showtell.errors import DataError, UsageError, nearest, notify, summarise

if TYPE_CHECKING:
    from showtell.captioners import Captioner
    from showtell.decoding_config import DecodingConfig
    from showtell.explanations.photo_set import PhotoSet

SaliencyMethod = Literal["mean", "pixels"]


def explain(
    checkpoint: common.Checkpoint,
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
    out: Annotated[
        Path | None,
        common.out_file(
            "Write a page (.html), the figure of a photo (.png), the figures of several (a folder) or JSON (.json).",
            "FILE|FOLDER",
            "JSON to standard output",
            "either",
        ),
    ] = None,
    split: common.Split = "test",
    limit: Annotated[
        int, typer.Option(help="Explain at most this many photos of a dataset, the same ones in each run.", min=1)
    ] = 50,
    saliency: Annotated[
        SaliencyMethod | None,
        typer.Option(
            help="Show which regions a word needed, by hiding each in turn: its vector (mean) or its pixels.",
            show_default="none",
        ),
    ] = None,
    features: common.FeatureStore = None,
    batch_size: common.BatchSize = 32,
    dtype: common.Dtype = None,
    *,
    decoding: DecodingOfOne,
) -> None:
    """Explain captions: word probabilities, where the model looked.

    Of a dataset the worst captions come first. Unreadable photos are reported at the end and skipped.
    """
    from showtell.captioners.photos import display_name
    from showtell.explanations.photo_set import choose_photos
    from showtell.features.store import FeatureStore as FeatureStoreReader
    from showtell.files import write_bytes, write_json
    from showtell.grounding.judging import explain_and_judge
    from showtell.progress import counting

    arguments = common.require_photos(photos, features, "explain")
    store = None if features is None else FeatureStoreReader(features)
    photo_set = choose_photos(arguments, split, limit, common.standard_input(arguments), store)
    if photo_set.note is not None:
        notify(photo_set.note)
    paths = [photo.path for photo in photo_set.photos]
    if store is None and not any(os.path.exists(path) for path in paths):  # noqa: PTH110 (any name)
        raise DataError(f"There is no photo to explain: {summarise(paths)} cannot be found; check the path.")
    names = [checkpoint, *(against or ())]
    files = _files_to_write(photo_set, out, [*paths, *map(Path, names), *filter(None, [features])])
    captioners = dict(zip(short_names(names), [open_captioner(name, dtype=dtype) for name in names], strict=True))
    for name, captioner in zip(names, captioners.values(), strict=True):
        captioner.check_saliency(saliency)
        notify(f"{name} {captioner.about.knows}")
    for title in list(captioners)[1:]:
        looks_at_photos(captioners[title], title, store)
    if caption is None:
        settings = {name: model.settings(**decoding, num_return_sequences=1) for name, model in captioners.items()}
    else:
        stage = decoding.pop("stage", None)
        if decoding:
            raise UsageError(
                f"--caption gives all words, so there is no search that {summarise(decoding)} could change."
            )
        settings = {name: _settings_along(model, caption, stage) for name, model in captioners.items()}
    with counting("explaining", len(paths)) as progress:
        explanations, failures = explain_and_judge(
            captioners, photo_set, settings, saliency=saliency, batch_size=batch_size, progress=progress
        )
    errors = [{"image": display_name(path), "error": str(error)} for path, error in failures.items()]
    content = [*(explanation.to_json() for explanation in explanations), *errors]
    if out is None:
        typer.echo(json.dumps(content, ensure_ascii=False))
    elif out.suffix.lower() == ".json":
        write_json(out, content)
    elif out.suffix.lower() == ".html" and explanations:
        from showtell.reports.explanation_page import write_page

        write_page(out, explanations)
    else:
        from showtell.reports.figure import to_png

        for explanation in explanations:
            write_bytes(files[explanation.image], to_png(explanation))
    if out is not None and explanations:
        typer.echo(out)
    if photo_set.num_skipped:
        of = f"split {split}" if arguments else "store"
        notify(f"{photo_set.num_skipped} more photos of the {of} were skipped; --limit includes more.")
    unexplained = [*failures.values(), *photo_set.missing]
    common.raise_failures(unexplained, f"of {len(paths) + len(photo_set.missing)} files could not be explained")


def _files_to_write(photo_set: PhotoSet, out: Path | None, inputs: Iterable[Path]) -> dict[str, Path]:
    """The figure of each photo by its name; a page or JSON of all by "". A UsageError if one may not be written."""
    from showtell.captioners.photos import display_name
    from showtell.files import refuse_overwriting
    from showtell.reports.base import refuse_foreign

    if out is None:
        return {}
    sources = [photo.source for photo in photo_set.photos]
    suffix = "" if out.is_dir() else out.suffix.lower()
    if suffix not in ("", ".html", ".png", ".json"):
        raise UsageError(f"The suffix of --out {out} selects no format: {nearest(suffix, ('.html', '.png', '.json'))}.")
    if suffix == ".png" and len(sources) > 1:
        raise UsageError(
            f"--out {out} is one file and there are {len(sources)} photos, each of which gets a figure; name a folder, "
            "or FILE.html."
        )
    files = {display_name(sources[0]) if suffix == ".png" else "": out}
    if not suffix:
        files, stems = {}, set[str]()
        for stem, source in ((Path(str(source)).stem, source) for source in sources):
            free = (name for number in count(1) if (name := f"{stem}-{number}" if number > 1 else stem) not in stems)
            stems.add(name := next(free))
            files[display_name(source)] = out / f"{name}.png"
    inputs = list(inputs)
    for file in files.values():
        refuse_overwriting(file, "--out", inputs)
        refuse_foreign(file, "--out")
    return files


def _settings_along(captioner: Captioner, caption: str, stage: int | None = None) -> DecodingConfig:
    """Decoding settings that lead a captioner along a caption, its unknown words as `<unknown>`, as in training."""
    from showtell.captioners import EncoderDecoderCaptioner
    from showtell.decoding_config import DecodingConfig

    if not isinstance(captioner, EncoderDecoderCaptioner):
        raise UsageError(f"{captioner.about.name} cannot follow a given caption; only the models of showtell can.")
    vocabulary = captioner.vocabulary
    words = vocabulary.decode(vocabulary.encode(vocabulary.split(caption))[1:-1])
    if not words:
        raise UsageError(f'The caption "{caption}" has no words to follow; give some, such as "a dog runs".')
    given = {"prefix": " ".join(words), "max_length": len(words), "stage": stage}
    return captioner.check(DecodingConfig().changed(**given))

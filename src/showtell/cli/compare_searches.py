"""`showtell compare-searches`: all searches on one photo, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import AsJson, Checkpoint, Dtype, Ensemble, FeatureStore, open_stored_images, out_file
from showtell.cli.decoding_options import DecodingOptions, open_captioner

if TYPE_CHECKING:
    from rich.table import Table

    from showtell.compare_searches import SearchResult
    from showtell.features.store import StoredImage


def compare_searches(
    checkpoint: Checkpoint,
    image: Annotated[
        Path,
        typer.Argument(
            help="Image file; with --features also the id of an image.", metavar="IMAGE", show_default=False
        ),
    ],
    ensemble: Ensemble = None,
    features: FeatureStore = None,
    dtype: Dtype = None,
    out: Annotated[Path | None, out_file("Write an HTML page with the photo.", "FILE.html")] = None,
    as_json: AsJson = False,
    *,
    decoding: Annotated[
        dict[str, Any],
        DecodingOptions(
            "max_length",
            "min_length",
            "no_repeat_ngram_size",
            "no_repeat_words",
            "bad_words",
            "no_bad_endings",
            "no_unknown",
            "force_words",
            "seed",
            "prompt",
        ),
    ],
) -> None:
    """Compare all searches on one photo: captions, scores, diversity and time."""
    import json
    import sys

    from rich.console import Console

    from showtell.compare_searches import compare_searches as run_searches
    from showtell.compare_searches import plan_searches
    from showtell.errors import UsageError, notify, summarise
    from showtell.progress import counting
    from showtell.reports.compare_searches_page import write_page

    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f'--out writes a page; give "{out}" the suffix .html.')
    photo = image if features is None else _stored_image(features, str(image))
    captioner = open_captioner(checkpoint, ensemble, dtype)
    searches, refused = plan_searches(captioner, **decoding)
    for sentence in dict.fromkeys(refused.values()):
        names = [name for name, reason in refused.items() if reason == sentence]
        notify(f"left out {summarise(names)}: {sentence}")
    results = []
    with counting("searching", len(searches)) as progress:
        for result in run_searches(captioner, photo, **decoding):
            results.append(result)
            progress(1)
    if out is not None:
        write_page(out, photo, checkpoint, results)
    if as_json:
        content = {"image": str(photo), "searches": [result.to_json() for result in results]}
        typer.echo(json.dumps(content, ensure_ascii=False))
    elif out is None:
        # a pipe has no width to wrap at
        Console(width=None if sys.stdout.isatty() else 160).print(_table(results))
    else:
        typer.echo(out)


def _stored_image(store: Path, name: str) -> StoredImage:
    """The image of a store that a name means.

    Raises:
        UsageError: it means several.
    """
    from showtell.errors import UsageError, summarise

    images = open_stored_images(store, [name], None).images
    if len(images) > 1:
        raise UsageError(f"{name} is {len(images)} images of {store} ({summarise(images, 3)}); name one of them.")
    return images[0]


MAX_CAPTION = 1000  # characters of a caption in the table; the middle of a longer one is left out


def _table(results: Sequence[SearchResult]) -> Table:
    """A section for each search, a row for each caption."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from showtell.errors import printable, shorten

    table = Table("search", "caption", box=box.SIMPLE)
    for name in ("score", "logprob", "words", "distinct-2", "mBLEU-4", "ms"):
        table.add_column(name, justify="right")
    for result in results:
        rates = result.diversity or {}
        last = len(result.captions) - 1
        for number, caption in enumerate(result.captions):
            diversity = [f"{rates[name]:.2f}" if name in rates else "" for name in ("distinct_2", "mbleu_4")]
            text = printable(shorten(caption.text, MAX_CAPTION)) + ("" if caption.finished else " …")
            table.add_row(
                Text(result.name if number == 0 else ""),
                Text(text),  # not markup, whatever the words are
                f"{caption.score:.2f}",
                f"{caption.logprob:.2f}",
                str(len(caption.words)),
                *([*diversity, f"{result.milliseconds:.1f}"] if number == 0 else []),
                end_section=number == last,
            )
    return table

"""`showtell compare-searches`: every search for one photo side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import AsJson, Checkpoint, Ensemble, out_file
from showtell.cli.decoding_options import DecodingOptions, open_captioner

if TYPE_CHECKING:
    from rich.table import Table

    from showtell.compare_searches import SearchResult


def compare_searches(
    checkpoint: Checkpoint,
    image: Annotated[Path, typer.Argument(help="Image file.", metavar="IMAGE", show_default=False)],
    ensemble: Ensemble = None,
    out: Annotated[Path | None, out_file("Write an HTML page with the photo.", "FILE.html")] = None,
    as_json: AsJson = False,
    *,
    decoding: Annotated[
        dict[str, Any],
        DecodingOptions(
            "max_length",
            "min_length",
            "no_repeat_ngram_size",
            "bad_words",
            "no_bad_endings",
            "no_unknown",
            "force_words",
            "seed",
        ),
    ],
) -> None:
    """Caption a photo by every search: captions, scores, diversity and time side by side."""
    import json
    import sys

    from rich.console import Console

    from showtell.compare_searches import PRESETS
    from showtell.compare_searches import compare_searches as run_searches
    from showtell.errors import UsageError
    from showtell.progress import counting
    from showtell.reports.compare_searches_page import write_page

    if out is not None and out.suffix.lower() not in (".html", ".htm"):
        raise UsageError(f'--out writes a page; give "{out}" the suffix .html.')
    captioner = open_captioner(checkpoint, ensemble)
    trials = []
    with counting("searching", len(PRESETS) + bool(decoding.get("force_words"))) as progress:
        for trial in run_searches(captioner, image, **decoding):
            trials.append(trial)
            progress(1)
    if out is not None:
        write_page(out, image, trials)
    if as_json:
        found = {"image": str(image), "searches": [trial.to_json() for trial in trials]}
        typer.echo(json.dumps(found, ensure_ascii=False))
    elif out is None:
        # Where nobody looks there is no edge to wrap at.
        Console(width=None if sys.stdout.isatty() else 160).print(_table(trials))
    else:
        typer.echo(out)


def _table(trials: Sequence[SearchResult]) -> Table:
    """A section for each search, a row for each caption."""
    from rich import box
    from rich.table import Table

    table = Table("search", "caption", box=box.SIMPLE)
    for name in ("score", "logprob", "words", "distinct-2", "mBLEU-4", "ms"):
        table.add_column(name, justify="right")
    for trial in trials:
        rates = trial.diversity or {}
        last = len(trial.captions) - 1
        for number, caption in enumerate(trial.captions):
            measured = [f"{rates[name]:.2f}" if name in rates else "" for name in ("distinct_2", "mbleu_4")]
            table.add_row(
                trial.name if number == 0 else "",
                caption.text + ("" if caption.finished else " …"),
                f"{caption.score:.2f}",
                f"{caption.logprob:.2f}",
                str(len(caption.words)),
                *([*measured, f"{trial.milliseconds:.1f}"] if number == 0 else []),
                end_section=number == last,
            )
    return table

"""The formats in which captions are written to one file or to standard output."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from showtell.captions import Caption, CaptionResult, state_confidence
from showtell.errors import UsageError, escaped, notify
from showtell.text.vocabulary import SPECIAL, Vocabulary

# From results, the file that will be written (None: standard output) and `--accept-above` to text as it comes.
Writer = Callable[[Iterable[CaptionResult], Path | None, float | None], Iterator[str]]


def _text(results: Iterable[CaptionResult], out: Path | None, least: float | None) -> Iterator[str]:
    for result in map(_without_controls, results):
        for caption in result.get("captions", ()):
            chance = [state_confidence(caption["confidence"], caption["doubt"])] * caption["calibrated"]
            of_person = ["by a person"] * (caption["writer"] == "person")
            yield "\t".join([result["image"], caption["text"], *chance, *of_person]) + "\n"


def _json(results: Iterable[CaptionResult], out: Path | None, least: float | None) -> Iterator[str]:
    opening = "[\n"
    for result in results:
        yield opening + json_line(result)
        opening = ",\n"
    yield "\n]\n"


def _json_lines(results: Iterable[CaptionResult], out: Path | None, least: float | None) -> Iterator[str]:
    for result in results:
        yield json_line(result) + "\n"


def _csv(results: Iterable[CaptionResult], out: Path | None, least: float | None) -> Iterator[str]:
    from showtell.datasets.table import as_text_cell, csv_line  # text and JSON need no reader of datasets

    yield csv_line("image", "caption", "logprob", "confidence", "doubt", "writer", "keywords")
    for result in results if out else map(_without_controls, results):
        for caption in result.get("captions", ()):
            cells = (as_text_cell(result["image"]), as_text_cell(caption["text"]))
            logprob = "" if caption["logprob"] is None else f"{caption['logprob']:.4f}"
            confidence = "" if caption["confidence"] is None else f"{caption['confidence']:.3f}"
            named = "; ".join(caption["keywords"])
            yield csv_line(*cells, logprob, confidence, caption["doubt"] or "", caption["writer"], named)


def _corrections(results: Iterable[CaptionResult], out: Path | None, least: float | None) -> Iterator[str]:
    """A table to correct, the least sure captions first, in train or val (a tenth) if accepted, else "unchecked"."""
    from showtell.datasets.splits import UNCHECKED, VAL_SHARE, draw_splits
    from showtell.datasets.table import correction_lines

    assert out is not None
    photos: list[tuple[str, list[Caption]]] = []
    for result in results:
        captions = [Caption.from_json(caption) for caption in result.get("captions", ())]
        if captions:
            photos.append((Path(os.path.relpath(result["image"], out.parent)).as_posix(), captions))
    photos.sort(key=lambda photo: (photo[1][0].writer == "person", photo[1][0].confidence or 0.0))

    def is_accepted(caption: Caption) -> bool:
        if caption.writer == "person":
            return True
        return least is not None and caption.is_accepted(least) and not has_unknown(caption.to_json())

    splits = draw_splits((name for name, (best, *_) in photos if is_accepted(best)), val=VAL_SHARE, test=0)
    rows = [
        (name, caption.text, caption.confidence, splits.get(name, UNCHECKED))
        for name, captions in photos
        for caption in captions
        if name not in splits or is_accepted(caption)
    ]
    yield from correction_lines(rows)
    if least is not None:
        counts = ", ".join(f"{count} {split}" for split, count in Counter(split for *_, split in rows).items())
        notify(f"the table has {counts or 'no'} rows; a lower --accept-above accepts more.")


WRITERS: dict[str, Writer] = {
    "text": _text, "json": _json, "jsonl": _json_lines, "csv": _csv, "corrections": _corrections,
}  # fmt: skip


def require_inside(photos: Iterable[Path], table: Path) -> None:
    """Raise a UsageError if a photo is not in the folder of a table of corrections, which names photos from there."""
    folder = os.path.abspath(table.parent)  # noqa: PTH100 (resolve() would follow links)
    above = os.path.commonpath([os.path.dirname(os.path.abspath(photo)) for photo in photos])  # noqa: PTH100, PTH120
    if os.path.commonpath([folder, above]) != folder:
        raise UsageError(
            f"Not all photos lie in the folder of {table}, and a dataset names its images from its own folder; write "
            f"the corrections to a folder that holds all the photos: --out {Path(above, table.name)}."
        )


def has_unknown(caption: dict[str, object]) -> bool:
    """Whether a caption has the token of unknown words."""
    words: list[dict[str, object]] = caption["words"]  # type: ignore[assignment]
    return any(word["word"] == SPECIAL[Vocabulary.unknown] for word in words)


def _without_controls(result: CaptionResult) -> CaptionResult:
    """A result whose names and captions have no control characters: one line each, and harmless in a terminal."""
    captions = [{**caption, "text": escaped(caption["text"])} for caption in result.get("captions", ())]
    return {**result, "image": escaped(result["image"]), "captions": captions}


def json_line(result: CaptionResult) -> str:
    """JSON in one line, with whatever cannot be shown escaped, file names that are no UTF-8 included."""
    text = json.dumps(result, ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)

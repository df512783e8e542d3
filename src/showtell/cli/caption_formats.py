"""How captions are written: text, JSON, JSON lines, CSV, and a table that a person corrects.

A format is a function from results (`captions.caption_result`) to pieces of text, each as soon as its result is there.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from showtell.datasets.splits import UNCHECKED, VAL_SHARE, draw_splits
from showtell.datasets.table import as_text_cell, correction_lines, csv_line
from showtell.errors import UsageError, printable
from showtell.text.vocabulary import SPECIAL, Vocabulary

if TYPE_CHECKING:
    from showtell.captions import Caption, CaptionResult


def _as_text(results: Iterable[CaptionResult], calibrated: bool = False) -> Iterator[str]:
    for result in map(without_controls, results):
        yield "".join(
            "\t".join([result["image"], caption["text"], *([_confidence(caption)] if calibrated else [])]) + "\n"
            for caption in result.get("captions", ())
        )


def _as_json(results: Iterable[CaptionResult], calibrated: bool = False) -> Iterator[str]:
    opening = "[\n"
    for result in results:
        yield opening + _json(result)
        opening = ",\n"
    yield "\n]\n"


def _as_json_lines(results: Iterable[CaptionResult], calibrated: bool = False) -> Iterator[str]:
    for result in results:
        yield _json(result) + "\n"


def _as_csv(results: Iterable[CaptionResult], calibrated: bool = False) -> Iterator[str]:
    yield csv_line("image", "caption", "logprob", "confidence")
    for result in results:
        for caption in result.get("captions", ()):
            yield csv_line(
                as_text_cell(result["image"]),
                as_text_cell(caption["text"]),
                f"{caption['logprob']:.4f}",
                _confidence(caption),
            )


def _confidence(caption: dict[str, Any]) -> str:
    from showtell.captions import Caption

    return f"{Caption.from_json(caption).confidence:.3f}"


# With `calibrated` text has a last column for the confidence; the other formats have it anyway.
FORMATS: dict[str, Callable[..., Iterator[str]]] = {
    "text": _as_text,
    "json": _as_json,
    "jsonl": _as_json_lines,
    "csv": _as_csv,
}


def as_corrections(
    results: Iterable[CaptionResult], table: Path, least_sure_first: bool, accept_above: float | None = None
) -> Iterator[str]:
    """A table that a person corrects and `showtell train` takes as a dataset.

    Its columns are CORRECTIONS: the image is named from the table's folder, the confidence is calibrated, or else the
    geometric mean of the probabilities of the words, and the split says "unchecked" until a person writes "train".

    Args:
        results: of photos that `refuse_outside` let pass.
        table: where the table will be.
        least_sure_first: sort photos by the confidence of their first caption, instead of leaving them as they came.
        accept_above: photos whose first caption has at least this confidence (0 to 1) are in train or, a tenth of them
            by their names, in val, with those of their captions that reach it; None accepts none.
    """
    from showtell.captions import Caption

    photos: list[tuple[str, list[Caption]]] = []
    for result in results:
        captions = [Caption.from_json(caption) for caption in result.get("captions", ())]
        if captions:
            photos.append((Path(os.path.relpath(result["image"], table.parent)).as_posix(), captions))
    if least_sure_first:
        photos.sort(key=lambda photo: photo[1][0].confidence)
    least = float("inf") if accept_above is None else accept_above
    accepted = (name for name, (best, *_) in photos if best.confidence >= least and not _has_unknown(best))
    splits = draw_splits(accepted, val=VAL_SHARE, test=0)
    yield from correction_lines(
        (name, caption.text, caption.confidence, splits.get(name, UNCHECKED))
        for name, captions in photos
        for caption in captions
        if name not in splits or (caption.confidence >= least and not _has_unknown(caption))
    )


def _has_unknown(caption: Caption) -> bool:
    """Whether a caption has the token of unknown words, which nobody wants to train on."""
    return any(word.word == SPECIAL[Vocabulary.unknown] for word in caption.words)


def refuse_outside(photos: Sequence[Path], table: Path) -> None:
    """Make sure that a table of corrections can name its photos, which is from its own folder downwards.

    Raises:
        UsageError: it is no CSV file by its name, is there already, or lies in another folder than the photos.
    """
    if table.suffix.lower() != ".csv":
        raise UsageError(f'--correct writes a CSV file; give "{table}" the suffix .csv.')
    if table.exists():
        raise UsageError(f"{table} is there already and may hold corrections; choose another name for --correct.")
    unnamed = next((photo for photo in photos if any("\ud800" <= char <= "\udfff" for char in str(photo))), None)
    if unnamed is not None:
        raise UsageError(
            f"The name of {printable(str(unnamed))} is not in UTF-8, as a table has to be; rename the photo."
        )
    folder = os.path.abspath(table.parent)  # noqa: PTH100 (resolve() would follow links)
    paths = [os.path.abspath(photo) for photo in photos]  # noqa: PTH100
    outside = next((path for path in paths if not path.startswith(folder.rstrip(os.sep) + os.sep)), None)
    if outside is not None:
        above = os.path.commonpath([os.path.dirname(path) for path in paths])  # noqa: PTH120
        raise UsageError(
            f"{outside} lies outside the folder of {table}, and a dataset names its images from its own folder; write "
            f"the corrections to a folder that holds all the photos: --correct {Path(above, table.name)}."
        )


def refuse_foreign(file: Path, format: str) -> None:
    """Make sure that a file to write holds no captions but such as were written here.

    Args:
        file: that will be replaced, if it is there.
        format: one of `FORMATS`.

    Raises:
        UsageError: it holds something else, such as captions that people wrote.
    """
    if not file.is_file() or not file.stat().st_size:
        return
    with file.open(encoding="utf-8", errors="replace") as stream:
        start = stream.read(4096)
    line = start.partition("\n")[0]
    is_ours = {
        "text": "\t" in line,
        "json": start.startswith("[") and ('"image":' in start or start.split() == ["[", "]"]),
        "jsonl": line.startswith('{"image":'),
        "csv": line.lstrip("\ufeff").startswith("image,caption,logprob"),
    }[format]
    if not is_ours:
        raise UsageError(
            f"{file} is there already and was not written by showtell caption; choose another name for --out, or move "
            "that file away."
        )


def without_controls(result: CaptionResult) -> CaptionResult:
    """A result whose names and words fill no second line or cell, and do nothing to a terminal."""
    captions = [{**caption, "text": escaped(caption["text"])} for caption in result.get("captions", ())]
    return {**result, "image": escaped(result["image"]), **({"captions": captions} if captions else {})}


def escaped(text: str) -> str:
    """A text whose control characters are escaped; a file name that is no UTF-8 keeps its bytes."""
    return "".join(char if "\udc80" <= char <= "\udcff" else printable(char) for char in text)


def _json(result: CaptionResult) -> str:
    """JSON in one line, with whatever cannot be shown escaped, file names that are no UTF-8 included."""
    text = json.dumps(result, ensure_ascii=False)
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)

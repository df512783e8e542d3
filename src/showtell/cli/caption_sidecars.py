"""Texts beside photos: dog.txt with the captions of dog.jpg, one per line, as `datasets/text_files.py` reads them.

A photo that has a text is skipped, so that the same command resumes; each text is written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from showtell.cli.caption_formats import escaped
from showtell.errors import ImageError, notify, summarise
from showtell.files import require_writable_file, write_text
from showtell.progress import counting

if TYPE_CHECKING:
    from showtell.captions import Caption
    from showtell.cli.caption import CaptionPhotos


def write_sidecars(
    caption_photos: CaptionPhotos, photos: Sequence[Path], *, overwrite: bool = False, accept_above: float = 0.0
) -> list[str]:
    """Write the captions of each photo beside it.

    Args:
        caption_photos: `Captioner.caption_photos` with its settings.
        photos: files, those that cannot be read included.
        overwrite: caption photos that have a text, too, and replace it.
        accept_above: write captions of at least this confidence (0 to 1).

    Returns:
        A sentence for each photo that cannot have a text.

    Raises:
        DataError: a folder cannot be written to; the texts that were written before are there.
    """
    texts, failures = _texts_of(photos)
    existing = [] if overwrite else [text for text in texts.values() if os.path.lexists(text)]
    remaining = {photo: text for photo, text in texts.items() if overwrite or not os.path.lexists(text)}
    if existing:
        count = "1 text is" if len(existing) == 1 else f"{len(existing)} texts are"
        notify(f"{count} there already and left alone: {summarise(existing)}; --overwrite replaces them.")
    for folder in {text.parent for text in remaining.values()}:
        require_writable_file(folder / "sidecar.txt.new", "--sidecar")
    written, unsure = 0, []
    try:
        with counting("captioning", len(remaining)) as progress:
            for photo, captions in caption_photos(list(remaining), first_alone=False):
                text = remaining[photo]
                if isinstance(captions, ImageError):
                    failures.append(str(captions))
                elif not any(caption.text.strip() for caption in captions):
                    failures.append(f"{photo} has an empty caption.")
                elif not (lines := _lines(captions, accept_above)):
                    unsure.append(photo)
                elif overwrite or not os.path.lexists(text):
                    write_text(text, lines)
                    written += 1
                progress(1)
    except KeyboardInterrupt as error:
        resume = "begins anew" if overwrite else "resumes"
        notify(f"interrupted; {written} of {len(remaining)} texts are written; the same command {resume}.")
        raise typer.Exit(130) from error
    if unsure:
        notify(f"{len(unsure)} photos have no caption of confidence {accept_above:g} or more: {summarise(unsure)}.")
    notify(f"{written} texts are written beside their photos.")
    return failures


def _lines(captions: Sequence[Caption], accept_above: float) -> str:
    """The lines of a text: its captions without line breaks, each once."""
    sure = (" ".join(caption.text.split()) for caption in captions if caption.confidence >= accept_above)
    return "".join(f"{escaped(line)}\n" for line in dict.fromkeys(filter(None, sure)))


def _texts_of(photos: Sequence[Path]) -> tuple[dict[Path, Path], list[str]]:
    """The text of each photo, and a sentence for each that would share its text with another, or is its own."""
    by_text: dict[str, list[Path]] = {}
    for photo in photos:
        by_text.setdefault(os.path.abspath(_text_of(photo)), []).append(photo)  # noqa: PTH100 (resolve() follows links)
    texts, failures = {}, []
    for sharing in by_text.values():
        text = _text_of(sharing[0])
        if len(sharing) > 1:
            shared = f"would share {text.name} with another photo; rename one of them."
            failures += [f"{photo} {shared}" for photo in sharing]
        elif text == sharing[0]:
            failures.append(f"{text} has the suffix of texts; rename the photo.")
        else:
            texts[sharing[0]] = text
    return texts, failures


def _text_of(photo: Path) -> Path:
    """Where the text of a photo is, or else will be."""
    capital = photo.with_name(f"{photo.stem}.TXT")
    return capital if os.path.lexists(capital) else photo.with_name(f"{photo.stem}.txt")

"""Files beside photos, such as dog.txt beside dog.jpg, each written whole or not at all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from showtell.captions import Caption
from showtell.cli.caption_formats import escaped
from showtell.errors import ImageError, notify, summarise
from showtell.files import write_text
from showtell.progress import counting

if TYPE_CHECKING:
    from showtell.cli.caption import CaptionPhotos


def write_sidecars(
    caption_photos: CaptionPhotos, photos: Sequence[Path], *, least: float, overwrite: bool
) -> list[str]:
    """Write a file beside each photo that has none; with `overwrite` beside all.

    Args:
        caption_photos: `Captioner.caption_photos` with its settings.
        photos: files, those that cannot be read included.
        least: confidence of the captions that are written.
        overwrite: replace files that are there.

    Returns:
        A sentence for each photo that cannot have a file.

    Raises:
        DataError: a folder cannot be written to; the files that were written before are there.
    """
    files = {photo: _file_beside(photo) for photo in photos}
    owners = Counter([*files.values(), *files])  # a photo may be named like the file of another, or its own
    shared = [photo for photo, file in files.items() if owners[file] > 1]
    failures = [f"{photo} would share {files.pop(photo).name} with another; rename it." for photo in shared]
    existing = [] if overwrite else [photo for photo, file in files.items() if os.path.lexists(file)]
    if existing:
        names = summarise([files.pop(photo) for photo in existing])
        notify(f"{len(existing)} photos have a text already and are skipped: {names}; --overwrite replaces them.")
    written, without = 0, []
    with counting("captioning", len(files)) as progress:
        for photo, captions in caption_photos(list(files), first_alone=False):
            if isinstance(captions, ImageError):
                failures.append(str(captions))
            elif text := _text(captions, least):
                write_text(files[photo], text)
                written += 1
            else:
                without.append(photo)
            progress(1)
    if without:
        notify(f"{len(without)} photos have no caption of confidence {least:g} or more: {summarise(without)}.")
    notify(f"{written} files are written beside their photos.")
    return failures


def _text(captions: Sequence[Caption], least: float) -> str:
    """A caption per line, each once, as `datasets/text_files.py` reads them."""
    lines = (" ".join(caption.text.split()) for caption in captions if caption.confidence >= least)
    return "".join(f"{escaped(line)}\n" for line in dict.fromkeys(filter(None, lines)))


def _file_beside(photo: Path) -> Path:
    """Where the file of a photo is, or else will be."""
    capital = photo.with_suffix(".TXT")
    return capital if os.path.lexists(capital) else photo.with_suffix(".txt")

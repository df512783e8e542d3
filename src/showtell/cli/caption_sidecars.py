"""Files beside photos, such as dog.txt beside dog.jpg, each written whole or not at all."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from showtell.captions import Caption
from showtell.cli.caption_formats import FormatOptions, escaped
from showtell.errors import ImageError, notify, summarise
from showtell.files import require_writable_file, write_text
from showtell.progress import counting

if TYPE_CHECKING:
    from showtell.cli.caption import CaptionPhotos


def write_sidecars(caption_photos: CaptionPhotos, photos: Sequence[Path], options: FormatOptions) -> list[str]:
    """Write a file beside each photo that has none; with `overwrite` beside all.

    Args:
        caption_photos: `Captioner.caption_photos` with its settings.
        photos: files, those that cannot be read included.
        options: what a person chose.

    Returns:
        A sentence for each photo that cannot have a file.

    Raises:
        DataError: a folder cannot be written to; the files that were written before are there.
    """
    files = {photo: _file_beside(photo) for photo in photos}
    owners = Counter([*files.values(), *files])  # a photo may be named like the file of another, or its own
    failures = [
        f"{one} would share {file.name} with another; rename it." for one, file in files.items() if owners[file] > 1
    ]
    remaining = {photo: file for photo, file in files.items() if owners[file] == 1}
    existing = [] if options.overwrite else [file for file in remaining.values() if os.path.lexists(file)]
    if existing:
        count = "1 file is" if len(existing) == 1 else f"{len(existing)} files are"
        notify(f"{count} there already and left alone: {summarise(existing)}; --overwrite replaces them.")
        remaining = {photo: file for photo, file in remaining.items() if file not in set(existing)}
    for folder in {file.parent for file in remaining.values()}:
        require_writable_file(folder / "sidecar.new", "--format sidecar")
    written, without = 0, []
    with counting("captioning", len(remaining)) as progress:
        for photo, captions in caption_photos(list(remaining), first_alone=False):
            if isinstance(captions, ImageError):
                failures.append(str(captions))
            elif text := _text(captions, options.accept_above or 0):
                write_text(remaining[photo], text)
                written += 1
            else:
                without.append(photo)
            progress(1)
    if without:
        least = f"{options.accept_above or 0:g}"
        notify(f"{len(without)} photos have no caption of confidence {least} or more: {summarise(without)}.")
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

"""Files beside photos, such as dog.txt beside dog.jpg.

A photo that has its file is skipped, so that the same command resumes; each file is written whole or not at all.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from showtell.captions import caption_result
from showtell.cli.caption_formats import FormatOptions, SidecarFormat
from showtell.errors import ImageError, notify, summarise
from showtell.files import require_writable_file, write_text
from showtell.progress import counting

if TYPE_CHECKING:
    from showtell.cli.caption import CaptionPhotos


def write_sidecars(
    caption_photos: CaptionPhotos, photos: Sequence[Path], format: SidecarFormat, options: FormatOptions
) -> list[str]:
    """Write a file beside each photo that has none.

    Args:
        caption_photos: `Captioner.caption_photos` with its settings.
        photos: files, those that cannot be read included.
        format: of the files.
        options: `overwrite` replaces the files that are there.

    Returns:
        A sentence for each photo that cannot have a file.

    Raises:
        DataError: a folder cannot be written to; the files that were written before are there.
    """
    files, failures = _files_beside(photos, format.suffix)
    existing = [] if options.overwrite else [file for file in files.values() if os.path.lexists(file)]
    if existing:
        count = "1 file is" if len(existing) == 1 else f"{len(existing)} files are"
        notify(f"{count} there already and left alone: {summarise(existing)}; --overwrite replaces them.")
    remaining = {photo: file for photo, file in files.items() if file not in set(existing)}
    for folder in {file.parent for file in remaining.values()}:
        require_writable_file(folder / "sidecar.new", "--format sidecar")
    written, unsure = 0, []
    try:
        with counting("captioning", len(remaining)) as progress:
            for photo, captions in caption_photos(list(remaining), first_alone=False):
                if isinstance(captions, ImageError):
                    failures.append(str(captions))
                elif not any(caption.text.strip() for caption in captions):
                    failures.append(f"{photo} has an empty caption.")
                elif not (text := format.write(caption_result(str(photo), captions), options)):
                    unsure.append(photo)
                else:
                    write_text(remaining[photo], text)
                    written += 1
                progress(1)
    except KeyboardInterrupt as error:
        resume = "begins anew" if options.overwrite else "resumes"
        notify(f"interrupted; {written} of {len(remaining)} files are written; the same command {resume}.")
        raise typer.Exit(130) from error
    if unsure:
        least = f"{options.accept_above or 0:g}"
        notify(f"{len(unsure)} photos have no caption of confidence {least} or more: {summarise(unsure)}.")
    notify(f"{written} files are written beside their photos.")
    return failures


def _files_beside(photos: Sequence[Path], suffix: str) -> tuple[dict[Path, Path], list[str]]:
    """The file of each photo, and a sentence for each photo that would share it with another, or is its own."""
    sharing: dict[Path, list[Path]] = {}
    for photo in photos:
        sharing.setdefault(_file_beside(photo, suffix), []).append(photo)
    files, failures = {}, []
    for file, owners in sharing.items():
        if len(owners) > 1:
            failures += [f"{one} would share {file.name} with another photo; rename one of them." for one in owners]
        elif file == owners[0]:
            failures.append(f"{file} has the suffix {suffix} itself; rename the photo.")
        else:
            files[owners[0]] = file
    return files, failures


def _file_beside(photo: Path, suffix: str) -> Path:
    """Where the file of a photo is, or else will be."""
    capital = photo.with_name(f"{photo.stem}{suffix.upper()}")
    return capital if os.path.lexists(capital) else photo.with_name(f"{photo.stem}{suffix}")

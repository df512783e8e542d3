"""Files beside photos, each written whole or not at all: a text such as dog.txt, or an XMP sidecar with what was there.

A text is one line, as trainers of image generators read it. What a person wrote is never lost: a text that is there is
replaced on request alone, and a description in XMP that no captioner wrote, or that was edited since, never.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from showtell.captions import UNFAMILIAR, Caption
from showtell.cli.caption_formats import escaped, tell_guesses
from showtell.errors import DataError, ImageError, ShowtellError, notify, summarise
from showtell.files import read_bytes, remove_leftovers, require_writable, write_text
from showtell.images import xmp
from showtell.images.descriptions import description_of
from showtell.progress import counting
from showtell.text.alt_text import alt_text

if TYPE_CHECKING:
    from showtell.cli.caption_formats import CaptionPhotos
    from showtell.images.photo_files import SidecarName


@dataclass(frozen=True)
class TextSidecars:
    """A text of one line."""

    prefix: str = ""  # before each caption
    option = "--format sidecar"
    noun = "text"  # what a photo has already, in a message, and how it would be replaced
    remedy = "--overwrite replaces them"

    def file_of(self, photo: Path) -> Path:
        """The text of the same stem, such as dog.txt, or dog.TXT if that is there."""
        capital = photo.with_suffix(".TXT")
        return capital if os.path.lexists(capital) else photo.with_suffix(".txt")

    def blocking(self, photo: Path, file: Path, *, overwrite: bool) -> Path | None:
        """The text, if it is there and is to stay. A file that is empty or blank is none."""
        is_file = os.path.isfile(file) and not os.path.islink(file)  # noqa: PTH113, PTH114 (see XmpSidecars)
        is_there = os.path.lexists(file) and not (is_file and not read_bytes(file).strip(b"\xef\xbb\xbf \t\r\n"))
        return file if is_there and not overwrite else None

    def write(self, file: Path, caption: Caption) -> None:
        """Replace the file."""
        write_text(file, escaped(f"{self.prefix}{' '.join(caption.text.split())}") + "\n")


@dataclass(frozen=True)
class XmpSidecars:
    """The description in an XMP sidecar."""

    captioner: str  # its name
    style: SidecarName
    option = "--xmp"
    noun = "description"
    remedy = "--overwrite replaces those that a captioner wrote"

    def file_of(self, photo: Path) -> Path:
        """See `images.xmp.sidecar_of`."""
        return xmp.sidecar_of(photo, self.style)

    def blocking(self, photo: Path, file: Path, *, overwrite: bool) -> Path | None:
        """The file with a description, a sidecar or the photo itself; with `overwrite` only with one of a person."""
        description = description_of(photo)
        if description is not None and (description.is_of_person or not overwrite):
            return description.file
        if os.path.islink(file):  # noqa: PTH114 (a name that is too long is no link)
            raise DataError(f"{file} is a link, and what it leads to is not written to; put a file there.")
        return None

    def write(self, file: Path, caption: Caption) -> None:
        """Merge a caption into the file; an alternative text that a person wrote stays."""
        sidecar, text = xmp.Sidecar(file), " ".join(caption.text.split())
        is_ours = sidecar[xmp.ALT_TEXT] in ("", alt_text(sidecar[xmp.CAPTION]))
        sidecar.update(
            {
                xmp.DESCRIPTION: text,
                **({xmp.ALT_TEXT: alt_text(text)} if is_ours and caption.doubt is None else {}),
                xmp.CAPTION: text,
                xmp.CAPTIONER: self.captioner,
                xmp.WRITER: "captioner",
                xmp.CONFIDENCE: "" if caption.confidence is None else f"{caption.confidence:.3f}",
                xmp.IS_CALIBRATED: str(caption.calibrated_confidence is not None),
            }
        )
        sidecar.write()


def write_sidecars(
    caption_photos: CaptionPhotos,
    photos: Sequence[Path],
    kind: TextSidecars | XmpSidecars,
    *,
    least: float | None,
    overwrite: bool,
) -> list[str]:
    """Write the best caption of each photo beside it.

    Args:
        caption_photos: `Captioner.caption_photos` with its settings.
        photos: files, those that cannot be read included.
        kind: what to write.
        least: confidence of the captions that are written; None: all are.
        overwrite: write it also where there is something that may be replaced.

    Returns:
        A sentence for each photo that cannot have a file.

    Raises:
        DataError: the disk is full; the files that were written before are there.
    """
    remove_leftovers(photo.parent for photo in photos)
    files = {photo: kind.file_of(photo) for photo in photos}
    owners = Counter([*files.values(), *files])  # a photo may be named like the file of another, or its own
    failures = [
        f"{photo} would share {file.name} with another; rename it." for photo, file in files.items() if owners[file] > 1
    ]
    taken: list[Path] = []

    def is_free(photo: Path) -> bool:
        try:
            if (file := kind.blocking(photo, files[photo], overwrite=overwrite)) is None:
                require_writable(files[photo], kind.option, "file")
                return True
            taken.append(file)
        except ShowtellError as error:
            failures.append(str(error))
        return False

    todo = [photo for photo, file in files.items() if owners[file] == 1 and is_free(photo)]
    written, guesses, without = 0, 0, []
    with counting("captioning", len(todo)) as progress:
        for photo, captions in caption_photos(todo, first_alone=False):
            progress(1)
            if isinstance(captions, ImageError):
                failures.append(str(captions))
                continue
            best = captions[0]
            if not best.text.strip() or (least is not None and (best.confidence is None or best.confidence < least)):
                without.append(photo)
            elif is_free(photo):  # nobody has written it in the meantime
                kind.write(files[photo], best)
                written += 1
                guesses += best.doubt == UNFAMILIAR
    if taken:
        notify(f"{len(taken)} photos have a {kind.noun} already and are skipped: {summarise(taken)}; {kind.remedy}.")
    if without:
        notify(f"{len(without)} photos have no caption of confidence {least or 0:g} or more: {summarise(without)}.")
    tell_guesses(guesses)
    notify(f"{written} files are written beside their photos.")
    return failures

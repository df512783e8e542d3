"""Files beside photos, each written whole or not at all: a text such as dog.txt, or an XMP sidecar with what was there.

A text is one line, as trainers of image generators read it. What a person wrote is never lost: a text that is there is
replaced on request alone, and a description in XMP that no captioner wrote, or that was edited since, never. What a
person corrected takes the place of what a captioner wrote, without any request.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from showtell.captions import Caption
from showtell.datasets.corrections import Correction
from showtell.errors import DataError, ImageError, ShowtellError, escaped
from showtell.files import read_bytes, remove_leftovers, require_writable, write_text
from showtell.images import xmp
from showtell.images.descriptions import Description, description_of
from showtell.images.photo_files import SidecarName
from showtell.text.alt_text import alt_text
from showtell.text.objects import keywords

CaptionPhotos = Callable[..., Iterator[tuple[Any, list[Caption] | ImageError]]]  # `Captioner.caption_photos`


@dataclass(frozen=True)
class TextSidecars:
    """A text of one line."""

    with_keywords = False
    option = "--format sidecar"
    noun = "text"  # what a photo has already, in a message, and how it would be replaced
    remedy = "--overwrite replaces them"

    def file_of(self, photo: Path) -> Path:
        """The text of the same stem, such as dog.txt, or dog.TXT if that is there."""
        capital = photo.with_suffix(".TXT")
        return capital if os.path.lexists(capital) else photo.with_suffix(".txt")

    def existing(self, photo: Path, file: Path) -> Description | None:
        """The text, if it is there. A file that is empty or blank is none."""
        is_file = os.path.isfile(file) and not os.path.islink(file)  # noqa: PTH113, PTH114 (see XmpSidecars)
        content = read_bytes(file).removeprefix(b"\xef\xbb\xbf") if is_file else b""
        if not os.path.lexists(file) or (is_file and not content.strip(b" \t\r\n")):
            return None
        text = content.decode("utf-8", "replace").strip()
        return Description(text, file, is_of_person=False)

    def may_replace(self, there: Description, correction: Correction | None, *, overwrite: bool) -> bool:
        """Whether a text that is there may be replaced: by what a person made of it, or on request."""
        return overwrite or (correction is not None and there.text == correction.proposed)

    def write(self, file: Path, caption: Caption) -> None:
        """Replace the file."""
        write_text(file, escaped(" ".join(caption.text.split())) + "\n")

    def add_keywords(self, file: Path, text: str) -> None:
        """A text has none."""

    def require_writable(self, file: Path) -> None:
        """Raise a DataError if it cannot be written."""
        require_writable(file, self.option, "file")


@dataclass(frozen=True)
class XmpSidecars:
    """The description in an XMP sidecar."""

    captioner: str  # its name
    style: SidecarName = "dog.jpg.xmp"
    with_keywords: bool = False  # dc:subject, too
    option = "--xmp"
    noun = "description"
    remedy = "--overwrite replaces those that a captioner wrote"

    def file_of(self, photo: Path) -> Path:
        """See `images.xmp.sidecar_of`."""
        return xmp.sidecar_of(photo, self.style)

    def existing(self, photo: Path, file: Path) -> Description | None:
        """The description, in a sidecar or in the photo itself."""
        return description_of(photo)

    def may_replace(self, there: Description, correction: Correction | None, *, overwrite: bool) -> bool:
        """Whether a description may be replaced: one of a captioner, on request; by a correction one that we wrote."""
        if correction is not None:
            return there.is_as_written or not there.is_of_person
        return overwrite and not there.is_of_person

    def write(self, file: Path, caption: Caption) -> None:
        """Merge a caption into the file; an alternative text that a person wrote stays."""
        sidecar, text = xmp.Sidecar(file), " ".join(caption.text.split())
        is_ours = sidecar[xmp.ALT_TEXT] in ("", alt_text(sidecar[xmp.CAPTION]))
        is_of_person = caption.writer == "person"
        sidecar.update(
            {
                xmp.DESCRIPTION: text,
                **({xmp.ALT_TEXT: alt_text(text)} if is_ours else {}),
                xmp.CAPTION: text,
                xmp.WRITER: caption.writer,
                xmp.CAPTIONER: "" if is_of_person else self.captioner,
                xmp.CONFIDENCE: "" if caption.confidence is None else f"{caption.confidence:.3f}",
                xmp.IS_CALIBRATED: "" if is_of_person else str(caption.calibrated_confidence is not None),
                xmp.DOUBT: caption.doubt or "",
            }
        )
        if self.with_keywords:
            sidecar.set_keywords(caption.keywords)
        sidecar.write()

    def add_keywords(self, file: Path, text: str) -> None:
        """Add the keywords of a description to a sidecar that is there."""
        if self.with_keywords and file.is_file():
            self.require_writable(file)
            sidecar = xmp.Sidecar(file)
            sidecar.set_keywords(keywords(text))
            sidecar.write()

    def require_writable(self, file: Path) -> None:
        """Raise a DataError if it cannot be written, or is a link."""
        if os.path.islink(file):  # noqa: PTH114 (a name that is too long is no link)
            raise DataError(f"{file} is a link, and what it leads to is not written to; put a file there.")
        require_writable(file, self.option, "file")


@dataclass
class SidecarPlan:
    """What is to be written beside photos, and why the others get nothing; `write` goes on with it."""

    kind: TextSidecars | XmpSidecars
    corrections: Mapping[Path, Correction]  # of some of the photos
    overwrite: bool
    files: dict[Path, Path]  # by the photo: those to write
    done: dict[Path, Description] = field(default_factory=dict)  # photos whose correction is in their file already
    taken: dict[Path, Description] = field(default_factory=dict)  # photos that keep what they have
    failures: list[str] = field(default_factory=list)  # a sentence for each photo that cannot have a file
    rejected: list[Path] = field(default_factory=list)  # photos whose caption was not accepted
    written: list[Path] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        photos: Iterable[Path],
        kind: TextSidecars | XmpSidecars,
        corrections: Mapping[Path, Correction] | None = None,
        *,
        overwrite: bool = False,
    ) -> SidecarPlan:
        """Look at what is there, and write nothing; photos that cannot be read are planned, too."""
        files = {photo: kind.file_of(photo) for photo in photos}
        remove_leftovers(photo.parent for photo in files)
        owners = Counter([*files.values(), *files])  # a photo may be named like the file of another, or its own
        plan = cls(kind, corrections or {}, overwrite, files)
        shared = [photo for photo, file in files.items() if owners[file] > 1]
        plan.failures += [f"{photo} would share {files[photo].name} with another; rename it." for photo in shared]
        plan.files = {
            photo: file for photo, file in files.items() if photo not in shared and plan._is_free(photo, file)
        }
        return plan

    def _is_free(self, photo: Path, file: Path) -> bool:
        correction = self.corrections.get(photo)
        try:
            there = self.kind.existing(photo, file)
            is_done = correction is not None and there is not None and there.text == correction.caption
            if there is not None and is_done and (there.is_of_person or isinstance(self.kind, TextSidecars)):
                self.done[photo] = there
            elif there is not None and not self.kind.may_replace(there, correction, overwrite=self.overwrite):
                self.taken[photo] = there
            else:
                self.kind.require_writable(file)
                return True
        except ShowtellError as error:
            self.failures.append(str(error))
        return False

    def write(
        self, captions: Iterable[tuple[Path, Sequence[Caption] | ImageError]] | None = None, least: float | None = None
    ) -> None:
        """Write accepted captions (default: the corrections), and keywords where a description stays."""
        if captions is None:
            corrected = (photo for photo in list(self.files) if photo in self.corrections)
            captions = ((photo, [Caption.of_person(self.corrections[photo].caption)]) for photo in corrected)
        for photo, result in captions:
            if isinstance(result, ImageError):
                self.failures.append(str(result))
            elif not result[0].text.strip() or not result[0].is_accepted(least):
                self.rejected.append(photo)
            elif self._is_free(photo, self.files[photo]):  # nobody has written it in the meantime
                self.kind.write(self.files[photo], result[0])
                self.written.append(photo)
        for photo, there in (*self.done.items(), *self.taken.items()):
            try:
                self.kind.add_keywords(self.kind.file_of(photo), there.text)
            except ShowtellError as error:
                self.failures.append(str(error))

"""The description that a photo has: in sidecars beside it, or in the photo itself, in XMP, IPTC or EXIF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import ExifTags, ImageFile, IptcImagePlugin

from showtell.errors import DataError
from showtell.images.photo import identified
from showtell.images.xmp import CAPTION, DESCRIPTION, Sidecar, sidecars_of

# What cameras and phones put where a description belongs: makers, folders and numbers, with other words of theirs.
_MAKERS = (
    "canon|casio|dcim|dji|dsc|exif|fujifilm|img|kodak|konica|minolta|nikon|olympus|panasonic|samsung|screenshot|sony"
)
_OF_CAMERA = re.compile(
    rf"[\W\d_]*(?:$|(?=.*(?:{_MAKERS}))(?:(?:{_MAKERS}|camera|digital|jpe?g|media|pictures?|still)[\W\d_]*)+$)",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Description:
    """A description of a photo."""

    text: str
    file: Path  # that it stands in: a sidecar, or the photo
    is_of_person: bool  # or of another program, rather than of a captioner


def description_of(photo: Path) -> Description | None:
    """The description of a photo, in sidecars of any name and in itself, one of a person first; None if it has none.

    What a camera wrote by itself is none. What a library copied from a sidecar of ours into the photo is a captioner's.
    A photo that cannot be read has none in itself.

    Raises:
        DataError: a sidecar is damaged; see `Sidecar`.
    """
    sidecars = list(map(Sidecar, sidecars_of(photo)[:-1]))
    descriptions = [description for sidecar in sidecars for description in _in_xmp(sidecar)]
    captions = {sidecar[CAPTION] for sidecar in sidecars}
    if not any(description.is_of_person for description in descriptions):
        with suppress(DataError):
            descriptions += [
                replace(one, is_of_person=one.is_of_person and one.text not in captions) for one in _in_photo(photo)
            ]
    return next((one for one in descriptions if one.is_of_person), next(iter(descriptions), None))


def _in_xmp(sidecar: Sidecar) -> Iterator[Description]:
    text = sidecar[DESCRIPTION] if sidecar[CAPTION] else _unless_of_camera(sidecar[DESCRIPTION])
    if text:
        yield Description(text, sidecar.file, sidecar.is_of_person)


def _in_photo(photo: Path) -> Iterator[Description]:
    """The descriptions in a photo itself; an ImageError if it cannot be read."""
    with identified(photo) as image:
        packet, texts = image.info.get("xmp"), list(_iptc_and_exif(image))
    if packet:
        with suppress(DataError):  # damaged
            yield from _in_xmp(Sidecar(photo, packet if isinstance(packet, bytes) else str(packet).encode()))
    yield from (Description(text, photo, is_of_person=True) for text in map(_unless_of_camera, texts) if text)


def _iptc_and_exif(image: ImageFile.ImageFile) -> Iterator[str]:
    """The captions of IPTC, and the description of EXIF."""
    with suppress(Exception):  # damaged metadata raises anything
        values = (IptcImagePlugin.getiptcinfo(image) or {}).get((2, 120), [])
        yield from map(_decoded, values if isinstance(values, list) else [values])
    with suppress(Exception):
        if image.format != "PNG" or "exif" in image.info:  # it would be decoded in search of it
            description = str(image.getexif().get(ExifTags.Base.ImageDescription, ""))
            yield _decoded(description.encode("latin-1", "replace"))  # as Pillow has read it


def _decoded(content: bytes) -> str:
    """A text in UTF-8, or else in Latin-1."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _unless_of_camera(text: str) -> str:
    """A text in one line; "" if nobody wrote it but a camera."""
    text = " ".join(text.replace("\0", " ").split())
    return "" if _OF_CAMERA.match(text) else text

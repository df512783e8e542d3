"""The description that a photo has: in sidecars beside it, or in the photo itself, in XMP, IPTC or EXIF."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from PIL import ExifTags, ImageFile, IptcImagePlugin

from showtell.errors import DataError
from showtell.images.photo import identified, read_photo
from showtell.images.xmp import CAPTION, DESCRIPTION, Sidecar, sidecars_of

OTHER_DESCRIPTIONS = ("{http://ns.adobe.com/tiff/1.0/}ImageDescription", "{http://ns.adobe.com/exif/1.0/}UserComment")
_BEGINNING, _END = b"<x:xmpmeta", b"</x:xmpmeta>"  # of a packet in a photo

# Words of what cameras, phones and programs put where a description belongs. Those of the second set are theirs beside
# others of the two and numbers alone: by themselves they may be a person's.
_OF_CAMERAS = frozenset([
    "bty", "canon", "casio", "cbrf", "cof", "dav", "dcim", "default", "digimax", "dji", "dsc", "edf", "exif", "fef",
    "finepix", "fujifilm", "gopro", "hdr", "hdrpl", "hewlett", "huawei", "img", "kenox", "kodak", "konica", "leica",
    "mde", "minolta", "motorola", "nikon", "nokia", "olympus", "ozedf", "oznor", "oznorw", "oznorwo", "packard",
    "panasonic", "pentax", "polaroid", "ptr", "rbt", "rhdr", "ricoh", "rpt", "rptpl", "samsung", "sanyo",
    "screenshot", "sdr", "sony", "toshiba", "untitled", "vivitar", "xiaomi",
])  # fmt: skip
_ABOUT_CAMERAS = frozenset([
    "camera", "co", "company", "corp", "corporation", "digital", "image", "inc", "jpeg", "jpg", "ltd", "photo",
    "photos", "picture", "pictures", "soft", "still",
])  # fmt: skip
_NUMBER = re.compile(r"(?:img|dsc[fn]?|pict|cimg)?[0-9]+(?:media)?|p[0-9]{7}")
_BY_PROGRAMS = re.compile(r"<.*>$|\{.*\}$|maker:0x|charset=|.*\bSteps: \d+, Sampler:", re.IGNORECASE)


@dataclass(frozen=True)
class Description:
    """A description of a photo."""

    text: str
    file: Path  # that it stands in: a sidecar, or the photo
    is_of_person: bool  # or of another program, rather than of a captioner
    is_as_written: bool = False  # by showtell: a captioner's, or a correction, that nobody has edited since


def description_of(photo: Path) -> Description | None:
    """The description of a photo, a person's first, in sidecars of any name and in itself; None if it has none."""
    sidecars = list(map(Sidecar, sidecars_of(photo)[:-1]))
    descriptions = [description for sidecar in sidecars for description in _in_xmp(sidecar)]
    captions = {sidecar[CAPTION] for sidecar in sidecars}  # which a library may have copied into the photo
    if not any(description.is_of_person for description in descriptions):
        with suppress(DataError):
            own = _in_photo(photo)
            descriptions += [replace(one, is_of_person=one.is_of_person and one.text not in captions) for one in own]
    return next((one for one in descriptions if one.is_of_person), next(iter(descriptions), None))


def _in_xmp(sidecar: Sidecar) -> Iterator[Description]:
    for name in (DESCRIPTION, *OTHER_DESCRIPTIONS):
        if text := sidecar[name] if sidecar[CAPTION] else _unless_of_camera(sidecar[name]):
            is_of_person = sidecar.is_of_person if name == DESCRIPTION else text != sidecar[CAPTION]
            yield Description(text, sidecar.file, is_of_person, text == sidecar[CAPTION])


def _in_photo(photo: Path) -> Iterator[Description]:
    """The descriptions in a photo itself; an ImageError if it cannot be read."""
    with identified(photo) as image:
        packets = [image.info["xmp"]] if image.info.get("xmp") else []
        texts = list(_iptc_and_exif(image))
    if image.format in ("GIF", "PNG"):  # Pillow skips theirs, or those behind the pixels
        *begun, _ = read_photo(photo).split(_END)
        packets += [part[part.index(_BEGINNING) :] + _END for part in begun if _BEGINNING in part]
    for packet in packets:
        with suppress(DataError):  # damaged
            yield from _in_xmp(Sidecar(photo, packet if isinstance(packet, bytes) else str(packet).encode()))
    yield from (Description(text, photo, is_of_person=True) for text in map(_unless_of_camera, texts) if text)


def _iptc_and_exif(image: ImageFile.ImageFile) -> Iterator[str]:
    """The captions of IPTC; the description of EXIF, its comment, and what Windows calls comment, title and subject."""
    with suppress(Exception):  # damaged metadata raises anything
        values = (IptcImagePlugin.getiptcinfo(image) or {}).get((2, 120), [])
        yield from map(_decoded, values if isinstance(values, list) else [values])
    with suppress(Exception):
        if image.format == "PNG" and "exif" not in image.info:
            return  # it would be decoded in search of it
        exif, base = image.getexif(), ExifTags.Base
        yield _decoded(str(exif.get(base.ImageDescription, "")).encode("latin-1", "replace"))  # as Pillow has read it
        comment = bytes(exif.get_ifd(ExifTags.IFD.Exif).get(base.UserComment, b""))  # behind the name of its encoding
        yield _from_utf_16(comment[8:]) if comment.startswith(b"UNICODE") else _decoded(comment[8:])
        for tag in (base.XPComment, base.XPTitle, base.XPSubject):
            yield bytes(exif.get(tag, b"")).decode("utf-16-le")


def _decoded(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def _from_utf_16(content: bytes) -> str:
    """A text in UTF-16 of either order of bytes, of which the wrong one gives letters of more alphabets."""
    texts = [content.decode(encoding, "replace") for encoding in ("utf-16-le", "utf-16-be")]
    return min(texts, key=lambda text: len({ord(char) >> 8 for char in text})).removeprefix("\ufeff")


def _unless_of_camera(text: str) -> str:
    """A text in one line; "" if nobody wrote it but a camera or a program."""
    text = " ".join(text.replace("\0", " ").split())
    words = re.findall(r"[^\W_]+", text.casefold())
    are_theirs = all(word in _OF_CAMERAS | _ABOUT_CAMERAS or _NUMBER.fullmatch(word) for word in words)
    is_of_person = text and (not are_theirs or (len(words) == 1 and words[0] in _ABOUT_CAMERAS))
    return text if is_of_person and not _BY_PROGRAMS.match(text) else ""

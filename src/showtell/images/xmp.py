"""The description of a photo: read beside it and in it, and merged into an XMP sidecar, never into the photo.

In XMP it is `dc:description`, the alternative text `Iptc4xmpCore:AltTextAccessibility`. What a captioner said of the
photo stands in a namespace of ours, as attributes, so that a description that was edited later is known as a person's.
Nothing else in a sidecar changes. A photo may have its description in XMP, in IPTC or in EXIF.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lxml import etree
from PIL import ExifTags, ImageFile, IptcImagePlugin

from showtell.errors import DataError, printable
from showtell.files import read_bytes, write_bytes
from showtell.images.photo import identified, read_photo
from showtell.images.photo_files import SidecarName

MAX_BYTES = 20 * 2**20  # of a sidecar

_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_LANGUAGE, _DEFAULT = "{http://www.w3.org/XML/1998/namespace}lang", "x-default"
_OURS = "{urn:x-showtell:xmp/1.0/}"
DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"
OTHER_DESCRIPTIONS = ("{http://ns.adobe.com/tiff/1.0/}ImageDescription", "{http://ns.adobe.com/exif/1.0/}UserComment")
ALT_TEXT = "{http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/}AltTextAccessibility"
CAPTION, CAPTIONER = f"{_OURS}Caption", f"{_OURS}Captioner"  # what a captioner said, and its name
CONFIDENCE, IS_CALIBRATED = f"{_OURS}Confidence", f"{_OURS}Calibrated"  # of that; True or False
WRITER = f"{_OURS}Writer"  # who wrote the description: "captioner" or "person"
for _prefix, _name in {"rdf": _RDF, "dc": DESCRIPTION, "Iptc4xmpCore": ALT_TEXT, "showtell": _OURS}.items():
    etree.register_namespace(_prefix, _name[1 : _name.index("}")])
_EMPTY = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="showtell">'
    f'\n <rdf:RDF xmlns:rdf="{_RDF[1:-1]}">\n  <rdf:Description rdf:about=""/>\n </rdf:RDF>\n</x:xmpmeta>'
    '\n<?xpacket end="w"?>'
).encode()
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


def sidecar_of(photo: Path, style: SidecarName = "dog.jpg.xmp") -> Path:
    """The sidecar of a photo that is there, of either name, else where one of this style will be."""
    *existing, new = _sidecars(photo, style)
    return next(iter(existing), new)


def _sidecars(photo: Path, style: SidecarName = "dog.jpg.xmp") -> list[Path]:
    """The sidecars of a photo that are there, those of this style first, and in the end where a new one would be."""
    full, short = photo.with_name(f"{photo.name}.xmp"), photo.with_suffix(".xmp")
    names = (full, short) if style == "dog.jpg.xmp" else (short, full)
    candidates = (name for path in names for name in (path, path.with_suffix(".XMP")))
    return [*filter(os.path.isfile, candidates), names[0]]  # a name that is too long is no file here


@dataclass(frozen=True)
class Description:
    """What a photo is said to show."""

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
    sidecars = list(map(Sidecar, _sidecars(photo)[:-1]))
    descriptions = [description for sidecar in sidecars for description in _in_xmp(sidecar)]
    said = {sidecar[CAPTION] for sidecar in sidecars}
    if not any(description.is_of_person for description in descriptions):
        with suppress(DataError):
            descriptions += [
                replace(one, is_of_person=one.is_of_person and one.text not in said) for one in _in_photo(photo)
            ]
    return next((one for one in descriptions if one.is_of_person), next(iter(descriptions), None))


def _in_xmp(sidecar: Sidecar) -> Iterator[Description]:
    for name in (DESCRIPTION, *OTHER_DESCRIPTIONS):
        if text := sidecar[name] if sidecar[CAPTION] else _unless_of_camera(sidecar[name]):
            is_of_person = sidecar.is_of_person if name == DESCRIPTION else text != sidecar[CAPTION]
            yield Description(text, sidecar.file, is_of_person)


def _in_photo(photo: Path) -> Iterator[Description]:
    """The descriptions in a photo itself; an ImageError if it cannot be read."""
    with identified(photo) as image:
        packets = [image.info["xmp"]] if image.info.get("xmp") else []
        texts = list(_iptc_and_exif(image))
    if image.format in ("GIF", "JPEG2000", "PNG"):  # Pillow skips theirs, or those behind the pixels
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
    """A text in UTF-8, or else in Latin-1."""
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


class Sidecar:
    """The content of a sidecar, or of a new one where the file is missing; `content` is what a photo itself has.

    Raises:
        DataError: the file is no XMP, larger than `MAX_BYTES`, nested too deeply, or defines entities.
    """

    def __init__(self, file: Path, content: bytes | None = None) -> None:
        self.file = file
        if content is None:
            content = read_bytes(file, max_bytes=MAX_BYTES) if file.exists() else _EMPTY
        # entities are neither expanded nor fetched, and libxml2's limits on depth and lengths hold
        parser = etree.XMLParser(resolve_entities=False, no_network=True, load_dtd=False, huge_tree=False)
        try:
            root = etree.fromstring(content, parser)
        except etree.XMLSyntaxError as error:
            raise DataError(f"{file} is no XMP ({error.msg}); restore it, or move it away.") from error
        self._tree = root.getroottree()
        self._has_declaration = content.lstrip(b"\xef\xbb\xbf").startswith(b"<?xml ")
        if self._tree.docinfo.internalDTD is not None:
            raise DataError(f"{file} has a DOCTYPE, in which entities are defined; XMP has none: remove it.")
        rdf = root if root.tag == f"{_RDF}RDF" else root.find(f"{_RDF}RDF")
        if rdf is None:
            raise DataError(f"{file} is no XMP: it has no rdf:RDF; restore it, or move it away.")
        self._parts = rdf.findall(f"{_RDF}Description") or [etree.SubElement(rdf, f"{_RDF}Description")]
        self._is_changed = content is _EMPTY

    def __getitem__(self, name: str) -> str:
        """The value of a property, of several languages that of x-default or the first; "" where there is none."""
        for part in self._parts:
            if name in part.attrib:
                return str(part.get(name))
            if (element := part.find(name)) is not None:
                items = element.findall(f".//{_RDF}li")
                chosen = next(
                    (item for item in items if item.get(_LANGUAGE) == _DEFAULT), items[0] if items else element
                )
                return " ".join(str(chosen.xpath("string()")).split())
        return ""

    @property
    def is_of_person(self) -> bool:
        """Whether a person, or another program, wrote the description: no captioner, or it was edited since."""
        return bool(self[DESCRIPTION]) and not (self[WRITER] == "captioner" and self[DESCRIPTION] == self[CAPTION])

    def update(self, values: Mapping[str, str]) -> None:
        """Set properties, those of other namespaces than ours in the language x-default; "" removes one of ours."""
        for name, text in ((name, printable(text)) for name, text in values.items()):
            if self[name] == text:
                continue
            self._is_changed = True
            part = next(
                (part for part in self._parts if name in part.attrib or part.find(name) is not None), self._parts[0]
            )
            element = part.find(name)
            if name.startswith(_OURS):
                if element is not None:  # as some editors write an attribute
                    part.remove(element)
                part.attrib.pop(name, None)
                part.attrib.update({name: text} if text else {})
                continue
            part.attrib.pop(name, None)  # texts of several languages have no such short form
            if element is None:
                *_, space = (part.text, *(child.tail for child in part))
                element = etree.SubElement(part, name)
                element.tail = space  # removed with the element, the text around it is as it was
            _set_default(element, text)

    def write(self) -> bool:
        """Write the file, whole or not at all, if it is new or anything has changed; returns whether it was."""
        if self._is_changed:
            encoding = self._tree.docinfo.encoding or "UTF-8"
            content = etree.tostring(self._tree, encoding=encoding, xml_declaration=self._has_declaration)
            write_bytes(self.file, content)
        return self._is_changed


def _set_default(element: Any, text: str) -> None:
    """Give a property its text in the language x-default; those in other languages stay."""
    items = element.findall(f".//{_RDF}li")
    item = next((item for item in items if item.get(_LANGUAGE, _DEFAULT) == _DEFAULT), None)
    if item is None:
        alternatives = element.find(f"{_RDF}Alt")
        if alternatives is None:  # a plain text, or nothing yet
            tail = element.tail
            element.clear()
            element.tail = tail
            alternatives = etree.SubElement(element, f"{_RDF}Alt")
        item = etree.Element(f"{_RDF}li", {_LANGUAGE: _DEFAULT})
        alternatives.insert(0, item)
        etree.indent(element, " ", level=3)
    tail, language = item.tail, item.get(_LANGUAGE)
    item.clear()
    item.text, item.tail = text, tail
    if language:
        item.set(_LANGUAGE, language)

"""XMP sidecars: the description of a photo, read from a file beside it and merged into it, never into the photo.

The description is `dc:description`, the alternative text `Iptc4xmpCore:AltTextAccessibility`, keywords `dc:subject`.
What we wrote, and by whom it is, stands in a namespace of ours, as attributes, so that a description that was edited
later is known as a person's. Nothing else in a sidecar changes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lxml import etree

from showtell.errors import JOINERS, DataError, printable
from showtell.files import read_bytes, write_bytes
from showtell.images.photo_files import SidecarName

MAX_BYTES = 20 * 2**20  # of a sidecar

_RDF = "{http://www.w3.org/1999/02/22-rdf-syntax-ns#}"
_LANGUAGE, _DEFAULT = "{http://www.w3.org/XML/1998/namespace}lang", "x-default"
_OURS = "{urn:x-showtell:xmp/1.0/}"
DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"
SUBJECT = "{http://purl.org/dc/elements/1.1/}subject"
ALT_TEXT = "{http://iptc.org/std/Iptc4xmpCore/1.0/xmlns/}AltTextAccessibility"
CAPTION, WRITER = f"{_OURS}Caption", f"{_OURS}Writer"  # what we wrote, and by whom it is: "captioner" or "person"
CAPTIONER, DOUBT = f"{_OURS}Captioner", f"{_OURS}Doubt"  # its name, and why it would not rely on the caption
CONFIDENCE, IS_CALIBRATED = f"{_OURS}Confidence", f"{_OURS}Calibrated"  # of the caption; True or False
KEYWORDS = f"{_OURS}Keywords"  # those of dc:subject that we added, parted by "; "
for _prefix, _name in {"rdf": _RDF, "dc": DESCRIPTION, "Iptc4xmpCore": ALT_TEXT, "showtell": _OURS}.items():
    etree.register_namespace(_prefix, _name[1 : _name.index("}")])
_EMPTY = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>\n<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="showtell">'
    f'\n <rdf:RDF xmlns:rdf="{_RDF[1:-1]}">\n  <rdf:Description rdf:about=""/>\n </rdf:RDF>\n</x:xmpmeta>'
    '\n<?xpacket end="w"?>'
).encode()


def sidecar_of(photo: Path, style: SidecarName = "dog.jpg.xmp") -> Path:
    """The sidecar of a photo that is there, of either name, else where one of this style will be."""
    return sidecars_of(photo, style)[0]


def sidecars_of(photo: Path, style: SidecarName = "dog.jpg.xmp") -> list[Path]:
    """The sidecars of a photo that are there, those of this style first, and in the end where a new one would be."""
    full, short = photo.with_name(f"{photo.name}.xmp"), photo.with_suffix(".xmp")
    names = (full, short) if style == "dog.jpg.xmp" else (short, full)
    candidates = (name for path in names for name in (path, path.with_suffix(".XMP")))
    return [*filter(os.path.isfile, candidates), names[0]]  # a name that is too long is no file here


class Sidecar:
    """The XMP in a file, new where it is missing, or in the `content` of a photo; a DataError if none or unsafe."""

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
                default = (item for item in items if item.get(_LANGUAGE) == _DEFAULT)
                return _text_of(next(default, items[0] if items else element))
        return ""

    @property
    def is_as_written(self) -> bool:
        """Whether the description is as we wrote it, and nobody has edited it since."""
        return bool(self[CAPTION]) and self[DESCRIPTION] == self[CAPTION]

    @property
    def is_of_person(self) -> bool:
        """Whether a person, or another program, wrote the description: no captioner, or it was edited since."""
        return bool(self[DESCRIPTION]) and not (self[WRITER] == "captioner" and self.is_as_written)

    def update(self, values: Mapping[str, str]) -> None:
        """Set properties, those of other namespaces than ours in the language x-default; "" removes one of ours."""
        for name, text in ((name, printable(text, JOINERS)) for name, text in values.items()):
            if self[name] == text:
                continue
            self._is_changed = True
            part = self._part_with(name)
            element = part.find(name)
            if name.startswith(_OURS):
                if element is not None:  # as some editors write an attribute
                    part.remove(element)
                part.attrib.pop(name, None)
                part.attrib.update({name: text} if text else {})
                continue
            part.attrib.pop(name, None)  # texts of several languages have no such short form
            _set_default(_add_element(part, name) if element is None else element, text)

    def set_keywords(self, keywords: Sequence[str]) -> None:
        """Make keywords ours in dc:subject: those that we added before go, what others wrote or removed stays so."""
        part = self._part_with(SUBJECT)
        element = part.find(SUBJECT)
        items = {} if element is None else {_text_of(item): item for item in element.iter(f"{_RDF}li")}
        plain = part.get(SUBJECT, "") if element is None or items else _text_of(element)  # as some programs write one
        known = {text.casefold() for text in (plain, *items)}
        old = [*filter(None, self[KEYWORDS].split("; "))]
        gone = [items[word] for word in old if word in items and word not in keywords]
        new = [word for word in keywords if word not in old and word.casefold() not in known]
        if gone or new:
            self._is_changed = True
            part.attrib.pop(SUBJECT, None)
            element = _add_element(part, SUBJECT) if element is None else element
            bag = element.find("*")
            if bag is None:
                element.text = None
                bag = etree.SubElement(element, f"{_RDF}Bag")
            for item in gone:
                item.getparent().remove(item)
            for text in [plain] * bool(plain) + new:
                etree.SubElement(bag, f"{_RDF}li").text = text
            etree.indent(element, " ", level=3)
        self.update({KEYWORDS: "; ".join([*(word for word in old if word in keywords), *new])})

    def _part_with(self, name: str) -> Any:
        return next((one for one in self._parts if name in one.attrib or one.find(name) is not None), self._parts[0])

    def write(self) -> bool:
        """Write the file, whole or not at all, if it is new or anything has changed; returns whether it was."""
        if self._is_changed:
            encoding = self._tree.docinfo.encoding or "UTF-8"
            content = etree.tostring(self._tree, encoding=encoding, xml_declaration=self._has_declaration)
            write_bytes(self.file, content)
        return self._is_changed


def _add_element(part: Any, name: str) -> Any:
    *_, space = (part.text, *(child.tail for child in part))
    element = etree.SubElement(part, name)
    element.tail = space  # removed with the element, the text around it is as it was
    return element


def _text_of(element: Any) -> str:
    return " ".join(str(element.xpath("string()")).split())


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

"""`showtell caption --xmp`: captions go into sidecars, and what people edit there comes back as a dataset."""

import struct
import zlib
from html import escape
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree
from PIL import ExifTags, Image

from showtell.captioners import Captioner
from showtell.captions import Caption
from showtell.datasets import open_dataset
from showtell.errors import DataError
from showtell.images import xmp
from showtell.images.descriptions import Description, description_of
from showtell.sidecars import XmpSidecars
from showtell.text.alt_text import alt_text
from tests.cli.test_caption import copied, run
from tests.toys import room_for

OURS = (xmp.CAPTION, xmp.CAPTIONER, xmp.CONFIDENCE, xmp.IS_CALIBRATED, xmp.WRITER, xmp.DESCRIPTION, xmp.ALT_TEXT)
HEAD = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
DC = 'xmlns:dc="http://purl.org/dc/elements/1.1/"'
END = "</rdf:RDF></x:xmpmeta>"
# As programs write them: attributes and elements, one part or several, with and without a declaration and a packet.
SIDECARS = {
    "darktable": '<?xml version="1.0" encoding="UTF-8"?>\n<x:xmpmeta xmlns:x="adobe:ns:meta/" x:xmptk="Exiv2">\n'
    ' <rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">\n  <rdf:Description rdf:about=""\n'
    '    xmlns:darktable="http://darktable.sf.net/"\n   darktable:xmp_version="5"\n   darktable:raw_params="0">\n'
    '   <darktable:history>\n    <rdf:Seq>\n     <rdf:li darktable:num="0"/>\n    </rdf:Seq>\n   </darktable:history>\n'
    "  </rdf:Description>\n </rdf:RDF>\n</x:xmpmeta>\n",
    "a packet of several parts": f"<?xpacket begin='\ufeff' id='W5M0MpCehiHzreSzNTczkc9d'?>\n{HEAD}\n"
    "<rdf:Description rdf:about='' xmlns:a='urn:a/'><a:Lens>24 mm</a:Lens></rdf:Description>\n<!-- mine -->"
    f"<rdf:Description rdf:about='' {DC}><dc:description><rdf:Alt><rdf:li xml:lang='de-DE'>ein Hund</rdf:li></rdf:Alt>"
    f"</dc:description><dc:subject><rdf:Bag><rdf:li>dog</rdf:li></rdf:Bag></dc:subject></rdf:Description>{END}"
    f"{' ' * 80}<?xpacket end='w'?>",
    "another prefix": f'{HEAD}<rdf:Description xmlns:d="http://purl.org/dc/elements/1.1/" d:format="image/jpeg"/>{END}',
    "a plain text": f"{HEAD}<rdf:Description {DC}><dc:description>old</dc:description></rdf:Description>{END}",
    "a short form": f'{HEAD}<rdf:Description {DC} dc:description="old" dc:creator="me"/>{END}',
    "no xmpmeta": '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description/></rdf:RDF>',
}
VALUES = {
    xmp.DESCRIPTION: 'a <dog> & "cat"', xmp.ALT_TEXT: "A dog.", xmp.CAPTION: 'a <dog> & "cat"', xmp.WRITER: "captioner",
}  # fmt: skip


def without_ours(content: bytes) -> bytes:
    """A sidecar in canonical XML, without the default texts that are written."""
    root = etree.fromstring(content)
    for name in OURS:
        for element in [*root.iter(etree.Element)]:
            element.attrib.pop(name, None)
            if element.tag == name:
                for item in element.findall(".//{*}li"):
                    if item.get("{http://www.w3.org/XML/1998/namespace}lang") == "x-default":
                        item.getparent().remove(item)
                if not element.findall(".//{*}li"):
                    element.getparent().remove(element)
    etree.cleanup_namespaces(root)
    return b"".join(etree.tostring(root, method="c14n").split())


@pytest.mark.parametrize("kind", SIDECARS)
def test_a_description_is_merged_and_nothing_else_changes(kind, tmp_path):
    file, before = tmp_path / "dog.xmp", SIDECARS[kind].encode()
    file.write_bytes(before)
    sidecar = xmp.Sidecar(file)
    sidecar.update(VALUES)
    assert sidecar.write()
    written, again = file.read_bytes(), xmp.Sidecar(file)
    assert {name: again[name] for name in VALUES} == VALUES and not again.is_of_person
    assert without_ours(written) == without_ours(before)
    again.update(VALUES)
    assert not again.write() and file.read_bytes() == written
    assert written.count(b"<?xpacket") == before.count(b"<?xpacket")
    assert written.startswith(b"<?xml") == before.startswith(b"<?xml")


SUBJECTS = {  # a part with others' keywords, as programs write them
    "none": ("", []), "a bag": ("<dc:subject><rdf:Bag><rdf:li>Oma</rdf:li><rdf:li>Dog</rdf:li></rdf:Bag></dc:subject>",
    ["Oma", "Dog"]), "a sequence": ("<dc:subject><rdf:Seq><rdf:li>cat</rdf:li></rdf:Seq></dc:subject>", ["cat"]),
    "a plain text": ("<dc:subject>Oma</dc:subject>", ["Oma"]), "empty": ("<dc:subject/>", []),
}  # fmt: skip
WORDS = st.lists(st.sampled_from(["dog", "cat", "sofa", "person"]), unique=True)


@pytest.mark.parametrize("kind", [*SUBJECTS, "a short form"])
@given(steps=st.lists(WORDS, min_size=1, max_size=4), removed=st.sampled_from(["dog", "sofa"]))
def test_keywords_are_added_once_and_those_of_others_stay(kind, steps, removed, tmp_path_factory):
    file = tmp_path_factory.mktemp("keywords") / "dog.jpg.xmp"
    inside, theirs = SUBJECTS.get(kind, ("", ["Oma"]))
    attribute = ' dc:subject="Oma"' if kind == "a short form" else ""
    file.write_text(f"{HEAD}<rdf:Description {DC}{attribute}>{inside}</rdf:Description>{END}")

    def subjects() -> list[str]:
        return [item.text for item in etree.parse(file).iterfind(".//{http://purl.org/dc/elements/1.1/}subject//{*}li")]

    for words in steps:
        for is_new in (True, False):  # a second run adds nothing
            sidecar = xmp.Sidecar(file)
            sidecar.set_keywords(words)
            assert not sidecar.write() or is_new
        known = {text.casefold() for text in theirs}
        if any(set(step) - known for step in steps[: steps.index(words) + 1]):
            assert subjects() == [*theirs, *(word for word in subjects()[len(theirs) :] if word in words)]
            assert {*subjects()[len(theirs) :]} == {*words} - known
    file.write_text(file.read_text().replace(f"<rdf:li>{removed}</rdf:li>", ""))  # by a person, who does not want it
    was_ours = removed in xmp.Sidecar(file)[xmp.KEYWORDS].split("; ")
    sidecar = xmp.Sidecar(file)
    sidecar.set_keywords(steps[-1])
    sidecar.write()
    assert not (was_ours and removed in subjects())


BILLION = "".join(f'<!ENTITY l{n} "{f"&l{n - 1};" * 10}">' for n in range(1, 12))
HOSTILE = dict.fromkeys((
    "", "no XML at all", '{"description": "a dog"}', "\ufeff", "<?xml version='1.0'?>", "<x:xmpmeta/>", HEAD,
    f"<?xpacket begin=''{HEAD}{END}", f"{HEAD}<![CDATA[{END}", f"{HEAD}<rdf:Description rdf:about=>{END}",
    "\x00\x01\x02", f"{HEAD}{END}{END}", f"{HEAD}<rdf:Description>{END}", f"{HEAD}<rdf:Description a:b='c'/>{END}",
    f"{HEAD}<rdf:Description a='1' a='2'/>{END}", f"{HEAD}&nbsp;{END}",
    f"{HEAD}<rdf:Description>\x08</rdf:Description>{END}", f'<?xml version="1.0" encoding="klingon"?>{HEAD}{END}',
    f'<?xml version="9"?><?xml version="1.0"?>{HEAD}{END}',
    f'<!DOCTYPE a [<!ENTITY l0 "lol">{BILLION}]>{HEAD}<rdf:Description {DC}>&l11;</rdf:Description>{END}',
    f'<!DOCTYPE a [<!ENTITY l0 "lol">{BILLION}]>{HEAD}<rdf:Description a="&l11;"/>{END}',
    HEAD + "<rdf:Description>" * 100_000, HEAD + "<a>" * 3_000 + "</a>" * 3_000 + END,
    f"{HEAD}<rdf:Description a='{'x' * 11_000_000}'/>{END}",
), "no XMP") | {
    "<a/>": "it has no rdf:RDF", "<html><body/></html>": "it has no rdf:RDF",
    f"<!DOCTYPE a>{HEAD}{END}": "DOCTYPE",
    f'<!DOCTYPE a [<!ENTITY e SYSTEM "/etc/passwd">]>{HEAD}<rdf:Description>&e;</rdf:Description>{END}': "DOCTYPE",
    f'<!DOCTYPE a SYSTEM "http://127.0.0.1:9/a.dtd">{HEAD}{END}': "DOCTYPE",
    f'<!DOCTYPE a [<!ENTITY % p SYSTEM "http://127.0.0.1:9/a">%p;]>{HEAD}{END}': "DOCTYPE",
    "<a>" * 7_000_000: "more than such a file may have",
}  # fmt: skip


def test_bad_sidecars_are_named_and_kept_and_the_others_are_written(capsys, tiny_checkpoint, tiny_scenes, tmp_path):
    picture = next((tiny_scenes / "images").iterdir()).read_bytes()
    for number, content in enumerate(HOSTILE):
        (tmp_path / f"{number}.png").write_bytes(picture)
        (tmp_path / f"{number}.png.xmp").write_text(content)
    (tmp_path / "good.png").write_bytes(picture)
    status, out, err = run(capsys, "caption", tiny_checkpoint, tmp_path, "--xmp")
    assert (status, out) == (2, "") and "1 files are written beside their photos." in err
    assert err.count("\n") == 3 and f"{len(HOSTILE)} of {len(HOSTILE) + 1} files could not be captioned" in err
    for number, (content, reason) in enumerate(HOSTILE.items()):
        file = tmp_path / f"{number}.png.xmp"
        assert file.read_text() == content, "it was changed"
        with pytest.raises(DataError, match=reason) as caught:
            xmp.Sidecar(file)
        assert str(caught.value).startswith(f"{file} ") and len(str(caught.value)) < 400
    assert xmp.Sidecar(tmp_path / "good.png.xmp")[xmp.DESCRIPTION]


@pytest.fixture
def album(photos: list[Path], tmp_path: Path) -> Path:
    return copied(photos[:40], tmp_path / "album", lambda number: f"{'sea/' * (number % 2)}{number}.png")


def test_a_folder_goes_to_sidecars_and_edits_come_back_to_train_on(capsys, tiny_checkpoint, album):
    """The whole way: captions, edits by another program, and a captioner that has learned from them."""
    (album / "2.xmp").write_text(SIDECARS["darktable"])  # of the short name, which is used
    (album / "4.png.xmp").write_text(SIDECARS["a plain text"])  # described by a person, so left alone
    photos = {path: path.read_bytes() for path in album.rglob("*.png")}
    given = ["caption", tiny_checkpoint, album, "--xmp"]
    status, _, err = run(capsys, *given)
    assert status == 0 and err.splitlines()[1:] == [
        f"showtell: 1 photos have a description already and are skipped: {album}/4.png.xmp; --overwrite replaces "
        "those that a captioner wrote.",
        "showtell: 39 files are written beside their photos.",
    ]
    assert {path: path.read_bytes() for path in album.rglob("*.png")} == photos
    best = Captioner.from_pretrained(tiny_checkpoint, device="cpu").caption(album / "2.png", no_unknown=True)[0]
    sidecar = xmp.Sidecar(album / "2.xmp")
    assert not (album / "2.png.xmp").exists() and (album / "sea" / "1.png.xmp").is_file()
    assert [sidecar[name] for name in OURS] == [
        best.text, Path(tiny_checkpoint).name, f"{best.confidence:.3f}", "False", "captioner", best.text,
        alt_text(best.text),
    ]  # fmt: skip
    assert dict(open_dataset(album).splits) == {"unchecked": 39, "train": 1}

    before = {path: path.read_bytes() for path in album.rglob("*.xmp")}
    assert "39 files are written" in run(capsys, *given, "--overwrite")[2]
    assert {path: path.read_bytes() for path in album.rglob("*.xmp")} == before  # written twice, equal

    for number in range(10, 30):  # as exiftool and editors do: an attribute becomes an element, the text another
        file = xmp.sidecar_of(album / ("sea" if number % 2 else "") / f"{number}.png")
        content, said = file.read_text(), xmp.Sidecar(file)[xmp.DESCRIPTION]
        file.write_text(content.replace(f">{said}</rdf:li>", ">a zebra at last</rdf:li>", 1))
    dataset = open_dataset(album)
    assert dataset.splits["unchecked"] == 19 and dataset.splits["train"] + dataset.splits["val"] == 21
    assert run(capsys, *given, "--overwrite")[0] == 0
    assert sum("a zebra at last" in record.captions for record in open_dataset(album).records) == 20  # none is lost

    run_folder = album.parent / "run"
    more = ["training.epochs=40", "training.learning_rate=0.01", "training.batch_size=4", "training.start_share=0"]
    given = [f"data.path={album}", f"training.start_from={tiny_checkpoint}", *more]
    assert run(capsys, "train", "adapt/corrections", *given, "--out", run_folder)[0] == 0
    before_and_after = [Captioner.from_pretrained(one, device="cpu") for one in (tiny_checkpoint, run_folder / "best")]
    first, learned = (one.logprobs(album / "10.png", "a zebra at last")[0].logprob for one in before_and_after)
    assert first < -10 and learned > -2


def packet(text: str) -> bytes:
    described = f"<dc:description>{escape(text)}</dc:description>"
    return f"{HEAD}<rdf:Description {DC}>{described}</rdf:Description>{END}".encode()


def exif(tag: int, value: object) -> dict[str, Image.Exif]:
    made = Image.Exif()
    (made.get_ifd(ExifTags.IFD.Exif) if tag == ExifTags.Base.UserComment else made)[tag] = value
    return {"exif": made}


def behind_the_pixels(content: bytes, text: str) -> bytes:
    """As exiftool writes XMP into a PNG."""
    chunk = b"iTXtXML:com.adobe.xmp" + bytes(5) + packet(text)
    length, checksum = struct.pack(">I", len(chunk) - 4), struct.pack(">I", zlib.crc32(chunk))
    return content[:-12] + length + chunk + checksum + content[-12:]


def in_iptc(content: bytes, text: bytes) -> bytes:
    caption = b"\x1c\x02\x78" + struct.pack(">H", len(text)) + text
    resource = b"8BIM\x04\x04\0\0" + struct.pack(">I", len(caption)) + caption + bytes(len(caption) % 2)
    segment = b"Photoshop 3.0\0" + resource
    return content[:2] + b"\xff\xed" + struct.pack(">H", len(segment) + 2) + segment + content[2:]


# Where a description may stand in a photo: the suffix, what Pillow saves with it, and what is done to the file then.
EMBEDDED = {
    "XMP, JPEG": ("jpg", lambda text: {"xmp": packet(text)}, None),
    "XMP, WebP": ("webp", lambda text: {"xmp": packet(text)}, None),
    "XMP, TIFF": ("tif", lambda text: {"tiffinfo": {700: packet(text)}}, None),
    "XMP, PNG, behind the pixels": ("png", None, behind_the_pixels),
    "XMP, GIF": ("gif", None, lambda content, text: content[:-1] + b"!\xff\x0bXMP DataXMP" + packet(text) + b"\x01\0;"),
    "XMP, another property": (
        "jpg", lambda text: {"xmp": packet(text).replace(b"dc:", b"tiff:").replace(b"dc=", b"tiff=").replace(
            b"http://purl.org/dc/elements/1.1/", b"http://ns.adobe.com/tiff/1.0/"
        ).replace(b"tiff:description", b"tiff:ImageDescription")}, None,
    ),
    "IPTC": ("jpg", None, lambda content, text: in_iptc(content, text.encode())),
    "IPTC, Latin-1": ("jpg", None, lambda content, text: in_iptc(content, text.encode("latin-1", "ignore"))),
    **{
        f"EXIF, description, {kind}": (kind, lambda text: exif(ExifTags.Base.ImageDescription, text.encode()), None)
        for kind in ("jpg", "png", "webp", "tif")
    },
    "EXIF, comment": ("jpg", lambda text: exif(ExifTags.Base.UserComment, b"ASCII\0\0\0" + text.encode()), None),
    "EXIF, comment, UTF-16": (
        "jpg", lambda text: exif(ExifTags.Base.UserComment, b"UNICODE\0" + text.encode("utf-16-le")), None,
    ),
    "EXIF, Windows": ("jpg", lambda text: exif(ExifTags.Base.XPComment, text.encode("utf-16-le") + b"\0\0"), None),
}  # fmt: skip


def write_described(folder: Path, place: str, text: str) -> Path:
    """A photo that has a text at one of these places."""
    suffix, options, change = EMBEDDED[place]
    file = folder / f"{place}.{suffix}"
    Image.new("RGB", (48, 48), "teal").save(file, **(options(text) if options else {}))
    if change:
        file.write_bytes(change(file.read_bytes(), text))
    return file


@pytest.mark.parametrize("place", EMBEDDED)
@settings(max_examples=10)
@given(text=st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=9))
def test_what_a_person_wrote_into_a_photo_is_its_description(place, text, tmp_path_factory):
    text = "Großmutter" + ("" if "Latin-1" in place else text)
    photo = write_described(tmp_path_factory.mktemp("described"), place, text)
    assert description_of(photo) == Description(text, photo, is_of_person=True)


OF_CAMERAS = [
    "OLYMPUS DIGITAL CAMERA         ", "SONY DSC", "DCIM\\100MEDIA\\DJI_0001.JPG", "Exif_JPEG_PICTURE", "cof_soft",
    "SAMSUNG CAMERA PICTURES", "KODAK Digital Still Camera", "<Digimax S600 / Kenox S600 / Digimax Cyber 630>",
    "hdrpl;", "???", "IMG_2041", "2041", "Maker:0x4c,Date:2017-10-3,Ver:4,Lens:Kan03,Act:Lar02,E-Y", "Screenshot",
    '{"mode": 3}', "MINOLTA DIGITAL CAMERA", "\0\0 ", "dog, best quality Steps: 20, Sampler: Euler",
]  # fmt: skip
OF_PERSONS = ["Camera", "Oma", "2 dogs", "WM2006", "My Canon on the beach", "猫", "<3 my dog", "a digital camera on it"]


def test_what_a_camera_writes_is_no_description(tmp_path):
    for texts, are_of_persons in ((OF_CAMERAS, False), (OF_PERSONS, True)):
        for text in texts:
            photo = write_described(tmp_path, "EXIF, description, jpg", text)
            assert (description_of(photo) is not None) == are_of_persons, text
            sidecar = xmp.sidecar_of(photo)
            XmpSidecars("mine", "dog.jpg.xmp").write(sidecar, Caption(text.strip(" \0"), -1.0, True, ()))
            if not are_of_persons and xmp.Sidecar(sidecar)[xmp.CAPTION]:  # the captioner says the same: a caption
                expected = Description(text.strip(), sidecar, is_of_person=False, is_as_written=True)
                assert description_of(photo) == expected
            sidecar.unlink()


def test_descriptions_in_photos_are_left_alone_and_learned(capsys, tiny_checkpoint, tmp_path):
    """Wherever a library has put a correction: the photo is skipped by its own name, and trained on."""
    photos = [write_described(tmp_path, place, f"a zebra {number}") for number, place in enumerate(EMBEDDED)]
    own = open_dataset(tmp_path)
    expected = {photo: (f"a zebra {number}",) for number, photo in enumerate(photos)}
    assert {record.path: record.captions for record in own.records} == expected
    assert own.splits.keys() == {"train", "val"}
    camera = write_described(tmp_path, "EXIF, comment", "SONY DSC").rename(tmp_path / "camera.jpg")
    photos[list(EMBEDDED).index("EXIF, comment")] = write_described(tmp_path, "EXIF, comment", "a zebra")
    for more in ((), ("--overwrite",)):
        status, _, err = run(capsys, "caption", tiny_checkpoint, tmp_path, "--xmp", *more)
        assert status == 0 and "1 files are written beside their photos." in err
        assert f"{len(photos)} photos have a description already and are skipped: {tmp_path}/EXIF, " in err
    assert [file.name for file in tmp_path.glob("*.xmp")] == ["camera.jpg.xmp"]

    # a library copies our description into the photo, which makes it no person's; then a person corrects it there
    said = xmp.Sidecar(tmp_path / "camera.jpg.xmp")[xmp.CAPTION]
    for text, is_of_person in ((said, False), ("a zebra at last", True)):
        write_described(tmp_path, "XMP, JPEG", text).replace(camera)
        assert description_of(camera).is_of_person == is_of_person
        assert open_dataset(tmp_path).splits.get("unchecked", 0) == 1 - is_of_person
    before = (tmp_path / "camera.jpg.xmp").read_bytes()
    assert "0 files are written" in run(capsys, "caption", tiny_checkpoint, camera, "--xmp", "--overwrite")[2]
    assert (tmp_path / "camera.jpg.xmp").read_bytes() == before


def test_a_person_s_words_in_the_other_sidecar_are_seen(capsys, tiny_checkpoint, album):
    (album / "2.png.xmp").write_text(SIDECARS["darktable"])
    (album / "2.xmp").write_text(SIDECARS["a short form"])
    _, _, err = run(capsys, "caption", tiny_checkpoint, album / "2.png", "--xmp", "--overwrite")
    assert f"are skipped: {album}/2.xmp;" in err
    assert (album / "2.png.xmp").read_text() == SIDECARS["darktable"]


@pytest.mark.timeout(20)
@pytest.mark.parametrize(("attribute", "count"), [('a:b{}="1"', 100_000), ('xmlns:n{0}="urn:{0}"', 3_000)])
def test_a_sidecar_with_very_much_in_it_is_merged(attribute, count, tmp_path):
    file, attributes = tmp_path / "dog.jpg.xmp", " ".join(map(attribute.format, range(count)))
    file.write_text(f'{HEAD}<rdf:Description xmlns:a="urn:a" {attributes}/>{END}')
    XmpSidecars("run \x1b[31m \udcff", "dog.jpg.xmp").write(file, Caption("a dog", -1.0, True, ()))
    assert [xmp.Sidecar(file)[name] for name in (xmp.DESCRIPTION, xmp.CAPTIONER)] == ["a dog", "run \\x1b[31m \\udcff"]


def test_an_alternative_text_of_a_person_stays(tmp_path):
    file = tmp_path / "dog.jpg.xmp"
    kind = XmpSidecars("mine", "dog.jpg.xmp")
    for text, alternative in (("a photo of a dog", "A dog."), ("a cat", "A cat.")):
        kind.write(file, Caption(text, -1.0, True, ()))
        assert xmp.Sidecar(file)[xmp.ALT_TEXT] == alternative
    sidecar = xmp.Sidecar(file)
    sidecar.update({xmp.ALT_TEXT: "Our cat Mimi."})
    sidecar.write()
    kind.write(file, Caption("a dog", None, True, ()))
    assert [xmp.Sidecar(file)[name] for name in (xmp.ALT_TEXT, xmp.DESCRIPTION)] == ["Our cat Mimi.", "a dog"]


def test_a_sidecar_is_written_whole_or_not_at_all(tmp_path):
    file = tmp_path / "dog.jpg.xmp"
    file.write_text(SIDECARS["darktable"])
    with room_for(400), pytest.raises(DataError, match=r"Cannot write .*File too large"):
        XmpSidecars("mine", "dog.jpg.xmp").write(file, Caption("a dog", -1.0, True, ()))
    assert file.read_text() == SIDECARS["darktable"] and list(tmp_path.iterdir()) == [file]

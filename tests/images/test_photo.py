import os
import struct
import warnings
import zlib
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from PIL import Image

from showtell.errors import ImageError
from showtell.images import photo as photo_module
from showtell.images.loading import prepare_photo
from showtell.images.photo import decode_photo, open_photo
from showtell.images.photo_files import find_photos
from showtell.images.preprocessing import Preprocessing


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    stream = BytesIO()
    image.save(stream, format=format, **options)
    return stream.getvalue()


def decoded(image: Image.Image, format: str, **options: object) -> np.ndarray:
    """The pixels of an image that was saved and opened again."""
    return pixels(decode_photo(encoded(image, format, **options), "photo"))


def pixels(image: Image.Image) -> np.ndarray:
    assert image.mode == "RGB"
    return np.asarray(image)


def two_by_three() -> Image.Image:
    """Six pixels that all differ: 3 wide, 2 high."""
    return Image.fromarray(np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10)


def squares(size: int, **more: object) -> Preprocessing:
    settings = {"resize": "squash", "interpolation": "bilinear", "mean": (0, 0, 0), "deviation": (1, 1, 1)} | more
    return Preprocessing(image_size=size, **settings)


# --- what opens, and as what ---

# numpy's own words for what a camera meant: orientation n is stored so that this restores it
UPRIGHT = {
    1: lambda a: a, 2: np.fliplr, 3: lambda a: np.rot90(a, 2), 4: np.flipud, 5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1), 7: lambda a: np.rot90(a, 2).transpose(1, 0, 2), 8: np.rot90,
}  # fmt: skip


def test_exif_orientation_is_applied() -> None:
    for format in ("PNG", "TIFF"):
        for orientation, upright in UPRIGHT.items():
            exif = Image.Exif()
            exif[274] = orientation
            assert np.array_equal(decoded(two_by_three(), format, exif=exif), upright(pixels(two_by_three())))
    for exif in (b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0no TIFF header"):  # damaged: as the photo is stored
        assert np.array_equal(decoded(two_by_three(), "PNG", exif=exif), pixels(two_by_three()))


def image_of(mode: str, *values: object) -> Image.Image:
    image = Image.new(mode, (len(values), 1))
    image.putdata(values)
    return image


def palette() -> Image.Image:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putdata([0, 1])
    return image


# An image, the format that it is saved in, and its pixels in RGB; a number stands for three equal channels.
MODES = {
    "transparency on white": (
        image_of("RGBA", (255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 51)),
        ("PNG", {}),
        [[255, 0, 0], 255, 204],  # 255 * (1 - 51 / 255)
    ),
    "a transparent entry of a palette": (palette(), ("PNG", {"transparency": 1}), [[10, 20, 30], 255]),
    "grey": (image_of("L", 77), ("PNG", {}), [77]),
    "black and white": (image_of("1", 0, 1), ("PNG", {}), [0, 255]),
    "16 bits, PNG": (Image.fromarray(np.array([[0, 257, 32768, 65535]], np.uint16)), ("PNG", {}), [0, 1, 128, 255]),
    "16 bits, TIFF": (Image.fromarray(np.array([[0, 257, 32768, 65535]], np.uint16)), ("TIFF", {}), [0, 1, 128, 255]),
    "floats": (
        Image.fromarray(np.array([[-1.0, 0.0, 1.0, np.nan]], np.float32)),
        ("TIFF", {}),
        [0, 128, 255, 128],  # 127.5 to even; not a number counts as 0
    ),
    "flat 32 bits": (Image.fromarray(np.full((1, 2), 70000, np.int32)), ("TIFF", {}), [0, 0]),
    "a colour profile": (image_of("RGB", (9, 80, 200)), ("PNG", {"icc_profile": b"x" * 200}), [[9, 80, 200]]),
}


def test_every_mode_becomes_rgb() -> None:
    for name, (image, (format, options), expected) in MODES.items():
        opened = decoded(image, format, **options)
        assert opened[0].tolist() == [[value] * 3 if isinstance(value, int) else value for value in expected], name


def test_of_several_frames_the_first_is_taken() -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    for format, options in (("GIF", {}), ("TIFF", {}), ("WEBP", {"lossless": True})):
        opened = decoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
        assert opened[8, 8].tolist() == [255, 0, 0]


def test_large_photos_open_without_a_warning_and_leave_the_filters_as_they_were(monkeypatch):
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)  # Pillow warns above 400 and refuses above 800
    content, before = encoded(Image.new("RGB", (25, 25)), "PNG"), list(warnings.filters)
    with ThreadPoolExecutor(4) as pool:
        sizes = {photo.size for photo in pool.map(decode_photo, [content] * 200, ["photo"] * 200)}
    assert sizes == {(25, 25)} and warnings.filters == before


@pytest.mark.parametrize("format", ["JPEG", "AVIF", "WEBP", "BMP", "GIF", "TIFF", "HEIF"])
def test_every_format_gives_the_colours_that_went_in(format: str) -> None:
    image = Image.new("RGB", (32, 32), (255, 0, 0))
    image.paste((0, 0, 255), (16, 0, 32, 32))
    if format == "HEIF":
        pytest.importorskip("pillow_heif").register_heif_opener()
    options = {"JPEG": {"progressive": True, "quality": 95}, "AVIF": {"quality": 95}, "HEIF": {"quality": -1}}
    opened = decoded(image, format, **options.get(format, {})).astype(int)
    assert opened.shape == (32, 32, 3)
    assert np.abs(opened[16, 4] - [255, 0, 0]).max() <= 6
    assert np.abs(opened[16, 28] - [0, 0, 255]).max() <= 6


def png_of(width: int, height: int, channels: int, depth: int, rows: bytes) -> bytes:
    """A PNG written by hand: colour types that Pillow does not write, sizes that it does not make."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, depth, {1: 0, 2: 4, 3: 2, 4: 6}[channels], 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


# --- what does not open, and what is said ---


def refusal(content: bytes) -> str:
    with pytest.raises(ImageError) as caught:
        decode_photo(content, "photo")
    return str(caught.value)


def refused(path: Path) -> str:
    with pytest.raises(ImageError) as caught:
        open_photo(path)
    return str(caught.value).replace(str(path.parent), "…")


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sea.jpg").mkdir()
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    with (tmp_path / "big.jpg").open("wb") as stream:
        stream.truncate(photo_module.MAX_FILE_BYTES + 1)  # a hole: it takes no room
    for name, sentence in {
        "none.jpg": "There is no file …/none.jpg.",
        "sea.jpg": "Cannot read …/sea.jpg: Is a directory.",
        "a.txt/b.jpg": "Cannot read …/b.jpg: Not a directory.",
        "loop.jpg": "Cannot read …/loop.jpg: Too many levels of symbolic links.",
        "big.jpg": "…/big.jpg has 512 MB, more than such a file may have (512 MB).",
    }.items():
        assert refused(tmp_path / name) == sentence
    assert refused(Path("/dev/zero")) == "…/zero is a device, a pipe or a socket; give a regular file."
    with pytest.raises(ImageError, match="512 MB"):
        photo_module.read_photo(tmp_path / "big.jpg")


DAMAGED = "is not an image, or a damaged one; JPEG, PNG, GIF, TIFF, WebP, BMP and AVIF can be read"
OTHERS = {
    b"": "is empty; it should hold an image.",
    b"\0\1\2\3" * 100: DAMAGED,
    b"A dog runs.\n": "is not an image: it holds text.",
    b"%PDF-1.7\n%\xe2\xe3": DAMAGED,
    b"\n<!DOCTYPE html><html>404": "is not an image: it holds a web page.",
    b"\0\0\0\x20ftypisom\0\0\2\0": "is a video, not an image; save a frame of it as PNG.",
    b"RIFF\x24\0\0\0AVI LIST": "is a video, not an image; save a frame of it as PNG.",
    b"\x1aE\xdf\xa3\x9fB\x86": "is a video, not an image; save a frame of it as PNG.",
    b"version https://git-lfs.github.com/spec/v1\noid": "is a pointer of Git LFS, not the image itself; run: git",
}


def test_files_that_are_something_else_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for content, ending in OTHERS.items():
        assert refusal(content).startswith(f"photo {ending}")
    monkeypatch.setattr(photo_module, "_formats", lambda: ("JPEG", "PNG"))
    heic = refusal(b"\0\0\0\x20ftypheic\0\0\0\0")
    assert heic == 'photo is a HEIC photo; to read those, pip install "pillow-heif>=0.18", or save it as JPEG or PNG.'


def test_photos_of_too_many_pixels_or_none() -> None:
    limit = "than are safe to open (110,000,000); save it smaller, or as JPEG."
    assert refusal(png_of(11000, 10001, 3, 8, b"")) == f"photo has more pixels {limit}"
    assert refusal(png_of(2**31 - 1, 2**31 - 1, 3, 8, b"")) == f"photo has more pixels {limit}"  # Pillow's own limit
    assert all(refusal(png_of(*size, 3, 8, b"")).startswith("photo ") for size in [(0, 5), (5, 0)])


def segment(marker: int, content: bytes = b"") -> bytes:
    return struct.pack(">BBH", 0xFF, marker, len(content) + 2) + content


def grey_jpeg(scans: int) -> bytes:
    """A progressive JPEG of 64 blocks whose scans, after the first, say that nothing changes."""
    tables = segment(0xDB, bytes([0, *[16] * 64])) + segment(0xC2, struct.pack(">BHHBBBB", 8, 64, 64, 1, 1, 0x11, 0))
    tables += segment(0xC4, bytes([0x00, 1, *[0] * 15, 0])) + segment(0xC4, bytes([0x10, 1, *[0] * 15, 0x60]))
    first = segment(0xDA, bytes([1, 1, 0, 0, 0, 0])) + bytes(8)
    others = (segment(0xDA, bytes([1, 1, 0, 1, 63, 0])) + b"\x01") * (scans - 1)  # an end of 64 blocks
    return b"\xff\xd8" + tables + first + others + b"\xff\xd9"


def tiff_of(strips: int) -> bytes:
    """A TIFF of one column, with a strip for each row."""
    at = 8 + 2 + 6 * 12 + 4
    tags = [(256, 1, 1), (257, 1, strips), (262, 1, 1), (273, strips, at), (278, 1, 1), (279, strips, at + 4 * strips)]
    entries = b"".join(struct.pack("<HHII", name, 4, count, value) for name, count, value in tags)
    return struct.pack("<2sHIH", b"II", 42, 8, 6) + entries + bytes(4) + struct.pack("<II", 8, 1) * strips


MANY = 150_000
JPEG, PNG = encoded(two_by_three(), "JPEG"), encoded(two_by_three(), "PNG")
GIF = encoded(Image.new("P", (2, 3)), "GIF", optimize=True)
CHUNK, PIXELS = bytes(4) + b"teXt" + struct.pack(">I", zlib.crc32(b"teXt")), bytes(4) + b"IDAT\x35\xaf\x06\x1e"
FLOODS = {
    "filler": JPEG[:2] + b"\xff" * MANY + JPEG[2:],
    "comments": JPEG[:2] + segment(0xFE) * MANY + JPEG[2:],
    "scans": grey_jpeg(photo_module.MAX_SCANS + 1),
    "chunks": PNG[:33] + CHUNK * MANY + PNG[33:],
    "empty pixels": PNG[:33] + PIXELS * MANY + PNG[33:],
    "chunks behind": PNG[:-12] + CHUNK * MANY + PNG[-12:],
    "pieces": GIF[:-1].replace(b",", b"!\xfe" + b"\1a" * MANY + b"\0,", 1) + b";",
    "strips": tiff_of(MANY),
}


@pytest.mark.parametrize("flood", FLOODS)
def test_a_photo_of_a_flood_of_parts_is_refused_before_they_are_all_read(flood: str) -> None:
    """What would keep Pillow busy for minutes: with as many parts as photos have, the same file is read."""
    assert refusal(FLOODS[flood]).startswith("photo is made of more parts (chunks, segments, strips or scans) than any")


def test_as_many_parts_as_photos_have_are_read() -> None:
    assert decode_photo(grey_jpeg(photo_module.MAX_SCANS), "photo").size == (64, 64)
    assert decode_photo(JPEG + bytes(2**16) + b"\xff\xda" * 1000, "photo").size == (3, 2)  # phones put a film behind
    assert decode_photo(PNG[:33] + CHUNK * 5_000 + PNG[33:], "photo").size == (3, 2)
    assert decode_photo(tiff_of(10_000), "photo").size == (1, 10_000)


# --- JPEGs that are decoded at less than their size ---


@pytest.mark.parametrize("size", [(1, 100_000_000), (100_000_000, 1), (3, 100_001)])
def test_a_side_that_is_too_long_is_refused_by_the_header(size: tuple[int, int]) -> None:
    """Nothing of such a photo is read but its header: here there is no more."""
    shown = f"{size[0]} x {size[1]} pixels"
    assert refusal(png_of(*size, 1, 8, b"")) == f"photo is {shown}; a side may have 100,000: save it smaller."


@pytest.mark.parametrize("longest", [{"resize": "squash"}, {"resize": "crop"}, {"resize": "fit", "longest": 500}])
@pytest.mark.parametrize("size", [(1, 100_000), (100_000, 1)])
def test_a_side_that_is_just_short_enough_is_prepared(longest: dict[str, object], size: tuple[int, int]) -> None:
    prepared = prepare_photo(encoded(Image.new("L", size, 77), "PNG"), squares(300, interpolation="lanczos", **longest))
    assert prepared.pixels.unique().tolist() == [77]


def test_a_large_jpeg_is_decoded_at_a_fraction_and_looks_the_same() -> None:
    large = Image.fromarray(np.random.default_rng(0).integers(0, 256, (60, 80, 3), dtype=np.uint8)).resize((1600, 1200))
    exif = Image.Exif()
    exif[274] = 6
    content = encoded(large, "JPEG", quality=90, exif=exif)
    preprocessing = squares(96, resize="crop", crop_share=0.9)
    less = photo_module.to_photo(content, preprocessing.min_decoded_size)
    assert (less.size, less.image.size) == ((1200, 1600), (300, 400))  # a quarter: 0.9 of 300 is above twice 96
    prepared, whole = prepare_photo(content, preprocessing), decode_photo(content, "photo")
    assert prepared.window == preprocessing.window(whole.size)
    difference = np.abs(prepared.pixels.numpy().astype(int) - preprocessing.prepare(whole).numpy())
    assert 0 < difference.mean() < 1
    for preprocessing in (squares(700), squares(8, interpolation="nearest")):  # little more is needed, or every pixel
        assert photo_module.to_photo(content, preprocessing.min_decoded_size).image.size == (1200, 1600)


SEEDS = [
    *(encoded(two_by_three(), format) for format in ("PNG", "GIF", "WEBP", "BMP")),
    encoded(two_by_three(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"),
    encoded(two_by_three(), "TIFF", compression="tiff_lzw"),
]


@given(
    content=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8),
    kept=st.floats(0, 1),
)
@example(content=SEEDS[-1], edits=[], kept=0.5)
def test_damage_is_an_image_error_or_an_image(content: bytes, edits: list, kept: float) -> None:
    damaged = bytearray(content)
    for offset, value in edits:
        damaged[int(offset * len(damaged))] = value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # those that Pillow raises while it decodes
        try:
            assert decode_photo(bytes(damaged[: int(kept * len(damaged))]), "photo").mode == "RGB"
        except ImageError as error:
            assert str(error).startswith("photo ")


# --- which photos arguments name ---


@pytest.fixture
def album(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with photos, named by the current directory as people name them."""
    names = ["photo10.jpg", "photo2.JPG", "notes.txt", ".hidden.jpg", "odd[1].jpg"]
    for name in [*names, "sea/b.png", "sea/a.webp", ".trash/c.png"]:
        path = tmp_path / "album" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def paths_of(*arguments: str, stdin: bytes = b"") -> str:
    """What arguments name, without the album's own name."""
    return " ".join(path.as_posix().removeprefix("album/") for path in find_photos(arguments, BytesIO(stdin)))


def test_folders_patterns_files_and_standard_input(album: Path) -> None:
    (album / "album" / "sea" / "up").symlink_to(album / "album")  # ends in no loop
    everything = "odd[1].jpg photo2.JPG photo10.jpg sea/a.webp sea/b.png"  # naturally sorted, hidden ones left out
    again = ["album/photo2.JPG", "./album/../album/photo2.JPG", str(album / "album/photo2.JPG")]
    for arguments, named in [
        (["album"], everything),
        (["album/photo*"], "photo2.JPG photo10.jpg"),
        (["album/*o*"], "odd[1].jpg photo2.JPG photo10.jpg"),  # not notes.txt
        (["album/se?"], "sea/a.webp sea/b.png"),  # a folder that matches is searched
        (["album/odd[1].jpg"], "odd[1].jpg"),  # a file whose name looks like a pattern
        (["album/sea/b.png", "album/notes.txt", "album/sea", "gone.jpg"], "sea/b.png notes.txt sea/a.webp gone.jpg"),
        (again, "photo2.JPG"),
        (["album/sea/up/sea/b.png"], "sea/up/sea/b.png"),
    ]:
        assert paths_of(*arguments) == named
    for listed in (b"album/sea\nalbum/odd[1].jpg\r\n\ngone.jpg", b"album/sea\0album/odd[1].jpg\0gone.jpg"):
        assert paths_of("-", stdin=listed) == "sea/a.webp sea/b.png odd[1].jpg gone.jpg"


def test_arguments_that_name_no_photo(album: Path) -> None:
    for argument, sentence in {
        "empty": r"^The folder empty holds no image \(\.avif, .*\.webp\)\.$",
        "album/*.bmp": r"^The pattern album/\*\.bmp matches no image \(\.avif",
        "[ab]" * 1500: "^The pattern .* matches no image ",
        "-": "Standard input names no photo; it should hold a path on each line",
    }.items():
        with pytest.raises(ImageError, match=sentence):
            find_photos([argument], BytesIO(b"\n"))


def test_odd_names_are_that_photos_matter(album: Path) -> None:
    for name in ("x" * 300, "x/" * 3000, "~" * 5000):
        assert len(find_photos(["-"], BytesIO(b"album/sea/b.png\n" + name.encode()))) == 2
        with pytest.raises(ImageError, match=r"^Cannot read .*: File name too long\.$"):
            open_photo(find_photos([name])[0])
    raw = b"album/sea/caf\xe9.png"  # no UTF-8
    os.rename(b"album/sea/b.png", raw)  # noqa: PTH104 (a path of bytes)
    assert os.fsencode(find_photos(["album/sea"])[1]) == raw
    assert find_photos(["-"], BytesIO(raw)) == [Path(os.fsdecode(raw))]

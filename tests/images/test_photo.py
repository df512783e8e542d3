import errno
import os
import struct
import subprocess
import sys
import threading
import warnings
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from showtell.errors import ImageError
from showtell.images import photo as photo_module
from showtell.images.loading import PreparedPhoto, prepare_batches, prepare_photo
from showtell.images.photo import decode_photo, open_photo
from showtell.images.photo_files import find_photos
from showtell.images.preprocessing import Preprocessing


def encoded(image: Image.Image, format: str, **options: object) -> bytes:
    stream = BytesIO()
    image.save(stream, format=format, **options)
    return stream.getvalue()


def pixels(image: Image.Image) -> np.ndarray:
    assert image.mode == "RGB"
    return np.asarray(image)


def two_by_three() -> Image.Image:
    """Six pixels that all differ: 3 wide, 2 high."""
    return Image.fromarray(np.arange(18, dtype=np.uint8).reshape(2, 3, 3) * 10)


# --- what opens, and as what ---


def test_a_png_comes_back_pixel_for_pixel(tmp_path: Path) -> None:
    path = tmp_path / "photo.png"
    two_by_three().save(path)
    assert np.array_equal(pixels(open_photo(path)), pixels(two_by_three()))


# numpy's own words for what a camera meant: orientation n is stored so that this restores it
UPRIGHT = {
    1: lambda a: a,
    2: np.fliplr,
    3: lambda a: np.rot90(a, 2),
    4: np.flipud,
    5: lambda a: a.transpose(1, 0, 2),
    6: lambda a: np.rot90(a, -1),
    7: lambda a: np.rot90(a, 2).transpose(1, 0, 2),
    8: np.rot90,
}


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
@pytest.mark.parametrize("orientation", UPRIGHT)
def test_exif_orientation_is_applied(orientation: int, format: str) -> None:
    exif = Image.Exif()
    exif[274] = orientation
    opened = decode_photo(encoded(two_by_three(), format, exif=exif), "photo")
    assert np.array_equal(pixels(opened), UPRIGHT[orientation](pixels(two_by_three())))


def test_a_jpeg_that_a_phone_held_upright_is_turned() -> None:
    landscape = Image.new("RGB", (64, 32), "red")
    landscape.paste("blue", (0, 0, 32, 32))  # left half blue: above, once turned clockwise
    exif = Image.Exif()
    exif[274] = 6
    turned = decode_photo(encoded(landscape, "JPEG", exif=exif, quality=95), "photo")
    assert turned.size == (32, 64)
    assert pixels(turned)[8, 16, 2] > 200 and pixels(turned)[56, 16, 0] > 200


@pytest.mark.parametrize("exif", [b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0no TIFF header"])
def test_damaged_exif_leaves_the_photo_as_stored(exif: bytes) -> None:
    content = encoded(two_by_three(), "PNG", exif=exif)
    assert np.array_equal(pixels(decode_photo(content, "photo")), pixels(two_by_three()))


def test_transparency_is_laid_on_white() -> None:
    rgba = Image.new("RGBA", (3, 1))
    rgba.putdata([(255, 0, 0, 255), (255, 0, 0, 0), (0, 0, 0, 51)])
    opened = pixels(decode_photo(encoded(rgba, "PNG"), "photo"))
    assert opened[0].tolist() == [[255, 0, 0], [255, 255, 255], [204, 204, 204]]  # 255 * (1 - 51 / 255)


def test_a_palette_with_a_transparent_entry_is_laid_on_white() -> None:
    image = Image.new("P", (2, 1))
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putdata([0, 1])
    opened = pixels(decode_photo(encoded(image, "PNG", transparency=1), "photo"))
    assert opened[0].tolist() == [[10, 20, 30], [255, 255, 255]]


def test_grey_becomes_three_equal_channels() -> None:
    opened = pixels(decode_photo(encoded(Image.new("L", (1, 1), 77), "PNG"), "photo"))
    assert opened[0, 0].tolist() == [77, 77, 77]


def test_black_and_white_becomes_0_and_255() -> None:
    image = Image.new("1", (2, 1))
    image.putdata([0, 1])
    assert pixels(decode_photo(encoded(image, "PNG"), "photo"))[0, :, 0].tolist() == [0, 255]


@pytest.mark.parametrize("format", ["PNG", "TIFF"])
def test_sixteen_bits_of_grey_are_scaled_not_cut(format: str) -> None:
    values = np.array([[0, 257, 32768, 65535]], dtype=np.uint16)
    opened = pixels(decode_photo(encoded(Image.fromarray(values), format), "photo"))
    assert opened[0, :, 0].tolist() == [0, 1, 128, 255]  # value / 257, rounded


def test_floats_are_stretched_from_least_to_greatest() -> None:
    values = np.array([[-1.0, 0.0, 1.0, np.nan]], dtype=np.float32)
    opened = pixels(decode_photo(encoded(Image.fromarray(values), "TIFF"), "photo"))
    assert opened[0, :, 1].tolist() == [0, 128, 255, 128]  # 127.5 to even; not a number counts as 0


def test_a_flat_image_of_32_bits_is_black() -> None:
    values = np.full((2, 2), 70000, dtype=np.int32)
    assert pixels(decode_photo(encoded(Image.fromarray(values), "TIFF"), "photo")).max() == 0


def test_cmyk_becomes_rgb() -> None:
    opened = pixels(decode_photo(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG"), "photo"))
    assert np.abs(opened[4, 4].astype(int) - [255, 0, 0]).max() < 10  # no cyan, all magenta and yellow: red


@pytest.mark.parametrize("format", ["GIF", "TIFF", "WEBP"])
def test_of_several_frames_the_first_is_taken(format: str) -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    options = {"lossless": True} if format == "WEBP" else {}
    content = encoded(frames[0], format, save_all=True, append_images=frames[1:], **options)
    assert pixels(decode_photo(content, "photo"))[8, 8].tolist() == [255, 0, 0]


def test_a_large_photo_opens_without_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 400)  # Pillow warns above 400 and refuses above 800
    assert decode_photo(encoded(Image.new("RGB", (25, 25)), "PNG"), "photo").size == (25, 25)


def test_threads_leave_the_filters_of_warnings_as_they_were() -> None:
    content, before = encoded(two_by_three(), "PNG"), list(warnings.filters)
    threads = [threading.Thread(target=lambda: [decode_photo(content, "photo") for _ in range(50)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert warnings.filters == before


# --- what does not open, and what is said ---


def refusal(path: Path) -> str:
    with pytest.raises(ImageError) as caught:
        open_photo(path)
    return str(caught.value).replace(str(path.parent), "…")


def test_a_missing_file(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none.jpg") == "There is no file …/none.jpg."


def test_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sea.jpg").mkdir()
    assert refusal(tmp_path / "sea.jpg") == "…/sea.jpg is a folder, not an image."


def test_a_path_through_a_file(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    assert refusal(tmp_path / "a.txt" / "b.jpg") == "Cannot read …/b.jpg: Not a directory."


def test_an_empty_file(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").touch()
    assert refusal(tmp_path / "a.jpg") == "…/a.jpg is empty; it should hold an image."


def test_a_text_file_named_jpg(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_text("é" * 300)  # 512 bytes end inside a character
    (tmp_path / "b.jpg").write_text("x" + "é" * 300)
    assert refusal(tmp_path / "a.jpg") == "…/a.jpg is not an image: it holds text."
    assert refusal(tmp_path / "b.jpg") == "…/b.jpg is not an image: it holds text."


def test_bytes_of_no_known_kind(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"\0\1\2\3" * 100)
    assert refusal(tmp_path / "a.jpg") == (
        "…/a.jpg is not an image, or a damaged one; JPEG, PNG, GIF, TIFF, WebP, BMP, AVIF and JPEG 2000 can be read, "
        "HEIC with its plug-in."
    )


@pytest.mark.parametrize(
    ("content", "ending"),
    [
        (b"%PDF-1.7\n%\xe2\xe3", "is a PDF document, not an image; save its page as PNG or JPEG."),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n", "is a PostScript document, not an image; save its page"),
        (b'<?xml version="1.0"?>\n<svg xmlns="x">', "is an SVG drawing, not a photo; save it as PNG."),
        (b"\xef\xbb\xbf<svg>", "is an SVG drawing, not a photo; save it as PNG."),
        (b"\n<!DOCTYPE html><html>404", "is not an image: it holds a web page."),
        (b"\0\0\0\x20ftypisom\0\0\2\0", "is a video, not an image; save one of its frames as PNG or JPEG."),
        (b"RIFF\x24\0\0\0AVI LIST", "is a video, not an image; save one of its frames as PNG or JPEG."),
        (b"\x1aE\xdf\xa3\x9fB\x86", "is a video, not an image; save one of its frames as PNG or JPEG."),
        (b"version https://git-lfs.github.com/spec/v1\noid", "is a pointer of Git LFS, not the image itself; run: git"),
        (b"PK\x03\x04\x14\0", "is a ZIP archive, not an image; unpack it."),
        (b"\x1f\x8b\x08\0", "is compressed with gzip, not an image; unpack it."),
    ],
)
def test_files_that_are_something_else_are_named(tmp_path: Path, content: bytes, ending: str) -> None:
    (tmp_path / "a.jpg").write_bytes(content)
    assert refusal(tmp_path / "a.jpg").startswith(f"…/a.jpg {ending}")


def heic(image: Image.Image) -> bytes:
    plug_in = pytest.importorskip("pillow_heif")
    plug_in.register_heif_opener()
    return encoded(image, "HEIF", quality=-1)  # lossless


def test_a_photo_of_an_iphone() -> None:
    opened = pixels(decode_photo(heic(Image.new("RGB", (64, 32), (200, 30, 60))), "photo"))
    assert opened.shape == (32, 64, 3)
    assert np.abs(opened[16, 32].astype(int) - [200, 30, 60]).max() <= 4  # its colours go through YCbCr


def test_a_photo_of_an_iphone_without_the_plug_in(monkeypatch: pytest.MonkeyPatch) -> None:
    content = heic(Image.new("RGB", (64, 32)))
    monkeypatch.setattr(photo_module, "_has_heic", lambda: False)
    monkeypatch.setattr(photo_module, "_formats", lambda: ("JPEG", "PNG"))
    expected = 'photo is a HEIC photo; to read those, pip install "showtell[heic]", or save it as JPEG or PNG.'
    assert decode_refusal(content) == expected


def test_an_avif_without_its_decoder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photo_module, "_formats", lambda: ("JPEG", "PNG"))
    monkeypatch.setattr(photo_module.features, "check", lambda name: False)
    content = b"\0\0\0\x20ftypavif\0\0\0\0avifmif1"
    expected = "photo is an AVIF photo, which this build of Pillow cannot read; pip install --upgrade pillow."
    assert decode_refusal(content) == expected


def decode_refusal(content: bytes) -> str:
    with pytest.raises(ImageError) as caught:
        decode_photo(content, "photo")
    return str(caught.value)


def test_a_named_pipe_a_device_and_a_loop_of_links_are_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.jpg")  # to open it would wait for ever
    (tmp_path / "loop.jpg").symlink_to(tmp_path / "loop.jpg")
    assert refusal(tmp_path / "pipe.jpg") == "…/pipe.jpg is a device, a pipe or a socket, not an image file."
    assert refusal(Path("/dev/zero")).endswith("zero is a device, a pipe or a socket, not an image file.")
    assert refusal(tmp_path / "loop.jpg") == "Cannot read …/loop.jpg: Too many levels of symbolic links."


@pytest.mark.skipif(not Path("/proc/kmsg").exists(), reason="the files of Linux that have no end")
@pytest.mark.parametrize("name", ["/proc/kmsg", "/proc/self/pagemap", "/proc/self/environ"])
def test_files_of_proc_are_never_opened(name: str) -> None:
    with pytest.raises(ImageError, match=f"^{name} is empty; it should hold an image"):
        open_photo(Path(name))


class BadDisk(BytesIO):
    """A file that opens and can be read up to some byte."""

    def __init__(self, content: bytes, readable: int) -> None:
        super().__init__(content)
        self._readable = readable

    def read(self, size: int | None = -1) -> bytes:
        wanted = size if size is not None and size >= 0 else len(self.getvalue())
        if self.tell() + wanted > self._readable:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return super().read(size)


@pytest.mark.parametrize("format", ["PNG", "JPEG", "GIF", "TIFF", "WEBP", "BMP"])
@pytest.mark.parametrize("readable", [0, 16, 60, 400])
def test_a_photo_that_the_disk_cannot_read_is_named(
    format: str, readable: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (40, 40, 3), dtype=np.uint8)
    content = encoded(Image.fromarray(noise), format)
    (tmp_path / "a.png").write_bytes(content)
    monkeypatch.setattr(Path, "open", lambda *_: BadDisk(content, readable))
    with pytest.raises(ImageError) as caught:
        open_photo(tmp_path / "a.png")
    assert str(caught.value) == f"Cannot read {tmp_path / 'a.png'}: Input/output error."


def test_a_photo_that_the_disk_cannot_read_is_one_of_a_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for path in paths:
        Image.new("RGB", (20, 20)).save(path)
    opened = Path.open
    monkeypatch.setattr(Path, "open", lambda self, mode: BadDisk(b"", 0) if self == paths[1] else opened(self, mode))
    squares = Preprocessing(
        image_size=16, resize="squash", interpolation="bilinear", mean=(0, 0, 0), deviation=(1, 1, 1)
    )
    ((first, second, third),) = prepare_batches(paths, lambda path: prepare_photo(path, squares), 8)
    assert str(second[1]) == f"Cannot read {paths[1]}: Input/output error."
    assert isinstance(first[1], PreparedPhoto) and isinstance(third[1], PreparedPhoto)


def test_a_file_larger_than_any_photo_is_refused_before_it_is_read(tmp_path: Path) -> None:
    with (tmp_path / "a.jpg").open("wb") as stream:
        stream.truncate(photo_module.MAX_FILE_BYTES + 1)  # a hole: it takes no room
    for read in (open_photo, photo_module.read_photo):
        with pytest.raises(ImageError, match=r"a\.jpg has 512 MB, more than a photo may have \(512 MB\); save it smal"):
            read(tmp_path / "a.jpg")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "sea" / "deep").mkdir(parents=True)
    for name in ("a.png", "sea/b.png", "sea/deep/c.png"):
        two_by_three().save(tmp_path / name)
    (tmp_path / "a.png").chmod(0)
    (tmp_path / "sea" / "deep").chmod(0)
    try:
        assert refusal(tmp_path / "a.png") == "Cannot read …/a.png: Permission denied."
        assert paths_of(str(tmp_path / "sea")) == [f"{tmp_path}/sea/b.png", f"{tmp_path}/sea/deep"]
        assert refusal(tmp_path / "sea" / "deep") == "Cannot search the folder …/deep: permission denied."
    finally:
        (tmp_path / "sea" / "deep").chmod(0o700)


def test_a_truncated_jpeg(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    content = encoded(Image.fromarray(noise), "JPEG")
    (tmp_path / "a.jpg").write_bytes(content[: len(content) // 2])
    message = refusal(tmp_path / "a.jpg")
    assert message.startswith("…/a.jpg is damaged: it cannot be decoded (image file is truncated")


def test_a_truncated_png(tmp_path: Path) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (64, 64, 3), dtype=np.uint8)
    content = encoded(Image.fromarray(noise), "PNG")
    (tmp_path / "a.png").write_bytes(content[: len(content) // 2])
    assert refusal(tmp_path / "a.png").startswith("…/a.png is damaged: it cannot be decoded (")


def png_of(width: int, height: int, channels: int, depth: int, rows: bytes) -> bytes:
    """A PNG written by hand: colour types that Pillow does not write, sizes that it does not make."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    colour = {1: 0, 2: 4, 3: 2, 4: 6}[channels]
    header = struct.pack(">IIBBBBB", width, height, depth, colour, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def test_a_decompression_bomb(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(png_of(11000, 10001, 3, 8, b""))
    (tmp_path / "b.png").write_bytes(png_of(2**31 - 1, 2**31 - 1, 3, 8, b""))  # Pillow refuses this one itself
    assert refusal(tmp_path / "a.png") == (
        "…/a.png has 110,011,000 pixels, more than are safe to open (110,000,000); save it smaller."
    )
    expected = "…/b.png has more pixels than are safe to open (110,000,000); save it smaller."
    assert refusal(tmp_path / "b.png") == expected


def jpeg_of(scans: int) -> bytes:
    """A progressive JPEG whose last scan is repeated until there are so many, each valid."""
    content = encoded(Image.effect_noise((64, 64), 40), "JPEG", progressive=True)
    last = content[content.rindex(b"\xff\xda") : -2]
    return content[:-2] + last * (scans - content.count(b"\xff\xda")) + content[-2:]


def test_a_jpeg_of_very_many_scans(tmp_path: Path) -> None:
    assert decode_refusal(jpeg_of(101)) == (
        "photo is a JPEG of 101 scans, more than are safe to open (100); save it anew as JPEG."
    )
    (tmp_path / "a.jpg").write_bytes(jpeg_of(206))
    assert refusal(tmp_path / "a.jpg") == (
        "…/a.jpg is a JPEG of 206 scans, more than are safe to open (100); save it anew as JPEG."
    )


def test_scans_that_are_not_of_the_photo_itself_do_not_count() -> None:
    with_thumbnails = encoded(Image.new("RGB", (8, 8), "red"), "JPEG", comment=b"\xff\xda" * 300)
    with_video = with_thumbnails + b"\xff\xda" * 300
    assert pixels(decode_photo(with_video, "photo"))[0, 0, 0] > 250
    assert decode_photo(jpeg_of(100), "photo").size == (64, 64)


def test_jpeg_2000_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    photo = encoded(Image.new("RGB", (20, 11)), "JPEG2000")
    monkeypatch.setattr(photo_module, "MAX_JPEG2000_PIXELS", 219)
    assert decode_refusal(photo) == (
        "photo has 220 pixels, more than are safe to open in JPEG 2000 (219); save it smaller, or as JPEG or PNG."
    )
    monkeypatch.setattr(photo_module, "MAX_JPEG2000_PIXELS", 220)
    assert decode_photo(photo, "photo").size == (20, 11)


def tiled_tiff(*sizes: tuple[int, int], kind: str = "I", order: str = "<", big: bool = False) -> bytes:
    """A TIFF of 16 x 16 grey pixels in a tile whose sizes are as given, in numbers of a type of `struct`."""
    tile = zlib.compress(bytes(16 * 16))
    header, count, entry, where = ("HHHQ", "Q", "HHQ8s", "Q") if big else ("HI", "H", "HHI4s", "I")
    start = struct.calcsize("=2s" + header)
    types = {"H": 3, "I": 4, "Q": 16, "q": 17}
    tags = [(256, "I", 16), (257, "I", 16), (258, "H", 8), (259, "H", 8), (262, "H", 1), (277, "H", 1)]
    tags += [(322, kind, width) for width, _ in sizes] + [(323, kind, height) for _, height in sizes]
    tags += [(324, "I", start), (325, "I", len(tile))]
    end = start + len(tile)
    beyond = end + struct.calcsize("=" + count) + len(tags) * struct.calcsize("=" + entry) + struct.calcsize(where)
    entries = b""
    values = b""
    for tag, type, number in tags:
        value = struct.pack(order + type, number)
        if len(value) > struct.calcsize(where):
            value, values = struct.pack(order + where, beyond + len(values)), values + value
        entries += struct.pack(order + entry, tag, types[type], 1, value)
    numbers = (43, 8, 0, end) if big else (42, end)
    opening = (b"II" if order == "<" else b"MM") + struct.pack(order + header, *numbers)
    return opening + tile + struct.pack(order + count, len(tags)) + entries + struct.pack(order + where, 0) + values


@pytest.mark.parametrize(("order", "big"), [("<", False), (">", False), ("<", True)])  # Pillow reads no other
@pytest.mark.parametrize("kind", "HI")
def test_tiles_far_larger_than_the_tiff(kind: str, order: str, big: bool) -> None:
    options = {"kind": kind, "order": order, "big": big}
    assert pixels(decode_photo(tiled_tiff((16, 16), **options), "photo")).shape == (16, 16, 3)
    limit = "more than are safe to open (110,000,000); save it with smaller ones."
    refused = f"photo has tiles of 26,000 x 26,000 pixels, {limit}"
    assert decode_refusal(tiled_tiff((26_000, 26_000), **options)) == refused
    assert decode_refusal(tiled_tiff((26_000, 26_000), (16, 16), **options)) == refused  # which one is meant?


@pytest.mark.parametrize("kind", "qQ")
def test_sizes_of_tiles_in_numbers_that_pillow_may_pass_over(kind: str) -> None:
    assert decode_refusal(tiled_tiff((26_000, 26_000), kind=kind)) == (
        "photo is damaged: the size of its tiles is no number of pixels."
    )


@pytest.mark.parametrize("size", [(0, 5), (5, 0)])
def test_no_pixels(size: tuple[int, int]) -> None:
    assert decode_refusal(png_of(*size, 3, 8, b"")).startswith("photo ")


@pytest.mark.parametrize("size", [(1, 65000), (65000, 1)])
def test_the_thinnest_photos_are_prepared(size: tuple[int, int], tmp_path: Path) -> None:
    Image.new("RGB", size, (9, 8, 7)).save(tmp_path / "a.png")
    squares = {"mean": (0, 0, 0), "deviation": (1, 1, 1), "image_size": 16, "interpolation": "bilinear"}
    for resize, longest in (("squash", None), ("crop", None), ("fit", 32), ("none", 32)):
        preprocessing = Preprocessing(resize=resize, longest=longest, **squares)
        prepared = prepare_photo(tmp_path / "a.png", preprocessing)
        assert prepared.size == size
        assert min(prepared.pixels.shape) >= 1
        assert prepared.pixels.flatten(1).unique(dim=1).tolist() == [[9], [8], [7]]


@pytest.mark.parametrize(("size", "gigabytes"), [((1, 100_000_000), "2.4"), ((2, 52_000_000), "1.7")])
def test_a_photo_so_thin_that_its_rows_need_more_than_its_pixels(size: tuple[int, int], gigabytes: str) -> None:
    assert decode_refusal(png_of(*size, 1, 8, b"")) == (
        f"photo is {size[0]} x {size[1]:,} pixels, so thin that {gigabytes} GB would be needed to open it, more than "
        "is safe (0.9 GB); save it in fewer rows."
    )


@pytest.mark.parametrize("resize", ["squash", "crop", "fit", "none"])
def test_a_thin_photo_is_made_lower_before_it_is_made_wider(resize: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order of the two passes changes nothing but the last bit."""
    photo = Image.fromarray(np.random.default_rng(0).integers(0, 256, (3000, 3, 3), dtype=np.uint8))
    preprocessing = Preprocessing(
        image_size=32, resize=resize, longest=64 if resize in ("fit", "none") else None, interpolation="bilinear",
        mean=(0, 0, 0), deviation=(1, 1, 1),
    )  # fmt: skip
    usual = preprocessing.prepare(photo).int()
    monkeypatch.setattr("showtell.images.preprocessing._MAX_RESIZE_BYTES", 1000)
    other = preprocessing.prepare(photo).int()
    assert other.shape == usual.shape and (other - usual).abs().max() <= 1


# --- modes, pixel by pixel ---


def test_sixteen_bits_of_colour_lose_their_lower_half() -> None:
    row = struct.pack(">6H", 0, 257, 65535, 32768, 255, 256)
    opened = pixels(decode_photo(png_of(2, 1, 3, 16, b"\0" + row), "photo"))
    assert opened.tolist() == [[[0, 1, 255], [128, 0, 1]]]


def test_sixteen_bits_of_grey_with_alpha_are_laid_on_white() -> None:
    row = struct.pack(">4H", 0, 65535, 0, 0)
    opened = pixels(decode_photo(png_of(2, 1, 2, 16, b"\0" + row), "photo"))
    assert opened[0, :, 0].tolist() == [0, 255]


def adobe_jpeg(channels: list[Image.Image], transform: int) -> bytes:
    """A JPEG of four channels as Adobe writes it, inverted, that says how its colours are stored."""
    content = bytearray(encoded(Image.merge("CMYK", channels), "JPEG", quality=100, subsampling=0))
    marker = content.index(b"Adobe")
    content[marker + 11] = transform  # 0: CMYK; 2: YCCK
    return bytes(content)


def flat(*values: int) -> list[Image.Image]:
    return [Image.new("L", (16, 16), value) for value in values]


@pytest.mark.parametrize(
    ("ink", "colour"),
    [
        ((0, 255, 255, 0), (255, 0, 0)),
        ((255, 0, 0, 0), (0, 255, 255)),
        ((0, 0, 0, 255), (0, 0, 0)),
        ((0, 0, 0, 0), (255, 255, 255)),
    ],
)
def test_cmyk_as_adobe_writes_it_inverted(ink: tuple[int, ...], colour: tuple[int, ...]) -> None:
    opened = pixels(decode_photo(adobe_jpeg(flat(*ink), 0), "photo"))[8, 8]
    assert np.abs(opened.astype(int) - colour).max() <= 3


def test_ycck_as_adobe_writes_it() -> None:
    """Y, Cb and Cr of a YCCK file are those of the colour that has the amounts of ink for red, green and blue; black is
    stored inverted. Red is ink (0, 255, 255, 0): Y 179, Cb 171, Cr 1 (ITU-R BT.601), black 255 - 0."""
    stored = (179, 171, 1, 255)
    content = adobe_jpeg(flat(*(255 - value for value in stored)), 2)  # Pillow inverts what it writes
    assert np.abs(pixels(decode_photo(content, "photo"))[8, 8].astype(int) - [255, 0, 0]).max() <= 4


def test_lab_is_converted() -> None:
    lab = Image.merge("LAB", flat(255, 128, 128))  # L* 100, a* 0, b* 0
    assert pixels(decode_photo(encoded(lab, "TIFF"), "photo"))[8, 8].min() >= 254


@pytest.mark.parametrize("format", ["JPEG", "JPEG2000", "AVIF", "WEBP", "PPM", "BMP", "GIF", "TIFF", "ICO"])
def test_every_format_gives_the_colours_that_went_in(format: str) -> None:
    image = Image.new("RGB", (32, 32), (255, 0, 0))
    image.paste((0, 0, 255), (16, 0, 32, 32))
    options = {"JPEG": {"progressive": True, "quality": 95}, "AVIF": {"quality": 95}}.get(format, {})
    opened = pixels(decode_photo(encoded(image, format, **options), "photo")).astype(int)
    assert opened.shape == (32, 32, 3)
    assert np.abs(opened[16, 4] - [255, 0, 0]).max() <= 6
    assert np.abs(opened[16, 28] - [0, 0, 255]).max() <= 6


def test_a_colour_profile_changes_nothing() -> None:
    from PIL import ImageCms

    profile = ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()
    content = encoded(two_by_three(), "PNG", icc_profile=profile)
    assert np.array_equal(pixels(decode_photo(content, "photo")), pixels(two_by_three()))


@settings(deadline=None, max_examples=40)
@given(
    mode=st.sampled_from(["RGBA", "LA", "P", "I;16", "F", "I"]),
    size=st.tuples(st.integers(1, 40), st.integers(1, 40)),
    strip=st.integers(1, 200),
    seed=st.integers(0, 9),
)
def test_strips_give_what_the_whole_gives(mode: str, size: tuple[int, int], strip: int, seed: int) -> None:
    random = np.random.default_rng(seed)
    if mode in ("I;16", "F", "I"):
        kind = {"I;16": np.uint16, "F": np.float32, "I": np.int32}[mode]
        image = Image.fromarray(random.integers(0, 60000, size[::-1]).astype(kind))
    else:
        image = Image.fromarray(random.integers(0, 256, (*size[::-1], 4), dtype=np.uint8)).convert(mode)
        if mode == "P":
            image.info["transparency"] = 3
    whole = pixels(photo_module._as_rgb(image))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(photo_module, "_STRIP", strip)
        assert np.array_equal(pixels(photo_module._as_rgb(image)), whole)


# --- JPEGs that are decoded at less than their size ---


def test_a_large_jpeg_is_decoded_at_a_fraction_and_looks_the_same() -> None:
    random = np.random.default_rng(0)
    large = Image.fromarray(random.integers(0, 256, (60, 80, 3), dtype=np.uint8)).resize((1600, 1200))
    exif = Image.Exif()
    exif[274] = 6
    content = encoded(large, "JPEG", quality=90, exif=exif)
    preprocessing = Preprocessing(
        image_size=96, resize="crop", crop_share=0.9, interpolation="bilinear", mean=(0, 0, 0), deviation=(1, 1, 1)
    )
    less = photo_module.to_photo(content, preprocessing.min_decoded_size)
    assert (less.size, less.image.size) == ((1200, 1600), (300, 400))  # a quarter: 0.9 of 300 is above twice 96
    prepared, whole = prepare_photo(content, preprocessing), decode_photo(content, "photo")
    assert prepared.window == preprocessing.window(whole.size)
    difference = np.abs(prepared.pixels.numpy().astype(int) - preprocessing.prepare(whole).numpy())
    assert 0 < difference.mean() < 1


def test_a_jpeg_of_little_more_than_is_needed_is_decoded_in_full() -> None:
    content = encoded(Image.new("RGB", (500, 375)), "JPEG")
    for interpolation, size in (("bilinear", 224), ("nearest", 8)):
        preprocessing = Preprocessing(
            image_size=size, resize="squash", interpolation=interpolation, mean=(0, 0, 0), deviation=(1, 1, 1)
        )
        assert photo_module.to_photo(content, preprocessing.min_decoded_size).image.size == (500, 375)


@pytest.mark.shared
def test_decoded_at_a_fraction_real_photos_look_the_same(shared_data: Path) -> None:
    preprocessing = Preprocessing(
        image_size=64, resize="squash", interpolation="bilinear", mean=(0, 0, 0), deviation=(1, 1, 1)
    )
    differences = []
    for path in sorted((shared_data / "coco-mini").rglob("*.jpg"))[:40]:
        if photo_module.open_photo_at_least(path, preprocessing.min_decoded_size).image.size == open_photo(path).size:
            continue  # too small for that
        prepared = prepare_photo(path, preprocessing).pixels.numpy().astype(int)
        differences.append(np.abs(prepared - preprocessing.prepare(open_photo(path)).numpy()).mean())
    assert len(differences) > 20
    assert np.mean(differences) < 1
    assert max(differences) < 3


# --- memory ---

PEAK = """
import resource, sys
from pathlib import Path
from showtell.images.photo import open_photo
def peak():  # of this process alone; ru_maxrss would begin with what its parent had
    return int(next(line for line in open("/proc/self/status") if line.startswith("VmHWM")).split()[1]) / 1024
before = peak()
image = open_photo(Path(sys.argv[1]))
print(image.width * image.height, peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of memory is read from Linux")
@pytest.mark.parametrize("kind", ["rgba.png", "palette.png", "rgb.png", "progressive.jpg", "float.tiff", "cmyk.tiff"])
def test_a_photo_at_the_limit_needs_about_a_gigabyte(kind: str, tmp_path: Path) -> None:
    size = (11000, 10000)
    exif = Image.Exif()
    exif[274] = 6  # turned, which needs a copy
    mode = {"rgba.png": "RGBA", "palette.png": "P", "float.tiff": "F", "cmyk.tiff": "CMYK"}.get(kind, "RGB")
    image = Image.new(mode, size)
    image.paste(200, (0, 0, 5000, 5000)) if mode in "PF" else image.paste("red", (0, 0, 5000, 5000))
    options = {"compress_level": 1} if kind.endswith("png") else {}
    options |= {"progressive": True} if kind.endswith("jpg") else {}
    options |= {"transparency": 0} if mode == "P" else {}
    image.save(tmp_path / kind, exif=exif, **options)
    done = subprocess.run([sys.executable, "-c", PEAK, tmp_path / kind], capture_output=True, text=True, check=True)
    opened, megabytes = map(float, done.stdout.split())
    assert opened == 110_000_000
    assert megabytes < 1100


SEEDS = [
    encoded(two_by_three(), "PNG"),
    encoded(two_by_three(), "JPEG", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0"),
    encoded(two_by_three(), "GIF"),
    encoded(two_by_three(), "TIFF", compression="tiff_lzw"),
    encoded(two_by_three(), "WEBP"),
    encoded(two_by_three(), "BMP"),
]


@settings(deadline=None)
@given(
    content=st.sampled_from(SEEDS),
    edits=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=8),
    kept=st.floats(0, 1),
)
@example(content=SEEDS[3], edits=[], kept=0.5)
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
    names = [
        "photo10.jpg",
        "photo2.JPG",
        "notes.txt",
        ".hidden.jpg",
        "sea/b.png",
        "sea/a.webp",
        ".trash/c.png",
    ]
    for name in [*names, "odd[1].jpg"]:
        path = tmp_path / "album" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def paths_of(*arguments: str) -> list[str]:
    return [path.as_posix() for path in find_photos(arguments)]


def test_a_folder_is_searched_naturally_sorted_hidden_left_out(album: Path) -> None:
    assert paths_of("album") == [
        "album/odd[1].jpg",
        "album/photo2.JPG",
        "album/photo10.jpg",
        "album/sea/a.webp",
        "album/sea/b.png",
    ]


def test_patterns(album: Path) -> None:
    assert paths_of("album/photo*") == ["album/photo2.JPG", "album/photo10.jpg"]
    assert paths_of("album/**/*.png") == ["album/sea/b.png"]
    assert paths_of("album/*o*") == ["album/odd[1].jpg", "album/photo2.JPG", "album/photo10.jpg"]  # not notes.txt
    assert paths_of("album/se?") == ["album/sea/a.webp", "album/sea/b.png"]  # a folder that matches is searched
    assert paths_of(f"{album}/album/photo2.*") == [f"{album.as_posix()}/album/photo2.JPG"]


def test_a_file_whose_name_looks_like_a_pattern_is_that_file(album: Path) -> None:
    assert paths_of("album/odd[1].jpg") == ["album/odd[1].jpg"]


def test_files_are_taken_as_they_are_once_and_in_order(album: Path) -> None:
    assert paths_of("album/sea/b.png", "album/notes.txt", "album/sea", "gone.jpg") == [
        "album/sea/b.png",
        "album/notes.txt",
        "album/sea/a.webp",
        "gone.jpg",
    ]


@pytest.mark.parametrize(
    ("argument", "opening"),
    [("empty", "The folder empty holds no image (.avif, "), ("album/*.bmp", "No image (.avif, ")],
)
def test_nothing_found_is_said(album: Path, argument: str, opening: str) -> None:
    with pytest.raises(ImageError) as caught:
        find_photos([argument])
    assert str(caught.value).startswith(opening)
    assert str(caught.value).endswith({"empty": ".webp).", "album/*.bmp": "matches album/*.bmp."}[argument])


@pytest.mark.parametrize("name", ["x" * 300, "x/" * 3000, "~" * 5000, "[ab]" * 1500])
def test_a_name_that_is_too_long_is_that_photos_error(album: Path, name: str) -> None:
    named = find_photos(["album/sea/b.png", name]) if "[" not in name else []
    if named:
        assert len(named) == 2 and named[0].as_posix() == "album/sea/b.png"
        with pytest.raises(ImageError, match=r"^Cannot read .*: File name too long\.$"):
            open_photo(named[1])
    else:
        with pytest.raises(ImageError, match=r"^No image .* matches "):
            find_photos([name])
    listed = find_photos(["-"], BytesIO(b"album/sea/b.png\n" + name.encode()))
    assert [path.name for path in listed][:1] == ["b.png"] and len(listed) == 2


def test_a_name_that_is_no_utf_8_is_a_photo_like_others(album: Path) -> None:
    raw = b"album/sea/caf\xe9.png"
    os.rename(b"album/sea/b.png", raw)  # noqa: PTH104 (a path of bytes)
    assert os.fsencode(find_photos(["album/sea"])[1]) == raw
    assert find_photos(["-"], BytesIO(raw)) == [Path(os.fsdecode(raw))]


def test_one_photo_by_several_names_is_one(album: Path) -> None:
    names = ["album/photo2.JPG", "./album/../album/photo2.JPG", str(album / "album" / "photo2.JPG"), "album/sea/b.png"]
    assert paths_of(*names) == ["album/photo2.JPG", "album/sea/b.png"]


def test_links_to_folders_end_in_no_loop(album: Path) -> None:
    (album / "album" / "sea" / "up").symlink_to(album / "album")
    assert len(paths_of("album")) == 5
    assert paths_of("album/sea/up/sea/b.png") == ["album/sea/up/sea/b.png"]


@pytest.mark.parametrize(
    "listed", [b"album/sea\nalbum/odd[1].jpg\r\n\ngone.jpg", b"album/sea\0album/odd[1].jpg\0gone.jpg"]
)
def test_standard_input_names_files_and_folders(album: Path, listed: bytes) -> None:
    assert [path.as_posix() for path in find_photos(["-"], BytesIO(listed))] == [
        "album/sea/a.webp",
        "album/sea/b.png",
        "album/odd[1].jpg",
        "gone.jpg",
    ]
    with pytest.raises(ImageError, match="Standard input names no photo; it should hold a path on each line"):
        find_photos(["-"], BytesIO(b"\n"))

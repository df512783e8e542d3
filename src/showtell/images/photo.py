"""Photos: a file, its bytes, an array or an image to an upright RGB image."""

from __future__ import annotations

import codecs
import contextlib
import functools
import os
import re
import stat
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, Literal

import numpy as np
from PIL import ExifTags, Image, TiffImagePlugin, features

from showtell.errors import ImageError

# Photos come from anywhere, so no other decoder of Pillow is let near them: EPS, for one, would start Ghostscript.
# Each has the suffix that its files are kept with.
_FORMATS = {
    "JPEG": ".jpg",
    "MPO": ".jpg",  # begins with a JPEG, which is all that others look at
    "PNG": ".png",
    "WEBP": ".webp",
    "GIF": ".gif",
    "TIFF": ".tif",
    "BMP": ".bmp",
    "DIB": ".bmp",
    "HEIF": ".heic",
    "AVIF": ".avif",
    "JPEG2000": ".jp2",
    "PPM": ".ppm",
    "ICO": ".ico",
}

MAX_PIXELS = 110_000_000  # with what Pillow needs to decode, convert and turn it, about 1 GB; phones have up to 108
MAX_JPEG2000_PIXELS = 20_000_000  # Pillow decodes these slowly, holding the interpreter's lock, in 30 bytes a pixel
MAX_SCANS = 100  # of a JPEG: each goes over the whole photo, however few bytes it has; encoders make about 10
MAX_FILE_BYTES = 512 * 2**20
_MAX_MEMORY = 2 * (4 * MAX_PIXELS + 2**23)  # bytes of a decoded photo and its copy, see `_bytes_needed`
IN_MEMORY = "The image in memory"  # what messages call a photo that has no name
_LARGE = 30_000_000  # pixels from which on photos are decoded one at a time, whatever the number of threads
_STRIP = 1_000_000  # pixels that are converted at a time

# EXIF orientation: what puts the image upright (EXIF 2.32, table 4.6.4.A, tag 274)
_UPRIGHT = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
_ON_ITS_SIDE = (5, 6, 7, 8)  # orientations that swap width and height

# What lies in a file's first bytes, and what the file then is. Brands are those of ISO base media files ("ftyp").
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
_AVIF_BRANDS = (b"avif", b"avis")
_OTHER_CONTENT = (
    (b"%PDF", "is a PDF document, not an image; save its page as PNG or JPEG."),
    (b"%!PS", "is a PostScript document, not an image; save its page as PNG or JPEG."),
    (b"\x1aE\xdf\xa3", "is a video, not an image; save one of its frames as PNG or JPEG."),
    (b"version https://git-lfs", "is a pointer of Git LFS, not the image itself; run: git lfs pull."),
    (b"PK\x03\x04", "is a ZIP archive, not an image; unpack it."),
    (b"\x1f\x8b", "is compressed with gzip, not an image; unpack it."),
)
# What in a JPEG leads to the next segment (T.81, B.1.1): no stuffed zero, and no marker that stands without a length.
_SCAN = b"\xff\xda"
_SEGMENT = re.compile(rb"\xff([\xc0-\xcf\xd9-\xfe])")
_END = b"\xd9"
_TIFF_NUMBERS = {3: 2, 4: 4}  # bytes of the types that the size of a tile may have: SHORT, LONG (TIFF 6.0)
_EMPTY = "is empty; it should hold an image."
_VIDEO_BRANDS = (b"isom", b"iso2", b"mp41", b"mp42", b"avc1", b"qt  ", b"M4V ", b"MSNV", b"3gp4", b"3gp5", b"dash")

# Pillow warns of large photos and odd metadata, without the file's name. Silencing that swaps state of the
# whole process, so only one thread at a time may do it; the decoding itself stays outside the lock.
_silencing = threading.Lock()
_one_large = threading.Lock()

SizeFunction = Callable[[tuple[int, int]], tuple[int, int]]  # from (width, height) to (width, height)
PhotoSource = Path | str | bytes | Image.Image | np.ndarray  # file, its path, its bytes, an image, (h, w, 3) uint8


@dataclass(frozen=True)
class DecodedPhoto:
    """A photo that may have been decoded at less than its full size."""

    image: Image.Image  # RGB, upright
    size: tuple[int, int]  # (width, height) of the upright photo in full


def open_photo(path: Path) -> Image.Image:
    """Open a photo as RGB, turned as its EXIF orientation says, transparency laid on white.

    Of a moving image it is the first frame. 16 bits of grey become 8; grey values of 32 bits or floats,
    for which no white is agreed, are stretched from their least to their greatest. Colour profiles change
    nothing, as in the pipelines that pretrained encoders were made with.

    Raises:
        ImageError: the file is missing, no regular file, empty, damaged, too large to be safe, or no image.
    """
    return open_photo_at_least(path).image


def open_photo_at_least(path: Path, min_size: SizeFunction | None = None) -> DecodedPhoto:
    """Open a photo as `open_photo` does, a large JPEG in a half, a quarter or an eighth of its size if that will do.

    A JPEG decodes so at a fraction of the cost. Resized to less than half of what is left, a photo differs from one
    that was decoded in full by less than 1 of 255 levels on average, and less than 3 for any photo of coco-mini.

    Args:
        path: of the photo.
        min_size: from the (width, height) of the upright photo to those that it needs to have at least.

    Raises:
        ImageError: see `open_photo`.
    """
    with _open_file(path) as stream:
        return _decode(stream, str(path), min_size)


def read_photo(path: Path) -> bytes:
    """The bytes of an image file, undecoded.

    Raises:
        ImageError: the file is missing, no regular file, larger than any photo, or cannot be read.
    """
    with _open_file(path) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise _unreadable(str(path), error) from error


def decode_photo(content: bytes, name: str) -> Image.Image:
    """Decode the bytes of an image file as `open_photo` does; `name` is what messages call it.

    Raises:
        ImageError: the bytes are empty, damaged, too many pixels to be safe, or no image.
    """
    return _decode(BytesIO(content), name).image


def photo_suffix(content: bytes, name: str) -> str:
    """The suffix that an image file should have by its content, such as ".png"; its pixels are not decoded.

    Raises:
        ImageError: the bytes are empty or no image.
    """
    return _FORMATS[str(_identify(BytesIO(content), name).format)]


def photo_media_type(suffix: str) -> str:
    """The media type of image files with a suffix of `photo_suffix`, such as "image/png"."""
    _formats()
    return Image.MIME.get(Image.EXTENSION.get(suffix, ""), "application/octet-stream")


def to_photo(source: PhotoSource, min_size: SizeFunction | None = None) -> DecodedPhoto:
    """A photo in any form that people have it: path, bytes of a file, image, or array.

    Args:
        source: a path; the bytes of an image file; an image of Pillow, of which transparency is laid on white and
            the EXIF orientation applied as for a file; or an array (height, width, 3) uint8 in RGB.
        min_size: see `open_photo_at_least`.

    Raises:
        ImageError: it is none of these, or cannot be read.
    """
    if isinstance(source, str | Path):
        return open_photo_at_least(Path(source), min_size)
    if isinstance(source, bytes | bytearray | memoryview):
        return _decode(BytesIO(source), IN_MEMORY, min_size)
    if isinstance(source, Image.Image):
        image = _upright(source, IN_MEMORY, keep=True)
    elif isinstance(source, np.ndarray):
        if source.dtype != np.uint8 or source.ndim != 3 or source.shape[2] != 3 or not source.size:
            raise ImageError(
                f"An array {source.shape} of {source.dtype} is no photo; give (height, width, 3) of uint8, in RGB."
            )
        image = Image.fromarray(np.ascontiguousarray(source))
    else:
        raise ImageError(
            f"A {type(source).__name__} is no photo; give a path, the bytes of an image file, an image of Pillow, or "
            "an array (height, width, 3) of uint8."
        )
    return DecodedPhoto(image, image.size)


def _open_file(path: Path) -> BinaryIO:
    """Open a regular file that has bytes.

    The others are never opened: a named pipe waits for a writer, and a device has no end. Nor has many a file of /proc,
    whose size is said to be 0.
    """
    try:
        status = path.stat()
        if stat.S_ISREG(status.st_mode) and 0 < status.st_size <= MAX_FILE_BYTES:
            return path.open("rb")
    except (FileNotFoundError, ValueError) as error:  # ValueError: no path has a null byte in it
        raise ImageError(f"There is no file {path}.") from error
    except OSError as error:
        raise _unreadable(str(path), error) from error
    if stat.S_ISREG(status.st_mode) and not status.st_size:
        raise ImageError(f"{path} {_EMPTY}")
    if stat.S_ISREG(status.st_mode):
        raise ImageError(
            f"{path} has {status.st_size / 2**20:,.0f} MB, more than a photo may have ({MAX_FILE_BYTES // 2**20} MB); "
            "save it smaller."
        )
    if not stat.S_ISDIR(status.st_mode):
        raise ImageError(f"{path} is a device, a pipe or a socket, not an image file.")
    if not os.access(path, os.R_OK | os.X_OK):
        raise ImageError(f"Cannot search the folder {path}: permission denied.")
    raise ImageError(f"{path} is a folder, not an image.")


def _decode(stream: BinaryIO, name: str, min_size: SizeFunction | None = None) -> DecodedPhoto:
    """Find out what a file is, look at its size, and only then decode it."""
    image = _identify(stream, name)
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise ImageError(_too_large(name, width * height))
    if image.format == "JPEG2000" and width * height > MAX_JPEG2000_PIXELS:
        raise ImageError(
            f"{name} has {width * height:,} pixels, more than are safe to open in JPEG 2000 "
            f"({MAX_JPEG2000_PIXELS:,}); save it smaller, or as JPEG or PNG."
        )
    if not width * height:
        raise ImageError(f"{name} is {width} x {height} pixels; it should hold an image.")
    if _bytes_needed(image.size) > _MAX_MEMORY:
        raise ImageError(
            f"{name} is {width:,} x {height:,} pixels, so thin that {_bytes_needed(image.size) / 1e9:.1f} GB would be "
            f"needed to open it, more than is safe ({_MAX_MEMORY / 1e9:.1f} GB); save it in fewer rows."
        )
    if isinstance(image, TiffImagePlugin.TiffImageFile):
        _check_tiles(image, stream, name)
    is_jpeg = image.format in ("JPEG", "MPO")
    if is_jpeg:
        _check_scans(stream, name)
    if min_size is None or not is_jpeg:
        upright = _upright(image, name)
        return DecodedPhoto(upright, upright.size)
    on_its_side = _orientation(image) in _ON_ITS_SIDE
    size = (height, width) if on_its_side else (width, height)
    wanted = min_size(size)
    image.draft(None, wanted[::-1] if on_its_side else wanted)
    return DecodedPhoto(_upright(image, name), size)


def _check_scans(stream: BinaryIO, name: str) -> None:
    """Refuse a JPEG of so many scans that decoding it would take minutes; the stream stays where it is."""
    position = stream.tell()
    try:
        stream.seek(0)
        content = stream.read()
        stream.seek(position)
    except OSError as error:
        raise _unreadable(name, error) from error
    if content.count(_SCAN) > MAX_SCANS and (scans := _count_scans(content)) > MAX_SCANS:
        raise ImageError(
            f"{name} is a JPEG of {scans:,} scans, more than are safe to open ({MAX_SCANS}); save it anew as JPEG."
        )


def _count_scans(content: bytes) -> int:
    """Scans of the first image of a JPEG: neither those of a thumbnail in its metadata nor what follows its end."""
    scans = 0
    found = _SEGMENT.search(content, 2)
    while found and found[1] != _END:
        scans += found[0] == _SCAN
        length = int.from_bytes(content[found.end() : found.end() + 2], "big")
        found = _SEGMENT.search(content, found.end() + max(length, 2))
    return scans


def _check_tiles(image: TiffImagePlugin.TiffImageFile, stream: BinaryIO, name: str) -> None:
    """Refuse a TIFF whose tiles, which are decoded as a whole, are too large; the stream stays where it is.

    The directory is read here once more: of doubled tags Pillow takes the last and its decoder the first, and types of
    numbers that Pillow passes over its decoder reads.
    """
    position = stream.tell()
    try:
        stream.seek(0)
        start = stream.read(4)
        is_big = b"+" in start[2:]  # version 43; that of the others is 42
        stream.seek(image.tag_v2.offset)
        count_size, entry_size = (8, 20) if is_big else (2, 12)
        order: Literal["little", "big"] = "little" if start[:2] == b"II" else "big"
        count = int.from_bytes(stream.read(count_size), order)
        entries = stream.read(min(count, 2**16) * entry_size)
        stream.seek(position)
    except OSError as error:
        raise _unreadable(name, error) from error
    sizes = {TiffImagePlugin.TILEWIDTH: 1, TiffImagePlugin.TILELENGTH: 1}
    for at in range(0, len(entries), entry_size):
        entry = entries[at : at + entry_size]
        tag, kind = int.from_bytes(entry[:2], order), int.from_bytes(entry[2:4], order)
        if tag not in sizes:
            continue
        value = 12 if is_big else 8  # where it begins, after how many there are
        if kind not in _TIFF_NUMBERS or int.from_bytes(entry[4:value], order) != 1:
            raise ImageError(f"{name} is damaged: the size of its tiles is no number of pixels.")
        pixels = int.from_bytes(entry[value : value + _TIFF_NUMBERS[kind]], order)
        sizes[tag] = max(sizes[tag], pixels)
    width, height = sizes.values()
    if width * height > MAX_PIXELS:
        raise ImageError(
            f"{name} has tiles of {width:,} x {height:,} pixels, more than are safe to open ({MAX_PIXELS:,}); "
            "save it with smaller ones."
        )


def _bytes_needed(size: tuple[int, int]) -> int:
    """Bytes that Pillow needs for a photo in RGB and a turned copy: 4 for each pixel, and a pointer for each row."""
    return 2 * (4 * size[0] * size[1] + 8 * max(size))


def _unreadable(name: str, error: OSError) -> ImageError:
    return ImageError(f"Cannot read {name}: {(error.strerror or str(error)).rstrip('.')}.")


def _identify(stream: BinaryIO, name: str) -> Image.Image:
    """The image in a file, not decoded yet."""
    try:
        with _silencing, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return Image.open(stream, formats=_formats())
    except Image.DecompressionBombError as error:
        raise ImageError(_too_large(name)) from error
    except Exception as error:  # decoders answer damaged bytes with whatever went wrong inside them
        try:
            stream.seek(0)
            start = stream.read(512)
        except OSError as failure:  # the disk, not the bytes
            raise _unreadable(name, failure) from error
        raise ImageError(f"{name} {_describe_content(start)}") from error


@functools.cache
def _formats() -> tuple[str, ...]:
    """The formats that Pillow can read here, HEIC with its plug-in if that is installed."""
    if _has_heic():
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()
    return tuple(format for format in _FORMATS if format in Image.OPEN)


@functools.cache
def _has_heic() -> bool:
    try:
        import pillow_heif  # noqa: F401
    except ImportError:
        return False
    return True


def _too_large(name: str, pixels: int | None = None) -> str:
    given = f"{pixels:,} pixels, more" if pixels else "more pixels"
    return f"{name} has {given} than are safe to open ({MAX_PIXELS:,}); save it smaller."


def _describe_content(start: bytes) -> str:
    """What a file is that cannot be identified, by its first bytes, as the end of a sentence."""
    if not start:
        return _EMPTY
    if start[4:8] == b"ftyp":
        brand = start[8:12]
        if brand in _HEIC_BRANDS and not _has_heic():
            return 'is a HEIC photo; to read those, pip install "showtell[heic]", or save it as JPEG or PNG.'
        if brand in _AVIF_BRANDS and not features.check("avif"):
            return "is an AVIF photo, which this build of Pillow cannot read; pip install --upgrade pillow."
        if brand in _VIDEO_BRANDS:
            return "is a video, not an image; save one of its frames as PNG or JPEG."
    if start[:4] == b"RIFF" and start[8:12] == b"AVI ":
        return "is a video, not an image; save one of its frames as PNG or JPEG."
    for opening, ending in _OTHER_CONTENT:
        if start.startswith(opening):
            return ending
    try:
        text = codecs.getincrementaldecoder("utf-8-sig")().decode(start)
    except UnicodeDecodeError:
        text = "\0"
    if "\0" not in text:
        if re.search(r"<svg[\s>]", text):
            return "is an SVG drawing, not a photo; save it as PNG."
        if re.match(r"\s*<(!doctype\s+html|html)", text, re.IGNORECASE):
            return "is not an image: it holds a web page."
        return "is not an image: it holds text."
    kinds = "JPEG, PNG, GIF, TIFF, WebP, BMP, AVIF and JPEG 2000"
    return f"is not an image, or a damaged one; {kinds} can be read, HEIC with its plug-in."


def _upright(image: Image.Image, name: str, keep: bool = False) -> Image.Image:
    """Decode an image, make it RGB and turn it as its EXIF orientation says. It is closed as soon as it is copied."""
    with _one_large if image.width * image.height > _LARGE else contextlib.nullcontext():
        try:
            image.load()
            turn = _UPRIGHT.get(_orientation(image))
            rgb = _as_rgb(image)
            if not keep:
                image.close()  # its memory is needed for the turned one
            return rgb if turn is None else rgb.transpose(turn)
        except Image.DecompressionBombError as error:  # some formats tell their size only now
            raise ImageError(_too_large(name)) from error
        except Exception as error:  # decoders answer damaged bytes with whatever went wrong inside them
            if isinstance(error, OSError) and error.errno is not None:  # the disk, not the bytes
                raise _unreadable(name, error) from error
            raise ImageError(
                f"{name} is damaged: it cannot be decoded ({str(error).strip() or type(error).__name__})."
            ) from error


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation of an image; 1, upright, where there is none or it is damaged."""
    try:
        with _silencing, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001  (damaged metadata raises anything, and the pixels are good)
        return 1


def _as_rgb(image: Image.Image) -> Image.Image:
    """An image of any mode in RGB, in strips, so that no more than the image and its copy is in memory."""
    if image.mode == "LAB":
        return _lab_to_rgb(image)
    if image.mode in ("I", "F"):
        convert = _stretch(image)
    elif image.mode.startswith("I;16"):
        convert = _sixteen_bits
    elif image.has_transparency_data:
        convert = _on_white
    else:
        return image.convert("RGB")
    rgb = Image.new("RGB", image.size)
    for box in _strips(image.size):
        rgb.paste(convert(image.crop(box)), box)
    return rgb


def _strips(size: tuple[int, int]) -> Iterator[tuple[int, int, int, int]]:
    """Boxes that lie below each other and cover an image of some (width, height)."""
    width, height = size
    rows = max(1, _STRIP // width)
    for top in range(0, height, rows):
        yield (0, top, width, min(top + rows, height))


def _on_white(image: Image.Image) -> Image.Image:
    layer = image.convert("RGBA")
    white = Image.new("RGB", layer.size, "white")
    white.paste(layer, mask=layer.getchannel("A"))
    return white


def _sixteen_bits(image: Image.Image) -> Image.Image:
    """16 bits of grey as 8, rounded."""
    grey = np.asarray(image).astype(np.uint32)
    return Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")


def _stretch(image: Image.Image) -> Callable[[Image.Image], Image.Image]:
    """Grey of 32 bits or floats as 8 bits, from the least value of the whole image to its greatest."""

    def values(strip: Image.Image) -> np.ndarray:
        return np.nan_to_num(np.asarray(strip).astype(np.float64), posinf=0.0, neginf=0.0)

    extremes = [(strip.min(), strip.max()) for strip in (values(image.crop(box)) for box in _strips(image.size))]
    least, greatest = min(low for low, _ in extremes), max(high for _, high in extremes)
    scale = 255 / (greatest - least) if greatest > least else 0.0

    def convert(strip: Image.Image) -> Image.Image:
        return Image.fromarray(np.rint((values(strip) - least) * scale).astype(np.uint8)).convert("RGB")

    return convert


def _lab_to_rgb(image: Image.Image) -> Image.Image:
    """CIE L*a*b* to sRGB, for which Pillow has no way but colour profiles."""
    from PIL import ImageCms

    profiles = (ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"))
    rgb = ImageCms.profileToProfile(image, *profiles, outputMode="RGB")
    assert rgb is not None  # it is None only where it works in place
    return rgb

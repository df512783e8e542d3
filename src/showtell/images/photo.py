"""Photos: a file, its bytes, an array or an image to an upright RGB image."""

from __future__ import annotations

import contextlib
import functools
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from PIL import ExifTags, Image

from showtell.errors import DataError, ImageError
from showtell.files import open_file, unreadable

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
MAX_FILE_BYTES = 512 * 2**20
IN_MEMORY = "The image in memory"  # what messages call a photo that has no name
_LARGE = 30_000_000  # pixels from which on photos are decoded one at a time, whatever the number of threads

# EXIF orientation: what puts the image upright (EXIF 2.32, table 4.6.4.A, tag 274). ImageOps.exif_transpose writes the
# metadata anew, which fails where they are damaged, and the photo stays on its side.
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

# What a file is that cannot be identified: how it begins, the end of a sentence about it, and the format of Pillow
# with which it would be read.
_OTHER_CONTENT = (
    (rb"$", "is empty; it should hold an image.", ""),
    (
        rb".{4}ftyp(heic|heix|heim|heis|hevc|hevx|mif1|msf1)",
        'is a HEIC photo; to read those, pip install "showtell[heic]", or save it as JPEG or PNG.',
        "HEIF",
    ),
    (
        rb".{4}ftyp(?!avi|he|mi|ms)|RIFF.{4}AVI |\x1aE\xdf\xa3",
        "is a video, not an image; save a frame of it as PNG.",
        "",
    ),
    (rb"version https://git-lfs", "is a pointer of Git LFS, not the image itself; run: git lfs pull.", ""),
    (rb"(?i:\s*<(!doctype\s+html|html))", "is not an image: it holds a web page.", ""),
    (rb"[\t\n\r -~]+$", "is not an image: it holds text.", ""),
)
_START = 512  # bytes in which that is looked for

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
    return to_photo(path).image


def read_photo(path: Path) -> bytes:
    """The bytes of an image file, undecoded.

    Raises:
        ImageError: the file is missing, no regular file, larger than any photo, or cannot be read.
    """
    with _open(path) as stream:
        try:
            return stream.read()
        except OSError as error:
            raise ImageError(str(unreadable(path, error))) from error


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


def photo_pixels(content: bytes) -> int:
    """How many pixels the header of an image file names; 0 if it cannot be read."""
    try:
        image = _identify(BytesIO(content), IN_MEMORY)
    except ImageError:
        return 0
    return image.width * image.height


def photo_media_type(suffix: str) -> str:
    """The media type of image files with a suffix of `photo_suffix`, such as "image/png"."""
    _formats()
    return Image.MIME.get(Image.EXTENSION.get(suffix, ""), "application/octet-stream")


def to_photo(source: PhotoSource, min_size: SizeFunction | None = None) -> DecodedPhoto:
    """A photo in any form that people have it: path, bytes of a file, image, or array.

    Args:
        source: a path; the bytes of an image file; an image of Pillow, of which transparency is laid on white and
            the EXIF orientation applied as for a file; or an array (height, width, 3) uint8 in RGB.
        min_size: from the (width, height) of the upright photo to those that it needs to have at least. A JPEG of a
            file or of bytes is decoded in a half, a quarter or an eighth of its size if that will do, at a fraction of
            the cost. Resized to less than half of what is left, a photo differs from one that was decoded in full by
            less than 1 of 255 levels on average, and less than 3 for any photo of coco-mini.

    Raises:
        ImageError: it is none of these, or cannot be read; see `open_photo`.
    """
    if isinstance(source, str | Path):
        with _open(Path(source)) as stream:
            return _decode(stream, str(source), min_size)
    if isinstance(source, bytes | bytearray | memoryview):
        return _decode(BytesIO(source), IN_MEMORY, min_size)
    is_array = isinstance(source, np.ndarray)
    if isinstance(source, Image.Image):
        image = _upright(source, IN_MEMORY)
    elif is_array and source.dtype == np.uint8 and source.shape[2:] == (3,) and source.size:
        image = Image.fromarray(np.ascontiguousarray(source))
    else:
        given = f"An array {source.shape} of {source.dtype}" if is_array else f"A {type(source).__name__}"
        raise ImageError(
            f"{given} is no photo; give a path, the bytes of an image file, an image of Pillow, or an array (height, "
            "width, 3) of uint8 in RGB."
        )
    return DecodedPhoto(image, image.size)


def _open(path: Path) -> BinaryIO:
    try:
        return open_file(path, MAX_FILE_BYTES)
    except DataError as error:
        raise ImageError(str(error)) from error


def _decode(stream: BinaryIO, name: str, min_size: SizeFunction | None = None) -> DecodedPhoto:
    """Find out what a file is, look at its size, and only then decode it."""
    image = _identify(stream, name)
    width, height = image.size
    limit = MAX_JPEG2000_PIXELS if image.format == "JPEG2000" else MAX_PIXELS
    if width * height > limit:
        raise _too_large(name, limit)
    if not width * height:
        raise ImageError(f"{name} is {width} x {height} pixels; it should hold an image.")
    size = (height, width) if _orientation(image) in _ON_ITS_SIDE else (width, height)
    if min_size is not None and image.format in ("JPEG", "MPO"):
        wanted = min_size(size)
        image.draft(None, wanted if size == (width, height) else wanted[::-1])
        return DecodedPhoto(_upright(image, name), size)
    upright = _upright(image, name)
    return DecodedPhoto(upright, upright.size)


def _identify(stream: BinaryIO, name: str) -> Image.Image:
    """The image in a file, not decoded yet."""
    try:
        is_heic = stream.read(12)[4:8] == b"ftyp"
        stream.seek(0)
        with _without_warnings():
            return Image.open(stream, formats=_formats(is_heic))
    except Image.DecompressionBombError as error:
        raise _too_large(name) from error
    except Exception as error:  # decoders answer damaged bytes with whatever went wrong inside them
        try:
            stream.seek(0)
            start = stream.read(_START)
        except OSError as failure:  # the disk, not the bytes
            raise ImageError(str(unreadable(name, failure))) from error
        others = "is not an image, or a damaged one; JPEG, PNG, GIF, TIFF, WebP, BMP, AVIF and JPEG 2000 can be read."
        for beginning, sentence, reader in reversed(_OTHER_CONTENT):
            if re.match(beginning, start, re.DOTALL) and reader not in _formats():
                others = sentence
        raise ImageError(f"{name} {others}") from error


@functools.cache
def _formats(with_heic: bool = True) -> tuple[str, ...]:
    """The formats that Pillow can read here, HEIC with its plug-in, which is slow to import, if that is installed."""
    if with_heic:
        with contextlib.suppress(ImportError):
            import pillow_heif

            pillow_heif.register_heif_opener()
    Image.init()
    return tuple(format for format in _FORMATS if format in Image.OPEN)


def _too_large(name: str, limit: int = MAX_PIXELS) -> ImageError:
    return ImageError(f"{name} has more pixels than are safe to open ({limit:,}); save it smaller, or as JPEG.")


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    with _silencing, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _upright(image: Image.Image, name: str) -> Image.Image:
    """Decode an image, make it RGB and turn it as its EXIF orientation says."""
    with _one_large if image.width * image.height > _LARGE else contextlib.nullcontext():
        try:
            image.load()
            rgb, turn = _as_rgb(image), _UPRIGHT.get(_orientation(image))
            return rgb if turn is None else rgb.transpose(turn)
        except Image.DecompressionBombError as error:  # some formats tell their size only now
            raise _too_large(name) from error
        except Exception as error:  # decoders answer damaged bytes with whatever went wrong inside them
            if isinstance(error, OSError) and error.errno is not None:  # the disk, not the bytes
                raise ImageError(str(unreadable(name, error))) from error
            raise ImageError(
                f"{name} is damaged: it cannot be decoded ({str(error).strip() or type(error).__name__})."
            ) from error


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation of an image; 1, upright, where there is none or it is damaged."""
    try:
        with _without_warnings():
            return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001  (damaged metadata raises anything, and the pixels are good)
        return 1


def _as_rgb(image: Image.Image) -> Image.Image:
    """An image of any mode in RGB."""
    if image.mode == "LAB":
        from PIL import ImageCms

        profiles = (ImageCms.createProfile("LAB"), ImageCms.createProfile("sRGB"))
        return cast(Image.Image, ImageCms.profileToProfile(image, *profiles, outputMode="RGB"))
    if image.mode in ("I", "F"):  # stretched from its least value to its greatest
        levels = np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)
        least, greatest = levels.min(), levels.max()
        scale = 255 / (greatest - least) if greatest > least else 0.0
        return Image.fromarray(np.rint((levels - least) * scale).astype(np.uint8)).convert("RGB")
    if image.mode.startswith("I;16"):
        grey = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layer = image if image.mode == "RGBA" else image.convert("RGBA")
        white = Image.new("RGB", layer.size, "white")
        white.paste(layer, mask=layer.getchannel("A"))
        return white
    return image.convert("RGB")

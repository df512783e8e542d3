"""Photos: a file, its bytes, an array or an image to an upright RGB image."""

from __future__ import annotations

import contextlib
import functools
import math
import os
import re
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from io import BufferedIOBase, BytesIO
from pathlib import Path
from typing import BinaryIO, cast

import numpy as np
from PIL import ExifTags, Image, ImageFile, ImageOps, TiffImagePlugin

from showtell.errors import DataError, ImageError, install_command
from showtell.files import open_file, read_bytes, unreadable

# Photos come from anywhere, so no other decoder of Pillow is let near them: EPS, for one, would start Ghostscript.
# Each has the suffix that its files are kept with.
_FORMATS = {
    "JPEG": ".jpg", "MPO": ".jpg", "PNG": ".png", "WEBP": ".webp", "GIF": ".gif", "TIFF": ".tif", "BMP": ".bmp",
    "HEIF": ".heic", "AVIF": ".avif",
}  # fmt: skip

MAX_PIXELS = 110_000_000  # with what Pillow needs to decode, convert and turn it, about 1 GB; phones have up to 108
MAX_WEBP_PIXELS = 50_000_000  # these are copied in one piece, while nothing else of the process runs
MAX_SIDE = 100_000  # pixels: JPEG has 65,535; Pillow holds a pointer for each row and weights for each resized one
MAX_FILE_BYTES = 512 * 2**20
MAX_SCANS = 100  # of a JPEG, as in libtiff: each goes over the whole photo; progressive ones have about ten
MAX_READS = 20_000  # that decoding may take, and one more for each `_BYTES_OF_READ` of the file
_BYTES_OF_READ = 512  # a chunk of a PNG takes three reads, and has 8 KB and more where it holds pixels
IN_MEMORY = "The image in memory"  # what messages call a photo that has no name
_LARGE = 30_000_000  # pixels from which on photos are decoded one at a time, whatever the number of readers
_READ_AT_ONCE = 2**24  # bytes of a JPEG: each return from the decoder waits for the interpreter's lock

_ON_ITS_SIDE = (5, 6, 7, 8)  # EXIF orientations that swap width and height

# What a file is that cannot be identified: how its first bytes look, and the end of a sentence about it.
_HEIC = rb".{4}ftyp(heic|heix|heim|heis|hevc|hevx|mif1|msf1)"
_OTHER_CONTENT = {
    rb"$": "is empty; it should hold an image.",
    rb".{4}ftyp(?!avi|he|mi|ms)|RIFF.{4}AVI |\x1aE\xdf\xa3": "is a video, not an image; save a frame of it as PNG.",
    rb"version https://git-lfs": "is a pointer of Git LFS, not the image itself; run: git lfs pull.",
    rb"(?i:\s*<(!doctype\s+html|html))": "is not an image: it holds a web page.",
    rb"[\t\n\r -~]+$": "is not an image: it holds text.",
    b"": "is not an image, or a damaged one; JPEG, PNG, GIF, TIFF, WebP, BMP and AVIF can be read.",
}

# Pillow warns of large photos and odd metadata, without the file's name. Silencing that swaps state of the
# whole process, so only one thread at a time may do it; the decoding itself stays outside the lock.
_silencing = threading.Lock()
os.register_at_fork(before=_silencing.acquire, after_in_parent=_silencing.release, after_in_child=_silencing.release)
one_large: AbstractContextManager[object] = threading.Lock()  # processes that read together get one that they share

SizeFunction = Callable[[tuple[int, int]], tuple[int, int]]  # from (width, height) to (width, height)
PhotoSource = Path | str | bytes | Image.Image | np.ndarray  # file, its path, its bytes, an image, (h, w, 3) uint8


class _PhotoStream(BufferedIOBase):
    """A file for Pillow, which reads it in pieces: too many, a flood of chunks or filler, are an ImageError."""

    def __init__(self, stream: BinaryIO, name: str) -> None:
        self._name, self._read, self.tell, self.seek = name, stream.read, stream.tell, stream.seek  # type: ignore[method-assign]
        self.reads_left = MAX_READS + self.seek(0, os.SEEK_END) // _BYTES_OF_READ
        self.scans_left = math.inf  # only where a JPEG's decoder reads do these bytes begin scans alone
        self.seek(0)

    def read(self, size: int | None = -1, /) -> bytes:
        """Read for Pillow."""
        content = self._read(-1 if size is None else size)
        self.reads_left -= 1
        self.scans_left -= content.count(b"\xff\xda\0")  # with its length, below 256: a video may follow the photo
        self.require(0)
        return content

    def require(self, reads: int) -> None:
        """Raise an ImageError if no so many reads are left, or too many scans were read."""
        if self.reads_left < reads or self.scans_left < 0:
            raise ImageError(
                f"{self._name} is made of more parts (chunks, segments, strips or scans) than any photo of its size; "
                "save it anew, as JPEG or PNG."
            )


@dataclass(frozen=True)
class DecodedPhoto:
    """A photo that may have been decoded at less than its full size."""

    image: Image.Image  # RGB, upright
    size: tuple[int, int]  # (width, height) of the upright photo in full


def open_photo(path: Path) -> Image.Image:
    """Open a photo as RGB, turned as its EXIF orientation says, transparency laid on white; else an ImageError.

    Of a moving image it is the first frame. 16 bits of grey become 8; grey values of 32 bits or floats are stretched
    from their least to their greatest. Colour profiles change nothing, as where pretrained encoders were made.
    """
    return to_photo(path).image


def read_photo(path: Path) -> bytes:
    """The bytes of an image file, undecoded; an ImageError if it cannot be read or is larger than any photo."""
    try:
        return read_bytes(path, max_bytes=MAX_FILE_BYTES)
    except DataError as error:
        raise ImageError(str(error)) from error


def decode_photo(content: bytes, name: str) -> Image.Image:
    """Decode the bytes of an image file, which messages call `name`, as `open_photo` does, with its errors."""
    return _decode(BytesIO(content), name).image


def photo_suffix(content: bytes, name: str) -> str:
    """The suffix for the bytes of an image file, such as ".png"; an ImageError if they are none. Nothing is decoded."""
    return _FORMATS[str(_identify(BytesIO(content), name).format)]


def is_upright(content: bytes, name: str) -> bool:
    """Whether an image file is not to be turned; an ImageError if it is none. Nothing is decoded."""
    return _orientation(_identify(BytesIO(content), name)) == 1


@contextlib.contextmanager
def identified(path: Path) -> Iterator[ImageFile.ImageFile]:
    """An image file whose metadata can be read inside the block; nothing is decoded. An ImageError if it is none."""
    with _open(path) as stream:
        image = _identify(stream, str(path))
        with _silencing, warnings.catch_warnings(action="ignore"):
            yield image


def photo_media_type(suffix: str) -> str:
    """The media type of image files with a suffix of `photo_suffix`, such as "image/png"."""
    _formats()
    return Image.MIME.get(Image.EXTENSION.get(suffix, ""), "application/octet-stream")


def to_photo(source: PhotoSource, min_size: SizeFunction | None = None) -> DecodedPhoto:
    """A photo in any form that people have it; an ImageError if it has another, or cannot be read.

    A JPEG is decoded in a half, a quarter or an eighth of its size, at a fraction of the cost, if that has the
    `min_size` of the upright photo. Resized to less than half of that, it differs from one that was decoded in full by
    less than 1 of 255 levels on average, and less than 3 for any photo of coco-mini.
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
    """Identify a file, look at its size, and only then decode it."""
    image = _identify(stream, name)
    width, height = image.size
    limit = MAX_WEBP_PIXELS if image.format == "WEBP" else MAX_PIXELS
    if width * height > limit:
        raise _too_large(name, limit)
    if max(width, height) > MAX_SIDE:
        raise ImageError(f"{name} is {width} x {height} pixels; a side may have {MAX_SIDE:,}: save it smaller.")
    if not width * height:
        raise ImageError(f"{name} is {width} x {height} pixels; it should hold an image.")
    is_turned = _orientation(image) in _ON_ITS_SIDE
    size = (height, width) if is_turned else (width, height)
    is_jpeg = image.format in ("JPEG", "MPO")
    if is_jpeg:
        cast("_PhotoStream", image.fp).scans_left = MAX_SCANS
    if min_size is not None and is_jpeg:
        wanted = min_size(size)
        image.draft(None, wanted[::-1] if is_turned else wanted)
        image.decodermaxblock = min(stream.seek(0, os.SEEK_END), _READ_AT_ONCE)
        return DecodedPhoto(_upright(image, name), size)
    upright = _upright(image, name)
    return DecodedPhoto(upright, upright.size)


def _identify(stream: BinaryIO, name: str) -> ImageFile.ImageFile:
    """The image in a file, not decoded yet."""
    try:
        pieces = _PhotoStream(stream, name)
        file = cast("BinaryIO", pieces)
        start = stream.read(12)
        stream.seek(0)
        is_usual = start.startswith((b"\xff\xd8", b"\x89PNG"))  # Pillow imports its other plug-ins where needed
        formats = ("JPEG", "PNG") if is_usual else _formats(start[4:8] == b"ftyp")
        with _silencing, warnings.catch_warnings(action="ignore"):
            if start.startswith((b"II", b"MM")):
                pieces.require(_count_strips(file))
            return Image.open(file, formats=formats)
    except Image.DecompressionBombError as error:
        raise _too_large(name) from error
    except ImageError:
        raise
    except Exception as error:  # decoders answer damaged bytes with whatever went wrong inside them
        try:
            stream.seek(0)
            start = stream.read(512)
        except OSError as failure:  # the disk, not the bytes
            raise ImageError(str(unreadable(name, failure))) from error
        what = next(what for beginning, what in _OTHER_CONTENT.items() if re.match(beginning, start, re.DOTALL))
        if re.match(_HEIC, start, re.DOTALL) and "HEIF" not in _formats():
            what = f"is a HEIC photo; to read those, {install_command('heic')}, or save it as JPEG or PNG."
        raise ImageError(f"{name} {what}") from error


def _count_strips(stream: BinaryIO) -> int:
    """The number of strips or tiles of a TIFF, of which Pillow makes a list before it reads the first."""
    try:
        header = stream.read(8)
        tags = TiffImagePlugin.ImageFileDirectory_v2(header + (stream.read(8) if 43 in header[2:4] else b""))
        stream.seek(tags.next)
        tags.load(stream)
        return max(len(tags.get(name, ())) for name in (TiffImagePlugin.STRIPOFFSETS, TiffImagePlugin.TILEOFFSETS))
    finally:
        stream.seek(0)


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


def _upright(image: Image.Image, name: str) -> Image.Image:
    """Decode an image, make it RGB and turn it as its EXIF orientation says."""
    with one_large if image.width * image.height > _LARGE else contextlib.nullcontext():
        try:
            image.load()
            rgb = _as_rgb(image)
            rgb.info.clear()  # exif_transpose would write the metadata anew, and fail where they are damaged
            rgb.getexif()[ExifTags.Base.Orientation] = _orientation(image)
            ImageOps.exif_transpose(rgb, in_place=True)
            return rgb
        except Image.DecompressionBombError as error:  # some formats tell their size only now
            raise _too_large(name) from error
        except ImageError:
            raise
        except Exception as error:  # decoders answer damaged bytes with whatever went wrong inside them
            if isinstance(error, OSError) and error.errno is not None:  # the disk, not the bytes
                raise ImageError(str(unreadable(name, error))) from error
            reason = str(error).strip() or type(error).__name__
            raise ImageError(f"{name} is damaged: it cannot be decoded ({reason}).") from error


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation of an image; 1, upright, where there is none or it is damaged."""
    try:
        with _silencing, warnings.catch_warnings(action="ignore"):
            return int(Image.Image.getexif(image).get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001  (damaged metadata raises anything, and the pixels are good)
        return 1


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F"):  # stretched from its least value to its greatest
        levels = np.nan_to_num(np.asarray(image).astype(np.float64), posinf=0.0, neginf=0.0)
        levels -= levels.min()
        return Image.fromarray(np.rint(levels * (255 / (levels.max() or 1.0))).astype(np.uint8)).convert("RGB")
    if image.mode.startswith("I;16"):
        grey = np.asarray(image).astype(np.uint32)
        return Image.fromarray(((grey * 255 + 32767) // 65535).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        layer = image if image.mode == "RGBA" else image.convert("RGBA")
        white = Image.new("RGB", layer.size, "white")
        white.paste(layer, mask=layer.getchannel("A"))
        return white
    return image.convert("RGB")

"""Photos: a path, or the bytes of a file, to an upright RGB image; and which photos arguments name."""

from __future__ import annotations

import codecs
import glob
import os
import re
import threading
import warnings
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from PIL import ExifTags, Image

from showtell.errors import ImageError

# What a folder is searched for. A file that is named outright is opened whatever its suffix.
IMAGE_SUFFIXES = frozenset((".avif", ".bmp", ".gif", ".jfif", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"))

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
_HEIC_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"mif1", b"msf1")

# Pillow warns of large photos and odd metadata, without the file's name. Silencing that swaps state of the
# whole process, so only one thread at a time may do it; the decoding itself stays outside the lock.
_silencing = threading.Lock()


def open_photo(path: Path) -> Image.Image:
    """Open a photo as RGB, turned as its EXIF orientation says, transparency laid on white.

    Of a moving image it is the first frame. 16 bits of grey become 8; grey values of 32 bits or floats,
    for which no white is agreed, are stretched from their least to their greatest.

    Raises:
        ImageError: the file is missing, a folder, empty, damaged, too large to be safe, or no image.
    """
    return decode_photo(read_photo(path), str(path))


def read_photo(path: Path) -> bytes:
    """The bytes of an image file, undecoded.

    Raises:
        ImageError: the file is missing, a folder, or cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise ImageError(f"There is no file {path}.") from error
    except IsADirectoryError as error:
        raise ImageError(f"{path} is a folder, not an image.") from error
    except OSError as error:
        raise ImageError(f"Cannot read {path}: {error.strerror or error}.") from error


def decode_photo(content: bytes, name: str) -> Image.Image:
    """Decode the bytes of an image file as `open_photo` does; `name` is what messages call it.

    Raises:
        ImageError: the bytes are empty, damaged, too many pixels to be safe, or no image.
    """
    if not content:
        raise ImageError(f"{name} is empty; it should hold an image.")
    try:
        with _silencing, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(BytesIO(content))
    except Image.DecompressionBombError as error:
        raise ImageError(
            f"{name} has more pixels than are safe to open ({_most_pixels():,}); save it smaller."
        ) from error
    except Exception as error:  # decoders answer damaged bytes with whatever went wrong inside them
        raise ImageError(f"{name} {_what_it_is(content)}") from error
    try:
        image.load()
        turn = _UPRIGHT.get(_orientation(image))
        rgb = _as_rgb(image)
        return rgb if turn is None else rgb.transpose(turn)
    except Exception as error:  # as above
        raise ImageError(
            f"{name} is damaged: it cannot be decoded ({str(error).strip() or type(error).__name__})."
        ) from error


def _most_pixels() -> int:
    return 2 * (Image.MAX_IMAGE_PIXELS or 0)  # above this Pillow refuses; above half of it, it warns


def _what_it_is(content: bytes) -> str:
    """What a file is that Pillow does not know, as the end of a sentence."""
    if content[4:8] == b"ftyp" and content[8:12] in _HEIC_BRANDS:
        return "is a HEIC photo, which cannot be read; save it as JPEG or PNG."
    try:
        is_text = "\0" not in codecs.getincrementaldecoder("utf-8")().decode(content[:512])
    except UnicodeDecodeError:
        is_text = False
    if is_text:
        return "is not an image: it holds text."
    return "is not an image, or a damaged one; JPEG, PNG, GIF, TIFF, WebP, BMP and AVIF can be read."


def _orientation(image: Image.Image) -> int:
    """The EXIF orientation of a loaded image; 1, upright, where there is none or it is damaged."""
    try:
        with _silencing, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return int(image.getexif().get(ExifTags.Base.Orientation, 1))
    except Exception:  # noqa: BLE001  (damaged metadata raises anything, and the pixels are good)
        return 1


def _as_rgb(image: Image.Image) -> Image.Image:
    if image.mode in ("I", "F") or image.mode.startswith("I;16"):
        return Image.fromarray(_as_bytes(np.asarray(image))).convert("RGB")
    if not image.has_transparency_data:
        return image.convert("RGB")
    layer = image.convert("RGBA")
    white = Image.new("RGB", layer.size, "white")
    white.paste(layer, mask=layer.getchannel("A"))
    return white


def _as_bytes(grey: np.ndarray) -> np.ndarray:
    """Grey values (height, width) of 16 bits, 32 bits or floats as 8 bits."""
    if grey.dtype.itemsize == 2:
        return ((grey.astype(np.uint32) * 255 + 32767) // 65535).astype(np.uint8)
    values = np.nan_to_num(grey.astype(np.float64), posinf=0.0, neginf=0.0)
    span = values.max() - values.min()
    return np.rint((values - values.min()) * (255 / span if span else 0)).astype(np.uint8)


def find_photos(arguments: Sequence[str]) -> list[Path]:
    """The photos that arguments name, each once, in the order of the arguments.

    An argument is a file, taken as it is; a folder, searched with its subfolders; or a pattern with `*`, `?`,
    `[...]` or `**`, such as reaches us where a shell was told not to expand it. Of folders and patterns come
    the files with an image suffix, hidden ones left out, photo2 before photo10. A file that does not exist is
    handed on, so that a batch can go on without it: `open_photo` says what is wrong.

    Raises:
        ImageError: a folder or a pattern without any image.
    """
    photos: dict[Path, None] = {}
    for argument in arguments:
        path = Path(argument).expanduser()
        if path.is_dir():
            found = sorted(_photos_below(path), key=_natural)
            if not found:
                raise ImageError(f"The folder {argument} holds no image ({_suffixes()}).")
        elif glob.has_magic(argument) and not path.exists():
            found = sorted(_photos_matching(str(path)), key=_natural)
            if not found:
                raise ImageError(f"No image ({_suffixes()}) matches {argument}.")
        else:
            found = [path]
        photos.update(dict.fromkeys(found))
    return list(photos)


def _photos_below(folder: Path) -> Iterator[Path]:
    for where, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".")]
        yield from (Path(where, name) for name in files if is_photo_name(name))


def _photos_matching(pattern: str) -> Iterator[Path]:
    for name in glob.iglob(pattern, recursive=True):  # noqa: PTH207 (the pattern may be absolute)
        path = Path(name)
        if path.is_dir():
            yield from _photos_below(path)
        elif is_photo_name(path.name):
            yield path


def is_photo_name(name: str) -> bool:
    """Whether a file of this name is taken for a photo when a folder is searched."""
    return not name.startswith(".") and Path(name).suffix.lower() in IMAGE_SUFFIXES


def _suffixes() -> str:
    return ", ".join(sorted(IMAGE_SUFFIXES))


def _natural(path: Path) -> tuple[list[list[tuple[int, str]]], str]:
    """Sort key by which photo2 comes before photo10, and a folder's files stay together."""
    return [_pieces(part) for part in path.parts], str(path)


def _pieces(name: str) -> list[tuple[int, str]]:
    return [(int(piece), "") if piece.isdecimal() else (-1, piece) for piece in re.split(r"([0-9]+)", name.casefold())]

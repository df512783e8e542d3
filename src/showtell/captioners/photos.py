"""Explanations of many photos by one captioner or several, with the photos as pages and figures show them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from PIL import Image, ImageDraw

from showtell.captioners.contract import Captioner, PhotoToCaption, SourceT
from showtell.captions import Explanation
from showtell.decoding_config import DecodingConfig
from showtell.errors import ImageError, or_raise
from showtell.features.store import ImageFeatures, StoredImage
from showtell.images.photo import to_photo

EMPTY, OUTLINE, TEXT = (238, 238, 238), (190, 190, 190), (120, 120, 120)  # colours in place of a photo
UNKNOWN_SIZE = (320, 240)  # of the picture in place of a photo whose size is unknown
THUMBNAIL_SIDE = 640  # pixels of the longer side of the photo that is kept, at most


def explain_photos(
    captioners: Mapping[str, Captioner],
    photos: Sequence[SourceT],
    settings: Mapping[str, DecodingConfig] | None = None,
    *,
    saliency: str | None = None,
    batch_size: int = 32,
) -> Iterator[tuple[SourceT, Explanation | ImageError]]:
    """Explain the captions of many photos, batch by batch and in order. Unreadable photos yield their error.

    Args:
        captioners: by title, in the order in which they are shown.
        photos: in any form that `Captioner.caption` takes. Captioners after the first that do not read the store of a
            stored image get its photo, if that is known.
        settings: decoding settings by title (default: those of each checkpoint).
        saliency: one of the methods of `abilities` of all captioners (default: none).
        batch_size: photos in a batch.
    """
    settings = settings or {}
    by_captioner = [
        model.explain_photos(
            photos if index == 0 else _as_read_by(model, photos), settings.get(title), batch_size, saliency=saliency
        )
        for index, (title, model) in enumerate(captioners.items())
    ]
    for number, (source, *pairs) in enumerate(zip(photos, *by_captioner, strict=True), start=1):
        try:
            results = [or_raise(result) for _, result in pairs]
            photo, size = photo_to_show(source)
        except ImageError as error:
            yield source, error
            continue
        name = display_name(source) if isinstance(source, str | Path | StoredImage) else f"photo {number}"
        models = tuple(replace(result, model=title) for title, result in zip(captioners, results, strict=True))
        yield source, Explanation(name, size, photo, models)


def _as_read_by(captioner: Captioner, photos: Sequence[PhotoToCaption]) -> list[PhotoToCaption]:
    """The photos, known ones in place of stored images whose store a captioner does not read."""
    stores = {id(photo.store): photo.store for photo in photos if isinstance(photo, StoredImage)}
    is_read = {key: captioner.reads(store) for key, store in stores.items()}
    return [
        photo if not isinstance(photo, StoredImage) or photo.path is None or is_read[id(photo.store)] else photo.path
        for photo in photos
    ]


def photo_to_show(source: PhotoToCaption) -> tuple[Image.Image, tuple[int, int]]:
    """The photo, its longer side at most `THUMBNAIL_SIDE`, and its (width, height) in full, or an ImageError."""
    if isinstance(source, StoredImage):
        if source.path is None or not source.path.is_file():
            return _placeholder(source.read())
        source = source.path
    photo = to_photo(source, lambda _: (THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    photo.image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.LANCZOS)
    return photo.image, photo.size


def _placeholder(image: ImageFeatures) -> tuple[Image.Image, tuple[int, int]]:
    """A picture with the regions of a photo that is not at hand, and its size, or as far as its boxes reach."""
    width, height = image.extent if all(image.extent) else UNKNOWN_SIZE
    scale = THUMBNAIL_SIDE / max(width, height)
    picture = Image.new("RGB", (max(1, round(scale * width)), max(1, round(scale * height))), EMPTY)
    draw = ImageDraw.Draw(picture)
    for left, top, right, bottom in (scale * image.boxes).tolist() if image.boxes is not None else ():
        if left <= right and top <= bottom:
            draw.rectangle((left, top, right, bottom), outline=OUTLINE)
    draw.text((6, picture.height - 6), "no photo at hand", TEXT, anchor="ls", font_size=18)
    return picture, image.extent


def display_name(path: str | Path | StoredImage) -> str:
    """The name of a file in texts: bytes that are not UTF-8 are escaped."""
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")

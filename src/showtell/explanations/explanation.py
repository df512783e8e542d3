"""Explanations of captions: each word with its probability, its runners-up and where the model looked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from PIL import Image, ImageDraw

from showtell.captioners import Captioner, EncoderDecoderCaptioner, PhotoToCaption
from showtell.captions import ExplainedCaption, ModelExplanation
from showtell.decoding import DecodingConfig
from showtell.errors import ImageError, UsageError, or_raise
from showtell.features.store import ImageFeatures, StoredImage
from showtell.images.photo import to_photo

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SourceT = TypeVar("SourceT", bound=PhotoToCaption)
EMPTY, OUTLINE, TEXT = (238, 238, 238), (190, 190, 190), (120, 120, 120)  # colours in place of a photo
UNKNOWN_SIZE = (320, 240)  # of the picture in place of a photo whose size is unknown
MIN_COLLAPSED_WORDS = 3  # of a caption whose words all look at one region, for its attention to have collapsed
THUMBNAIL_SIDE = 640  # pixels of the longer side of the photo that is kept, at most


@dataclass(frozen=True)
class Explanation:
    """The captions of one or several models for a photo, explained."""

    image: str  # path of the photo, or "photo 1" and so on for photos without a path
    size: tuple[int, int]  # (width, height) of the upright photo, in whose pixels boxes are; zeros: unknown
    photo: Image.Image = field(compare=False, repr=False)  # upright, RGB, longer side at most `THUMBNAIL_SIDE`
    models: tuple[ModelExplanation, ...]
    references: tuple[str, ...] = ()

    def __repr__(self) -> str:
        captions = ", ".join(f"{model.model} {model.caption.text!r}" for model in self.models)
        return f"<Explanation of {self.image}: {captions}>"

    def __str__(self) -> str:
        """Each caption with a line for each word: its probability and the most likely alternatives."""
        lines = [self.image]
        for model in self.models:
            lines += ["", f"{model.model}: {model.caption.text}"]
            for word in model.caption.words:
                others = ", ".join(f"{other or '(end)'} {share:.2f}" for other, share in word.others[:3])
                lines.append(f"  {word.word or '(end)':12}  {word.probability:.2f}  not {others}".rstrip())
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As `showtell explain --out FILE.json` writes it; docs/explaining.md has the keys."""
        return {
            "image": self.image,
            "size": list(self.size),
            "references": list(self.references),
            "models": [model.to_json() for model in self.models],
        }

    def figure(self) -> Figure:
        """A matplotlib figure: the photo under the attention of each word, a row for each caption."""
        from showtell.reports.figure import draw

        return draw(self)

    def _repr_html_(self) -> str:
        """The HTML that a notebook displays."""
        from showtell.reports.explanation_page import fragment

        return fragment(self)


def explain_photos(
    captioners: Mapping[str, Captioner],
    photos: Sequence[SourceT],
    settings: Mapping[str, DecodingConfig] | None = None,
    *,
    occlusion: str | None = None,
    batch_size: int = 32,
) -> Iterator[tuple[SourceT, Explanation | ImageError]]:
    """Explain the captions of many photos, batch by batch and in order. Unreadable photos yield their error.

    Args:
        captioners: by title, in the order in which they are shown.
        photos: in any form that `Captioner.caption` takes. Captioners after the first that do not read the store of a
            stored image get its photo, if that is known.
        settings: decoding settings by title (default: those of each checkpoint).
        occlusion: one of `occlusion.OCCLUSION_METHODS` (default: no occlusion).
        batch_size: photos in a batch.
    """
    settings = settings or {}
    by_captioner = [
        model.explain_photos(
            photos if index == 0 else _as_read_by(model, photos), settings.get(title), batch_size, occlusion=occlusion
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
            return _stand_in(source.read())
        source = source.path
    photo = to_photo(source, lambda _: (THUMBNAIL_SIDE, THUMBNAIL_SIDE))
    photo.image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.LANCZOS)
    return photo.image, photo.size


def _stand_in(image: ImageFeatures) -> tuple[Image.Image, tuple[int, int]]:
    """An empty picture with the regions of a photo that is not at hand, and the size of the photo.

    A size that other tools did not write down is as far as the boxes reach, or (0, 0) without boxes.
    """
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
    r"""The name of a file in texts: bytes that are not UTF-8 are escaped.

    >>> print(display_name("caf\udce9.jpg"))
    caf\udce9.jpg
    """
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")


def has_collapsed(caption: ExplainedCaption) -> bool:
    """Whether the attention of every word peaks at the same region."""
    if caption.attention is None or len(caption.words) < MIN_COLLAPSED_WORDS or caption.attention.shape[1] == 1:
        return False
    is_peak = caption.attention == caption.attention.amax(1, keepdim=True)  # even weights have no peak of their own
    return bool((is_peak.sum(1) == 1).all() and (is_peak == is_peak[0]).all())


def collapsed_attention(explanations: Sequence[Explanation]) -> list[str]:
    """A sentence for each model whose attention has collapsed in at least half of several photos."""
    models = [model for explanation in explanations for model in explanation.models]
    counts = Counter(model.model for model in models if has_collapsed(model.caption))
    return [
        f"{model}: in {count} of {len(explanations)} photos every word looks most at one and the same region. "
        "Attention has collapsed, or has not been trained for long enough."
        for model, count in counts.items()
        if len(explanations) > 1 and 2 * count >= len(explanations)
    ]


def unique_titles(titles: Sequence[str]) -> list[str]:
    """The titles with a number behind those that occur more than once.

    >>> unique_titles(["sat", "nic", "sat"])
    ['sat (1)', 'nic', 'sat (3)']
    """
    counts = Counter(titles)
    return [title if counts[title] == 1 else f"{title} ({number})" for number, title in enumerate(titles, start=1)]


def settings_along(captioner: Captioner, caption: str, stage: int | None = None) -> DecodingConfig:
    """Decoding settings that lead a captioner along a caption: all words are given, so none is searched for.

    As in training, a word that the vocabulary lacks is the token of unknown words.

    Raises:
        UsageError: there is no word to follow, or the captioner has no words of its own.
    """
    if not isinstance(captioner, EncoderDecoderCaptioner):
        raise UsageError(f"{captioner.about.name} cannot follow a given caption; only the models of showtell can.")
    vocabulary = captioner.vocabulary
    words = vocabulary.decode(vocabulary.encode(vocabulary.split(caption))[1:-1])
    if not words:
        raise UsageError(f'The caption "{caption}" has no words to follow; give some, such as "a dog runs".')
    given = {"prefix": " ".join(words), "max_length": len(words), "stage": stage}
    return captioner.check(DecodingConfig().changed(**given))

"""Explanations of captions: each word with its probability, its runners-up and where the model looked.

    explanation = captioner.explain("photo.jpg")      # displays itself in a notebook
    explanation.figure().savefig("why.png")
    explanation.to_json()

The caption comes from the usual search and is explained by the model's outputs of that search: probabilities are those
before the search's rules, and the regions that hard attention sampled are the ones that were sampled during the search.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice, repeat
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from PIL import Image
from torch import Tensor

from showtell.captioner import Captioner, pixel_hash
from showtell.decoding import DecodingConfig, StageView, search
from showtell.errors import ImageError
from showtell.explanations.occlusion import EncodedBatch, occlude
from showtell.features import Encoder
from showtell.features.ensemble import EnsembleEncoder
from showtell.features.grid import GridEncoder
from showtell.images.loading import PreparedPhoto, prepare_batches, stack_photos
from showtell.images.photo import PhotoSource, to_photo
from showtell.models import Decoder
from showtell.models.contract import eval_mode
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features, map_tensors

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SourceT = TypeVar("SourceT", bound=PhotoSource)
# words (B, 1, T + 1), begin first, and a decoder that generates them, to drops of their log-probabilities, (B, 1, T, R)
OcclusionFunction = Callable[[Tensor, Decoder], Tensor]
THUMBNAIL_SIDE = 640  # pixels of the longer side of the photo that is kept, at most
NUM_RUNNERS_UP = 5  # alternatives that are kept of each word


@dataclass(frozen=True)
class ExplainedWord:
    """One word of a caption. The end token is the last word of a finished caption."""

    word: str  # "" for the end token
    probability: float  # given the image and the previous words
    others: tuple[tuple[str, float], ...]  # the most likely alternatives and their probabilities, in descending order
    sampled_region: int | None = None  # index of the region that hard attention sampled; None if it took the mean
    hallucinated: str | None = None  # category of the object that the word names, if the image is known not to have one
    logprob_drop: Tensor | None = field(default=None, compare=False, repr=False)  # (R,) by occlusion of each region


@dataclass(frozen=True)
class WordValues:
    """Values of a model at each word of a caption, such as those of a gate or the subgoals of HACap."""

    title: str
    values: Tensor = field(compare=False, repr=False)  # (T, K)


@dataclass(frozen=True)
class ExplainedCaption:
    """A caption with its words, attention and other values of the model."""

    text: str
    words: tuple[ExplainedWord, ...]  # T, including the end token if the caption is finished
    logprob: float  # of the whole caption, including its end token
    finished: bool  # False if it was cut off at the maximum length
    confidence: float  # see `captions.Caption.confidence`
    title: str = ""  # such as "stage 0 of 0 to 2"
    attention: Tensor | None = field(default=None, compare=False, repr=False)  # (T, R), rows sum to one
    word_values: tuple[WordValues, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Plain data: numbers to 6 decimals, maps to 4."""
        return {
            **({"title": self.title} if self.title else {}),
            "text": self.text,
            "logprob": round(self.logprob, 6),
            "confidence": round(self.confidence, 6),
            "finished": self.finished,
            "words": [_word_to_json(word) for word in self.words],
            "attention": None if self.attention is None else [_rounded(row, 4) for row in self.attention],
            "word_values": {one.title: [_rounded(row, 4) for row in one.values] for one in self.word_values},
        }


@dataclass(frozen=True)
class ModelExplanation:
    """The captions of one model for a photo, with the regions that it attends to."""

    model: str  # a short title
    captions: tuple[ExplainedCaption, ...]  # one; of a multi-stage decoder one per stage, the last stage last
    boxes: Tensor = field(compare=False, repr=False)  # (R, 4) left, top, right, bottom in pixels of the upright photo
    grid: tuple[int, int] | None = None  # (rows, columns) if the R regions are the cells of a grid, row by row
    labels: tuple[str, ...] | None = None  # class of each of the R regions, if the encoder has classes
    scores: Mapping[str, float] = field(default_factory=dict)  # of the final caption against the references

    @property
    def caption(self) -> ExplainedCaption:
        """The final caption."""
        return self.captions[-1]

    def to_json(self) -> dict[str, Any]:
        """Plain data; pixels to one decimal."""
        return {
            "model": self.model,
            "grid": None if self.grid is None else list(self.grid),
            "boxes": [_rounded(box, 1) for box in self.boxes],
            "labels": None if self.labels is None else list(self.labels),
            "scores": dict(self.scores),
            "captions": [caption.to_json() for caption in self.captions],
        }


@dataclass(frozen=True)
class Explanation:
    """The captions of one or several models for a photo, explained."""

    image: str  # path of the photo, or "photo 1" and so on for photos without a path
    size: tuple[int, int]  # (width, height) of the upright photo, in whose pixels boxes are
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
            width = max((len(word.word or "(end)") for word in model.caption.words), default=0)
            for word in model.caption.words:
                others = ", ".join(f"{other or '(end)'} {share:.2f}" for other, share in word.others[:3])
                lines.append(f"  {word.word or '(end)':{width}}  {word.probability:.2f}  not {others}".rstrip())
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As `showtell explain --format json` writes it; docs/explaining.md has the keys."""
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
    boxes: Sequence[Tensor] | None = None,
    occlusion: str | None = None,
    batch_size: int = 32,
) -> Iterator[tuple[SourceT, Explanation | ImageError]]:
    """Explain the captions of many photos, batch by batch and in order. Unreadable photos yield their error.

    Args:
        captioners: by title, in the order in which they are shown.
        photos: in any form that `Captioner.caption` takes.
        settings: decoding settings by title (default: those of each checkpoint).
        boxes: (n, 4) boxes of each photo from its dataset, for encoders that take boxes.
        occlusion: occlusion method, one of `occlusion.OCCLUSION_METHODS` (default: no occlusion).
        batch_size: photos in a batch.
    """
    settings = settings or {}
    by_captioner = [
        _explain_by(title, captioner, photos, settings.get(title, captioner.decoding), boxes, occlusion, batch_size)
        for title, captioner in captioners.items()
    ]
    for number, (source, *results) in enumerate(zip(photos, *by_captioner, strict=True), start=1):
        failure = next((result for result in results if isinstance(result, ImageError)), None)
        if failure is not None:
            yield source, failure
            continue
        try:
            photo = to_photo(source, lambda _: (THUMBNAIL_SIDE, THUMBNAIL_SIDE))
        except ImageError as error:  # it was readable a moment ago
            yield source, error
            continue
        photo.image.thumbnail((THUMBNAIL_SIDE, THUMBNAIL_SIDE), Image.Resampling.LANCZOS)
        name = display_name(source) if isinstance(source, str | Path) else f"photo {number}"
        models = tuple(result for result in results if isinstance(result, ModelExplanation))
        yield source, Explanation(name, photo.size, photo.image, models)


def _explain_by(
    title: str,
    captioner: Captioner,
    photos: Iterable[PhotoSource],
    settings: DecodingConfig,
    boxes: Iterable[Tensor] | None,
    occlusion: str | None,
    batch_size: int,
) -> Iterator[ModelExplanation | ImageError]:
    """The explanations of one captioner for many photos."""
    boxes_of_photos: Iterator[Tensor | None]
    boxes_of_photos = repeat(None) if boxes is None or not captioner.encoder.takes_boxes else iter(boxes)
    for batch in prepare_batches(photos, captioner.encoder.preprocessing, batch_size):
        pairs = zip((photo for _, photo in batch), islice(boxes_of_photos, len(batch)), strict=True)
        readable = [(photo, own) for photo, own in pairs if not isinstance(photo, ImageError)]
        explanations = _explain_prepared(title, captioner, readable, settings, occlusion)
        for _, photo in batch:
            yield photo if isinstance(photo, ImageError) else next(explanations)


@torch.no_grad()
def _explain_prepared(
    title: str,
    captioner: Captioner,
    photos: Sequence[tuple[PreparedPhoto, Tensor | None]],
    settings: DecodingConfig,
    occlusion: str | None,
) -> Iterator[ModelExplanation]:
    """The explanations of one captioner for a batch of photos, each with the boxes of its dataset or None."""
    if not photos:
        return
    boxes = [own for _, own in photos if own is not None] or None
    batch = stack_photos([photo for photo, _ in photos], boxes)
    features = captioner.encode(batch)
    rectangles = captioner.encoder.rectangles(features, batch.windows.to(captioner.device))
    ids = [pixel_hash(photo.pixels) for photo, _ in photos] if settings.kind == "sample" else None
    encoded = EncodedBatch(batch, features)

    def occlude_words(words: Tensor, decoder: Decoder) -> Tensor:
        assert occlusion is not None
        return occlude(captioner, encoded, words, occlusion, decoder=decoder)

    captions = explain_features(
        captioner, features, settings, image_ids=ids, occlude_words=None if occlusion is None else occlude_words
    )
    for image, is_region in enumerate(features.is_region):
        yield ModelExplanation(
            title,
            captions[image],
            rectangles[image, is_region].cpu(),
            grid_of(captioner.encoder, int(is_region.sum())),
            _region_labels(captioner.encoder, features, image),
        )


@torch.no_grad()
def explain_features(
    captioner: Captioner,
    features: Features,
    settings: DecodingConfig,
    *,
    image_ids: Sequence[str] | None = None,
    occlude_words: OcclusionFunction | None = None,
) -> list[tuple[ExplainedCaption, ...]]:
    """The best caption of each encoded image, explained; of a multi-stage decoder one caption per stage.

    Args:
        captioner: its decoder and vocabulary are used.
        features: of B images, from `captioner.encode`.
        settings: decoding settings.
        image_ids: names that seed the sampling of each image (default: their index).
        occlude_words: computes the drop of log-probability by occlusion (default: no occlusion).
    """
    decoder = captioner.decoder
    with eval_mode(decoder):
        if decoder.stages == 1:
            stages = [_explain_stage(captioner, features, settings, image_ids, occlude_words, -1)]
        else:
            indices = range(decoder.stages) if settings.stage is None else [settings.stage]
            stages = [
                [
                    replace(caption, title=f"stage {stage} of 0 to {decoder.stages - 1}")
                    for caption in _explain_stage(
                        captioner, features, settings.changed(stage=stage), image_ids, occlude_words, stage
                    )
                ]
                for stage in indices
            ]
    return list(zip(*stages, strict=True))


def _explain_stage(
    captioner: Captioner,
    features: Features,
    settings: DecodingConfig,
    image_ids: Sequence[str] | None,
    occlude_words: OcclusionFunction | None,
    stage: int,
) -> list[ExplainedCaption]:
    """The caption of each image at one stage; -1 is the last stage of the whole decoder."""
    decoder = captioner.decoder
    results = search(decoder, features, settings, captioner.vocabulary, image_ids=image_ids, keep_outputs=True)
    assert results.outputs is not None
    best = map_tensors(results.outputs, lambda x: x[:, :1])
    logprobs = decoder.readout(best, stage).float().log_softmax(-1)[:, 0].cpu()  # (B, T, V), before the search's rules
    attention = None if best.attention is None else best.attention[:, 0].cpu()  # (B, T, R)
    sampled = None if best.sampled_regions is None else best.sampled_regions[:, 0].tolist()
    word_values = {title: values[:, 0].cpu() for title, values in best.diagnostics().items()}  # (B, T, K) each
    drops = None
    if occlude_words is not None:
        begin = results.words.new_full((len(results.words), 1, 1), Vocabulary.begin)
        words = torch.cat((begin, results.words[:, :1]), -1)
        drops = occlude_words(words, decoder if stage < 0 else StageView(decoder, stage))[:, 0].cpu()  # (B, T, R)
    lengths = results.is_word[:, 0].sum(-1).tolist()
    explained = []
    for image, (caption, *_) in enumerate(captioner.read_captions(results)):
        length, is_region = lengths[image], features.is_region[image].cpu()
        explained.append(
            ExplainedCaption(
                caption.text,
                _explain_words(
                    captioner.vocabulary,
                    results.words[image, 0, :length].cpu(),
                    logprobs[image, :length],
                    None if sampled is None else sampled[image][:length],
                    None if drops is None else drops[image, :length, is_region],
                ),
                caption.logprob,
                caption.finished,
                caption.confidence,
                attention=None if attention is None else attention[image, :length, is_region],
                word_values=tuple(WordValues(title, values[image, :length]) for title, values in word_values.items()),
            )
        )
    return explained


def _explain_words(
    vocabulary: Vocabulary, ids: Tensor, logprobs: Tensor, sampled: Sequence[int] | None, drops: Tensor | None
) -> tuple[ExplainedWord, ...]:
    """Word ids (T,), log-probabilities (T, V), sampled regions (T) with -1 for none, and drops (T, R), as words."""

    def text(index: int) -> str:
        return "" if index == vocabulary.end else vocabulary.words[index]

    probabilities = logprobs.gather(1, ids.unsqueeze(1)).squeeze(1).exp().tolist()
    rest = logprobs.clone()
    rest[:, [vocabulary.begin, vocabulary.pad]] = -math.inf  # never generated
    rest.scatter_(1, ids.unsqueeze(1), -math.inf)
    others = rest.topk(min(NUM_RUNNERS_UP, rest.shape[1]))
    return tuple(
        ExplainedWord(
            text(index),
            probabilities[position],
            tuple(
                (text(other), math.exp(logprob))
                for other, logprob in zip(
                    others.indices[position].tolist(), others.values[position].tolist(), strict=True
                )
                if logprob > -math.inf
            ),
            sampled_region=None if sampled is None or sampled[position] < 0 else sampled[position],
            logprob_drop=None if drops is None else drops[position],
        )
        for position, index in enumerate(ids.tolist())
    )


def grid_of(encoder: Encoder, regions: int) -> tuple[int, int] | None:
    """(rows, columns) of the regions of an encoder, if they are the cells of a grid."""
    first = encoder.members[0] if isinstance(encoder, EnsembleEncoder) else encoder
    return first.grid_of(regions) if isinstance(first, GridEncoder) else None


def _region_labels(encoder: Encoder, features: Features, image: int) -> tuple[str, ...] | None:
    """The class of each region of an image, "" for none of the encoder's categories."""
    if features.regions is None or features.regions.labels is None or not encoder.categories:
        return None
    labels = features.regions.labels[image, features.is_region[image]].tolist()
    return tuple(encoder.categories[label] if label >= 0 else "" for label in labels)


def _word_to_json(word: ExplainedWord) -> dict[str, Any]:
    return {
        "word": word.word,
        "probability": round(word.probability, 6),
        "others": [{"word": other, "probability": round(probability, 6)} for other, probability in word.others],
        **({} if word.sampled_region is None else {"sampled_region": word.sampled_region}),
        **({} if word.hallucinated is None else {"hallucinated": word.hallucinated}),
        **({} if word.logprob_drop is None else {"logprob_drop": _rounded(word.logprob_drop, 4)}),
    }


def _rounded(values: Tensor, decimals: int) -> list[float]:
    return [round(value, decimals) for value in values.tolist()]


def display_name(path: str | Path) -> str:
    r"""The name of a file in texts: bytes that are not UTF-8 are escaped.

    >>> print(display_name("caf\udce9.jpg"))
    caf\udce9.jpg
    """
    return str(path).encode("utf-8", "backslashreplace").decode("utf-8")


def unique_titles(titles: Sequence[str]) -> list[str]:
    """The titles with a number behind those that occur more than once.

    >>> unique_titles(["sat", "nic", "sat"])
    ['sat (1)', 'nic', 'sat (3)']
    """
    counts = Counter(titles)
    return [title if counts[title] == 1 else f"{title} ({number})" for number, title in enumerate(titles, start=1)]


def model_name(captioner: Captioner) -> str:
    """The name of a captioner's model, its default title."""
    return captioner.decoder.config.name

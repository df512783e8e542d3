"""Why it said that: a caption's words with their probabilities and runners-up, and where each of them looked.

    explanation = captioner.explain("photo.jpg")      # shows itself in a notebook
    explanation.figure().savefig("why.png")
    explanation.to_json()

The caption is found by the search as always, and explained by what the model said on the way to it: the probabilities
are those that the search saw, before its rules, and hard attention's places are those that it looked at.
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
from showtell.decoding import AtStage, DecodingConfig, search
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
# words (B, 1, T + 1), begin first, and a decoder that says them, to the fall of their logprobs, (B, 1, T, R)
Falls = Callable[[Tensor, Decoder], Tensor]
SHOWN = 640  # pixels that the longer side of the kept photo has at most
RUNNERS_UP = 5  # words beside the one that was said


@dataclass(frozen=True)
class ExplainedWord:
    """One word of a caption. The end is the last word of a caption that has come to it."""

    word: str  # "" for the end
    probability: float  # given the image and the words before
    others: tuple[tuple[str, float], ...]  # words that were not said and their probabilities, the likeliest first
    place: int | None = None  # of R, which one hard attention looked at; None where it looked at their mean
    absent: str | None = None  # the kind of object that it names, where the image is known not to show one
    occlusion: Tensor | None = field(default=None, compare=False, repr=False)  # (R,) fall of logprob without a place


@dataclass(frozen=True)
class Strip:
    """Numbers of a model that run along a caption, such as a gate or the subgoals of HACap."""

    title: str
    values: Tensor = field(compare=False, repr=False)  # (T, K)


@dataclass(frozen=True)
class ExplainedCaption:
    """One caption and how it came about."""

    text: str
    words: tuple[ExplainedWord, ...]  # T, the end included if the caption is finished
    logprob: float  # of the whole caption, its end included
    finished: bool  # false where the limit on the length cut it off
    confidence: float  # see `captioner.Caption.confidence`
    title: str = ""  # such as "stage 0 of 0 to 2"
    attention: Tensor | None = field(default=None, compare=False, repr=False)  # (T, R) rows sum to one
    strips: tuple[Strip, ...] = ()

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
            "strips": {strip.title: [_rounded(row, 4) for row in strip.values] for strip in self.strips},
        }


@dataclass(frozen=True)
class ExplainedBy:
    """What one captioner says of a photo."""

    model: str  # a short title
    captions: tuple[ExplainedCaption, ...]  # the caption; of a decoder with stages one for each, the last one last
    boxes: Tensor = field(compare=False, repr=False)  # (R, 4) left, top, right, bottom in pixels of the upright photo
    grid: tuple[int, int] | None = None  # (rows, columns) where the R places are a grid, row by row
    labels: tuple[str, ...] | None = None  # what the encoder takes each of the R regions for, if it says
    scores: Mapping[str, float] = field(default_factory=dict)  # of the last caption against the references

    @property
    def caption(self) -> ExplainedCaption:
        """What it says in the end."""
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
    """What one or several captioners say of a photo, and why."""

    image: str  # its path, or what else it is called
    size: tuple[int, int]  # (width, height) of the upright photo, to which boxes refer
    photo: Image.Image = field(compare=False, repr=False)  # upright, RGB, at most `SHOWN` pixels
    by: tuple[ExplainedBy, ...]
    references: tuple[str, ...] = ()  # captions by people

    def __repr__(self) -> str:
        captions = ", ".join(f"{by.model} {by.caption.text!r}" for by in self.by)
        return f"<Explanation of {self.image}: {captions}>"

    def __str__(self) -> str:
        """Each caption with a line for each word: its probability and the most likely alternatives."""
        lines = [self.image]
        for by in self.by:
            lines += ["", f"{by.model}: {by.caption.text}"]
            width = max((len(word.word or "(end)") for word in by.caption.words), default=0)
            for word in by.caption.words:
                others = ", ".join(f"{other or '(end)'} {share:.2f}" for other, share in word.others[:3])
                lines.append(f"  {word.word or '(end)':{width}}  {word.probability:.2f}  not {others}".rstrip())
        return "\n".join(lines)

    def to_json(self) -> dict[str, Any]:
        """As `showtell explain --format json` writes it; docs/explaining.md has the keys."""
        return {
            "image": self.image,
            "size": list(self.size),
            "references": list(self.references),
            "models": [by.to_json() for by in self.by],
        }

    def figure(self) -> Figure:
        """A figure of matplotlib: the photo under the attention of each word, a row for each caption."""
        from showtell.reports.figure import draw

        return draw(self)

    def _repr_html_(self) -> str:
        """What a notebook shows."""
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
    """Explain many photos, batch by batch, in their order. What is no image gives its error.

    Args:
        captioners: a short title of each, in the order in which they are to be shown.
        photos: in any form that `Captioner.caption` takes.
        settings: how each is to search, by title; None, and for titles that are not there: as the checkpoint has it.
        boxes: for each photo (n, 4) boxes that its dataset has, for encoders that look at those.
        occlusion: how to hide each place in turn, one of `occlusion.HIDINGS`; None: nothing is hidden.
        batch_size: how many are encoded at a time.
    """
    settings = settings or {}
    walks = [
        _explained_by(title, captioner, photos, settings.get(title, captioner.decoding), boxes, occlusion, batch_size)
        for title, captioner in captioners.items()
    ]
    for number, (source, *said) in enumerate(zip(photos, *walks, strict=True), start=1):
        error = next((one for one in said if isinstance(one, ImageError)), None)
        if error is not None:
            yield source, error
            continue
        try:
            decoded = to_photo(source, lambda _: (SHOWN, SHOWN))
        except ImageError as gone:  # between the first reading and this one
            yield source, gone
            continue
        shown = decoded.image
        shown.thumbnail((SHOWN, SHOWN), Image.Resampling.LANCZOS)
        name = str(source) if isinstance(source, str | Path) else f"photo {number}"
        by = tuple(one for one in said if isinstance(one, ExplainedBy))
        yield source, Explanation(name, decoded.size, shown, by)


def _explained_by(
    title: str,
    captioner: Captioner,
    photos: Iterable[PhotoSource],
    settings: DecodingConfig,
    boxes: Iterable[Tensor] | None,
    occlusion: str | None,
    batch_size: int,
) -> Iterator[ExplainedBy | ImageError]:
    """What one captioner says of each of many photos."""
    looks = boxes is not None and captioner.encoder.takes_boxes
    of_photos: Iterator[Tensor | None] = iter(boxes) if looks and boxes is not None else repeat(None)
    for chunk in prepare_batches(photos, captioner.encoder.preprocessing, batch_size):
        pairs = zip((photo for _, photo in chunk), islice(of_photos, len(chunk)), strict=True)
        readable = [(photo, own) for photo, own in pairs if not isinstance(photo, ImageError)]
        found = _explain_prepared(title, captioner, readable, settings, occlusion)
        for _, photo in chunk:
            yield photo if isinstance(photo, ImageError) else next(found)


@torch.no_grad()
def _explain_prepared(
    title: str,
    captioner: Captioner,
    photos: Sequence[tuple[PreparedPhoto, Tensor | None]],
    settings: DecodingConfig,
    occlusion: str | None,
) -> Iterator[ExplainedBy]:
    """What one captioner says of a batch of photos, each with the boxes that its dataset has, or none of them."""
    if not photos:
        return
    boxes = [own for _, own in photos if own is not None] or None
    batch = stack_photos([photo for photo, _ in photos], boxes)
    features = captioner.encode(batch)
    rectangles = captioner.encoder.rectangles(features, batch.windows.to(captioner.device))
    ids = [pixel_hash(photo.pixels) for photo, _ in photos] if settings.kind == "sample" else None
    seen = EncodedBatch(batch, features)

    def falls(words: Tensor, decoder: Decoder) -> Tensor:
        assert occlusion is not None
        return occlude(captioner, seen, words, occlusion, decoder=decoder)

    captions = explain_features(
        captioner, features, settings, image_ids=ids, falls=None if occlusion is None else falls
    )
    for image, there in enumerate(features.is_region):
        yield ExplainedBy(
            title,
            captions[image],
            rectangles[image, there].cpu(),
            grid_of(captioner.encoder, int(there.sum())),
            _labels_of(captioner.encoder, features, image),
        )


@torch.no_grad()
def explain_features(
    captioner: Captioner,
    features: Features,
    settings: DecodingConfig,
    *,
    image_ids: Sequence[str] | None = None,
    falls: Falls | None = None,
) -> list[tuple[ExplainedCaption, ...]]:
    """The best caption of each encoded image, explained; of decoders with stages that of each stage.

    Args:
        captioner: whose decoder and vocabulary.
        features: of B images, from `captioner.encode`.
        settings: how to search.
        image_ids: names that samples depend on; None counts the images.
        falls: gives what each word loses when a place is hidden; None: nothing is.
    """
    decoder = captioner.decoder
    with eval_mode(decoder):
        if decoder.stages == 1:
            stages = [_explain_stage(captioner, features, settings, image_ids, falls, -1)]
        else:
            wanted = range(decoder.stages) if settings.stage is None else [settings.stage]
            stages = [
                [
                    replace(caption, title=f"stage {stage} of 0 to {decoder.stages - 1}")
                    for caption in _explain_stage(
                        captioner, features, settings.changed(stage=stage), image_ids, falls, stage
                    )
                ]
                for stage in wanted
            ]
    return list(zip(*stages, strict=True))


def _explain_stage(
    captioner: Captioner,
    features: Features,
    settings: DecodingConfig,
    image_ids: Sequence[str] | None,
    falls: Falls | None,
    stage: int,
) -> list[ExplainedCaption]:
    """What one stage says of each image; -1 is the last, and with settings that name none the whole decoder."""
    decoder = captioner.decoder
    found = search(decoder, features, settings, captioner.vocabulary, image_ids=image_ids, keep_outputs=True)
    assert found.outputs is not None
    best = map_tensors(found.outputs, lambda x: x[:, :1])
    logprobs = decoder.readout(best, stage).float().log_softmax(-1)[:, 0].cpu()  # (B, T, V), as the model says it
    attention = None if best.attention is None else best.attention[:, 0].cpu()  # (B, T, R)
    places = None if best.sampled_regions is None else best.sampled_regions[:, 0].tolist()
    strips = {title: values[:, 0].cpu() for title, values in best.diagnostics().items()}  # (B, T, K) each
    lost = None
    if falls is not None:
        first = found.words.new_full((len(found.words), 1, 1), Vocabulary.begin)
        lost = falls(torch.cat((first, found.words[:, :1]), -1), decoder if stage < 0 else AtStage(decoder, stage))
        lost = lost[:, 0].cpu()  # (B, T, R)
    lengths = found.is_word[:, 0].sum(-1).tolist()
    read = captioner.read_captions(found)
    explained = []
    for image, (caption, *_) in enumerate(read):
        length = lengths[image]
        said = found.words[image, 0, :length].cpu()
        looked = [None] * length if places is None else [None if one < 0 else one for one in places[image][:length]]
        words = _explain_words(captioner, said, logprobs[image, :length], looked)
        there = features.is_region[image].cpu()
        if lost is not None:
            words = tuple(
                replace(word, occlusion=fall) for word, fall in zip(words, lost[image, :length, there], strict=True)
            )
        explained.append(
            ExplainedCaption(
                caption.text,
                words,
                caption.logprob,
                caption.finished,
                caption.confidence,
                attention=None if attention is None else attention[image, :length, there],
                strips=tuple(Strip(title, values[image, :length]) for title, values in strips.items()),
            )
        )
    return explained


def _explain_words(
    captioner: Captioner, said: Tensor, logprobs: Tensor, places: Sequence[int | None]
) -> tuple[ExplainedWord, ...]:
    """Words (T,), logprobs (T, V) and the places that they looked at."""
    vocabulary = captioner.vocabulary

    def written(index: int) -> str:
        return "" if index == vocabulary.end else vocabulary.words[index]

    own = logprobs.gather(1, said.unsqueeze(1)).squeeze(1).exp().tolist()
    rest = logprobs.clone()
    rest[:, [vocabulary.begin, vocabulary.pad]] = -math.inf  # never said
    rest.scatter_(1, said.unsqueeze(1), -math.inf)
    likeliest = rest.topk(min(RUNNERS_UP, rest.shape[1]))
    return tuple(
        ExplainedWord(
            written(index),
            probability,
            tuple(
                (written(other), math.exp(logprob))
                for other, logprob in zip(others, values, strict=True)
                if logprob > -math.inf
            ),
            place,
        )
        for index, probability, others, values, place in zip(
            said.tolist(), own, likeliest.indices.tolist(), likeliest.values.tolist(), places, strict=True
        )
    )


def grid_of(encoder: Encoder, places: int) -> tuple[int, int] | None:
    """(rows, columns) of the places that an encoder looks at, where they are a grid."""
    first = encoder.members[0] if isinstance(encoder, EnsembleEncoder) else encoder
    return first.grid_of(places) if isinstance(first, GridEncoder) else None


def _labels_of(encoder: Encoder, features: Features, image: int) -> tuple[str, ...] | None:
    """What an encoder takes the regions of an image for, "" for nothing that it knows."""
    if features.regions is None or features.regions.labels is None or not encoder.categories:
        return None
    labels = features.regions.labels[image, features.is_region[image]].tolist()
    return tuple(encoder.categories[label] if label >= 0 else "" for label in labels)


def _word_to_json(word: ExplainedWord) -> dict[str, Any]:
    return {
        "word": word.word,
        "probability": round(word.probability, 6),
        "others": [{"word": other, "probability": round(probability, 6)} for other, probability in word.others],
        **({} if word.place is None else {"place": word.place}),
        **({} if word.absent is None else {"absent": word.absent}),
        **({} if word.occlusion is None else {"occlusion": _rounded(word.occlusion, 4)}),
    }


def _rounded(values: Tensor, decimals: int) -> list[float]:
    return [round(value, decimals) for value in values.tolist()]


def distinct(titles: Sequence[str]) -> list[str]:
    """Titles of which no two are alike: where several are, each gets its number among all.

    >>> distinct(["sat", "nic", "sat"])
    ['sat (1)', 'nic', 'sat (3)']
    """
    counts = Counter(titles)
    return [title if counts[title] == 1 else f"{title} ({number})" for number, title in enumerate(titles, start=1)]


def title_of(captioner: Captioner) -> str:
    """What a captioner is called if nobody says: the name of its model."""
    return captioner.decoder.config.name

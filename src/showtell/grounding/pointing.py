"""Numbers for attention: does the model look at the object that it names?

A mention is a word, or a few, of a caption that name one or more objects whose boxes are known. Its map is the mean of
the attention of its words over the places of the image; for occlusion (`occlusion.py`) it is the sum of their falls.

    pointing   the place with the greatest weight has its centre in a box of the mention (the pointing game of J. Zhang
               et al., Top-down neural attention by excitation backprop, ECCV 2016); of several greatest, their share
    mass       sum_r weight_r |rectangle_r and boxes| / |rectangle_r|, each place's weight spread evenly over what it
               saw (`geometry.py`), that is, the share of attention that lies in the boxes; of falls those above 0
    overlap    regions only: the place with the greatest weight overlaps a box by an intersection over union of 1/2

and the same for two maps that know nothing of the words:

    chance     all places alike: pointing is then the share of places that have their centre in a box, mass nearly the
               share of the photo that the boxes cover
    centre     the place nearest to the centre of what is seen of the photo; of several, all of them

A mention with several boxes ("two dogs") is content with any of them; chance knows that too. Numbers are means over
mentions; their intervals draw images, with all of their mentions.

Which words name which objects: where the dataset says so (`grounding`, as scenes has it), exactly; otherwise words that
name a category, or are other words for it (`scores/chair.py`), stand for all boxes of that category in the image. Of a
grounded phrase the mention is the noun; adjectives have places in the caption of their own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from torchvision.ops import box_iou

from showtell.captioner import Captioner
from showtell.datasets.records import CaptionRecord
from showtell.decoding import DecodingConfig, StageView, search, teacher_forced
from showtell.errors import DataError, ImageError, UsageError
from showtell.explanations.geometry import shares
from showtell.explanations.occlusion import EncodedBatch, agreement, occlude, rank_correlation
from showtell.images.boxes import corners
from showtell.images.loading import prepare_batches, stack_photos
from showtell.models import Decoder
from showtell.models.contract import eval_mode
from showtell.scenes.lexicon import SHAPE_WORDS
from showtell.scores.base import Aggregation, Floats, corpus_numbers, image_numbers
from showtell.scores.bootstrap import intervals
from showtell.scores.chair import Phrases, mentions, phrases_of
from showtell.scores.report import ScoreReport, ScoreStatistics
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features

ENOUGH = 0.5  # intersection over union from which on a region is the object

# --- geometry: places (R, 4) and boxes (n, 4), corners in pixels of the upright photo ---


def coverage(rectangles: Tensor, boxes: Tensor) -> Tensor:
    """The share of each rectangle that some boxes cover together, where they overlap once: (R,) float64.

    The edges of the boxes cut the plane into cells, each of which is covered as a whole or not at all.
    """
    rectangles, boxes = rectangles.double(), boxes.double()
    x, y = boxes[:, [0, 2]].unique(), boxes[:, [1, 3]].unique()
    is_within_x = (boxes[:, :1] <= x[:-1]) & (x[1:] <= boxes[:, 2:3])  # (n, columns)
    is_within_y = (boxes[:, 1:2] <= y[:-1]) & (y[1:] <= boxes[:, 3:])
    is_covered = (is_within_y.unsqueeze(2) & is_within_x.unsqueeze(1)).any(0)  # (rows, columns)
    across = torch.from_numpy(shares(rectangles[:, [0, 2]].numpy(), x.numpy()))
    down = torch.from_numpy(shares(rectangles[:, [1, 3]].numpy(), y.numpy()))
    return torch.einsum("ry,rx,yx->r", down, across, is_covered.double())


def is_centre_inside(rectangles: Tensor, boxes: Tensor) -> Tensor:
    """Whether the centre of each rectangle lies in any of the boxes: (R,) bool."""
    x, y = ((rectangles[:, [0, 1]] + rectangles[:, [2, 3]]) / 2).unsqueeze(1).unbind(-1)  # (R, 1) each
    left, top, right, bottom = boxes.unbind(-1)
    return ((left <= x) & (x < right) & (top <= y) & (y < bottom)).any(-1)


def central(rectangles: Tensor, window: Tensor) -> Tensor:
    """All weight on the place nearest to the centre of a window (4,), in equal parts where several are: (R,)."""
    offset = (rectangles[:, :2] + rectangles[:, 2:]) / 2 - (window[:2] + window[2:]) / 2
    distance = offset.double().norm(dim=-1)
    return _equal_parts(distance <= distance.min() * (1 + 1e-6) + 1e-6)


def peak(weights: Tensor) -> Tensor:
    """All weight on the greatest of some weights (..., R), in equal parts where several are."""
    return _equal_parts(weights == weights.amax(-1, keepdim=True))


def _equal_parts(is_chosen: Tensor) -> Tensor:
    return is_chosen.double() / is_chosen.sum(-1, keepdim=True)


def as_weights(falls: Tensor) -> Tensor:
    """Falls (..., R) as weights that sum to one: what lies below 0 counts as 0; all alike where nothing is above."""
    above = falls.double().clamp(min=0)
    total = above.sum(-1, keepdim=True)
    return torch.where(total > 0, above / total.clamp(min=1e-300), 1 / falls.shape[-1])


# --- which words name which objects ---


@dataclass(frozen=True)
class GroundedMention:
    """Words [first, end) of a caption, as `tokenize` parts it, that name objects."""

    first: int
    end: int
    boxes: Tensor  # (n, 4) of the objects


def names_of(records: Sequence[CaptionRecord]) -> Phrases:
    """How captions may name the categories of a dataset, the shapes of scenes included where it has those."""
    categories = {box.category for record in records for box in record.boxes or ()}
    shapes = {(word,): shape for shape, pairs in SHAPE_WORDS.items() for pair in pairs for word in pair}
    return {**phrases_of(categories), **{words: shape for words, shape in shapes.items() if shape in categories}}


def grounded(record: CaptionRecord, number: int, names: Phrases) -> list[GroundedMention]:
    """What caption `number` of an image mentions by its groundings: the last category's name of each."""
    assert record.groundings is not None and record.boxes is not None
    pieces = [tokenize(piece) for piece in record.captions[number].split()]
    words = [word for piece in pieces for word in piece]
    if words != tokenize(record.captions[number]):  # a token that crosses a space: it cannot be said where a piece is
        return []
    starts = np.cumsum([0, *map(len, pieces)]).tolist()
    corners_of = {box.id: own for box, own in zip(record.boxes, corners(record.boxes), strict=True)}
    found = []
    for grounding in record.groundings[number]:
        first = starts[grounding.first]
        nouns = mentions(words[first : starts[grounding.end]], names)
        if nouns and grounding.boxes:
            boxes = torch.stack([corners_of[box] for box in grounding.boxes])
            found.append(GroundedMention(first + nouns[-1].first, first + nouns[-1].end, boxes))
    return found


def by_category(record: CaptionRecord, words: Sequence[str], names: Phrases) -> tuple[list[GroundedMention], int]:
    """What words mention by the names of categories, and how often they name one that the image does not have."""
    boxes: dict[str, list[Tensor]] = {}
    for box, own in zip(record.boxes or (), corners(record.boxes), strict=True):
        boxes.setdefault(box.category, []).append(own)
    found, absent = [], 0
    for mention in mentions(words, names):
        if mention.category in boxes:
            found.append(GroundedMention(mention.first, mention.end, torch.stack(boxes[mention.category])))
        else:
            absent += 1
    return found, absent


# --- statistics of an image, and numbers from their sums ---

_COUNTS = ("mentions", "attended", "regions", "occluded", "words", "named")
_SUMS = (
    *("pointing", "chance_pointing", "centre_pointing", "mass", "chance_mass", "centre_mass", "overlap"),
    *("chance_overlap", "occlusion_pointing", "occlusion_mass", "correlation", "correlation_named"),
    "correlation_signed",
)
_COLUMN = {name: place for place, name in enumerate((*_COUNTS, *_SUMS))}
_PER = {  # what each sum is a mean over
    **dict.fromkeys(("chance_pointing", "centre_pointing", "chance_mass", "centre_mass"), "mentions"),
    **dict.fromkeys(("pointing", "mass"), "attended"),
    "overlap": "regions",
    "chance_overlap": "regions",
    **dict.fromkeys(("occlusion_pointing", "occlusion_mass"), "occluded"),
    "correlation": "words",
    "correlation_signed": "words",
    "correlation_named": "named",
}
_DIFFERENCES = {
    "pointing_over_chance": ("pointing", "chance_pointing"),
    "pointing_over_centre": ("pointing", "centre_pointing"),
    "mass_over_chance": ("mass", "chance_mass"),
    "occlusion_over_chance": ("occlusion_pointing", "chance_pointing"),
    "occlusion_over_centre": ("occlusion_pointing", "centre_pointing"),
    "occlusion_over_attention": ("occlusion_pointing", "pointing"),
}


class AttentionNumbers:
    """Means over mentions and words, and differences of such means. Statistics: counts, then sums."""

    names: ClassVar[tuple[str, ...]] = (*_SUMS, *_DIFFERENCES)

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """Sums over images (..., columns) to the numbers in `names`, nan where there is nothing to be a mean over."""
        means = {}
        for name in _SUMS:
            count = sums[..., _COLUMN[_PER[name]]]
            total = sums[..., _COLUMN[name]]
            means[name] = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        differences = [means[first] - means[second] for first, second in _DIFFERENCES.values()]
        return np.stack([*means.values(), *differences], axis=-1)


@dataclass(frozen=True)
class Maps:
    """What is known of the captions of one image with R places: N captions of T words, padded."""

    rectangles: Tensor  # (R, 4) of the places
    window: Tensor  # (4,) what is seen of the photo
    is_region: bool  # the places are regions, not a grid
    attention: Tensor | None  # (N, T, R); None: the model has none
    falls: Tensor | None  # (N, T, R) of log-probability, from `occlude`; None: it was not asked for
    lengths: Sequence[int]  # N, words of each caption, its end not counted


def statistics_of(maps: Maps, said: Sequence[Sequence[GroundedMention]]) -> Floats:
    """The counts and sums of one image, from what each of its N captions mentions: (columns,).

    Objects of which nothing is seen, because the photo was cropped, are not asked about.
    """
    totals = dict.fromkeys(_COLUMN, 0.0)
    uniform = torch.full((len(maps.rectangles),), 1 / len(maps.rectangles), dtype=torch.double)
    centre = central(maps.rectangles, maps.window)
    named: dict[int, set[int]] = {}
    for number, mentioned in enumerate(said):
        for mention in mentioned:
            if not coverage(maps.window.unsqueeze(0), mention.boxes).any():
                continue
            covered = coverage(maps.rectangles, mention.boxes)
            inside = is_centre_inside(maps.rectangles, mention.boxes).double()
            found: dict[str, Any] = {
                "mentions": 1,
                "chance_pointing": uniform @ inside,
                "chance_mass": uniform @ covered,
                "centre_pointing": centre @ inside,
                "centre_mass": centre @ covered,
            }
            words = slice(mention.first, mention.end)
            named.setdefault(number, set()).update(range(mention.first, mention.end))
            if maps.attention is not None:
                weights = maps.attention[number, words].double().mean(0)
                found |= {"attended": 1, "pointing": peak(weights) @ inside, "mass": weights @ covered}
                if maps.is_region:
                    is_object = (box_iou(maps.rectangles, mention.boxes) >= ENOUGH).any(-1).double()
                    found |= {"regions": 1, "overlap": peak(weights) @ is_object, "chance_overlap": uniform @ is_object}
            if maps.falls is not None:
                fall = maps.falls[number, words].double().sum(0)
                found |= {
                    "occluded": 1,
                    "occlusion_pointing": peak(fall) @ inside,
                    "occlusion_mass": as_weights(fall) @ covered,
                }
            for name, value in found.items():
                totals[name] += float(value)
    if maps.attention is not None and maps.falls is not None:
        for number, length in enumerate(maps.lengths):
            looked, fell = maps.attention[number, :length], maps.falls[number, :length]
            pairs = zip(agreement(looked, fell).tolist(), rank_correlation(looked, fell).tolist(), strict=True)
            for place, (unsigned, signed) in enumerate(pairs):
                if not math.isnan(unsigned):
                    is_named = place in named.get(number, ())
                    totals["words"] += 1
                    totals["correlation"] += unsigned
                    totals["correlation_signed"] += signed
                    totals["named"] += is_named
                    totals["correlation_named"] += unsigned * is_named
    return np.array(list(totals.values()))


# --- a model on a dataset ---


@dataclass(frozen=True)
class AttentionReport:
    """The numbers of a model's attention on some images."""

    report: ScoreReport  # with statistics of each image: `intervals` and `compare` take it
    mentions: int  # that were asked about
    absent: int  # words for objects that the image does not have, of which nothing can be asked
    facts: dict[str, Any]  # how the numbers were made

    def to_json(self) -> dict[str, Any]:
        """As `showtell grounding --json` prints it: numbers with their 95 % intervals, null where not measured."""
        bounds = intervals(self.report)
        numbers = {
            name: None if value is None else {"value": value, "low": bounds[name].low, "high": bounds[name].high}
            for name, value in self.report.scores.items()
        }
        return {
            **self.facts,
            "images": self.report.images,
            "mentions": self.mentions,
            "absent": self.absent,
            "numbers": numbers,
        }


@torch.no_grad()
def measure_attention(
    captioner: Captioner,
    records: Sequence[CaptionRecord],
    *,
    of: str = "references",
    occlusion: str | None = "mean",
    settings: DecodingConfig | None = None,
    batch_size: int = 16,
    progress: Callable[[int], None] | None = None,
) -> AttentionReport:
    """Ask of every object word of some captions where the model looked, and what it needed to see.

    Args:
        captioner: the model.
        records: images with boxes.
        of: whose captions: "references", along which the model is led word by word, or "own", which it says.
        occlusion: how places are hidden, see `occlusion.py`; None: they are not.
        settings: how own captions are searched for, and at which stage; None is the checkpoint's own.
        batch_size: images that are looked at together.
        progress: called with the number of images done since the last call.

    Raises:
        DataError: the dataset has no boxes, or no caption names any of its objects.
        ImageError: a file is no image.
        UsageError: the model has no attention and no occlusion is asked for.
    """
    if any(record.boxes is None for record in records):
        raise DataError(
            "Where the objects are is not known: the dataset has no boxes (COCO instances beside its captions), which "
            "attention is held against."
        )
    settings = settings or captioner.decoding
    names = names_of(records)
    rows, absent = [], 0
    with eval_mode(captioner.decoder):
        for batch, seen in look_at(captioner, records, batch_size):
            maps, words = _maps(captioner, batch, seen, of, occlusion, settings)
            for record, own, said in zip(batch, maps, words, strict=True):
                if of == "references" and record.groundings is not None:
                    mentioned = [grounded(record, number, names) for number in range(len(said))]
                else:
                    found = [by_category(record, caption, names) for caption in said]
                    mentioned = [of_caption for of_caption, _ in found]
                    absent += sum(missing for _, missing in found)
                rows.append(statistics_of(own, mentioned))
            if progress:
                progress(len(batch))
    statistics = np.stack(rows)
    count = int(statistics[:, _COLUMN["mentions"]].sum())
    if not count:
        raise DataError(f"No caption of these {len(records)} images names any of the objects that have boxes.")
    facts = {"captions": of, "occlusion": occlusion}
    ids = [record.image_id for record in records]
    return AttentionReport(report_of("attention", AttentionNumbers(), ids, statistics, facts), count, absent, facts)


def report_of(
    metric: str, numbers: Aggregation, ids: Sequence[str], statistics: Floats, facts: dict[str, Any]
) -> ScoreReport:
    """A report of numbers that come from the statistics of each image, (images, columns).

    Args:
        metric: what the numbers are called together.
        numbers: how they come from sums.
        ids: of the images.
        statistics: of the images, in the order of `ids`.
        facts: how they were made, for the signature.
    """
    signature = "|".join(f"{key}:{value}" for key, value in facts.items())

    def defined(values: Floats) -> dict[str, float | None]:
        pairs = zip(numbers.names, values.tolist(), strict=True)
        return {name: None if math.isnan(value) else value for name, value in pairs}

    return ScoreReport(
        scores=defined(corpus_numbers(numbers, statistics)),
        signatures=dict.fromkeys(numbers.names, signature),
        skipped={},
        images=len(ids),
        per_image=dict(zip(ids, map(defined, image_numbers(numbers, statistics)), strict=True)),
        statistics={metric: ScoreStatistics(numbers, statistics, signature)},
        ids=tuple(ids),
    )


def look_at(
    captioner: Captioner, records: Sequence[CaptionRecord], batch_size: int
) -> Iterator[tuple[list[CaptionRecord], EncodedBatch]]:
    """The photos of the records, batch by batch, and what the encoder sees in them."""
    remaining = iter(records)
    for chunk in prepare_batches((record.path for record in records), captioner.encoder.preprocessing, batch_size):
        batch = [next(remaining) for _ in chunk]
        photos = []
        for _, photo in chunk:
            if isinstance(photo, ImageError):
                raise photo
            photos.append(photo)
        boxes = [corners(record.boxes) for record in batch] if captioner.encoder.takes_boxes else None
        prepared = stack_photos(photos, boxes)
        yield batch, EncodedBatch(prepared, captioner.encode(prepared))


def lead(
    captioner: Captioner, batch: Sequence[CaptionRecord], features: Features, of: str, settings: DecodingConfig
) -> tuple[Decoder, list[list[list[str]]], Tensor]:
    """The captions along which a model is led word by word.

    Args:
        captioner: the model.
        batch: B images.
        features: what its encoder sees in them.
        of: "references", or "own" for the caption that it says itself.
        settings: how own captions are searched for, and at which stage.

    Returns:
        The decoder at that stage; the words of each caption of each image; their ids, (B, N, T + 1), begin first.

    Raises:
        UsageError: `of` is neither.
    """
    if of not in ("references", "own"):
        raise UsageError(f'Captions of "{of}" are not known; say references or own.')
    vocabulary = captioner.vocabulary
    decoder: Decoder = captioner.decoder if settings.stage is None else StageView(captioner.decoder, settings.stage)
    if of == "references":
        said = [[tokenize(text) for text in record.captions] for record in batch]
        ids = _padded([[vocabulary.encode(words) for words in texts] for texts in said]).to(captioner.device)
    else:
        found = search(captioner.decoder, features, settings, vocabulary).words[:, :1]
        said = [[vocabulary.decode(row.tolist()) for row in image] for image in found]
        ids = torch.cat((found.new_full((*found.shape[:2], 1), vocabulary.begin), found), -1)
    return decoder, said, ids


def _maps(
    captioner: Captioner,
    batch: Sequence[CaptionRecord],
    seen: EncodedBatch,
    of: str,
    occlusion: str | None,
    settings: DecodingConfig,
) -> tuple[list[Maps], list[list[list[str]]]]:
    """Where each word of each caption of a batch looks, and the words."""
    features = seen.features
    decoder, said, ids = lead(captioner, batch, features, of, settings)
    attention = teacher_forced(decoder, features, ids[..., :-1]).outputs.attention
    if attention is None and occlusion is None:
        raise UsageError(
            "This captioner has no attention to measure: its model sees the whole photo at once, or it is an ensemble; "
            "ask what it needs to see instead (occlusion)."
        )
    falls = None if occlusion is None else occlude(captioner, seen, ids, occlusion, decoder=decoder)
    rectangles = captioner.encoder.rectangles(features, seen.photos.windows.to(captioner.device)).cpu()
    maps = []
    for image, texts in enumerate(said):
        there = features.is_region[image].cpu()
        maps.append(
            Maps(
                rectangles[image, there],
                seen.photos.windows[image],
                features.regions is not None,
                None if attention is None else attention[image].cpu()[..., there],
                None if falls is None else falls[image].cpu()[..., there],
                [len(words) for words in texts],
            )
        )
    return maps, said


def _padded(images: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    """Captions of images (B, N, T + 1), short ones filled up with pad, and images of few captions with pad alone."""
    most = max(1, *map(len, images))
    rows = [torch.tensor(ids) for image in images for ids in [*image, *[[Vocabulary.begin]] * (most - len(image))]]
    return pad_sequence(rows, batch_first=True, padding_value=Vocabulary.pad).unflatten(0, (len(images), most))

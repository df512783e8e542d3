"""Numbers for attention: does the model look at the object that it names?

A mention is one or several words of a caption that name objects whose boxes are known (`mentions.py`). Its map is the
mean of the attention of its words over the regions of the image; for occlusion (`captioners/occlusion.py`) it is the
sum of their drops of log-probability.

    pointing   the region of maximum weight has its centre in a box of the mention (the pointing game of J. Zhang et
               al., Top-down neural attention by excitation backprop, ECCV 2016); of several maxima, their share
    mass       sum_r weight_r |rectangle_r and boxes| / |rectangle_r|, each region's weight spread evenly over what it
               covers (`explanations/geometry.py`): the share of attention that lies in the boxes; for occlusion, of the
               drops above 0
    overlap    detected regions only: the region of maximum weight overlaps a box by an intersection over union of 1/2

and the same for two maps that do not depend on the words:

    chance     uniform weights: pointing is then the share of regions that have their centre in a box, mass nearly the
               share of the photo that the boxes cover
    centre     the region nearest to the centre of what is seen of the photo; of several, all of them

A mention with several boxes ("two dogs") counts as correct with any of them, for chance as well. Numbers are means over
mentions; their intervals resample images, with all of their mentions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from showtell.captioners import EncoderDecoderCaptioner
from showtell.captioners.occlusion import agreement, occlude, rank_correlation
from showtell.datasets.records import CaptionRecord
from showtell.decoding import DecodingConfig, teacher_forced
from showtell.errors import DataError, UsageError
from showtell.features.store import FeatureStore
from showtell.grounding.mentions import GroundedMention, annotated_mentions, category_mentions, category_phrases
from showtell.grounding.teacher_forcing import captions_to_follow, encode_records
from showtell.images.boxes import coverage, is_centre_inside
from showtell.models.contract import eval_mode
from showtell.scores.base import Floats, corpus_numbers, image_numbers
from showtell.scores.bootstrap import intervals
from showtell.scores.report import ScoreReport, ScoreStatistics
from showtell.types import EncodedBatch

MIN_IOU = 0.5  # intersection over union from which on a region counts as the object

# --- geometry: regions (R, 4) and boxes (n, 4), corners in pixels of the upright photo ---


def central_weights(rectangles: Tensor, window: Tensor) -> Tensor:
    """All weight on the region nearest to the centre of a window (4,), in equal parts for ties: (R,)."""
    offset = (rectangles[:, :2] + rectangles[:, 2:]) / 2 - (window[:2] + window[2:]) / 2
    distance = offset.double().norm(dim=-1)
    return _equal_parts(distance <= distance.min() * (1 + 1e-6) + 1e-6)


def peak_weights(weights: Tensor) -> Tensor:
    """All weight on the maximum of some weights (..., R), in equal parts for ties."""
    return _equal_parts(weights == weights.amax(-1, keepdim=True))


def _equal_parts(is_chosen: Tensor) -> Tensor:
    return is_chosen.double() / is_chosen.sum(-1, keepdim=True)


def drop_weights(logprob_drop: Tensor) -> Tensor:
    """Drops (..., R) as weights that sum to one: negative drops count as 0; uniform if no drop is positive."""
    positive = logprob_drop.double().clamp(min=0)
    total = positive.sum(-1, keepdim=True)
    return torch.where(total > 0, positive / total.clamp(min=1e-300), 1 / logprob_drop.shape[-1])


# --- statistics of an image, and numbers from their sums ---

_COUNTS = ("mentions", "attended", "regions", "occluded", "words", "named")
_SUMS = (
    *("pointing", "chance_pointing", "centre_pointing", "mass", "chance_mass", "centre_mass", "overlap"),
    *("chance_overlap", "occlusion_pointing", "occlusion_mass", "correlation", "correlation_named"),
    "correlation_signed",
)
_COLUMN = {name: column for column, name in enumerate((*_COUNTS, *_SUMS))}
_PER = {  # what each sum is a mean over
    **dict.fromkeys(("chance_pointing", "centre_pointing", "chance_mass", "centre_mass"), "mentions"),
    **dict.fromkeys(("pointing", "mass"), "attended"),
    **dict.fromkeys(("overlap", "chance_overlap"), "regions"),
    **dict.fromkeys(("occlusion_pointing", "occlusion_mass"), "occluded"),
    **dict.fromkeys(("correlation", "correlation_signed"), "words"),
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
        """Sums over images (..., columns) to the numbers in `names`, nan for the mean of nothing."""
        means = {}
        for name in _SUMS:
            count = sums[..., _COLUMN[_PER[name]]]
            total = sums[..., _COLUMN[name]]
            means[name] = np.divide(total, count, out=np.full_like(total, np.nan), where=count > 0)
        differences = [means[first] - means[second] for first, second in _DIFFERENCES.values()]
        return np.stack([*means.values(), *differences], axis=-1)


@dataclass(frozen=True)
class CaptionMaps:
    """The maps of the captions of one image with R regions: N captions of T words, padded."""

    rectangles: Tensor  # (R, 4) of the regions
    window: Tensor  # (4,) the part of the photo that the model sees
    is_detected: bool  # the regions come from a detector, not from a grid
    attention: Tensor | None  # (N, T, R); None for models without attention
    logprob_drop: Tensor | None  # (N, T, R), from `occlude`; None without occlusion
    lengths: Sequence[int]  # N, words of each caption without its end


def statistics_of(maps: CaptionMaps, mentions: Sequence[Sequence[GroundedMention]]) -> Floats:
    """The counts and sums of one image, from the mentions of each of its N captions: (columns,).

    Objects that lie outside of the window, because the photo was cropped, are skipped.
    """
    from torchvision.ops import box_iou  # slow to import

    totals = dict.fromkeys(_COLUMN, 0.0)
    uniform = torch.full((len(maps.rectangles),), 1 / len(maps.rectangles), dtype=torch.double)
    centre = central_weights(maps.rectangles, maps.window)
    named: dict[int, set[int]] = {}  # positions of the words of mentions, by caption
    for caption, mentions_of_caption in enumerate(mentions):
        for grounded in mentions_of_caption:
            boxes, first, end = grounded.boxes, grounded.mention.first, grounded.mention.end
            if not coverage(maps.window.unsqueeze(0), boxes).any():
                continue
            covered = coverage(maps.rectangles, boxes)
            inside = is_centre_inside(maps.rectangles, boxes).double()
            values: dict[str, Any] = {
                "mentions": 1,
                "chance_pointing": uniform @ inside,
                "chance_mass": uniform @ covered,
                "centre_pointing": centre @ inside,
                "centre_mass": centre @ covered,
            }
            named.setdefault(caption, set()).update(range(first, end))
            if maps.attention is not None:
                weights = maps.attention[caption, first:end].double().mean(0)
                peak = peak_weights(weights)
                values |= {"attended": 1, "pointing": peak @ inside, "mass": weights @ covered}
                if maps.is_detected:
                    is_object = (box_iou(maps.rectangles, boxes) >= MIN_IOU).any(-1).double()
                    values |= {"regions": 1, "overlap": peak @ is_object, "chance_overlap": uniform @ is_object}
            if maps.logprob_drop is not None:
                drop = maps.logprob_drop[caption, first:end].double().sum(0)
                values |= {
                    "occluded": 1,
                    "occlusion_pointing": peak_weights(drop) @ inside,
                    "occlusion_mass": drop_weights(drop) @ covered,
                }
            for name, value in values.items():
                totals[name] += float(value)
    if maps.attention is not None and maps.logprob_drop is not None:
        for caption, length in enumerate(maps.lengths):
            attention, drop = maps.attention[caption, :length], maps.logprob_drop[caption, :length]
            unsigned, signed = agreement(attention, drop).tolist(), rank_correlation(attention, drop).tolist()
            for position in range(length):
                if not math.isnan(unsigned[position]):
                    is_named = position in named.get(caption, ())
                    totals["words"] += 1
                    totals["correlation"] += unsigned[position]
                    totals["correlation_signed"] += signed[position]
                    totals["named"] += is_named
                    totals["correlation_named"] += unsigned[position] * is_named
    return np.array(list(totals.values()))


# --- a model on a dataset ---


@dataclass(frozen=True)
class AttentionReport:
    """The numbers of a model's attention on some images."""

    report: ScoreReport  # with statistics of each image, for `intervals` and `compare`
    mentions: int  # that were measured
    hallucinated: int  # mentions of objects that the image does not have, which cannot be measured
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
            "hallucinated": self.hallucinated,
            "numbers": numbers,
        }


@torch.no_grad()
def measure_attention(
    captioner: EncoderDecoderCaptioner,
    records: Sequence[CaptionRecord],
    *,
    captions: str = "references",
    occlusion: str | None = "mean",
    settings: DecodingConfig | None = None,
    batch_size: int = 16,
    store: FeatureStore | None = None,
    progress: Callable[[int], None] | None = None,
) -> AttentionReport:
    """Measure for each mention of an object where the model looks, and which regions the words need.

    Args:
        captioner: the model.
        records: images with boxes.
        captions: "references", along which the model is teacher-forced, or "own", which it generates.
        occlusion: occlusion method, see `captioners/occlusion.py`; None: no occlusion.
        settings: how own captions are searched for, and at which stage (default: the checkpoint's settings).
        batch_size: images in a batch.
        store: features of the images by the captioner's encoder, read instead of the photos.
        progress: called with the number of images done since the last call.

    Raises:
        DataError: the dataset or the features have no boxes, no caption names any of the objects, or the store is of
            another encoder.
        ImageError: a photo cannot be read.
        UsageError: the model has no attention and occlusion is off.
    """
    if any(record.boxes is None for record in records):
        raise DataError(
            "Attention is compared with the boxes of objects, and the dataset has none; use one with boxes, such as "
            "COCO captions with the instances file beside them."
        )
    settings = settings or captioner.decoding
    phrases = category_phrases(records)
    rows, hallucinated = [], 0
    with eval_mode(captioner.decoder):
        for batch, encoded in encode_records(captioner, records, batch_size, store):
            maps, words = _caption_maps(captioner, batch, encoded, captions, occlusion, settings)
            for record, maps_of_image, words_of_image in zip(batch, maps, words, strict=True):
                if captions == "references" and record.groundings is not None:
                    mentions = [annotated_mentions(record, caption, phrases) for caption in range(len(words_of_image))]
                else:
                    pairs = [category_mentions(record, caption, phrases) for caption in words_of_image]
                    mentions = [grounded for grounded, _ in pairs]
                    hallucinated += sum(count for _, count in pairs)
                rows.append(statistics_of(maps_of_image, mentions))
            if progress:
                progress(len(batch))
    statistics = np.stack(rows)
    count = int(statistics[:, _COLUMN["mentions"]].sum())
    if not count:
        raise DataError(f"No caption of these {len(records)} images names any of the objects that have boxes.")
    facts = {"captions": captions, "occlusion": occlusion}
    report = _report([record.image_id for record in records], statistics, facts)
    return AttentionReport(report, count, hallucinated, facts)


def _report(ids: Sequence[str], statistics: Floats, facts: dict[str, Any]) -> ScoreReport:
    """A report of the statistics of each image (images, columns), with how they were made as its signature."""
    numbers = AttentionNumbers()
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
        statistics={"attention": ScoreStatistics(numbers, statistics, signature)},
        ids=tuple(ids),
    )


def _caption_maps(
    captioner: EncoderDecoderCaptioner,
    batch: Sequence[CaptionRecord],
    encoded: EncodedBatch,
    captions: str,
    occlusion: str | None,
    settings: DecodingConfig,
) -> tuple[list[CaptionMaps], list[list[list[str]]]]:
    """The maps of each image of a batch, and the words of its captions."""
    features, windows = encoded.features, encoded.windows
    decoder, words, ids = captions_to_follow(captioner, batch, features, captions, settings)
    attention = teacher_forced(decoder, features, ids[..., :-1]).outputs.attention
    if attention is None and occlusion is None:
        raise UsageError(
            "This captioner has no attention to measure: its model sees the whole photo at once, or it is an ensemble; "
            "measure occlusion instead (--occlusion mean, remove or pixels)."
        )
    drops = None if occlusion is None else occlude(captioner, encoded, ids, occlusion, decoder=decoder)
    rectangles = captioner.rectangles(encoded)
    if rectangles is None:
        raise DataError(
            "The features came without boxes, so where the model looks cannot be compared with the objects; convert "
            "features that have boxes (showtell features --from)."
        )
    rectangles = rectangles.cpu()
    maps = []
    for image, captions_of_image in enumerate(words):
        is_region = features.is_region[image].cpu()
        maps.append(
            CaptionMaps(
                rectangles[image, is_region],
                windows[image],
                features.regions is not None,
                None if attention is None else attention[image].cpu()[..., is_region],
                None if drops is None else drops[image].cpu()[..., is_region],
                [len(caption) for caption in captions_of_image],
            )
        )
    return maps, words

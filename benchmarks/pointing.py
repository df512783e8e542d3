"""Does a model look at the objects that it names, and does it need them? docs/explaining.md says how to read this.

    python benchmarks/pointing.py runs/mine/best data/coco --split test --occlusion mean

A mention is one or several words of a caption that name objects whose boxes are known (`grounding/mentions.py`). Its
map is the mean of the attention of its words over the regions of the image; for occlusion
(`captioners/saliency.py`) the sum of their drops of log-probability.

    pointing   the region of maximum weight has its centre in a box of the mention (the pointing game of J. Zhang et
               al., Top-down neural attention by excitation backprop, ECCV 2016); of several maxima, their share
    mass       sum_r weight_r |rectangle_r and boxes| / |rectangle_r|, the share of attention that lies in the boxes;
               for occlusion, of the drops above 0
    overlap    detected regions only: the region of maximum weight overlaps a box by an intersection over union of 1/2

and the same for two maps that do not depend on the words: uniform weights (chance), and all weight on the region
nearest to the centre of what is seen of the photo (centre). Numbers are means over mentions; their intervals resample
images, with all of their mentions.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import _threads  # noqa: F401  (first)
from showtell.captioners import EncoderDecoderCaptioner
from showtell.captioners.saliency import METHODS, occlude
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.decoding import DecodingConfig, StageView, search, teacher_forced
from showtell.decoding.rollout import pad_captions
from showtell.errors import DataError, UsageError, or_raise
from showtell.features.store import FeatureStore
from showtell.features.stored_images import photo_or_stored
from showtell.grounding.mentions import MIN_IOU, NamedBoxes, annotated_mentions, category_mentions, category_phrases
from showtell.images.boxes import coverage
from showtell.images.loading import prepare_batches
from showtell.models import Decoder
from showtell.models.contract import eval_mode
from showtell.progress import counting
from showtell.scores.base import Floats, ScoreStatistics, corpus_numbers, image_numbers
from showtell.scores.report import ScoreReport
from showtell.text.tokenizer import tokenize
from showtell.types import EncodedBatch, Features

import numpy as np
import torch
from torch import Tensor

BATCH_SIZE = 16  # images

# --- geometry: regions (R, 4) and boxes (n, 4), corners in pixels of the upright photo ---


def central_weights(rectangles: Tensor, window: Tensor) -> Tensor:
    """All weight on the region nearest to the centre of a window (4,), in equal parts for ties: (R,)."""
    offset = (rectangles[:, :2] + rectangles[:, 2:]) / 2 - (window[:2] + window[2:]) / 2
    distance = offset.double().norm(dim=-1)
    return _equal_parts(distance <= distance.min() * (1 + 1e-6) + 1e-6)


def is_centre_inside(rectangles: Tensor, boxes: Tensor) -> Tensor:
    """Whether the centre of each rectangle lies in any of the boxes: (R,) bool."""
    x, y = ((rectangles[:, [0, 1]] + rectangles[:, [2, 3]]) / 2).unsqueeze(1).unbind(-1)  # (R, 1) each
    left, top, right, bottom = boxes.unbind(-1)
    return ((left <= x) & (x < right) & (top <= y) & (y < bottom)).any(-1)


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


# --- rank correlation of two maps ---


def rank_correlation(first: Tensor, second: Tensor) -> Tensor:
    """Spearman's correlation of two maps (..., R), ties sharing their mean rank: (...), nan where a map is constant."""
    x, y = ((ranks := _ranks(values)) - ranks.mean(-1, keepdim=True) for values in (first, second))
    return (x * y).sum(-1) / (x.square().sum(-1) * y.square().sum(-1)).sqrt()


def _ranks(values: Tensor) -> Tensor:
    """The rank of each of (..., R) values, from 1; equal ones share the mean of theirs."""
    values = values.contiguous()
    ordered = values.sort(-1).values
    below, not_above = (torch.searchsorted(ordered, values, right=right) for right in (False, True))
    return (below + not_above + 1).double() / 2


# --- statistics of an image, and numbers from their sums ---

_MEANS = (
    *("pointing", "chance_pointing", "centre_pointing", "mass", "chance_mass", "centre_mass", "overlap"),
    *("chance_overlap", "occlusion_pointing", "occlusion_mass", "correlation", "correlation_named"),
)
_MENTIONS = len(_MEANS) + _MEANS.index("chance_pointing")  # column: every mention that is measured has that number


class AttentionNumbers:
    """Means over mentions and words. Statistics: a sum for each mean, then its count."""

    names: ClassVar[tuple[str, ...]] = _MEANS

    def from_sums(self, sums: Floats, images: int) -> Floats:
        """Sums over images (..., columns) to the numbers in `names`, nan for the mean of nothing."""
        totals, counts = np.split(sums, 2, axis=-1)
        return np.divide(totals, counts, out=np.full_like(totals, np.nan), where=counts > 0)


@dataclass(frozen=True)
class CaptionMaps:
    """The maps of N captions of one image with R regions, T words each, padded."""

    rectangles: Tensor  # (R, 4) of the regions
    window: Tensor  # (4,) the part of the photo that the model sees
    is_detected: bool  # the regions come from a detector, not from a grid
    attention: Tensor | None  # (N, T, R); None for models without attention
    logprob_drop: Tensor | None  # (N, T, R), from `occlude`; None without occlusion
    lengths: Sequence[int]  # N, words of each caption without its end


def statistics_of(maps: CaptionMaps, mentions: Sequence[Sequence[NamedBoxes]]) -> Floats:
    """Sums and counts (columns,) of an image, from the mentions of its N captions; cropped objects are skipped."""
    from torchvision.ops import box_iou  # slow to import

    sums, counts = dict.fromkeys(_MEANS, 0.0), dict.fromkeys(_MEANS, 0)

    def add(name: str, value: Any) -> None:
        sums[name] += float(value)
        counts[name] += 1

    uniform = torch.full((len(maps.rectangles),), 1 / len(maps.rectangles), dtype=torch.double)
    centre = central_weights(maps.rectangles, maps.window)
    for caption, (length, named) in enumerate(zip(maps.lengths, mentions, strict=True)):
        object_words: set[int] = set()
        for mention in named:
            boxes, words = mention.boxes, slice(mention.first, mention.end)
            if not coverage(maps.window.unsqueeze(0), boxes).any():
                continue
            covered = coverage(maps.rectangles, boxes)
            inside = is_centre_inside(maps.rectangles, boxes).double()
            for name, weights in (("chance", uniform), ("centre", centre)):
                add(f"{name}_pointing", weights @ inside)
                add(f"{name}_mass", weights @ covered)
            object_words.update(range(mention.first, mention.end))
            if maps.attention is not None:
                weights = maps.attention[caption, words].double().mean(0)
                add("pointing", peak_weights(weights) @ inside)
                add("mass", weights @ covered)
                if maps.is_detected:
                    is_object = (box_iou(maps.rectangles, boxes) >= MIN_IOU).any(-1).double()
                    add("overlap", peak_weights(weights) @ is_object)
                    add("chance_overlap", uniform @ is_object)
            if maps.logprob_drop is not None:
                drop = maps.logprob_drop[caption, words].double().sum(0)
                add("occlusion_pointing", peak_weights(drop) @ inside)
                add("occlusion_mass", drop_weights(drop) @ covered)
        if maps.attention is not None and maps.logprob_drop is not None:
            attention, drops = maps.attention[caption, :length], maps.logprob_drop[caption, :length]
            # drops and rises count alike: attention says how much of a region is seen, not what it speaks for
            for position, correlation in enumerate(rank_correlation(attention, drops.abs()).tolist()):
                if not math.isnan(correlation):
                    add("correlation", correlation)
                    if position in object_words:
                        add("correlation_named", correlation)
    return np.array([*sums.values(), *counts.values()])


# --- a model on a dataset ---


@dataclass(frozen=True)
class AttentionReport:
    """The numbers of a model's attention on some images."""

    report: ScoreReport  # with statistics of each image, for `intervals` and `compare`
    mentions: int  # that were measured
    hallucinated: int  # mentions of objects that the image does not have, which cannot be measured


@torch.no_grad()
def measure_attention(
    captioner: EncoderDecoderCaptioner,
    records: Sequence[CaptionRecord],
    *,
    captions: str = "references",
    occlusion: str | None = "mean",
    settings: DecodingConfig | None = None,
    store: FeatureStore | None = None,
    progress: Callable[[int], None] | None = None,
) -> AttentionReport:
    """Measure for each mention of an object where the model looks, and which regions the words need.

    `captions`: "references", along which the model is teacher-forced, or "own", which it generates by `settings`;
    `occlusion`: see `captioners/saliency.py`."""
    if any(record.boxes is None for record in records):
        raise DataError(
            "Attention is compared with the boxes of objects, and the dataset has none; use one with boxes, such as "
            "COCO captions with the instances file beside them."
        )
    settings = settings or captioner.decoding
    phrases = category_phrases(records)
    rows, hallucinated = [], 0
    with eval_mode(captioner.decoder):
        for batch, encoded in encode_records(captioner, records, store):
            results = _caption_maps(captioner, batch, encoded, captions, occlusion, settings)
            for record, (maps, words) in zip(batch, results, strict=True):
                if captions == "references" and record.groundings is not None:
                    mentions = [annotated_mentions(record, caption, phrases) for caption in range(len(words))]
                else:
                    pairs = [category_mentions(record, caption, phrases) for caption in words]
                    mentions = [named for named, _ in pairs]
                    hallucinated += sum(count for _, count in pairs)
                rows.append(statistics_of(maps, mentions))
            if progress:
                progress(len(batch))
    statistics = np.stack(rows)
    count = int(statistics[:, _MENTIONS].sum())
    if not count:
        raise DataError(f"No caption of these {len(records)} images names any of the objects that have boxes.")
    facts = {"captions": captions, "occlusion": occlusion}
    report = _report([record.image_id for record in records], statistics, facts)
    return AttentionReport(report, count, hallucinated)


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
) -> Iterator[tuple[CaptionMaps, list[list[str]]]]:
    """The maps of each image of a batch, and the words of its captions."""
    features = encoded.features
    decoder, words, ids = captions_to_follow(captioner, batch, features, captions, settings)
    attention = teacher_forced(decoder, features, ids[..., :-1]).outputs.attention
    if attention is None and occlusion is None:
        raise UsageError(
            "This captioner has no attention to measure: its model sees the whole photo at once; "
            "measure occlusion instead (--occlusion mean or pixels)."
        )
    drops = None if occlusion is None else occlude(captioner, encoded, ids, occlusion, decoder=decoder)
    rectangles = captioner.rectangles(encoded)
    if rectangles is None:
        raise DataError(
            "The features came without boxes, so where the model looks cannot be compared with the objects; convert "
            "features that have boxes (showtell features --from)."
        )
    for image, captions_of_image in enumerate(words):
        is_region = features.is_region[image]
        maps = CaptionMaps(
            rectangles[image, is_region].cpu(),
            encoded.windows[image],
            features.regions is not None,
            None if attention is None else attention[image, ..., is_region].cpu(),
            None if drops is None else drops[image, ..., is_region].cpu(),
            [len(caption) for caption in captions_of_image],
        )
        yield maps, captions_of_image


# --- captions along which a model is teacher-forced ---


def encode_records(
    captioner: EncoderDecoderCaptioner, records: Sequence[CaptionRecord], store: FeatureStore | None = None
) -> Iterator[tuple[list[CaptionRecord], EncodedBatch]]:
    """The photos of the records, or their features in a store, batch by batch, encoded."""

    def prepare(record: CaptionRecord) -> Any:
        return captioner.prepare(photo_or_stored(record, store))

    for pairs in prepare_batches(records, prepare, BATCH_SIZE):
        photos = [or_raise(photo) for _, photo in pairs]
        yield [record for record, _ in pairs], captioner.encode_prepared(photos)


def captions_to_follow(
    captioner: EncoderDecoderCaptioner,
    batch: Sequence[CaptionRecord],
    features: Features,
    captions: str,
    settings: DecodingConfig,
) -> tuple[Decoder, list[list[list[str]]], Tensor]:
    """The decoder at its stage, the words of each caption of each image, and their ids, (B, N, T + 1), begin first."""
    vocabulary = captioner.vocabulary
    decoder: Decoder = captioner.decoder if settings.stage is None else StageView(captioner.decoder, settings.stage)
    if captions == "references":
        words = [[tokenize(text) for text in record.captions] for record in batch]
        ids = pad_captions([[vocabulary.encode(caption) for caption in image] for image in words]).to(captioner.device)
    else:
        best = search(captioner.decoder, features, settings, vocabulary).words[:, :1]
        words = [[vocabulary.decode(caption.tolist()) for caption in image] for image in best]
        ids = torch.cat((best.new_full((*best.shape[:2], 1), vocabulary.begin), best), -1)
    return decoder, words, ids


def describe(result: AttentionReport) -> str:
    """The numbers with their 95 % intervals, beside those of maps that do not depend on the words."""
    bounds = result.report.intervals()

    def cell(name: str) -> str:
        value = result.report.scores[name]
        return "-" if value is None else f"{value:.3f} [{bounds[name].low:.3f}, {bounds[name].high:.3f}]"

    lines = [
        f"{result.mentions} mentions of objects in {result.report.images} images; "
        f"{result.hallucinated} mentions of objects that are not there",
        f"{'':10}{'pointing':24}{'mass in the box':24}{'overlap of 1/2':24}",
    ]
    for title, prefix in (("attention", ""), ("occlusion", "occlusion_"), ("chance", "chance_"), ("centre", "centre_")):
        names = [prefix + name for name in ("pointing", "mass", "overlap")]
        cells = [f"{cell(name) if name in _MEANS else '-':24}" for name in names]
        lines.append(f"{title:10}{''.join(cells)}".rstrip())
    lines += [f"rank correlation of attention with occlusion: {cell('correlation')}"]
    return "\n".join([*lines, f"of mentions of objects alone: {cell('correlation_named')}"])


def main() -> None:
    """Read, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("dataset")
    parser.add_argument("--split", default="test")
    parser.add_argument("--captions", choices=["references", "own"], default="references")
    parser.add_argument("--occlusion", choices=["none", *METHODS], default="mean")
    parser.add_argument("--limit", type=int, help="images")
    parser.add_argument("--features", type=Path, help="a store, read in place of the photos")
    chosen = parser.parse_args()
    records = open_dataset(chosen.dataset, with_photos=chosen.features is None).limited(chosen.limit)
    store = None if chosen.features is None else FeatureStore(chosen.features)
    occlusion = None if chosen.occlusion == "none" else chosen.occlusion
    captioner = EncoderDecoderCaptioner.from_pretrained(chosen.checkpoint)
    split = records[chosen.split]
    how = {"captions": chosen.captions, "occlusion": occlusion, "store": store}
    with counting("measuring", len(split)) as progress:
        result = measure_attention(captioner, split, **how, progress=progress)
    print(describe(result))


if __name__ == "__main__":
    main()

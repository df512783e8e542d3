"""The papers' protocol: caption a split, then score the captions against its references; and what follows of that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from showtell.captioners import Captioner
from showtell.captions import Caption
from showtell.confidence.calibration import Calibration
from showtell.confidence.familiarity import Familiarity
from showtell.datasets import CaptionDataset, CaptionRecord, open_dataset
from showtell.decoding import DecodingConfig
from showtell.errors import DataError, UsageError, or_raise, summarise
from showtell.features.store import FeatureStore
from showtell.features.stored_images import photo_or_stored
from showtell.images.loading import prepare_batches
from showtell.scores import DocumentFrequency, ImageFacts, ScoreReport, image_facts, metric_names, score
from showtell.scores.encoders import ClipEncoder

# From here on experts (Hodosh et al. 2013, Flickr8k-Expert) gave most captions 2.5 or more of 4: docs/lab_notes.md.
GOOD_CIDER = 0.4
FEW = 30  # images, below which scores depend mostly on which images were chosen
BATCH_SIZE = 64  # images that are captioned at once


@dataclass(frozen=True, repr=False, kw_only=True)
class Evaluation(ScoreReport):
    """The scores of a captioner on images, with its captions."""

    captions: dict[str, Caption]  # image id: its most likely caption
    parts: dict[str, ScoreReport] = field(default_factory=dict)  # of a dataset of several, that of each

    def results(self) -> list[dict[str, Any]]:
        """COCO results: image ids that are numbers are written as numbers."""
        return [{"image_id": written_id(image), "caption": caption.text} for image, caption in self.captions.items()]


def written_id(image_id: str) -> int | str:
    """An image id as COCO results have it: a number where it is one of at most 64 bits.

    >>> written_id("42"), written_id("042"), written_id("a.jpg")
    (42, '042', 'a.jpg')
    """
    is_number = image_id.isascii() and image_id.isdigit() and (image_id[0] != "0" or len(image_id) == 1)
    return int(image_id) if is_number and len(image_id) < 19 else image_id


def caption_records(
    captioner: Captioner,
    records: Sequence[CaptionRecord],
    settings: DecodingConfig | None = None,
    *,
    store: FeatureStore | None = None,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], None] | None = None,
) -> dict[str, Caption]:
    """The most likely caption of each image.

    Args:
        captioner: the model.
        records: the images.
        settings: how to search; what is not given is the checkpoint's own.
        store: features of the images by the captioner's encoder, read instead of the photos.
        batch_size: images that are captioned at once.
        progress: called with the number of images done since the last call.

    Raises:
        ImageError: a file is no image.
        DataError: the store has features of another encoder, or lacks an image.
    """
    ids = [record.image_id for record in records]
    photos = [photo_or_stored(record, store) for record in records]
    results = captioner.caption_photos(photos, settings, batch_size, first_alone=False, image_ids=ids)
    captions: dict[str, Caption] = {}
    for image, (_, ranked) in zip(ids, results, strict=True):
        captions[image] = or_raise(ranked)[0]
        if progress:
            progress(1)
    return captions


def evaluate(
    captioner: Captioner,
    data: CaptionDataset | Sequence[CaptionRecord] | Path | str | Sequence[Path | str],
    split: str | None = None,
    *,
    metrics: str | Iterable[str] | None = None,
    facts: Mapping[str, ImageFacts] | None = None,
    document_frequency: DocumentFrequency | None = None,
    clip: ClipEncoder | None = None,
    store: FeatureStore | None = None,
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], None] | None = None,
    **decoding: Any,
) -> Evaluation:
    """Caption images and score the captions.

    Args:
        captioner: the model.
        data: the path of a dataset or those of several, a dataset, or records.
        split: of a dataset; None is "test", or the only one that there is.
        metrics: names of `list_metrics`; None for all whose needs are met.
        facts: what is known of the images (default: what their dataset knows; of bare records their captions).
        document_frequency: weights for CIDEr from other captions than the references.
        clip: of CLIPScore.
        store: features of the images by the captioner's encoder, read instead of the photos.
        batch_size: images that are captioned at once.
        progress: called with the number of images done since the last call.
        decoding: fields of `DecodingConfig` in place of the captioner's own settings, such as num_beams=5.

    Raises:
        DataError: there is no such dataset or split, or an image has no reference.
        UsageError: no such setting or metric, or the captioner cannot honour the settings.
    """
    if isinstance(split, DecodingConfig):  # as other toolkits take them
        raise UsageError("Settings of the search are given by their names: evaluate(captioner, data, num_beams=5).")
    names, settings = metric_names(metrics), captioner.settings(**{"num_return_sequences": 1} | decoding)
    is_path = isinstance(data, Path | str) or (len(data) > 0 and isinstance(data[0], Path | str))
    records: Any = open_dataset(cast("Any", data), with_photos=store is None) if is_path else data
    if isinstance(records, CaptionDataset):
        if split or len(records.splits) != 1:
            records = records[split or "test"]
        facts = facts or image_facts(records)
    elif split:
        raise UsageError(f'split="{split}" is for a dataset, and these are records; leave it out.')
    known = {
        record.image_id: ImageFacts(record.captions) if facts is None else facts[record.image_id] for record in records
    }
    bare = [image for image, own in known.items() if not own.references]
    if bare:
        raise DataError(f"{len(bare)} images have no reference caption to be scored against: {summarise(bare)}.")
    captions = caption_records(captioner, records, settings, store=store, batch_size=batch_size, progress=progress)
    texts = {image: caption.text for image, caption in captions.items()}
    report = score(texts, known, names, document_frequency=document_frequency, clip=clip)
    if (prompt := settings.prompt) is not None:  # it is part of how the numbers came about
        signatures = {name: f"{signature}|prompt:{prompt}" for name, signature in report.signatures.items()}
        report = replace(report, signatures=signatures)
    by_part: dict[str, dict[str, str]] = {}
    for record in records:
        by_part.setdefault(record.part, {})[record.image_id] = texts[record.image_id]
    how: dict[str, Any] = {"document_frequency": document_frequency, "clip": clip}
    parts = {
        part: score(own, {image: known[image] for image in own}, names, **how) for part, own in by_part.items() if part
    }
    return Evaluation(**vars(report), captions=captions, parts=parts)


def calibrate(
    captioner: Captioner,
    dataset: CaptionDataset,
    *,
    good_cider: float = GOOD_CIDER,
    store: FeatureStore | None = None,
    familiarity: Familiarity | None = None,
    progress: Callable[[int], None] | None = None,
    **decoding: Any,
) -> Calibration:
    """Fit the chance that a caption is good, and which photos are familiar.

    Args:
        captioner: the model.
        dataset: a validation split, which the model was not trained on. Of drawn images a good caption is one that is
            wholly true.
        good_cider: elsewhere a good caption has at least this CIDEr-D, of at most 10, with the document frequencies of
            the split.
        store: features of the images by the captioner's encoder, read instead of the photos.
        familiarity: of photos that the captioner knows (default: of these).
        progress: called with the number of images done since the last call.
        decoding: settings of the search that the calibration is for, as `evaluate` takes them.

    Raises:
        DataError: there are too few captions, they are all good or all bad, or an image has no reference.
        ImageError: a photo is no image.
    """
    captions: dict[str, Caption] = {}
    vectors, settings = [], captioner.settings(**{"num_return_sequences": 1} | decoding)
    photos = [(record.image_id, photo_or_stored(record, store)) for record in dataset]
    for batch in prepare_batches(photos, lambda pair: captioner.prepare(pair[1]), BATCH_SIZE, device=captioner.device):
        ids = [image_id for (image_id, _), _ in batch]
        encoded = captioner.encode_prepared([or_raise(photo) for _, photo in batch])
        vectors.append(captioner.mean_features(encoded))
        ranked = captioner.caption_encoded(encoded, settings, image_ids=ids)
        captions.update((image_id, best) for image_id, (best, *_) in zip(ids, ranked, strict=True))
        if progress:
            progress(len(ids))
    known = image_facts(dataset)
    is_drawn = all(image.scene is not None for image in known.values())
    name, least = ("truth", 1.0) if is_drawn else ("cider", good_cider)
    meaning = "every statement is true" if is_drawn else f"CIDEr-D of {good_cider:g} or more"
    report = score({image: caption.text for image, caption in captions.items()}, known, metrics=[name])
    is_good = [(report.per_image[image][name] or 0.0) >= least for image in captions]
    shown = [mean for mean in vectors if mean is not None]
    means = np.concatenate(shown) if shown else None
    return Calibration.fit(list(captions.values()), is_good, meaning, settings, means, familiarity)

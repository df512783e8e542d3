"""Extraction: the features of many photos into a store; a run that was stopped or killed resumes.

The list of photos is cut into batches before anything is looked up, and a batch is encoded as a whole and kept as a
whole. What an image's features are, to the last bit, is then a function of the list and the batch size alone (a
convolution over 16 photos and one over 3 may differ in the last bit), wherever the work was interrupted.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from showtell.datasets.records import CaptionRecord
from showtell.errors import DataError, ImageError, summarise
from showtell.features.contract import Encoder
from showtell.features.precomputed import Precomputed
from showtell.features.store import FeatureStore, ImageFeatures, Precision, StoreInfo, StoreWriter
from showtell.images.loading import PreparedPhoto, prepare_batches, stack_photos
from showtell.types import Features, PreparedBatch

BATCH_SIZE = 16  # photos; more are no faster on a CPU (docs/features.md)


class Extraction(NamedTuple):
    """The result of an extraction."""

    written: int  # images
    already: int  # images that the store had, undamaged
    unreadable: tuple[ImageError, ...]  # for each photo that could not be opened


def extract(
    encoder: Encoder,
    records: Sequence[CaptionRecord],
    path: Path | str,
    *,
    dtype: str | torch.dtype = "fp16",
    batch_size: int = BATCH_SIZE,
    progress: Callable[[int], None] = lambda done: None,
) -> Extraction:
    """Put features of photos, each id once, into a store that lacks them or has them damaged, a batch at a time."""
    unreadable: list[ImageError] = []
    written = 0
    with StoreWriter(path, StoreInfo.of(encoder, dtype)) as writer, ThreadPoolExecutor(1) as keeper:
        missing = {record.image_id for record in records if record.image_id not in writer}
        every = [records[first : first + batch_size] for first in range(0, len(records), batch_size)]
        batches = [batch for batch in every if any(record.image_id in missing for record in batch)]
        progress(len(records) - sum(map(len, batches)))
        in_order = (record for batch in batches for record in batch)
        # An encoder may have no weights.
        device = next(chain(encoder.parameters(), encoder.buffers()), torch.empty(0)).device

        def keep(features: Features, photos: Sequence[tuple[CaptionRecord, PreparedPhoto]]) -> None:
            entries = zip(photos, split_batch(features, [photo.size for _, photo in photos]), strict=True)
            writer.write({record.image_id: entry for (record, _), entry in entries if record.image_id in missing})

        keeping: Future[None] | None = None
        for chunk in prepare_batches(in_order, lambda one: encoder.prepare(one.path), batch_size, device=device):
            readable = [(record, photo) for record, photo in chunk if not isinstance(photo, ImageError)]
            unreadable += [error for one, error in chunk if isinstance(error, ImageError) and one.image_id in missing]
            features = _encode(encoder, stack_photos([photo for _, photo in readable], device)) if readable else None
            if keeping is not None:
                keeping.result()  # the last batch was written while this one was encoded
            if features is not None:
                keeping = keeper.submit(keep, features, readable)
            written += sum(record.image_id in missing for record, _ in readable)
            progress(len(chunk))
        if keeping is not None:
            keeping.result()
    return Extraction(written, len(records) - len(missing), tuple(unreadable))


def fill_store(
    path: Path | str,
    encoder: Encoder,
    records: Sequence[CaptionRecord],
    *,
    progress: Callable[[int], None] = lambda done: None,
) -> None:
    """Extract the features of photos that a store lacks; an ImageError if some cannot be read, once others are done."""
    missing: Sequence[str] = [record.image_id for record in records]
    dtype: Precision = "fp16"
    if (Path(path) / "data.mdb").exists():
        store = FeatureStore(path)
        store.require(encoder)
        missing, dtype = store.missing(missing), store.info.dtype
        del store  # a writer opens the file anew
        if not missing:
            return
    elif isinstance(encoder, Precomputed):
        raise DataError(
            f"There is no feature store {path}; convert the features with: showtell features --from PATH --source "
            f"{shlex.quote(encoder.config.source)} --out {path}"
        )
    if isinstance(encoder, Precomputed):
        raise DataError(
            f"{path} has no features of {len(missing)} of {len(records)} images: {summarise(missing)}; only the "
            "program that made the others can make them."
        )
    if unreadable := extract(encoder, records, path, dtype=dtype, progress=progress).unreadable:
        count = "A photo" if len(unreadable) == 1 else f"{len(unreadable)} photos"
        raise ImageError(f"{count} cannot be read: {summarise(unreadable)}")


@torch.inference_mode()
def _encode(encoder: Encoder, batch: PreparedBatch) -> Features:
    """One batch, in eval mode, on the encoder's device."""
    was_training = encoder.training
    encoder.eval()
    features: Features = encoder(batch.to(batch.images[0].device))
    encoder.train(was_training)
    return features


def split_batch(features: Features, sizes: Sequence[tuple[int, int]]) -> list[ImageFeatures]:
    """Entries of a store, without padding, of B images whose upright photos have some (width, height)."""
    arrays: dict[str, np.ndarray] = {
        name: tensor.cpu().numpy()  # all images at once; from here on by NumPy, see `Preprocessing.prepare`
        for name in ("boxes", "scores", "labels", "attributes")
        if (tensor := getattr(features.regions, name, None)) is not None
    }
    arrays["vectors"], is_region = features.vectors.float().cpu().numpy(), features.is_region.cpu().numpy()
    return [
        ImageFeatures(size=size, **{name: array[image][is_region[image]] for name, array in arrays.items()})
        for image, size in enumerate(sizes)
    ]

"""How fast features are extracted and read: against the bare encoder, and against features held in memory.

    python benchmarks/features.py [--photos 64] [--steps 12] [--json]

Extraction reads JPEG files of 500x375 pixels, resizes, encodes and commits to a store; the bare encoder (ResNet-101 of
timm with random weights) runs on the same pictures as ready tensors in the same batches. A ratio of 0.95 means that
everything around the encoder costs 5 %. Reading is a step of `sat` soft (forward, backward, Adam) on batches of 10
images with 5 captions of 12 words and 196x2048 features in half precision, from a store and from memory. Rounds of the
two alternate, and the faster half of the steps counts, so that a moment's load on the machine falls on neither.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from caption_folder import seconds, write_photos
from rows import show
from showtell.datasets.records import CaptionRecord
from showtell.features import build_encoder, encoder_config
from showtell.features.extraction import extract
from showtell.features.store import FeatureStore, ImageFeatures, StoreInfo, StoreWriter
from showtell.images.loading import prepare_photo, stack_photos
from showtell.models import build_decoder
from showtell.models.sat import SatConfig
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.text.vocabulary import Vocabulary
from showtell.training.batches import TrainingSet, collate, epoch_batches
from showtell.types import Batch

import numpy as np
import torch

BATCH = 16  # photos encoded together
IMAGES, REGIONS, SIZE = 10, 196, 2048  # of a training batch


def extraction(side: int, photos: int) -> dict[str, Any]:
    """Photos per second through `extract`, and through the encoder alone."""
    settings = {"name": "resnet101", "weights": "random", "image_size": side, "trained": False}
    encoder = build_encoder(encoder_config(settings)).eval()
    with tempfile.TemporaryDirectory() as name:
        paths = write_photos(Path(name), photos)
        records = [CaptionRecord(path.stem, path, "train", ()) for path in paths]
        ready = [prepare_photo(path, encoder.preprocessing) for path in paths]
        batches = [stack_photos(ready[first : first + BATCH]) for first in range(0, photos, BATCH)]
        encoder(batches[0])  # the first pass chooses kernels
        bare, whole = [], []
        for number in range(2):
            bare.append(seconds(lambda: [encoder(batch) for batch in batches]))
            store = Path(name) / f"store{number}"
            whole.append(seconds(lambda store=store: extract(encoder, records, store, batch_size=BATCH)))
    return {
        "name": f"extract_resnet101_{side}",
        "value": photos / min(whole),
        "unit": "photos/second",
        "against": f"the encoder alone on ready tensors, batches of {BATCH}",
        "ratio": min(bare) / min(whole),
    }


def reading(steps: int) -> dict[str, Any]:
    """Seconds of a training step with features from a store, and from memory."""
    chance = np.random.default_rng(0)
    words = [f"w{k}" for k in range(9484)]
    vocabulary = Vocabulary(words)
    records = [
        CaptionRecord(str(k), Path(f"{k}.jpg"), "train", tuple(" ".join(chance.choice(words, 12)) for _ in range(5)))
        for k in range(IMAGES * steps)
    ]
    info = StoreInfo(encoder={"name": "random"}, fingerprint="0" * 12, dtype="fp16", feature_size=SIZE)
    sizes = {"feature_size": SIZE, "vocabulary_size": len(vocabulary)}
    decoder = build_decoder(SatConfig(), **sizes)
    objective = CrossEntropy(CrossEntropyConfig(), **sizes)
    optimizer = torch.optim.Adam(decoder.parameters())

    def steps_of(batches: Iterable[Batch]) -> Iterator[float]:
        began = time.perf_counter()
        for batch in batches:
            batch = batch.to(torch.device("cpu"))
            assert batch.features is not None
            optimizer.zero_grad()
            objective(batch, batch.features, decoder).total.backward()
            optimizer.step()
            yield time.perf_counter() - began
            began = time.perf_counter()

    with tempfile.TemporaryDirectory() as name:
        with StoreWriter(Path(name) / "store", info) as writer:
            for record in records:
                writer.write({record.image_id: ImageFeatures(chance.random((REGIONS, SIZE), dtype=np.float32))})
        store = FeatureStore(Path(name) / "store")
        data = TrainingSet(records, store, vocabulary, captions_per_image=5, max_length=16, seed=0)
        kept = [collate([data[0, i] for i in range(first, first + IMAGES)]) for first in range(0, len(records), IMAGES)]
        stored, memory = [], []
        for epoch in range(3):
            batches = epoch_batches(data, epoch=epoch, skip=0, batch_size=IMAGES, bucket=1, seed=0, workers=0)
            stored += list(steps_of(batches))[epoch == 0 :]
            memory += list(steps_of(kept))[epoch == 0 :]
    best = [statistics.mean(sorted(taken)[: len(taken) // 2]) for taken in (stored, memory)]
    return {
        "name": "train_step_from_store",
        "value": 1000 * best[0],
        "unit": "milliseconds",
        "against": f"the same step on features in memory, {REGIONS}x{SIZE} fp16, {IMAGES} images",
        "ratio": best[0] / best[1],
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=64, help="at 224 pixels; a quarter of them at 448")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    with torch.inference_mode():
        rows = [extraction(224, arguments.photos), extraction(448, max(BATCH, arguments.photos // 4))]
    show([*rows, reading(arguments.steps)], arguments.json)

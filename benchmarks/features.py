"""How fast features are extracted and read: against the bare encoder, and against features held in memory.

    python benchmarks/features.py [--photos 64] [--steps 12] [--json]

Extraction reads JPEG files of 500x375 pixels, resizes, encodes and commits to a store; the bare encoder (ResNet-101 of
timm with random weights) runs on the same pictures as ready tensors in the same batches. A ratio of 0.95 means that
everything around the encoder costs 5 %. Reading is a step of `sat` soft (forward, backward, Adam) on batches of 10
images with 5 captions of 12 words and 196x2048 features in half precision, from a store and from memory; both turn them
into single precision. Rounds of the two alternate, and the faster half of the steps counts, so that a moment's load on
the machine falls on neither.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

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
from PIL import Image

BATCH = 16  # photos encoded together
IMAGES, REGIONS, SIZE = 10, 196, 2048  # of a training batch
COCO = 123_287  # images of train2014 and val2014


def write_photos(folder: Path, count: int) -> list[CaptionRecord]:
    """Photos as large and as detailed as COCO's: smooth noise of several scales, quality 90."""
    chance = np.random.default_rng(0)
    records = []
    for number in range(count):
        layers = [
            np.asarray(
                Image.fromarray(chance.integers(0, 256, (side, side, 3), dtype=np.uint8)).resize((500, 375)), np.float32
            )
            for side in (4, 16, 64, 200)
        ]
        path = folder / f"{number}.jpg"
        Image.fromarray(np.mean(layers, axis=0).astype(np.uint8)).save(path, quality=90)
        records.append(CaptionRecord(str(number), path, "train", ()))
    return records


def extraction(side: int, photos: int) -> dict[str, Any]:
    """Photos per second through `extract`, and through the encoder alone."""
    encoder = build_encoder(
        encoder_config({"name": "resnet101", "weights": "random", "image_size": side, "trained": False})
    ).eval()
    with tempfile.TemporaryDirectory() as name:
        records = write_photos(Path(name), photos)
        ready = [prepare_photo(record.path, encoder.preprocessing) for record in records]
        batches = [stack_photos(ready[first : first + BATCH]) for first in range(0, photos, BATCH)]

        @torch.inference_mode()
        def bare() -> float:
            began = time.perf_counter()
            for batch in batches:
                encoder(batch)
            return time.perf_counter() - began

        def whole(number: int) -> float:
            began = time.perf_counter()
            extract(encoder, records, Path(name) / f"store{number}", batch_size=BATCH)
            return time.perf_counter() - began

        with torch.inference_mode():
            encoder(batches[0])  # the first pass chooses kernels
        bares, wholes = [], []
        for number in range(2):
            bares.append(bare())
            wholes.append(whole(number))
    return {
        "name": f"extract_resnet101_{side}",
        "value": photos / min(wholes),
        "unit": "photos/second",
        "against": f"the encoder alone on ready tensors, batches of {BATCH}",
        "ratio": min(bares) / min(wholes),
    }


def reading(steps: int) -> list[dict[str, Any]]:
    """Seconds of a training step with features from a store, and from memory; and what a store takes."""
    chance = np.random.default_rng(0)
    count = IMAGES * steps
    words = [f"w{k}" for k in range(9484)]
    vocabulary = Vocabulary(words)
    records = [
        CaptionRecord(str(k), Path(f"{k}.jpg"), "train", tuple(" ".join(chance.choice(words, 12)) for _ in range(5)))
        for k in range(count)
    ]
    info = StoreInfo(encoder={"name": "random"}, fingerprint="0" * 12, dtype="fp16", feature_size=SIZE)
    sizes = {"feature_size": SIZE, "vocabulary_size": len(vocabulary)}
    decoder = build_decoder(SatConfig(), **sizes)
    objective = CrossEntropy(CrossEntropyConfig(), **sizes)
    optimizer = torch.optim.Adam(decoder.parameters())

    def seconds(batches: Iterable[Batch]) -> Iterator[float]:
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
        path = Path(name) / "store"
        with StoreWriter(path, info) as writer:
            for record in records:
                writer.write({record.image_id: ImageFeatures(chance.random((REGIONS, SIZE), dtype=np.float32))})
        store = FeatureStore(path)
        data = TrainingSet(records, store, vocabulary, captions_per_image=5, max_length=16, seed=0)

        def stored(epoch: int) -> Iterator[Batch]:
            return epoch_batches(data, epoch=epoch, skip=0, batch_size=IMAGES, bucket=1, seed=0, workers=0)

        kept = [
            collate([data[0, index] for index in range(first, first + IMAGES)]) for first in range(0, count, IMAGES)
        ]
        rounds: dict[str, list[float]] = {"store": [], "memory": []}
        sources: dict[str, Callable[[int], Iterable[Batch]]] = {"store": stored, "memory": lambda epoch: kept}
        for epoch in range(3):
            for where, source in sources.items():
                rounds[where] += list(seconds(source(epoch)))[epoch == 0 :]
        size = store.bytes / count
    best = {where: statistics.mean(sorted(taken)[: len(taken) // 2]) for where, taken in rounds.items()}
    features = f"{REGIONS}x{SIZE} fp16"
    return [
        {
            "name": "train_step_from_store",
            "value": 1000 * best["store"],
            "unit": "milliseconds",
            "against": f"the same step on features in memory, {features}, {IMAGES} images",
            "ratio": best["store"] / best["memory"],
        },
        {
            "name": "store_bytes_per_1000_images",
            "value": 1000 * size / 1e6,
            "unit": f"MB ({size * COCO / 1e9:.0f} GB for the {COCO:,} images of COCO)",
            "against": f"the bare numbers, {features}",
            "ratio": size / (REGIONS * SIZE * 2),
        },
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=64, help="at 224 pixels; a quarter of them at 448")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--only", choices=["extraction", "reading"])
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.manual_seed(0)
    rows = []
    if arguments.only != "reading":
        rows += [extraction(224, arguments.photos), extraction(448, max(BATCH, arguments.photos // 4))]
    if arguments.only != "extraction":
        rows += reading(arguments.steps)
    show(rows, arguments.json)


if __name__ == "__main__":
    main()

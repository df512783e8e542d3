"""How fast a folder of JPEGs becomes captions, against the encoder alone on the same pictures.

    python benchmarks/caption_folder.py [--images 64] [--sizes 224 448] [--repeats 3] [--json]

JPEGs of 500 x 375 with texture, quality 90; ResNet-101 of timm with random weights; Show, Attend and Tell with 512
everywhere, features projected to 512, 9,488 words; five beams, captions of at most 20 words. The same run measures:
  - the encoder alone: the same pictures, read and prepared before, in the same batches. A ratio of 0.8 means that
    reading, resizing, searching and everything else together slow the encoder down to 80% of its own speed;
  - reading alone: opening and preparing the files with one thread, for what there is to overlap.

Folder and encoder are measured in turn, and the medians are compared.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rows import show
from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.decoding import DecodingConfig
from showtell.features import build_encoder, encoder_config
from showtell.images.loading import prepare_photo, stack_photos
from showtell.models.sat import SatConfig, SatDecoder
from showtell.text.vocabulary import SPECIAL, Vocabulary

import numpy as np
import torch
from PIL import Image

WORDS = 9488


def write_photos(folder: Path, images: int, width: int = 500, height: int = 375) -> list[Path]:
    """JPEGs that cost what photos cost: smooth shapes, edges and grain."""
    random = np.random.default_rng(0)
    paths = []
    for number in range(images):
        shapes = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((width, height), 3)
        grain = random.normal(0, 12, (height, width, 1)) + np.asarray(shapes, dtype=float)
        paths.append(folder / f"{number:04}.jpg")
        Image.fromarray(grain.clip(0, 255).astype(np.uint8)).save(paths[-1], quality=90)
    return paths


def make_captioner(size: int) -> Captioner:
    """ResNet-101 and Show, Attend and Tell, with random weights."""
    torch.manual_seed(0)
    encoder = build_encoder(encoder_config({"name": "resnet101", "weights": "random", "image_size": size}))
    vocabulary = Vocabulary([f"word{number}" for number in range(WORDS - len(SPECIAL))])
    decoder = SatDecoder(
        SatConfig(project_features=512), feature_size=encoder.feature_size, vocabulary_size=len(vocabulary)
    )
    return EncoderDecoderCaptioner(
        encoder=encoder.eval(), decoder=decoder.eval(), vocabulary=vocabulary, decoding=DecodingConfig(num_beams=5)
    )


def seconds(work: Callable[[], Any]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(paths: list[Path], size: int, batch_size: int, repeats: int) -> list[dict[str, Any]]:
    """Rows for one size of picture."""
    captioner = make_captioner(size)
    preprocessing = captioner.encoder.preprocessing
    prepared = [prepare_photo(path, preprocessing) for path in paths]
    batches = [stack_photos(prepared[first : first + batch_size]) for first in range(0, len(prepared), batch_size)]

    def folder() -> None:
        for _ in captioner.caption_photos(paths, None, batch_size, first_alone=False):
            pass

    def encoder() -> None:
        for batch in batches:
            captioner.encode(batch)

    def reading() -> None:
        for path in paths:
            prepare_photo(path, preprocessing)

    captioner.caption(paths[:batch_size])  # once, to warm up
    times: dict[str, list[float]] = {"folder": [], "encoder": [], "reading": []}
    for _ in range(repeats):
        for name, work in (("folder", folder), ("encoder", encoder), ("reading", reading)):
            times[name].append(seconds(work))
    speed = {name: len(paths) / statistics.median(values) for name, values in times.items()}
    rows = [
        ("caption_folder", speed["folder"], "the encoder alone on the same pictures, in the same batches"),
        ("read_and_prepare", speed["reading"], "the encoder alone; one thread"),
    ]
    return [
        {
            "name": f"{name}_{size}",
            "value": value,
            "unit": "images per second",
            "against": against,
            "ratio": value / speed["encoder"],
            "batch_size": batch_size,
            "threads": torch.get_num_threads(),
        }
        for name, value, against in rows
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--sizes", type=int, nargs="+", default=[224, 448])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        paths = write_photos(Path(name), arguments.images)
        rows = [
            row for size in arguments.sizes for row in measure(paths, size, arguments.batch_size, arguments.repeats)
        ]
    show(rows, arguments.json)


if __name__ == "__main__":
    main()

"""How fast a folder of JPEGs becomes captions, against the encoder alone on the same pictures.

    python benchmarks/caption_folder.py [--encoders resnet101] [--sizes 224 448] [--precisions fp32 bf16] [--json]

JPEGs of 500 x 375 with texture, quality 90; encoders of timm with random weights; Show, Attend and Tell with 512
everywhere, features projected to 512, 9,488 words; captions of at most 20 words. For each encoder, size and precision
the same run measures, in turn, and compares medians:
  - the encoder alone: the same pictures, read and prepared before, in the same batches. A ratio of 0.8 means that
    reading, resizing, searching and everything else together slow the encoder down to 80% of its own speed;
  - the search alone, on features that were encoded before: its processor time is part of every caption, so that
    encoder and search one after the other are what a folder can reach where both use all cores;
  - reading alone: opening and preparing the files with one thread, for what there is to overlap;
  - the folder: files in, captions out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

from rows import show
from showtell.captioners import EncoderDecoderCaptioner
from showtell.decoding import DecodingConfig
from showtell.features import build_encoder, encoder_config
from showtell.images.loading import prepare_photo
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


def make_captioner(name: str, size: int, precision: str) -> EncoderDecoderCaptioner:
    """An encoder of timm and Show, Attend and Tell, with random weights."""
    torch.manual_seed(0)
    encoder = build_encoder(
        encoder_config({"name": name, "weights": "random", "image_size": size, "precision": precision})
    )
    vocabulary = Vocabulary([f"word{number}" for number in range(WORDS - len(SPECIAL))])
    decoder = SatDecoder(
        SatConfig(project_features=512), feature_size=encoder.feature_size, vocabulary_size=len(vocabulary)
    )
    return EncoderDecoderCaptioner(
        encoder=encoder.eval(), decoder=decoder.eval(), vocabulary=vocabulary, decoding=DecodingConfig()
    )


def seconds(work: Callable[[], Any]) -> float:
    """How long something takes."""
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def measure(
    paths: list[Path], captioner: EncoderDecoderCaptioner, beams: list[int], batch_size: int, repeats: int
) -> Iterator[dict[str, Any]]:
    """Rows of one captioner, without their common name."""
    preprocessing = captioner.encoder.preprocessing
    prepared = [captioner.prepare(path) for path in paths]
    batches = [prepared[first : first + batch_size] for first in range(0, len(prepared), batch_size)]
    encoded = [captioner.encode_prepared(batch) for batch in batches]
    settings = [DecodingConfig(num_beams=count) for count in beams]

    def folder(search: DecodingConfig) -> None:
        for _ in captioner.caption_photos(paths, search, batch_size, first_alone=False):
            pass

    def searching(search: DecodingConfig) -> None:
        for batch in encoded:
            captioner.caption_encoded(batch, search)

    works: dict[str, Callable[[], None]] = {
        "encoder": lambda: [captioner.encode_prepared(batch) for batch in batches],
        "reading": lambda: [prepare_photo(path, preprocessing) for path in paths],
    }
    for count, search in zip(beams, settings, strict=True):
        captioner.caption_encoded(encoded[0], search)  # once, to warm up
        works[f"search_{count}"] = partial(searching, search)
        works[f"folder_{count}"] = partial(folder, search)
    times: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(repeats):
        for name, work in works.items():
            times[name].append(seconds(work))
    median = {name: statistics.median(values) for name, values in times.items()}

    def row(name: str, against: str, *parts: str) -> dict[str, Any]:
        return {
            "name": name,
            "value": len(paths) / median[name],
            "unit": "images/s",
            "against": against,
            "ratio": sum(median[part] for part in parts) / median[name],
            "batch_size": batch_size,
            "threads": torch.get_num_threads(),
        }

    yield row("encoder", "itself", "encoder")
    yield row("reading", "the encoder alone; one thread", "encoder")
    for count in beams:
        yield row(f"search_{count}", "the encoder alone", "encoder")
        yield row(f"folder_{count}", "the encoder alone on the same pictures, in the same batches", "encoder")
        yield row(f"folder_{count}", "encoder and search alone, one after the other", "encoder", f"search_{count}")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--encoders", nargs="+", default=["resnet50", "resnet101", "vit_tiny_patch16_224"])
    parser.add_argument("--sizes", type=int, nargs="+", default=[224, 448])
    parser.add_argument("--precisions", nargs="+", choices=["fp32", "bf16"], default=["fp32", "bf16"])
    parser.add_argument("--beams", type=int, nargs="+", default=[1, 5])
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as name:
        photos = write_photos(Path(name), arguments.images)
        for choice in product(arguments.encoders, arguments.sizes, arguments.precisions):
            encoder, size, precision = choice
            captioner = make_captioner(encoder, size, precision)
            own = [
                {**row, "name": f"{encoder.split('_patch')[0]}_{size}_{precision}_{row['name']}"}
                for row in measure(photos, captioner, arguments.beams, arguments.batch_size, arguments.repeats)
            ]
            rows += own
            if not arguments.json:
                show(own, as_json=False)
                sys.stdout.flush()
    if arguments.json:
        show(rows, as_json=True)


if __name__ == "__main__":
    main()

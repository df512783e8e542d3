"""How fast a folder of JPEGs becomes captions, against the encoder alone on the same pictures.

    python benchmarks/caption_folder.py [--device cuda] [--images 64] [--photo 500 375] [--encoder resnet101]
        [--size 224] [--precision fp32] [--json]

JPEGs with texture, quality 90, the first 64 again and again; an encoder of timm with random weights; Show, Attend and
Tell with 512 everywhere, features projected to 512, 9,488 words; captions of at most 20 words, by greedy search and by
beams of 5. "waited" is the share of the folder's time in which encoder and search had no photos: above a tenth, photos
are what limits. With a GPU take 4,000 images, for processes read them from the 257th on.
Rounds alternate, and medians are compared:
  - the encoder alone: the same pictures, read and prepared before, in the same batches. A ratio of 0.8 means that
    reading, resizing, searching and everything else together slow the encoder down to 80% of its own speed;
  - the search alone, on features that were encoded before: encoder and search one after the other are what a folder
    can reach where both use all cores.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import _threads  # noqa: F401  (first)
from rows import seconds, show
from showtell.captioners import EncoderDecoderCaptioner
from showtell.cores import keep_freed_memory, usable_cores
from showtell.decoding import DecodingConfig
from showtell.features import build_encoder, encoder_config
from showtell.models.sat import SatConfig, SatDecoder
from showtell.text.vocabulary import SPECIAL, Vocabulary

import numpy as np
import torch
from PIL import Image

WORDS, BATCH, ROUNDS = 9488, 32, 3


def write_photos(folder: Path, images: int, width: int, height: int) -> list[Path]:
    """JPEGs that cost what photos cost: smooth shapes, edges and grain."""
    random = np.random.default_rng(0)
    paths = [folder / f"{number:04}.jpg" for number in range(min(images, 64))]
    for path in paths:
        shapes = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((width, height), 3)
        grain = random.normal(0, 12, (height, width, 1)) + np.asarray(shapes, dtype=float)
        Image.fromarray(grain.clip(0, 255).astype(np.uint8)).save(path, quality=90)
    return [paths[number % len(paths)] for number in range(images)]


class Timed(EncoderDecoderCaptioner):
    """A captioner that adds up the time in which it encodes and searches."""

    busy = 0.0

    def encode_prepared(self, photos: Any) -> Any:
        return self._timed(super().encode_prepared, photos)

    def caption_encoded(self, photos: Any, settings: DecodingConfig, **options: Any) -> Any:
        return self._timed(super().caption_encoded, photos, settings, **options)

    def _timed(self, function: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        began = time.perf_counter()
        result = function(*arguments, **options)
        if self.device.type == "cuda":
            torch.cuda.synchronize()
        self.busy += time.perf_counter() - began
        return result


def measure(paths: list[Path], encoder: dict[str, Any], beams: int, device: str) -> dict[str, Any]:
    """A row of one search."""
    torch.manual_seed(0)
    built = build_encoder(encoder_config(encoder)).eval()
    vocabulary = Vocabulary([f"word{number}" for number in range(WORDS - len(SPECIAL))])
    sizes = {"feature_size": built.feature_size, "vocabulary_size": len(vocabulary)}
    decoder = SatDecoder(SatConfig(project_features=512), **sizes).eval()
    search = DecodingConfig(num_beams=beams)
    captioner = Timed(encoder=built, decoder=decoder, vocabulary=vocabulary, decoding=search).to(device)
    shares = []

    def caption_folder() -> None:
        captioner.busy, began = 0.0, time.perf_counter()
        list(captioner.caption_photos(paths, search, BATCH, first_alone=False))
        shares.append(1 - captioner.busy / (time.perf_counter() - began))

    each = {path: captioner.prepare(path) for path in dict.fromkeys(paths)}
    prepared = [each[path] for path in paths]
    batches = [prepared[first : first + BATCH] for first in range(0, len(prepared), BATCH)]
    encoded = [captioner.encode_prepared(batch) for batch in batches]
    encoding, searching, folder = seconds(
        ROUNDS,
        lambda: [captioner.encode_prepared(batch) for batch in batches],
        lambda: [captioner.caption_encoded(batch, search) for batch in encoded],
        caption_folder,
    )
    together = (encoding + searching) / folder
    return {
        "name": f"{encoder['name']}_{encoder['image_size']}_{encoder['precision']}_beams_{beams}",
        "value": len(paths) / folder,
        "unit": "images/s",
        "against": f"the encoder alone in the same batches; {together:.2f} of encoder and search one after the other; "
        f"waited {statistics.median(shares[1:]):.0%}, {usable_cores()} cores, {device}",
        "ratio": encoding / folder,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--photo", type=int, nargs=2, default=(500, 375), metavar=("WIDTH", "HEIGHT"))
    parser.add_argument("--encoder", default="resnet101")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    keep_freed_memory()  # as every command does
    settings = {"name": arguments.encoder, "weights": "random", "image_size": arguments.size}
    with tempfile.TemporaryDirectory() as name:
        photos = write_photos(Path(name), arguments.images, *arguments.photo)
        settings["precision"] = arguments.precision
        rows = [measure(photos, settings, beams, arguments.device) for beams in (1, 5)]
    show(rows, arguments.json)

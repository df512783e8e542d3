"""How fast a folder of JPEGs becomes captions, against the encoder alone on the same pictures.

    python benchmarks/caption_folder.py [--encoder resnet101] [--size 224] [--precision fp32] [--json]

JPEGs of 500 x 375 with texture, quality 90; an encoder of timm with random weights; Show, Attend and Tell with 512
everywhere, features projected to 512, 9,488 words; captions of at most 20 words, by greedy search and by beams of 5.
Rounds alternate, and medians are compared:
  - the encoder alone: the same pictures, read and prepared before, in the same batches. A ratio of 0.8 means that
    reading, resizing, searching and everything else together slow the encoder down to 80% of its own speed;
  - the search alone, on features that were encoded before: encoder and search one after the other are what a folder
    can reach where both use all cores.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

from rows import seconds, show
from showtell.captioners import EncoderDecoderCaptioner
from showtell.decoding import DecodingConfig
from showtell.features import build_encoder, encoder_config
from showtell.models.sat import SatConfig, SatDecoder
from showtell.text.vocabulary import SPECIAL, Vocabulary

import numpy as np
import torch
from PIL import Image

WORDS, BATCH, ROUNDS = 9488, 32, 3


def write_photos(folder: Path, images: int) -> list[Path]:
    """JPEGs that cost what photos cost: smooth shapes, edges and grain."""
    random = np.random.default_rng(0)
    paths = [folder / f"{number:04}.jpg" for number in range(images)]
    for path in paths:
        shapes = Image.fromarray(random.integers(0, 256, (6, 8, 3), dtype=np.uint8)).resize((500, 375), 3)
        grain = random.normal(0, 12, (375, 500, 1)) + np.asarray(shapes, dtype=float)
        Image.fromarray(grain.clip(0, 255).astype(np.uint8)).save(path, quality=90)
    return paths


def measure(paths: list[Path], encoder: dict[str, Any], beams: int) -> dict[str, Any]:
    """A row of one search."""
    torch.manual_seed(0)
    built = build_encoder(encoder_config(encoder)).eval()
    vocabulary = Vocabulary([f"word{number}" for number in range(WORDS - len(SPECIAL))])
    sizes = {"feature_size": built.feature_size, "vocabulary_size": len(vocabulary)}
    decoder = SatDecoder(SatConfig(project_features=512), **sizes).eval()
    search = DecodingConfig(num_beams=beams)
    captioner = EncoderDecoderCaptioner(encoder=built, decoder=decoder, vocabulary=vocabulary, decoding=search)
    prepared = [captioner.prepare(path) for path in paths]
    batches = [prepared[first : first + BATCH] for first in range(0, len(prepared), BATCH)]
    encoded = [captioner.encode_prepared(batch) for batch in batches]
    encoding, searching, folder = seconds(
        ROUNDS,
        lambda: [captioner.encode_prepared(batch) for batch in batches],
        lambda: [captioner.caption_encoded(batch, search) for batch in encoded],
        lambda: list(captioner.caption_photos(paths, search, BATCH, first_alone=False)),
    )
    together = (encoding + searching) / folder
    return {
        "name": f"{encoder['name']}_{encoder['image_size']}_{encoder['precision']}_beams_{beams}",
        "value": len(paths) / folder,
        "unit": "images/s",
        "against": f"the encoder alone in the same batches; {together:.2f} of encoder and search one after the other",
        "ratio": encoding / folder,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--encoder", default="resnet101")
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--precision", choices=["fp32", "bf16"], default="fp32")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    settings = {"name": arguments.encoder, "weights": "random", "image_size": arguments.size}
    with tempfile.TemporaryDirectory() as name:
        photos = write_photos(Path(name), arguments.images)
        rows = [measure(photos, {**settings, "precision": arguments.precision}, beams) for beams in (1, 5)]
    show(rows, arguments.json)

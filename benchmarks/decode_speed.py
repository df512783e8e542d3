"""How fast captions are decoded from stored features: every model, greedy and with 5 beams, in images per second.

    python benchmarks/decode_speed.py [--models sat_soft] [--images 10] [--device cuda] [--repeats 5] [--json]

196 x 2048 features, projected to 512 before attention, everything else 512, 9,488 words, float32. Weights are random,
and captions are forced to 20 words (minimum and maximum), so that what the weights are does not matter.

Ratios: against the plain way (`plain.py`), where it is written for the model; bf16 against fp32; a batch against its
images one by one. Both sides of a ratio are measured in turn, and the medians are compared. Features are random and
encoding them is no part of it; projecting them is.
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import Any

import _threads  # noqa: F401  (first)
import plain
from rows import seconds, show
from showtell.decoding import DecodingConfig, search
from showtell.models import MODELS, Decoder, build_decoder
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.types import Features

import torch
from torch import Tensor

REGIONS, CONTEXT, SIZE, WORDS, LENGTH, BEAMS = 196, 2048, 512, 9488, 20, 5
VOCABULARY = Vocabulary([f"word{number}" for number in range(WORDS - len(SPECIAL))])

# names of rows: what they are, where the name is not that of a model as it comes
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in MODELS if name != "sat"},
    "nic_lstm": {"name": "nic", "cell": "lstm", "image": "input"},
    "sat_soft": {"name": "sat"},
    "transformer": {"name": "transformer", "feed_forward_size": 4 * SIZE},
    # the papers' sizes of what stands beside the worker, which is as wide as the other decoders
    "hacap": {
        "name": "hacap", "goal_size": 6, "goal_embedding_size": 16, "manager_size": 256,
        "discriminator_embedding_size": 128, "discriminator_size": 128,
    },
}  # fmt: skip


def make(kind: str, device: str = "cpu") -> Decoder:
    """A decoder of the benchmark's sizes with random weights."""
    torch.manual_seed(0)
    model = MODELS[KINDS[kind]["name"]][0]
    settings: dict[str, Any] = {field: SIZE for field in model.model_fields if field.endswith("_size")}
    if "project_features" in model.model_fields:
        settings["project_features"] = SIZE
    config = model.model_validate({**settings, **KINDS[kind]})
    return build_decoder(config, feature_size=CONTEXT, vocabulary_size=WORDS).eval().to(device)


def make_features(images: int, dtype: torch.dtype = torch.float32, device: str = "cpu") -> Features:
    """What a ResNet-101 might say: not negative."""
    vectors = torch.randn(images, REGIONS, CONTEXT, generator=torch.Generator().manual_seed(1)).relu()
    return Features(vectors.to(device, dtype), torch.ones(images, REGIONS, dtype=torch.bool, device=device))


def decode(decoder: Decoder, features: Features, beams: int) -> Tensor:
    """The best caption of each image, (B, LENGTH)."""
    config = DecodingConfig(num_beams=beams, min_length=LENGTH, max_length=LENGTH)
    words = search(decoder, features, config, VOCABULARY).words
    if not bool((words[..., :LENGTH] > Vocabulary.end).all()):
        raise RuntimeError(f"Captions of {LENGTH} words were asked for and not all are as long.")
    return words[:, 0, :LENGTH]


def compared(name: str, amount: int, unit: str, took: list[float], other: str) -> dict[str, Any]:
    """A row: the rate of the first time, against that of the second where there is one."""
    ours, theirs = took[0], took[-1]
    against = f"{other}, {amount / theirs:.1f} {unit}" if len(took) > 1 else "nothing"
    return {"name": name, "value": amount / ours, "unit": unit, "against": against, "ratio": theirs / ours}


def rows_of(name: str, images: int, repeats: int, device: str) -> list[dict[str, Any]]:
    """All rows of a model."""
    features, decoder = make_features(images, device=device), make(name, device)
    narrow, narrow_features = make(name, device).bfloat16(), make_features(images, torch.bfloat16, device)
    timed = partial(seconds, repeats, device=device)
    rows = []
    for kind, beams in (("greedy", 1), (f"beam{BEAMS}", BEAMS)):

        def ours(beams: int = beams) -> Tensor:
            return decode(decoder, features, beams)

        def theirs(beams: int = beams) -> Tensor:
            slow = plain.PLAIN[name](decoder)
            return plain.greedy(slow, features, LENGTH) if beams == 1 else plain.beam(slow, features, LENGTH, beams)

        runs = [ours]
        if name in plain.PLAIN:
            runs.append(theirs)
            same = (ours() == theirs()).double().mean().item()
            sys.stderr.write(f"{name}_{kind}: {same:.1%} of the words are the plain way's\n")
        rows.append(compared(f"{name}_{kind}", images, "images/s", timed(*runs), "the plain way"))
        wide, bf16 = timed(ours, partial(decode, narrow, narrow_features, beams))
        rows.append(compared(f"{name}_{kind}_bf16", images, "images/s", [bf16, wide], "fp32"))
    alone = make_features(1, device=device)
    one, many = timed(lambda: decode(decoder, alone, BEAMS), lambda: decode(decoder, features, BEAMS))
    rows.append(compared(f"{name}_beam{BEAMS}_of_{images}", images, "images/s", [many, images * one], "one by one"))
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    how = arguments.images, arguments.repeats, arguments.device
    show([row for name in arguments.models for row in rows_of(name, *how)], arguments.json)


if __name__ == "__main__":
    main()

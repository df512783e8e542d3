"""How fast captions are decoded from stored features: every model, greedy and with 5 beams, in images per second.

    python benchmarks/decode_speed.py [--models sat_soft] [--images 10] [--repeats 5] [--threads 2] [--json]

196 x 2048 features, projected to 512 before attention, everything else 512, 9,488 words, float32. Weights are random,
and captions are forced to 20 words (minimum and maximum), so that what the weights are does not matter.

Ratios:
  - against the plain way (`plain.py`), where it is written for the model: images per second over the plain's;
  - against the limit: the matrix products, tanh and sigmoid that the very same decoding calls, called again with the
    same operands and nothing between them. 0.8 means that all else (softmax, search, state, Python) takes a fifth;
  - HACap's time against that of Up-Down (their `_beside_` rows: 2 is twice as slow);
  - against a batch of one image: what an image costs as the batch grows;
  - bf16 and features of 2048 that are attended to as they are (papers/003), against the row in fp32 with 512.

Both sides of a ratio are measured in turn, and the medians are compared. Features are random and encoding them is no
part of it; projecting them is.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

import plain
from rows import show
from showtell.decoding import DecodingConfig, search
from showtell.models import MODELS, Decoder, build_decoder
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.types import Features

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

REGIONS, CONTEXT, SIZE, WORDS, LENGTH, BEAMS = 196, 2048, 512, 9488, 20, 5
VOCABULARY = Vocabulary([f"word{number}" for number in range(WORDS - len(SPECIAL))])
BATCHES = (1, 2, 5, 10, 20, 50)

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
BESIDE = {"hacap": "updown"}  # models that are held against another one


def make(kind: str, *, project: bool = True) -> Decoder:
    """A decoder of the benchmark's sizes with random weights."""
    torch.manual_seed(0)
    model = MODELS[KINDS[kind]["name"]][0]
    settings: dict[str, Any] = {field: SIZE for field in model.model_fields if field.endswith("_size")}
    if "project_features" in model.model_fields:
        settings["project_features"] = SIZE if project else None
    config = model.model_validate({**settings, **KINDS[kind]})
    return build_decoder(config, feature_size=CONTEXT, vocabulary_size=WORDS).eval()


def make_features(images: int, dtype: torch.dtype = torch.float32) -> Features:
    """What a ResNet-101 might say: not negative."""
    vectors = torch.randn(images, REGIONS, CONTEXT, generator=torch.Generator().manual_seed(1)).relu()
    return Features(vectors.to(dtype), torch.ones(images, REGIONS, dtype=torch.bool))


def decode(decoder: Decoder, features: Features, beams: int) -> Tensor:
    """The best caption of each image, (B, LENGTH)."""
    config = DecodingConfig(num_beams=beams, min_length=LENGTH, max_length=LENGTH)
    words = search(decoder, features, config, VOCABULARY).words
    if not bool((words[..., :LENGTH] > Vocabulary.end).all()):
        raise RuntimeError(f"Captions of {LENGTH} words were asked for and not all are as long.")
    return words[:, 0, :LENGTH]


class Recorder(TorchDispatchMode):
    """Keeps the calls of matrix products, tanh and sigmoid, to call them again without anything between them."""

    KEPT = ("mm", "mv", "linear", "tanh", "sigmoid")

    def __init__(self) -> None:
        super().__init__()
        self._calls: list[tuple[Any, Any, Any]] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = str(function).split(".")[1]
        if any(part in name for part in self.KEPT) and "reorder" not in name:
            self._calls.append((function, args, kwargs or {}))
        return function(*args, **(kwargs or {}))

    @torch.no_grad()
    def again(self) -> None:
        """All calls, with the same operands, in the same order."""
        for function, args, kwargs in self._calls:
            function(*args, **kwargs)


def products(decoder: Decoder, features: Features, beams: int) -> Callable[[], None]:
    """The products of a decoding."""
    decode(decoder, features, beams)  # weights are packed now
    with Recorder() as recorder:
        decode(decoder, features, beams)
    return recorder.again


def seconds(repeats: int, *runs: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> list[float]:
    """The median time of each run, measured in turn after one unmeasured round."""
    for run in runs:
        run()
    took: list[list[float]] = [[] for _ in runs]
    for _ in range(repeats):
        for times, run in zip(took, runs, strict=True):
            began = clock()
            run()
            times.append(clock() - began)
    return [statistics.median(times) for times in took]


def agreement(one: Tensor, other: Tensor) -> float:
    """The share of equal words."""
    return (one == other).double().mean().item()


def rows_of(name: str, images: int, repeats: int) -> list[dict[str, Any]]:
    """All rows of a model."""
    features, decoder = make_features(images), make(name)
    about = {"images": images, "features": f"{REGIONS}x{CONTEXT}", "size": SIZE, "words": WORDS, "length": LENGTH}
    rows: list[dict[str, Any]] = []

    def row(end: str, value: float, unit: str, against: str, ratio: float, **more: Any) -> None:
        settings = {**about, "dtype": "fp32", **more}
        rows.append({"name": name + end, "value": value, "unit": unit, "against": against, "ratio": ratio} | settings)

    for kind, beams in (("_greedy", 1), (f"_beam{BEAMS}", BEAMS)):
        runs: list[Callable[[], Any]] = [
            lambda beams=beams: decode(decoder, features, beams),
            products(decoder, features, beams),
        ]
        if name in plain.PLAIN:
            slow = plain.PLAIN[name](decoder)
            runs.append(
                (lambda slow=slow: plain.greedy(slow, features, LENGTH))
                if beams == 1
                else (lambda slow=slow: plain.beam(slow, features, LENGTH, BEAMS))
            )
            equal = agreement(runs[0](), runs[2]())
            sys.stderr.write(f"{name}{kind}: {equal:.1%} of the words are those of the plain way\n")
        ours, limit, *theirs = seconds(repeats, *runs)
        reached = (f"its own matrix products, tanh and sigmoid alone, {images / limit:.1f} images/s", limit / ours)
        if theirs:
            row(kind, images / ours, "images/s", f"the plain way, {images / theirs[0]:.1f} images/s", theirs[0] / ours)
        else:
            row(kind, images / ours, "images/s", *reached)
        row(f"{kind}_of_limit", 100 * limit / ours, "%", *reached)
        if name in BESIDE:
            other = make(BESIDE[name])
            ours, theirs = seconds(repeats, runs[0], lambda beams=beams, d=other: decode(d, features, beams))
            against = f"{BESIDE[name]}{kind}, {1000 * theirs / images:.1f} ms/image"
            row(f"{kind}_beside_{BESIDE[name]}", 1000 * ours / images, "ms/image", against, ours / theirs)

        narrow, narrow_features = make(name).bfloat16(), make_features(images, torch.bfloat16)
        wide = make(name, project=False)
        ours, bf16, raw = seconds(
            repeats,
            runs[0],
            lambda beams=beams, d=narrow, f=narrow_features: decode(d, f, beams),
            lambda beams=beams, d=wide: decode(d, features, beams),
        )
        against = f"{name}{kind}, {images / ours:.1f} images/s"
        row(f"{kind}_bf16", images / bf16, "images/s", against, ours / bf16, dtype="bf16")
        if "project_features" in type(decoder.config).model_fields:
            row(f"{kind}_raw{CONTEXT}", images / raw, "images/s", against, ours / raw)

    batches = [make_features(batch) for batch in BATCHES]
    took = seconds(repeats, *[lambda f=f: decode(decoder, f, BEAMS) for f in batches])
    for batch, whole in zip(BATCHES, took, strict=True):
        each = whole / batch
        against = f"a batch of one, {1000 * took[0]:.1f} ms"
        row(f"_beam{BEAMS}_batch{batch}", 1000 * each, "ms/image", against, each / took[0], images=batch)
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [row for name in arguments.models for row in rows_of(name, arguments.images, arguments.repeats)]
    show(rows, arguments.json)


if __name__ == "__main__":
    main()

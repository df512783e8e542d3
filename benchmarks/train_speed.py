"""How fast decoders train on stored features: steps with Adam, in captions or, self-critical, images per second.

    python benchmarks/train_speed.py [--models sat_soft] [--steps self_critical] [--images 10] [--device cuda] [--json]

Images (10) x 5 captions x 17 words, 196 x 2048 features projected to 512 before attention, everything else 512, 9,488
words, float32, dropout as the model has it. A step is the forward pass, the loss, the backward pass and Adam.

The ratio is against the plain step (`plain.py`), where it is written for the model: both measured in turn, medians
compared. Without dropout the gradients of both are compared first.

A self-critical step draws 5 captions of at most 20 words for each image (with random weights nearly all have
20), takes the greedy one, rewards them with CIDEr-D against 5 references of each of 1,000 images, and goes the way
back. The plain one draws in train mode with the log-probabilities of all words kept, walks again for the greedy
captions, and scores them by coco-caption's CIDEr-D, in Python (`pip install pycocoevalcap`). The second row is the
share of the step that the reward takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from typing import Any

import _threads  # noqa: F401  (first)
import plain
from decode_speed import CONTEXT, KINDS, REGIONS, WORDS, compared, make, make_features
from rows import seconds, show
from showtell.counter_rng import CounterRNG
from showtell.decoding.policy import rollouts
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.models import Decoder
from showtell.objectives import Objective
from showtell.objectives.contract import counts_of
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.objectives.self_critical import SelfCritical, SelfCriticalConfig
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.training.step import TrainingModel, TrainingStep
from showtell.types import Batch

import torch
from accelerate import Accelerator
from torch import Tensor
from torch.nn import functional as F

CAPTIONS, LENGTH = 5, 17
SAMPLES, LIMIT, REWARDED = 5, 20, 1000  # self-critical: of each image, words at most, images with references


class Work:
    """So many images with their features and captions, on a device."""

    def __init__(self, images: int, device: str) -> None:
        generator = torch.Generator().manual_seed(2)
        words = torch.randint(len(SPECIAL), WORDS, (images, CAPTIONS, LENGTH + 1), generator=generator)
        words[..., 0], words[..., -1] = Vocabulary.begin, Vocabulary.end
        self.images, self.device, self.features = images, device, make_features(images, device=device)
        is_caption = torch.ones(images, CAPTIONS, dtype=torch.bool)
        batch = Batch(tuple(map(str, range(images))), None, words, is_caption, self.features).to(torch.device(device))
        self.batch = replace(batch, counts=counts_of(batch))


def our_step(decoder: Decoder, objective: Objective, work: Work) -> Callable[[], None]:
    """A step of the training loop: forward and backward pass, on a GPU as a graph, and the optimiser."""
    features = PrecomputedConfig(feature_size=CONTEXT, source="random numbers")
    model = TrainingModel(Precomputed(features), decoder, objective.to(work.device))
    step = TrainingStep(model, Accelerator(cpu=work.device == "cpu"), rounds_products=False)
    adam = torch.optim.Adam(decoder.parameters(), lr=5e-4, fused=True)
    numbers = count()

    def run() -> None:
        step(work.batch, CounterRNG(0, next(numbers), work.batch.image_ids))
        adam.step()
        adam.zero_grad()

    return run


def plain_step(decoder: Decoder, loss: Callable[[], Tensor]) -> Callable[[], None]:
    """A step as everybody writes it."""
    adam = torch.optim.Adam(decoder.parameters(), lr=5e-4)

    def run() -> None:
        adam.zero_grad()
        loss().backward()
        adam.step()

    return run


def difference(decoder: Decoder, one: Callable[[], Tensor], other: Callable[[], Tensor]) -> float:
    """The largest distance of two gradients of a weight, as a share of the weight's gradient; without dropout."""
    decoder.eval()
    every = [torch.autograd.grad(loss(), list(decoder.parameters()), allow_unused=True) for loss in (one, other)]
    pairs = [(a, b) for a, b in zip(*every, strict=True) if a is not None and b is not None and b.norm() > 1e-6]
    decoder.train()
    return max(((a - b).norm() / b.norm()).item() for a, b in pairs)


def rows_of(name: str, repeats: int, work: Work) -> list[dict[str, Any]]:
    """The rate of training with cross-entropy, against the plain step."""
    decoder = make(name, work.device).train()
    objective = CrossEntropy(CrossEntropyConfig(), feature_size=CONTEXT, vocabulary_size=WORDS)
    runs = [our_step(decoder, objective, work)]
    if name in plain.PLAIN:

        def ours() -> Tensor:
            return objective(work.batch, work.features, decoder).total

        def theirs() -> Tensor:
            logprobs = plain.teacher_forced(plain.PLAIN[name](decoder), work.features, work.batch.inputs)
            return F.nll_loss(logprobs.flatten(0, 2), work.batch.targets.flatten())

        worst = difference(decoder, ours, theirs)
        sys.stderr.write(f"{name}: gradients differ from those of the plain step by {worst:.1e} at most\n")
        runs.append(plain_step(decoder, theirs))
    took = seconds(repeats, *runs, device=work.device)
    return [compared(name, work.images * CAPTIONS, "captions/s", took, "the plain step")]


# ---- self-critical


def references() -> dict[str, list[list[int]]]:
    """Captions as long as real ones, their words by chance, frequent ones more often."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.randint(8, 14, (REWARDED, CAPTIONS), generator=generator).tolist()
    ranks = torch.rand(REWARDED, CAPTIONS, max(map(max, lengths)), generator=generator)
    words = (len(SPECIAL) + (WORDS - len(SPECIAL)) * ranks**4).long().tolist()
    return {
        str(image): [[Vocabulary.begin, *words[image][n][: lengths[image][n]], Vocabulary.end] for n in range(CAPTIONS)]
        for image in range(REWARDED)
    }


def python_reward(captions: dict[str, list[list[int]]]) -> plain.Rewarded:
    """CIDEr-D by coco-caption, from text, with the document frequencies given."""
    from pycocoevalcap.cider.cider_scorer import CiderScorer

    texts = [[" ".join(map(str, words[1:])) for words in own] for own in captions.values()]
    every = CiderScorer()
    for own in texts:
        every += (own[0], own)
    every.compute_doc_freq()

    def reward(sampled: list[list[int]], images: list[int]) -> list[float]:
        scorer = CiderScorer()
        for words, image in zip(sampled, images, strict=True):
            scorer += (" ".join(map(str, words)), texts[image])
        scorer.document_frequency = every.document_frequency
        return [float(score) for score in scorer.compute_cider()]

    return reward


def self_critical_rows(name: str, repeats: int, work: Work) -> list[dict[str, Any]]:
    """The rate of self-critical training of a model that has a plain form, and the share of the reward in a step."""
    decoder = make(name, work.device).train()
    captions = references()
    objective = SelfCritical(SelfCriticalConfig(samples=SAMPLES), feature_size=REGIONS, vocabulary_size=WORDS)
    objective.prepare(captions, LIMIT)
    in_python = python_reward(captions)
    drawn = rollouts(decoder.eval(), work.features, LIMIT, SAMPLES).captions
    decoder.train()

    def plain_loss() -> Tensor:
        return plain.self_critical(plain.PLAIN[name](decoder), work.features, SAMPLES, LIMIT, in_python)

    def reward() -> None:
        assert objective.reward is not None
        objective.reward(drawn.words, drawn.is_word, work.batch.image_ids)

    runs = our_step(decoder, objective, work), plain_step(decoder, plain_loss), reward
    ours, theirs, rewarding = seconds(repeats, *runs, device=work.device)
    kind = f"{name}_self_critical"
    share = {"name": f"{kind}_reward", "value": 100 * rewarding / ours, "unit": "%", "against": "its step"}
    took = [ours, theirs]
    return [compared(kind, work.images, "images/s", took, "the plain step"), share | {"ratio": rewarding / ours}]


STEPS = {"cross_entropy": rows_of, "self_critical": self_critical_rows}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--steps", nargs="+", choices=sorted(STEPS), default=sorted(STEPS))
    parser.add_argument("--images", type=int, default=10)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    work = Work(arguments.images, arguments.device)
    rows = [
        row
        for name in arguments.models
        for kind in arguments.steps
        if kind == "cross_entropy" or name in plain.PLAIN
        for row in STEPS[kind](name, arguments.repeats, work)
    ]
    show(rows, arguments.json)


if __name__ == "__main__":
    main()

"""How fast decoders train on stored features: steps with Adam, in captions or, self-critical, images per second.

    python benchmarks/train_speed.py [--models sat_soft] [--steps self_critical] [--repeats 5] [--threads 2] [--json]

10 images x 5 captions x 17 words, 196 x 2048 features projected to 512 before attention, everything else 512, 9,488
words, float32, dropout as the model has it. A step is the forward pass, the loss, the backward pass and Adam.

The ratio is against the plain step (`plain.py`), where it is written for the model: both measured in turn, medians
compared. Without dropout the gradients of both are compared first.

A self-critical step draws 5 captions of at most 20 words for each of 10 images (with random weights nearly all have
20), takes the greedy one, rewards them with CIDEr-D against 5 references of each of 1,000 images, and goes the way
back. The plain one draws in train mode with the log-probabilities of all words kept, walks again for the greedy
captions, and scores them by coco-caption's CIDEr-D, in Python (`pip install pycocoevalcap`). The second row is the
share of the step that the reward takes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import plain
from decode_speed import KINDS, REGIONS, WORDS, compared, make, make_features
from rows import seconds, show
from showtell import counter_rng
from showtell.decoding.policy import rollouts
from showtell.models import Decoder
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.objectives.self_critical import SelfCritical, SelfCriticalConfig
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.types import Batch

import torch
from torch import Tensor
from torch.nn import functional as F

IMAGES, CAPTIONS, LENGTH = 10, 5, 17
SAMPLES, LIMIT, REWARDED = 5, 20, 1000  # self-critical: of each image, words at most, images with references

FEATURES = make_features(IMAGES)


def make_batch() -> Batch:
    """Captions of words by chance, all of the same length."""
    generator = torch.Generator().manual_seed(2)
    words = torch.randint(len(SPECIAL), WORDS, (IMAGES, CAPTIONS, LENGTH + 1), generator=generator)
    words[..., 0], words[..., -1] = Vocabulary.begin, Vocabulary.end
    pictures = torch.zeros(IMAGES, 3, 1, 1, dtype=torch.uint8)
    return Batch(tuple(map(str, range(IMAGES))), pictures, words, torch.ones(IMAGES, CAPTIONS, dtype=torch.bool))


BATCH = make_batch()


def our_loss(decoder: Decoder) -> Tensor:
    """The cross-entropy of the batch."""
    objective = CrossEntropy(CrossEntropyConfig(), feature_size=FEATURES.vectors.shape[-1], vocabulary_size=WORDS)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, BATCH.image_ids)):  # as the training loop does
        return objective(BATCH, FEATURES, decoder).total


def plain_loss(name: str, decoder: Decoder) -> Tensor:
    """The same by the plain step."""
    logprobs = plain.teacher_forced(plain.PLAIN[name](decoder), FEATURES, BATCH.inputs)
    return F.nll_loss(logprobs.flatten(0, 2), BATCH.targets.flatten())


def step_of(decoder: Decoder, loss: Callable[[], Tensor], **settings: bool) -> Callable[[], None]:
    """A step of training."""
    adam = torch.optim.Adam(decoder.parameters(), lr=5e-4, **settings)

    def step() -> None:
        adam.zero_grad()
        loss().backward()
        adam.step()

    return step


def gradients(decoder: Decoder, loss: Callable[[], Tensor]) -> list[Tensor]:
    """The gradients of all weights that have one."""
    grads = torch.autograd.grad(loss(), list(decoder.parameters()), allow_unused=True)
    return [gradient for gradient in grads if gradient is not None]


def difference(decoder: Decoder, one: Callable[[], Tensor], other: Callable[[], Tensor]) -> float:
    """The largest distance of two gradients of a weight, as a share of the weight's gradient."""
    decoder.eval()
    pairs = zip(gradients(decoder, one), gradients(decoder, other), strict=True)
    worst = max(((a - b).norm() / b.norm()).item() for a, b in pairs if b.norm() > 1e-6)
    decoder.train()
    return worst


def rows_of(name: str, repeats: int) -> list[dict[str, Any]]:
    """The rate of training with cross-entropy, against the plain step."""
    decoder = make(name).train()

    def ours() -> Tensor:
        return our_loss(decoder)

    runs = [step_of(decoder, ours, fused=True)]
    if name in plain.PLAIN:

        def theirs() -> Tensor:
            return plain_loss(name, decoder)

        worst = difference(decoder, ours, theirs)
        sys.stderr.write(f"{name}: gradients differ from those of the plain step by {worst:.1e} at most\n")
        runs.append(step_of(decoder, theirs))
    return [compared(name, IMAGES * CAPTIONS, "captions/s", seconds(repeats, *runs), "the plain step")]


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


def self_critical_rows(name: str, repeats: int) -> list[dict[str, Any]]:
    """The rate of self-critical training of a model that has a plain form, and the share of the reward in a step."""
    decoder = make(name).train()
    captions = references()
    objective = SelfCritical(SelfCriticalConfig(samples=SAMPLES), feature_size=REGIONS, vocabulary_size=WORDS)
    objective.prepare(captions, LIMIT)
    in_python = python_reward(captions)
    drawn = rollouts(decoder.eval(), FEATURES, LIMIT, SAMPLES).captions
    decoder.train()

    def plain_loss() -> Tensor:
        return plain.self_critical(plain.PLAIN[name](decoder), FEATURES, SAMPLES, LIMIT, in_python)

    def reward() -> None:
        assert objective.reward is not None
        objective.reward(drawn.words, drawn.is_word, BATCH.image_ids)

    step = step_of(decoder, lambda: objective(BATCH, FEATURES, decoder).total, fused=True)
    ours, theirs, rewarding = seconds(repeats, step, step_of(decoder, plain_loss), reward)
    kind = f"{name}_self_critical"
    share = {"name": f"{kind}_reward", "value": 100 * rewarding / ours, "unit": "%", "against": "its step"}
    return [compared(kind, IMAGES, "images/s", [ours, theirs], "the plain step"), share | {"ratio": rewarding / ours}]


STEPS = {"cross_entropy": rows_of, "self_critical": self_critical_rows}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(KINDS), default=sorted(KINDS))
    parser.add_argument("--steps", nargs="+", choices=sorted(STEPS), default=sorted(STEPS))
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    rows = [
        row
        for name in arguments.models
        for kind in arguments.steps
        if kind == "cross_entropy" or name in plain.PLAIN
        for row in STEPS[kind](name, arguments.repeats)
    ]
    show(rows, arguments.json)


if __name__ == "__main__":
    main()

"""How fast decoders train on stored features: steps with Adam, in captions or, self-critical, images per second.

    python benchmarks/train_speed.py [--models sat_soft] [--steps self_critical] [--repeats 5] [--threads 2] [--json]

10 images x 5 captions x 17 words, 196 x 2048 features projected to 512 before attention, everything else 512, 9,488
words, float32, dropout as the model has it. A step is the forward pass, the loss, the backward pass and Adam.

Ratios, both sides measured in turn, medians compared:
  - against the plain step (`plain.py`), where it is written for the model. Without dropout the gradients of both are
    compared first;
  - against the limit: the matrix products, tanh and sigmoid of the very same step, called again with the same operands
    and nothing between them;
  - the bytes that the forward pass keeps for the backward pass, against those of the plain step.

A self-critical step draws 5 captions of at most 20 words for each of 10 images (with random weights nearly all have
20), takes the greedy one, rewards them with CIDEr-D against 5 references of each of 1,000 images, and goes the way
back. The plain one draws in train mode with the log-probabilities of all words kept, walks again for the greedy
captions, and scores them by coco-caption's CIDEr-D, in Python (`pip install pycocoevalcap`). The other ratios: against
feeding the samples again for their gradients, as a step of its own; the share of the step that the reward takes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from typing import Any

import plain
from decode_speed import KINDS, REGIONS, SIZE, WORDS, Recorder, make, make_features, seconds
from showtell import counter_rng
from showtell.decoding import teacher_forced
from showtell.decoding.policy import rollouts
from showtell.models import Decoder
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.objectives.self_critical import SelfCritical, SelfCriticalConfig, eval_mode
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


def kept_bytes(decoder: Decoder, loss: Callable[[], Tensor]) -> int:
    """Bytes that the forward pass keeps for the backward pass, weights and features aside."""
    known = {x.untyped_storage().data_ptr() for x in (*decoder.parameters(), FEATURES.vectors)}
    sizes: dict[int, int] = {}

    def keep(x: Tensor) -> Tensor:
        storage = x.untyped_storage()
        if storage.data_ptr() not in known:
            sizes[storage.data_ptr()] = storage.nbytes()
        return x

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda x: x):
        result = loss()
        kept = sum(sizes.values())
    del result
    return kept


def products(step: Callable[[], None]) -> Callable[[], None]:
    """The products of a step, to be called again without anything between them."""
    with Recorder() as recorder:
        step()
    return recorder.again


def rows_of(name: str, repeats: int) -> list[dict[str, Any]]:
    """All rows of a model."""
    decoder = make(name).train()
    about = {"images": IMAGES, "captions": CAPTIONS, "length": LENGTH, "features": f"{REGIONS}x2048", "size": SIZE}
    rows: list[dict[str, Any]] = []

    def row(end: str, value: float, unit: str, against: str, ratio: float) -> None:
        rows.append({"name": name + end, "value": value, "unit": unit, "against": against, "ratio": ratio} | about)
        rows[-1] |= {"words": WORDS, "dtype": "fp32"}

    captions = IMAGES * CAPTIONS
    ours_loss = lambda: our_loss(decoder)  # noqa: E731
    step = step_of(decoder, ours_loss, fused=True)
    runs = [step, products(step)]
    if name in plain.PLAIN:
        theirs_loss = lambda: plain_loss(name, decoder)  # noqa: E731
        worst = difference(decoder, ours_loss, theirs_loss)
        sys.stderr.write(f"{name}: gradients differ from those of the plain step by {worst:.1e} at most\n")
        runs.append(step_of(decoder, theirs_loss))
    ours, limit, *theirs = seconds(repeats, *runs)
    reached = (f"its own matrix products, tanh and sigmoid alone, {captions / limit:.1f} captions/s", limit / ours)
    if theirs:
        against = f"the plain step, {captions / theirs[0]:.1f} captions/s"
        row("", captions / ours, "captions/s", against, theirs[0] / ours)
        kept, plainly = kept_bytes(decoder, ours_loss), kept_bytes(decoder, theirs_loss)
        row("_kept", kept / 1e6, "MB", f"the plain step, {plainly / 1e6:.0f} MB", kept / plainly)
    else:
        row("", captions / ours, "captions/s", *reached)
    row("_of_limit", 100 * limit / ours, "%", *reached)
    return rows


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


def fed_again(objective: SelfCritical, decoder: Decoder) -> Tensor:
    """A self-critical loss whose samples are drawn without gradients and fed to the decoder again for them."""
    assert objective.reward is not None
    with eval_mode(decoder):
        with torch.no_grad():
            captions = rollouts(decoder, FEATURES, LIMIT, SAMPLES).captions
        words = captions.words[:, :-1]
        begin = torch.full_like(words[..., :1], Vocabulary.begin)
        logits = teacher_forced(decoder, FEATURES, torch.cat([begin, words[..., :-1]], -1)).logits
    rewards = objective.reward(captions.words, captions.is_word, BATCH.image_ids).float()
    advantage = (rewards[:, :-1] - rewards[:, -1:]).unsqueeze(-1).expand(words.shape)
    losses = F.cross_entropy(logits.flatten(0, 2), words.flatten(), ignore_index=Vocabulary.pad, reduction="none")
    return (losses * advantage.flatten()).sum() / (IMAGES * SAMPLES)


def self_critical_rows(name: str, repeats: int) -> list[dict[str, Any]]:
    """All rows of a model that has a plain form."""
    decoder = make(name).train()
    captions = references()
    objective = SelfCritical(SelfCriticalConfig(samples=SAMPLES), feature_size=REGIONS, vocabulary_size=WORDS)
    objective.prepare(captions, LIMIT)
    in_python = python_reward(captions)
    assert objective.reward is not None
    drawn = rollouts(decoder.eval(), FEATURES, LIMIT, SAMPLES).captions
    decoder.train()

    def plain_loss() -> Tensor:
        return plain.self_critical(plain.PLAIN[name](decoder), FEATURES, SAMPLES, LIMIT, in_python)

    step = step_of(decoder, lambda: objective(BATCH, FEATURES, decoder).total, fused=True)
    ours, theirs, again, reward, limit = seconds(
        repeats,
        step,
        step_of(decoder, plain_loss),
        step_of(decoder, lambda: fed_again(objective, decoder), fused=True),
        lambda: objective.reward(drawn.words, drawn.is_word, BATCH.image_ids),
        products(step),
    )
    about = {"images": IMAGES, "samples": SAMPLES, "length": LIMIT, "features": f"{REGIONS}x2048", "size": SIZE}
    about |= {"words": WORDS, "dtype": "fp32"}
    rows = [
        ("", IMAGES / ours, "images/s", f"the plain step, {IMAGES / theirs:.1f} images/s", theirs / ours),
        ("_kept_walk", IMAGES / ours, "images/s", f"samples fed again, {IMAGES / again:.1f} images/s", again / ours),
        ("_reward", 100 * reward / ours, "%", "its step", reward / ours),
        ("_of_limit", 100 * limit / ours, "%", f"its own products alone, {IMAGES / limit:.1f} images/s", limit / ours),
    ]
    return [
        {"name": f"{name}_self_critical{end}", "value": value, "unit": unit, "against": against, "ratio": ratio} | about
        for end, value, unit, against, ratio in rows
    ]


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
    if arguments.json:
        print(json.dumps(rows))
        return
    for row in rows:
        print(f"{row['name']:36} {row['value']:8.2f} {row['unit']:11} {row['ratio']:6.2f} x {row['against']}")


if __name__ == "__main__":
    main()

"""How much memory training and captioning take: every model, each in a process of its own, in megabytes at most.

    python benchmarks/memory.py [--models sat_soft] [--work cross_entropy beam] [--json]

The work of `train_speed.py` and `decode_speed.py`: 10 images of 196 x 2048 features (16 MB), 512 for all sizes, 9,488
words, float32. Training is three steps with Adam: cross-entropy over 5 captions of 17 words of each image, or
self-critical over 5 samples of 20 words. Captioning is greedy, or with 5 beams, 20 words.

A row is the most that the process held at once since torch and showtell were loaded (VmHWM of Linux, reset then). The
ratio is to what cannot be left out: the features and the weights, and in training their gradients and the optimiser's
two numbers for each. What is above 1 are activations, weights packed for the processor, and what the allocator keeps.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import decode_speed
from rows import show
from showtell.models import Decoder

STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
STEPS = 3


def status(name: str) -> float:
    """A line of the process's status, in megabytes."""
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(f"{name}:"))
    return int(line.split()[1]) * 1024 / 1e6


def training(decoder: Decoder, *, self_critical: bool) -> Callable[[], None]:
    """A step of training."""
    import train_speed

    if not self_critical:
        return train_speed.step_of(decoder, lambda: train_speed.our_loss(decoder), fused=True)
    settings = train_speed.SelfCriticalConfig(samples=train_speed.SAMPLES)
    objective = train_speed.SelfCritical(
        settings, feature_size=decode_speed.CONTEXT, vocabulary_size=decode_speed.WORDS
    )
    objective.prepare(train_speed.references(), train_speed.LIMIT)
    return train_speed.step_of(
        decoder, lambda: objective(train_speed.BATCH, train_speed.FEATURES, decoder).total, fused=True
    )


def captioning(decoder: Decoder, beams: int) -> Callable[[], None]:
    """A batch captioned."""
    features = decode_speed.make_features(10)

    def run() -> None:
        decode_speed.decode(decoder, features, beams)

    return run


WORK: dict[str, Callable[[Decoder], Callable[[], None]]] = {
    "cross_entropy": lambda decoder: training(decoder.train(), self_critical=False),
    "self_critical": lambda decoder: training(decoder.train(), self_critical=True),
    "greedy": lambda decoder: captioning(decoder, 1),
    "beam": lambda decoder: captioning(decoder, decode_speed.BEAMS),
}


def measure(model: str, work: str) -> dict[str, float]:
    """The memory of a model's work in this process, and the least that it could take, in megabytes."""
    CLEAR.write_text("5")  # VmHWM starts anew
    before = status("VmRSS")
    decoder = decode_speed.make(model)
    run = WORK[work](decoder)
    for _ in range(STEPS):
        run()
    weights = sum(weight.nbytes for weight in decoder.parameters()) / 1e6
    features = 10 * decode_speed.REGIONS * decode_speed.CONTEXT * 4 / 1e6
    copies = 4 if work in ("cross_entropy", "self_critical") else 1  # weights, gradients, two of Adam's
    return {"peak": status("VmHWM") - before, "weights": weights, "least": copies * weights + features}


def row_of(model: str, work: str) -> dict[str, object]:
    """A row, measured in a process of its own."""
    done = subprocess.run([sys.executable, __file__, "--measure", model, work], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{model}, {work}: {done.stderr}")
    measured = json.loads(done.stdout)
    copies = "weights, gradients, Adam" if work in ("cross_entropy", "self_critical") else "weights"
    return {
        "name": f"{model}_{work}", "value": measured["peak"], "unit": "MB",
        "against": f"{copies} and features, {measured['least']:.0f} MB", "ratio": measured["peak"] / measured["least"],
        "weights": measured["weights"],
    }  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", choices=sorted(decode_speed.KINDS), default=sorted(decode_speed.KINDS))
    parser.add_argument("--work", nargs="+", choices=list(WORK), default=list(WORK))
    parser.add_argument("--measure", nargs=2, metavar=("MODEL", "WORK"), help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    if arguments.measure:
        print(json.dumps(measure(*arguments.measure)))
        return
    # Samples for a reward are of one stage.
    pairs = [(model, work) for model in arguments.models for work in arguments.work]
    show([row_of(model, work) for model, work in pairs if (model, work) != ("stack", "self_critical")], arguments.json)


if __name__ == "__main__":
    main()

"""What a run of each recipe for COCO carries: weights, memory that they need, gradients on the network.

    python benchmarks/cost_model.py [--docs docs/training_cost.md] [--json]

Nothing is timed: the weights of the decoders that recipes build, with 10,000 words, are counted, and the rest is the
arithmetic of docs/training_cost.md, which `benchmarks/scaling.py` holds against real steps. In JSON the ratio is what a
process sends with so many processes over what it sends with two.
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple

from documents import markers_of, publish, table
from showtell.features import build_encoder
from showtell.models import build_decoder
from showtell.recipes import FOLDER
from showtell.training import Recipe, load_recipe

import torch

COCO = FOLDER / "coco"
RECIPES = (  # one of those that build the same decoder
    "nic_lstm_gu2018", "sat_soft_gu2018", "updown_grid_gu2018", "stack_gu2018", "sat_soft_xu2015",
    "updown_anderson2018",
)  # fmt: skip
WORDS = 10_000  # of the vocabulary
IMAGES, CAPTIONS = 113_287, 5  # of COCO's training split in Karpathy's form
FLOAT = 4  # bytes
KEPT = {"adam": 2, "adamw": 2, "adamax": 2, "sgd": 1}  # numbers that an optimiser keeps of each weight
PROCESSES = (2, 8, 32)
MARKERS = markers_of("what a step carries")


class Cost(NamedTuple):
    """What a recipe costs before anything is timed."""

    recipe: str
    weights: int  # that learn
    state: int  # bytes of a process: weights, gradients, what the optimiser keeps
    captions: int  # of a step
    steps: int  # of an epoch on COCO

    @property
    def gradients(self) -> int:
        """Bytes that each step adds up over the processes."""
        return FLOAT * self.weights


def cost_of(recipe: Recipe, name: str) -> Cost:
    """Count what a recipe with a frozen encoder trains."""
    with torch.device("meta"):  # no memory, no time
        encoder = build_encoder(recipe.encoder, load_weights=False)
        decoder = build_decoder(recipe.model, feature_size=encoder.feature_size, vocabulary_size=WORDS)
    weights = sum(weight.numel() for weight in decoder.parameters())
    training = recipe.training
    return Cost(
        recipe=name,
        weights=weights,
        state=weights * FLOAT * (2 + KEPT[training.optimizer.name]),
        captions=training.batch_size * recipe.data.captions_per_image,
        steps=math.ceil(IMAGES / training.batch_size),
    )


def sent(gradients: float, processes: int) -> float:
    """Bytes that each process sends, and receives, to add up gradients of so many bytes in a ring."""
    return 2 * (processes - 1) / processes * gradients


def step_seconds(captions: int, rate: float, gradients: float, processes: int, speed: float) -> float:
    """A step of which nothing overlaps.

    Args:
        captions: of the step, on all processes.
        rate: captions a second of one process.
        gradients: bytes.
        processes: how many.
        speed: bytes a second that a process sends.
    """
    return captions / processes / rate + sent(gradients, processes) / speed


def costs() -> list[Cost]:
    """Of all recipes of the table."""
    return [cost_of(load_recipe(COCO / f"{name}.yaml"), name) for name in RECIPES]


def table_of(recipe_costs: list[Cost]) -> str:
    """In Markdown."""
    heads = ["recipe", "weights", "a process keeps", "captions a step", "steps an epoch"]
    heads += [f"sent, {processes} processes" for processes in PROCESSES]
    rows = [
        [
            f"`coco/{cost.recipe}`", f"{cost.weights / 1e6:.1f} million", f"{cost.state / 1e6:.0f} MB",
            f"{cost.captions}", f"{cost.steps:,}",
            *(f"{sent(cost.gradients, processes) / 1e6:.0f} MB" for processes in PROCESSES),
        ]
        for cost in recipe_costs
    ]  # fmt: skip
    return table(heads, rows)


def rows_of(recipe_costs: list[Cost]) -> list[dict[str, Any]]:
    """For programs."""
    return [
        {
            "name": f"{cost.recipe}_{processes}_processes",
            "value": sent(cost.gradients, processes) / 1e6,
            "unit": "MB sent by each process in a step",
            "against": "two processes",
            "ratio": sent(cost.gradients, processes) / sent(cost.gradients, 2),
            "weights": cost.weights,
            "state_bytes": cost.state,
            "captions": cost.captions,
            "steps_an_epoch": cost.steps,
        }
        for cost in recipe_costs
        for processes in PROCESSES
    ]


def main() -> int:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--docs", type=Path, help="the document to write the table into, between its markers")
    parser.add_argument("--json", action="store_true")
    return publish("cost_model", parser.parse_args(), MARKERS, costs, table_of, rows_of)


if __name__ == "__main__":
    sys.exit(main())

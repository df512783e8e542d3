"""Runs by several recipes, one after the other.

Each process writes what it ended with beside the run, as RUN.0.json, RUN.1.json ...
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from showtell.counter_rng import key_of
from showtell.training import make_recipe
from showtell.training.loop import Trainer


def run(recipe: dict[str, Any], folder: Path) -> None:
    trainer = Trainer(make_recipe(recipe), folder, resume=False, quiet=True)
    process = trainer.accelerator.process_index
    decisions = []
    judge = trainer._judge

    def recorded_judge(epoch: int, validation: Any, decision: Any) -> None:
        decisions.append([decision.rolls_back, decision.is_harmful, [kind for kind, _ in decision.messages]])
        judge(epoch, validation, decision)

    captions: dict[str, str] = {}
    validator = trainer.validator
    assert validator is not None
    validate = validator.validate

    def validated(progress: Any) -> Any:
        validation = validate(progress)
        captions.update({image: caption.text for image, caption in validation.captions.items()})
        return validation

    trainer._judge, validator.validate = recorded_judge, validated  # type: ignore[method-assign]
    result = trainer.fit()
    weights = b"".join(tensor.numpy().tobytes() for tensor in trainer.raw_model.decoder.state_dict().values())
    content = {
        "weights": hashlib.sha256(weights).hexdigest(),
        "best": result.best,
        "best_epoch": result.best_epoch,
        "captions": captions,
        "decisions": decisions,
        "is_half": trainer.rounds_products or trainer.accelerator.mixed_precision == "bf16",
        "data": f"{key_of(*trainer.data.contents())}",
    }
    folder.with_name(f"{folder.name}.{process}.json").write_text(json.dumps(content))


def run_all(jobs: list[tuple[dict[str, Any], Path]]) -> None:
    for recipe, folder in jobs:
        run(recipe, folder)

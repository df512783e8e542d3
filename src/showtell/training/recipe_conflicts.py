"""Settings of a recipe that contradict each other, each with a sentence about what to change."""

from __future__ import annotations

from showtell.config import Config
from showtell.decoding import DecodingConfig
from showtell.features import EncoderConfig
from showtell.objectives import OBJECTIVES
from showtell.training.recipe import DataConfig, TrainingConfig


def conflicts(
    *,
    data: DataConfig | None,
    encoder: EncoderConfig | None,
    model: Config | None,
    objective: Config | None,
    training: TrainingConfig | None,
    decoding: DecodingConfig | None,
    **others: Config | None,
) -> list[str]:
    """Settings that are valid in themselves and contradict each other; a section with problems of its own is None."""
    problems = []
    if model is not None and objective is not None:
        kind, attention = objective.name, getattr(model, "attention", None)  # type: ignore[attr-defined]
        if kind == "hard_attention" and attention != "hard":
            shown = f"model.attention={attention}" if attention else f"model.name={model.name}"  # type: ignore[attr-defined]
            problems.append(
                f"objective.name=hard_attention and {shown} contradict each other: it needs a model that samples the "
                "places it looks at; set model.name=sat and model.attention=hard, or objective.name=cross_entropy"
            )
        if kind == "cross_entropy" and attention == "hard":
            problems.append(
                "model.attention=hard and objective.name=cross_entropy contradict each other: sampled places get no "
                "gradient from it; set objective.name=hard_attention, or model.attention=soft"
            )
    if model is not None:
        name, fine_stages = model.name, getattr(model, "fine_stages", 0)  # type: ignore[attr-defined]
        kind = None if objective is None else objective.name  # type: ignore[attr-defined]
        if kind == "coarse_to_fine" and not fine_stages:
            problems.append(
                f"objective.name=coarse_to_fine and model.name={name} contradict each other: it needs a model with "
                "several stages; set model.name=stack, or objective.name=self_critical"
            )
        if decoding is not None and decoding.stage is not None and decoding.stage > fine_stages:
            has = f"stages 0 to {fine_stages}" if fine_stages else "one stage, 0"
            problems.append(
                f"decoding.stage={decoding.stage} and model.name={name} contradict each other: the model has {has}; "
                "leave out decoding.stage for the last"
            )
        if kind in ("adversarial", "adversarial_pretraining") and not getattr(model, "goals", False):
            shown = "model.goals=false" if hasattr(model, "goals") else f"model.name={name}"
            problems.append(
                f"objective.name={kind} and {shown} contradict each other: it needs a model with a manager and a "
                "discriminator; set model.name=hacap with model.goals=true, or objective.name=cross_entropy"
            )
    if encoder is not None:
        if data is not None and data.features is not None and encoder.trained:
            problems.append(
                f"data.features={data.features} and encoder.trained={encoder.trained} contradict each other: features "
                "on disk do not change while the encoder learns; set encoder.trained=false, or leave out data.features"
            )
        if encoder.start_epoch and not encoder.trained:
            problems.append(
                f"encoder.start_epoch={encoder.start_epoch} and encoder.trained=false contradict each other: leave out "
                "one of them"
            )
        if training is not None and encoder.trained and 0 < training.epochs <= encoder.start_epoch:
            problems.append(
                f"encoder.start_epoch={encoder.start_epoch} is not reached in training.epochs={training.epochs}, which "
                "count from 0: set it lower, or encoder.trained=false"
            )
    if data is not None and training is not None and training.patience and data.validation_split is None:
        problems.append(
            f"training.patience={training.patience} waits for a better validation, and data.validation_split=null has "
            "none: name a split, or leave out training.patience"
        )
    rewarded = objective is not None and OBJECTIVES[objective.name][1].optimises_reward  # type: ignore[attr-defined]
    if rewarded and training is not None and training.reward_watchdog:
        shown = f"objective.name={objective.name}"  # type: ignore[union-attr]
        if training.start_from is None:
            problems.append(
                f"{shown} needs training.start_from: a reward teaches only a model that says something already; train "
                "with objective.name=cross_entropy first and set training.start_from to that run's best/, or set "
                "training.reward_watchdog=null to begin with fresh weights"
            )
        if data is not None and data.validation_split is None:
            problems.append(
                f"{shown} and data.validation_split=null contradict each other: the reward watchdog goes by "
                "validations; name a split, or set training.reward_watchdog=null"
            )
    return problems

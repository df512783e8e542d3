"""Settings of a recipe that contradict each other, each with a sentence about what to change."""

from __future__ import annotations

from showtell.config import Config
from showtell.decoding import DecodingConfig
from showtell.features import EncoderConfig
from showtell.models import DecoderConfig
from showtell.objectives import OBJECTIVES, ObjectiveConfig
from showtell.objectives.compatibility import contradictions
from showtell.training.recipe import DataConfig, TrainingConfig


def conflicts(
    *,
    data: DataConfig | None,
    encoder: EncoderConfig | None,
    model: DecoderConfig | None,
    objective: ObjectiveConfig | None,
    training: TrainingConfig | None,
    decoding: DecodingConfig | None,
    **others: Config | None,
) -> list[str]:
    """Settings that are valid in themselves and contradict each other; a section with problems of its own is None."""
    problems = []
    if model is not None and objective is not None:
        problems += contradictions(objective, model)
    if model is not None and decoding is not None and decoding.stage is not None and decoding.stage >= model.stages:
        has = f"stages 0 to {model.stages - 1}" if model.stages > 1 else "one stage, 0"
        problems.append(
            f"decoding.stage={decoding.stage} and model.name={model.name} contradict each other: the model has {has}; "
            "leave out decoding.stage for the last"
        )
    if decoding is not None and decoding.prompt is not None:
        problems.append(
            "decoding.prompt is for captioners of transformers, and the models that are trained here take none; leave "
            "it out"
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
    is_rewarded = objective is not None and OBJECTIVES[objective.name][1].optimises_reward
    if objective is not None and is_rewarded and training is not None and training.reward_watchdog:
        shown = f"objective.name={objective.name}"
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

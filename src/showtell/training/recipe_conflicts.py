"""Settings of a recipe that contradict each other, each with a sentence about what to change."""

from __future__ import annotations

from collections.abc import Iterator

from showtell.captioners.opening import TRANSFORMERS
from showtell.config import Config
from showtell.decoding import DecodingConfig
from showtell.features import EncoderConfig
from showtell.models import DecoderConfig
from showtell.objectives import ObjectiveConfig
from showtell.objectives.compatibility import contradictions
from showtell.objectives.cross_entropy import CrossEntropyConfig
from showtell.training.recipe import DataConfig, TrainingConfig


def conflicts(
    data: DataConfig | None, encoder: EncoderConfig | None, model: DecoderConfig | None,
    objective: ObjectiveConfig | None, training: TrainingConfig | None, decoding: DecodingConfig | None,
    vocabulary: Config | None,
) -> Iterator[str]:  # fmt: skip
    """Settings that are valid in themselves and contradict each other; a section with problems of its own is None."""
    if model and objective:
        yield from contradictions(objective, model)
    if model and decoding and decoding.stage is not None and decoding.stage >= model.stages:
        has = f"stages 0 to {model.stages - 1}" if model.stages > 1 else "one stage, 0"
        yield (
            f"decoding.stage={decoding.stage} and model.name={model.name} contradict each other: the model has {has}; "
            "leave out decoding.stage for the last"
        )
    if model and model.name == TRANSFORMERS:
        yield from _with_transformers(data, encoder, objective, training)
    elif getattr(encoder, "name", None) == TRANSFORMERS and model:
        yield f"model.name={model.name} and encoder.name={TRANSFORMERS} contradict each other: leave both out"
    elif model and decoding and decoding.prompt is not None:
        yield "decoding.prompt is for captioners of transformers; a model of showtell takes none: leave it out"
    if data and encoder and data.features is not None and encoder.trained:
        yield (
            f"data.features={data.features} and encoder.trained={encoder.trained} contradict each other: features on "
            "disk do not change while the encoder learns; set encoder.trained=false, or leave out data.features"
        )
    if encoder and encoder.start_epoch and not encoder.trained:
        yield (
            f"encoder.start_epoch={encoder.start_epoch} and encoder.trained=false contradict each other: leave out one "
            "of them"
        )
    if encoder and encoder.trained and training and training.epochs <= encoder.start_epoch:
        yield (
            f"encoder.start_epoch={encoder.start_epoch} is not reached in training.epochs={training.epochs}, which "
            "count from 0: set it lower, or encoder.trained=false"
        )
    if training and training.start_share and training.start_from is None:
        yield (
            f"training.start_share={training.start_share:g} is a share of the weights of training.start_from: name it, "
            "or leave the share out"
        )
    if data and training and training.patience and data.validation_split is None:
        yield (
            f"training.patience={training.patience} waits for a better validation, and data.validation_split=null has "
            "none: name a split, or leave out training.patience"
        )


def _with_transformers(
    data: DataConfig | None, encoder: EncoderConfig | None, objective: ObjectiveConfig | None,
    training: TrainingConfig | None,
) -> Iterator[str]:  # fmt: skip
    """What a captioner of transformers cannot do."""
    if training and training.start_from is None:
        yield f"model.name={TRANSFORMERS} needs training.start_from, which names the captioner"
    if encoder and (getattr(encoder, "name", None) != TRANSFORMERS or encoder.trained):
        yield f"model.name={TRANSFORMERS} has its own encoder: leave the section out; its adapters alone learn"
    if data and data.features is not None:
        yield f"data.features={data.features}: a captioner of transformers looks at photos itself; leave it out"
    if objective and objective != CrossEntropyConfig():
        yield "objective: a captioner of transformers learns by name=cross_entropy alone; leave its other keys out"

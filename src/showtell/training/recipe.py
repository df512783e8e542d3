"""The schema of a recipe: everything that a training run depends on, each setting with its default and its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, SerializeAsAny, field_validator

from showtell.config import Config
from showtell.decoding import DecodingConfig
from showtell.errors import nearest
from showtell.features import EncoderConfig
from showtell.files import write_text
from showtell.models import DecoderConfig
from showtell.objectives import ObjectiveConfig
from showtell.scores import selection_metrics
from showtell.training.schedule import Schedule


class DataConfig(Config):
    """Which captions and photos."""

    path: str = Field(
        description="Dataset: a folder or file that `showtell data check` understands, relative to the working "
        "directory; or several, `[a, b]`, each with its own splits, the ids of whose images begin with its name."
    )
    validation_split: str | None = Field(
        "val", description="Name of the split to validate on; null trains without validation, and `best/` is the last."
    )
    features: str | None = Field(
        None,
        description="Store of the encoder's features to read instead of photos; made if it does not exist. A name that "
        "ends in / is a folder of stores, in which dataset and encoder name the store.",
    )
    limit: int | None = Field(
        None, ge=1, description="Maximum number of images of each split, always the same ones (default: all)."
    )
    max_captions: int | None = Field(
        None, ge=1, description="Maximum number of captions per image, the first ones (default: all; Xu et al.: 5)."
    )
    captions_per_image: int = Field(
        5, ge=1, description="Captions of an image in a batch (N); of an image with more, a random choice each epoch."
    )
    max_length: int = Field(30, ge=1, description="Maximum caption length in words; longer captions are truncated.")
    memory_megabytes: int = Field(
        1024, ge=0, description="Keep prepared photos in memory if all of them need no more than this."
    )
    workers: int = Field(
        2, ge=0, le=1024, description="Processes that load photos not kept in memory; 0 loads them in the main process."
    )

    @field_validator("path", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        if any(not isinstance(path, str) or "," in path for path in value):
            raise ValueError("should list folders or files whose names have no comma, such as [a, b]")
        return f"[{','.join(value)}]"


class VocabularyConfig(Config):
    """Which words of the training captions get an id; the others are unknown."""

    min_count: int = Field(1, ge=1, description="Minimum number of occurrences of a word.")
    max_size: int | None = Field(None, ge=1, description="Maximum number of words (default: no limit).")
    extend: bool = Field(
        False,
        description="With `training.start_from`: add words that the checkpoint's vocabulary lacks behind its own.",
    )


class OptimizerConfig(Config):
    """An optimiser by its name. A field that the optimiser does not have is ignored."""

    name: Literal["adam", "adamw", "adamax", "sgd", "rmsprop"] = Field(
        "adam", description="Optimiser; `rmsprop` is centred, as in Graves (2013)."
    )
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = Field(
        (0.9, 0.999), description="Decay rates of the running averages of adam, adamw and adamax."
    )
    momentum: float = Field(0.9, ge=0, description="Momentum of sgd and rmsprop.")
    decay: float = Field(0.99, ge=0, lt=1, description="Decay rate of the running averages of rmsprop (torch's alpha).")
    epsilon: float = Field(1e-8, gt=0, description="Added to the denominator, by all but sgd.")
    weight_decay: float = Field(
        0.0, ge=0, description="Weight decay: decoupled from the gradient in adamw, an L2 penalty in all others."
    )


# YAML 1.1 reads a bare `no` as false.
Precision = Annotated[Literal["no", "fp16", "bf16"], BeforeValidator(lambda value: "no" if value is False else value)]


def _selection_metric(name: str) -> str:
    """The name of a number that can select the best weights."""
    if name not in selection_metrics():
        raise ValueError(f'"{name}" cannot select: {nearest(name, selection_metrics())}')
    return name


class TrainingConfig(Config):
    """Settings of training."""

    epochs: int = Field(ge=1, description="Passes over the training images.")
    batch_size: int = Field(
        ge=1, description="Images in a batch over all processes, each with up to `data.captions_per_image` captions."
    )
    bucket: int = Field(1, ge=1, description="Batches that are sorted by caption length together; 1 does not sort.")
    learning_rate: float = Field(gt=0, description="Learning rate of all weights that have none of their own.")
    start_from: str | None = Field(
        None, min_length=1,
        description="Checkpoint (folder or hub id) whose weights are trained further (default: fresh weights), and "
        "kept where no epoch is better; of `encoder` and `model`, a section without a `name` takes its settings.",
    )  # fmt: skip
    start_share: float = Field(
        0.0, ge=0, lt=1,
        description="Share of the weights of `start_from` in those that are validated and kept as `best/`, for what "
        "they know (Wortsman et al., 2022).",
    )  # fmt: skip
    recipe: str | None = Field(
        None, description="Name of the recipe of showtell that this one is, which `train` fills in, or was made from."
    )
    seed: int = Field(0, ge=0, description="Random seed of fresh weights, the order of images, dropout and samples.")
    optimizer: OptimizerConfig = Field(OptimizerConfig(), description="Optimiser and its settings.")
    schedule: Schedule = Field(
        "constant",
        description="Learning rate schedule: linear and cosine decay to 0 over the run, inverse_sqrt by the root of the"
        " step, step decays every few epochs.",
    )
    decay_epochs: int = Field(3, ge=1, description="Epochs between two decays of `schedule: step`.")
    decay_factor: float = Field(0.8, gt=0, le=1, description="Factor of each decay of `schedule: step`.")
    warmup_steps: int = Field(0, ge=0, description="Steps of linear warm-up from 0 to `learning_rate`.")
    clip_value: float | None = Field(
        None, gt=0, description="Clip each element of the gradient to this size, before `clip_norm` (default: off)."
    )
    clip_norm: float | None = Field(
        5.0, gt=0, description="Clip the norm of the gradient of all weights together; null does not clip."
    )
    gradient_accumulation: int = Field(1, ge=1, description="Batches per optimiser step.")
    mixed_precision: Precision = Field(
        "no",
        description="Mixed precision, by autocast; on a processor that multiplies bf16, `bf16` rounds the factors of "
        "the products of a model with recurrent steps and nothing else.",
    )
    selection_metric: Annotated[str, AfterValidator(_selection_metric)] = Field(
        "cider", description=f"Validation score that selects `best/`: {', '.join(selection_metrics())}."
    )
    patience: int | None = Field(
        None, ge=1, description="Stop after this number of validations without a better score (default: never)."
    )
    patience_steps: int = Field(
        0, ge=0,
        description="Minimum number of steps without a better score before `patience` stops, for epochs of few steps.",
    )  # fmt: skip
    validate_every: int = Field(1, ge=1, description="Epochs between validations.")
    save_every: int | None = Field(
        None, ge=1, description="Steps between checkpoints of `last/` (default: at the end of each epoch)."
    )
    log_every: int = Field(10, ge=1, description="Steps between lines of log.jsonl.")
    trackers: tuple[str, ...] = Field(("tensorboard",), description="Experiment trackers, by accelerate's names.")


class Recipe(Config):
    """Everything that a run depends on."""

    data: DataConfig
    vocabulary: VocabularyConfig
    encoder: SerializeAsAny[EncoderConfig]
    model: SerializeAsAny[DecoderConfig]
    objective: SerializeAsAny[ObjectiveConfig]
    training: TrainingConfig
    decoding: DecodingConfig

    def save(self, path: Path) -> None:
        """Write the recipe as resolved, with every default."""
        write_text(path, yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True))

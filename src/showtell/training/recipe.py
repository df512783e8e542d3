"""A recipe: YAML with `key=value` overrides, checked as a whole. All problems are reported at once, in words."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import BeforeValidator, Field, SerializeAsAny, ValidationError, model_validator

from showtell.config import Config
from showtell.decoding import DecodingConfig
from showtell.errors import RecipeError, nearest
from showtell.features import ENCODERS, EncoderConfig, encoder_config
from showtell.features.grid import TimmConfig
from showtell.files import write_text
from showtell.models import MODELS
from showtell.objectives import OBJECTIVES
from showtell.renamed import KEYS, VALUES
from showtell.training.schedule import Schedule

_SHORT = reprlib.Repr()  # for values in messages: aliases can make a small file an endless one
_SHORT.maxstring = _SHORT.maxother = 200


class DataConfig(Config):
    """Which captions and photos."""

    path: str  # a folder or file that `showtell data check` understands, relative to the working directory
    train_split: str = "train"  # the name of the split that is learned from
    validation_split: str | None = "val"  # what is validated on; None: nothing, the last weights are the best
    features: str | None = None  # a store of the encoder's features, read instead of photos; made if it is not there
    limit: int | None = Field(None, ge=1)  # images of each split at most, for quick runs, the same each time
    max_captions: int | None = Field(None, ge=1)  # the first so many captions of each image, papers/003: 5; None: all
    captions_per_image: int = Field(5, ge=1)  # N; of an image that has more, another choice each epoch
    max_length: int = Field(30, ge=1)  # words; longer captions are cut
    memory_megabytes: int = Field(1024, ge=0)  # photos are kept ready in memory if they need no more than this
    workers: int = Field(2, ge=0)  # processes that read photos which are not kept in memory


class VocabularyConfig(Config):
    """Which words of the training captions get an id; the others are unknown."""

    min_count: int = Field(1, ge=1)  # at least this many occurrences
    max_size: int | None = Field(None, ge=1)  # at most this many words
    extend: bool = False  # with training.start_from: words that its checkpoint lacks get an id behind those it has


class OptimizerConfig(Config):
    """An optimiser by its name. A field that the optimiser does not have is ignored."""

    name: Literal["adam", "adamw", "adamax", "sgd", "rmsprop", "graves_rmsprop"] = "adam"
    betas: tuple[float, float] = (0.9, 0.999)  # adam, adamw, adamax
    momentum: float = Field(0.9, ge=0)  # sgd, rmsprop, graves_rmsprop
    decay: float = Field(0.99, ge=0, lt=1)  # of the averages of rmsprop; by default 0.95 for graves_rmsprop
    epsilon: float = Field(1e-8, gt=0)  # all but sgd; by default 0.0001 for graves_rmsprop
    weight_decay: float = Field(0.0, ge=0)  # pull to 0: in adamw beside the step, else within the gradient

    @model_validator(mode="before")
    @classmethod
    def _of_graves(cls, given: Any) -> Any:
        """Graves' own values where none are given."""
        if isinstance(given, dict) and given.get("name") == "graves_rmsprop":
            return {"decay": 0.95, "epsilon": 1e-4, **given}
        return given


class RewardWatchdogConfig(Config):
    """When a run under a reward is refused, warned of, sent back and stopped."""

    least_cider: float = Field(0.05, ge=0)  # CIDEr-D (0 to 10) of the starting weights, less is refused
    drift: float = Field(0.02, ge=0)  # of the start from what its checkpoint remembers, as a share of that score
    tolerance: float = Field(0.05, ge=0, lt=1)  # share of the best score that a validation may lose
    collapse: float = Field(0.5, gt=0, lt=1)  # share of the best score below which it goes back at once
    rise: float = Field(0.05, ge=0, le=1)  # of the share of captions that end badly, repeat words or are cut off
    length: float = Field(1.3, gt=1)  # times as many words as the start and the references have, or as few
    patience: int = Field(2, ge=1)  # validations in a row with a sign of harm, before it goes back
    returns: int = Field(3, ge=0)  # times that it goes back; the next time the run stops
    slower: float = Field(0.5, gt=0, le=1)  # what the learning rate is multiplied by each time


def _yaml_no(value: object) -> object:
    """YAML 1.1 reads a bare `no` as false."""
    return "no" if value is False else value


class TrainingConfig(Config):
    """How the weights are found."""

    epochs: int = Field(ge=1)  # passes over the training images
    batch_size: int = Field(ge=1)  # images, each with up to captions_per_image captions, over all processes
    bucket: int = Field(1, ge=1)  # batches that are sorted by caption length together; 1: not sorted
    learning_rate: float = Field(gt=0)  # of all that has none of its own
    start_from: str | None = Field(None, min_length=1)  # a checkpoint, folder or hub id, whose weights are trained on
    seed: int = Field(0, ge=0)  # of fresh weights, the order of images, dropout and samples
    optimizer: OptimizerConfig = OptimizerConfig()
    # constant; linear and cosine: from learning_rate to 0 over the run; step: falls every few epochs
    schedule: Schedule = "constant"
    decay_every: int = Field(3, ge=1)  # epochs, of schedule step
    decay_factor: float = Field(0.8, gt=0, le=1)  # what it is multiplied by each time, of schedule step
    warmup_steps: int = Field(0, ge=0)  # from 0 to learning_rate
    clip_value: float | None = Field(None, gt=0)  # of each number of the gradient, before clip_norm
    clip_norm: float | None = Field(5.0, gt=0)  # of the gradient of all weights together
    ema_decay: float | None = Field(None, ge=0, lt=1)  # validate and keep as best/ an average of the weights
    gradient_accumulation: int = Field(1, ge=1)  # batches per step of the optimiser
    mixed_precision: Annotated[Literal["no", "fp16", "bf16"], BeforeValidator(_yaml_no)] = "no"  # of products
    selection: Literal["cider", "bleu_4", "meteor"] = "cider"  # the validation score that decides what is best
    patience: int | None = Field(None, ge=1)  # validations without a better score before training stops
    validate_every: int = Field(1, ge=1)  # epochs
    save_every: int | None = Field(None, ge=1)  # steps between checkpoints; None: at the end of each epoch
    log_every: int = Field(10, ge=1)  # steps between lines of log.jsonl
    samples: int = Field(3, ge=0)  # validation captions that are shown each time
    trackers: tuple[str, ...] = ("tensorboard",)  # any that accelerate knows, by name
    reward_watchdog: RewardWatchdogConfig | None = (
        RewardWatchdogConfig()
    )  # of a run under a reward; null: nobody watches it


class Recipe(Config):
    """Everything that a run depends on."""

    data: DataConfig
    vocabulary: VocabularyConfig
    encoder: SerializeAsAny[EncoderConfig]
    model: SerializeAsAny[Config]
    objective: SerializeAsAny[Config]
    training: TrainingConfig
    decoding: DecodingConfig

    def save(self, path: Path) -> None:
        """Write the recipe as resolved, every default spelt out."""
        write_text(path, yaml.safe_dump(self.model_dump(mode="json"), sort_keys=False, allow_unicode=True))


def load_recipe(path: Path, overrides: Sequence[str] = ()) -> Recipe:
    """Read a recipe and apply overrides.

    Args:
        path: a YAML file.
        overrides: "section.key=value" each, the value in YAML.

    Raises:
        RecipeError: the file is missing or no YAML, or any key or value is wrong; all problems are listed.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise RecipeError(f"Cannot read the recipe {path}: {reason}.") from error
    try:
        content = _parse_yaml(text)
    except ValueError as error:
        raise RecipeError(f"The recipe {path} is not valid YAML: {error}.") from error
    if not isinstance(content, dict):
        raise RecipeError(f"The recipe {path} is empty or no mapping; it needs the sections {', '.join(_SECTIONS)}.")
    apply_overrides(content, overrides)
    return make_recipe(content, str(path))


class _Loader(yaml.SafeLoader):
    """YAML in which no mapping has a key twice: the second would silently take the first one's place."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node."""
        seen: set[str] = set()
        for key, _ in node.value:
            if key.tag != "tag:yaml.org,2002:str":
                continue
            if key.value in seen:
                raise yaml.MarkedYAMLError(problem=f'the key "{key.value}" is there twice', problem_mark=key.start_mark)
            seen.add(key.value)
        return super().construct_mapping(node, deep)


def _parse_yaml(text: str) -> Any:
    """The content of a YAML text.

    Raises:
        ValueError: it is no YAML, has a key twice in a mapping, or a value that Python cannot hold.
    """
    try:
        return yaml.load(text, _Loader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f", at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ValueError(f"{error.problem}{where}") from error
    except yaml.YAMLError as error:  # of a character that no text holds
        raise ValueError(" ".join(str(error).split())) from error
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def make_recipe(content: dict[str, Any], source: str = "the recipe") -> Recipe:
    """Check the content of a recipe.

    Raises:
        RecipeError: any key or value is wrong; all problems are listed, with the nearest valid key.
    """
    problems: list[str] = []
    for key in content:
        if key not in _SECTIONS:
            problems.append(f"{key}: no such section; {nearest(str(key), _SECTIONS)}")
    parts: dict[str, Any] = {}
    for section in _SECTIONS:
        parts[section] = _checked(section, content.get(section, {}), problems)
    problems += _contradictions(**parts)
    _refuse(problems, source)
    return Recipe(**parts)


def _contradictions(
    *,
    data: DataConfig | None,
    encoder: EncoderConfig | None,
    model: Config | None,
    objective: Config | None,
    training: TrainingConfig | None,
    decoding: DecodingConfig | None,
    **others: Config | None,
) -> list[str]:
    """What is right in each section and wrong together; a section that is wrong in itself, None, is left out."""
    found = []
    if model is not None and objective is not None:
        kind, attention = objective.name, getattr(model, "attention", None)  # type: ignore[attr-defined]
        if kind == "hard_attention" and attention != "hard":
            shown = f"model.attention={attention}" if attention else f"model.name={model.name}"  # type: ignore[attr-defined]
            found.append(
                f"objective.name=hard_attention and {shown} contradict each other: it needs a model that samples the "
                "places it looks at; set model.name=sat and model.attention=hard, or objective.name=cross_entropy"
            )
        if kind == "cross_entropy" and attention == "hard":
            found.append(
                "model.attention=hard and objective.name=cross_entropy contradict each other: sampled places get no "
                "gradient from it; set objective.name=hard_attention, or model.attention=soft"
            )
    if model is not None:
        name, fine_stages = model.name, getattr(model, "fine_stages", 0)  # type: ignore[attr-defined]
        kind = None if objective is None else objective.name  # type: ignore[attr-defined]
        if kind == "coarse_to_fine" and not fine_stages:
            found.append(
                f"objective.name=coarse_to_fine and model.name={name} contradict each other: it needs a model with "
                "several stages; set model.name=stack, or objective.name=self_critical"
            )
        if decoding is not None and decoding.stage is not None and decoding.stage > fine_stages:
            has = f"stages 0 to {fine_stages}" if fine_stages else "one stage, 0"
            found.append(
                f"decoding.stage={decoding.stage} and model.name={name} contradict each other: the model has {has}; "
                "leave out decoding.stage for the last"
            )
        if kind in ("adversarial", "adversarial_pretraining") and not getattr(model, "goals", False):
            shown = "model.goals=false" if hasattr(model, "goals") else f"model.name={name}"
            found.append(
                f"objective.name={kind} and {shown} contradict each other: it needs a model with a manager and a "
                "discriminator; set model.name=hacap with model.goals=true, or objective.name=cross_entropy"
            )
    if encoder is not None:
        if data is not None and data.features is not None and encoder.trained:
            found.append(
                f"data.features={data.features} and encoder.trained={encoder.trained} contradict each other: features "
                "on disk do not change while the encoder learns; set encoder.trained=false, or leave out data.features"
            )
        if encoder.start_epoch and not encoder.trained:
            found.append(
                f"encoder.start_epoch={encoder.start_epoch} and encoder.trained=false contradict each other: leave out "
                "one of them"
            )
        if training is not None and encoder.trained and 0 < training.epochs <= encoder.start_epoch:
            found.append(
                f"encoder.start_epoch={encoder.start_epoch} is not reached in training.epochs={training.epochs}, which "
                "count from 0: set it lower, or encoder.trained=false"
            )
    if data is not None and training is not None and training.patience and data.validation_split is None:
        found.append(
            f"training.patience={training.patience} waits for a better validation, and data.validation_split=null has "
            "none: name a split, or leave out training.patience"
        )
    rewarded = objective is not None and OBJECTIVES[objective.name][1].optimises_reward  # type: ignore[attr-defined]
    if rewarded and training is not None and training.reward_watchdog:
        shown = f"objective.name={objective.name}"  # type: ignore[union-attr]
        if training.start_from is None:
            found.append(
                f"{shown} needs training.start_from: a reward teaches only a model that says something already; train "
                "with objective.name=cross_entropy first and set training.start_from to that run's best/, or set "
                "training.reward_watchdog=null to begin with fresh weights"
            )
        if data is not None and data.validation_split is None:
            found.append(
                f"{shown} and data.validation_split=null contradict each other: the pilot of such a run goes by "
                "validations; name a split, or set training.reward_watchdog=null"
            )
    return found


def make_encoder_config(content: dict[str, Any], source: str) -> EncoderConfig:
    """Check the settings of an encoder alone, as they stand in a recipe's section.

    Args:
        content: with `name`.
        source: what messages call it.

    Raises:
        RecipeError: any key or value is wrong; all problems are listed.
    """
    problems: list[str] = []
    config = _checked("encoder", content, problems)
    _refuse(problems, source)
    assert isinstance(config, EncoderConfig)
    return config


def _checked(section: str, given: Any, problems: list[str]) -> Config | None:
    """The settings of a section, or None with the problems that they have."""
    if not isinstance(given, dict):
        problems.append(f"{section}: should be a mapping of keys to values, got {_SHORT.repr(given)}")
        return None
    try:
        return _section(section, given)
    except ValidationError as error:
        found = error.errors()
        problems += [_sentence(section, problem, given) for problem in found]
        if all(problem["type"] == "extra_forbidden" and len(problem["loc"]) == 1 for problem in found):
            extra = {problem["loc"][0] for problem in found}  # without them, what else is wrong can be said as well
            return _checked(section, {key: value for key, value in given.items() if key not in extra}, problems)
    except RecipeError as error:
        problems.append(f"{section}.name: {error}")
    return None


def _refuse(problems: Sequence[str], source: str) -> None:
    if problems:
        count = "1 problem" if len(problems) == 1 else f"{len(problems)} problems"
        raise RecipeError(f"{source} has {count}:" + "".join(f"\n  {problem}" for problem in problems))


_PLAIN: dict[str, type[Config]] = {
    "data": DataConfig,
    "vocabulary": VocabularyConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
_BY_NAME: dict[str, Mapping[str, tuple[type[Config], Any]]] = {"model": MODELS, "objective": OBJECTIVES}
_SECTIONS = tuple(Recipe.model_fields)


def _section(section: str, given: dict[str, Any]) -> Config:
    if section == "encoder":
        return encoder_config(given)
    if section in _BY_NAME:
        return _section_type(section, given).model_validate(given)
    return _PLAIN[section].model_validate(given)


def _section_type(section: str, given: dict[str, Any]) -> type[Config]:
    """The settings class of a section, by its name where it has several."""
    if section in _PLAIN:
        return _PLAIN[section]
    if section == "encoder":
        return ENCODERS[given["name"]][0] if given.get("name") in ENCODERS else TimmConfig
    known = _BY_NAME[section]
    name = given.get("name")
    if not isinstance(name, str) or name not in known:
        raise RecipeError(f'there is no {section} "{name}"; {nearest(str(name), known)}')
    return known[name][0]


def _sentence(section: str, problem: Any, given: dict[str, Any]) -> str:
    """One pydantic problem in words: where, what was given, what is allowed."""
    path = ".".join([section, *[str(part) for part in problem["loc"]]])
    if problem["type"] == "extra_forbidden":
        inner: Any = _section_type(section, given)
        for part in problem["loc"][:-1]:
            inner, given = inner.model_fields[part].annotation, given[part]
            inner = next((kind for kind in get_args(inner) if kind is not NoneType), inner)  # of settings or null
            if inner is EncoderConfig:  # an encoder within an encoder
                inner = _section_type("encoder", given)
        if path in KEYS:
            return f"{path}: this key is called {KEYS[path]} now; rename it"
        key = str(problem["loc"][-1])
        owners = _others_with(section, key) if len(problem["loc"]) == 1 and "name" in given else []
        if owners:
            return (
                f"{path}: no key of {given['name']}, but of {' and of '.join(owners)}; leave it out, or change "
                f"{section}.name. Keys of {given['name']}: {', '.join(sorted(inner.model_fields))}"
            )
        return f"{path}: no such key; {nearest(key, inner.model_fields)}"
    if (old := problem["input"]) in tuple(VALUES.get(path, ())):
        return f"{path}: {old} is called {VALUES[path][old]} now; rename it"
    if problem["type"] == "missing":
        return f"{path}: this key is needed and missing"
    if problem["type"] == "value_error":  # our own sentence, which pydantic introduces as a "Value error"
        return f"{path}: {problem['ctx']['error']}, got {problem['input']!r}"
    message = problem["msg"][0].lower() + problem["msg"][1:]
    return f"{path}: {message}, got {_SHORT.repr(problem['input'])}"


def _others_with(section: str, key: str) -> list[str]:
    """The names of what a section may hold that do have a key."""
    known: Mapping[str, tuple[type[Config], Any]] = ENCODERS if section == "encoder" else _BY_NAME.get(section, {})
    return sorted(name for name, (config, _) in known.items() if key in config.model_fields)


def apply_overrides(content: dict[str, Any], overrides: Sequence[str]) -> None:
    """Set each "section.key=value" in the content of a recipe, in place."""
    for override in overrides:
        _apply(content, override)


def _apply(content: dict[str, Any], override: str) -> None:
    """Set one "section.key=value" in place."""
    path, equals, text = override.partition("=")
    parts = path.split(".")
    if not equals or not all(parts) or len(parts) < 2:
        raise RecipeError(f'"{override}" is no override; write section.key=value, for example training.epochs=3.')
    try:
        value = _parse_yaml(text)
    except ValueError as error:
        raise RecipeError(
            f'The value in "{_SHORT.repr(override)[1:-1]}" is not valid YAML; put it in quotes.'
        ) from error
    inner = content
    for part in parts[:-1]:
        inner = inner.setdefault(part, {})
        if not isinstance(inner, dict):
            raise RecipeError(f'"{override}" reaches into {part}, which holds a value and no keys.')
    inner[parts[-1]] = value

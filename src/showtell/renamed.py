"""Names that have changed: what older recipes, checkpoints and command lines say, and what it is called now.

A recipe or a command line with an old name is answered with the new one. A checkpoint with old names opens:
`upgrade_settings` and `upgrade_tensors` are applied to whatever is read from one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

# A dotted key of a recipe or of a checkpoint's config.json: its name now.
KEYS: dict[str, str] = {
    "training.pilot": "training.reward_watchdog",
    "training.reward_watchdog.least_cider": "training.reward_watchdog.min_cider",
    "training.reward_watchdog.drift": "training.reward_watchdog.max_start_drift",
    "training.reward_watchdog.tolerance": "training.reward_watchdog.max_score_drop",
    "training.reward_watchdog.collapse": "training.reward_watchdog.collapse_ratio",
    "training.reward_watchdog.rise": "training.reward_watchdog.max_rate_increase",
    "training.reward_watchdog.length": "training.reward_watchdog.max_length_ratio",
    "training.reward_watchdog.returns": "training.reward_watchdog.max_rollbacks",
    "training.reward_watchdog.slower": "training.reward_watchdog.rollback_lr_factor",
    "encoder.places": "encoder.position_embedding",
    "encoder.backbone.places": "encoder.backbone.position_embedding",
    "encoder.least_regions": "encoder.min_regions",
    "encoder.most_regions": "encoder.max_regions",
    "encoder.least_score": "encoder.score_threshold",
    "encoder.overlap": "encoder.nms_threshold",
    "training.selection": "training.selection_metric",
    "training.samples": "training.sample_captions",
    "model.coin": "model.expectation_per",
    "model.expectation_share": "model.expectation_probability",
    "model.look": "model.eval_attention",
    "objective.discriminator_rate": "objective.discriminator_lr_factor",
    "objective.external": "objective.external_weight",
    "objective.intrinsic": "objective.intrinsic_weight",
    "objective.scheduled_sampling.choose": "objective.scheduled_sampling.strategy",
    "objective.scheduled_sampling.every": "objective.scheduled_sampling.increment_epochs",
    "objective.scheduled_sampling.first": "objective.scheduled_sampling.initial_probability",
    "objective.scheduled_sampling.highest": "objective.scheduled_sampling.max_probability",
    "objective.scheduled_sampling.increase": "objective.scheduled_sampling.increment",
    "training.decay_every": "training.decay_epochs",
}
# A dotted key, by its name now: its values that were renamed.
VALUES: dict[str, dict[str, str]] = {
    "model.eval_attention": {"likeliest": "argmax"},
    "objective.baseline": {"others": "leave_one_out"},
    "objective.scheduled_sampling.strategy": {"likeliest": "greedy"},
    "training.optimizer.name": {"graves_rmsprop": "rmsprop_graves"},
}
# A dotted key of last/training/state.json or of a line of log.jsonl: its name now.
RUN_KEYS: dict[str, str] = {
    "pilot": "reward_watchdog",
    "memory": "progress",
    "reward_watchdog.worse": "reward_watchdog.bad_validations",
    "reward_watchdog.returns": "reward_watchdog.rollbacks",
    "reward_watchdog.rate": "reward_watchdog.lr_factor",
    "reward_watchdog.began": "reward_watchdog.first_step",
    "reward_watchdog.first": "reward_watchdog.first_window",
    "reward_watchdog.last": "reward_watchdog.last_window",
    "reward_watchdog.lasting": "reward_watchdog.warning_streaks",
}
RUN_VALUES: dict[str, dict[str, str]] = {
    "reward_watchdog": {"warns": "warning", "goes back": "rollback", "stops": "stop"},
}
# The name of a tensor in model.safetensors: its name now. A name that ends in a dot stands for all that begin with it.
TENSORS: dict[str, str] = {
    "encoder.places": "encoder.position_embedding",
    "encoder.backbone.places": "encoder.backbone.position_embedding",
    "places": "position_embedding",  # in a file of an encoder alone
}
# A verb of the command line: its name now.
VERBS: dict[str, str] = {
    "lab": "compare-searches",
    "attention": "grounding",
}


def upgrade_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a recipe or a config.json with the names of today; what is given stays as it is.

    >>> upgrade_settings({"training": {"pilot": None, "epochs": 3}})
    {'training': {'epochs': 3, 'reward_watchdog': None}}
    """
    return _upgrade(settings, "", KEYS, VALUES)


def upgrade_run(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content of a run's state.json, or a line of its log.jsonl, with the names of today.

    >>> upgrade_run({"step": 4, "pilot": "goes back"})
    {'step': 4, 'reward_watchdog': 'rollback'}
    """
    return _upgrade(content, "", RUN_KEYS, RUN_VALUES)


def _upgrade(
    settings: Mapping[str, Any], prefix: str, keys: Mapping[str, str], values: Mapping[str, Mapping[str, str]]
) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    moved: dict[str, Any] = {}
    for key, value in settings.items():
        path = f"{prefix}{key}"
        current = keys.get(path, path)
        if isinstance(value, Mapping):
            value = _upgrade(value, f"{current}.", keys, values)
        elif isinstance(value, str):
            value = values.get(current, {}).get(value, value)
        (kept if current == path else moved)[current.removeprefix(prefix)] = value
    return kept | moved


def upgrade_tensors(tensors: Mapping[str, Any]) -> dict[str, Any]:
    """The tensors of a model.safetensors by their names of today."""
    return {_current_tensor(name): tensor for name, tensor in tensors.items()}


def _current_tensor(name: str) -> str:
    for old, new in TENSORS.items():
        if name == old or (old.endswith(".") and name.startswith(old)):
            return new + name.removeprefix(old)
    return name

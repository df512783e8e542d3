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
}
# A dotted key, by its name now: its values that were renamed.
VALUES: dict[str, dict[str, str]] = {}
# The name of a tensor in model.safetensors: its name now. A name that ends in a dot stands for all that begin with it.
TENSORS: dict[str, str] = {}
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
    return _upgrade(settings, "")


def _upgrade(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    moved: dict[str, Any] = {}
    for key, value in settings.items():
        path = f"{prefix}{key}"
        current = KEYS.get(path, path)
        if isinstance(value, Mapping):
            value = _upgrade(value, f"{current}.")
        elif isinstance(value, str):
            value = VALUES.get(current, {}).get(value, value)
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

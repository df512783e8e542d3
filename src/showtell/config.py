"""What every settings record shares: frozen, unknown keys refused, in pydantic."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Settings that are checked when made and never change afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())


def flat(content: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested keys as dotted ones.

    >>> flat({"model": {"name": "sat"}})
    {'model.name': 'sat'}
    """
    found: dict[str, Any] = {}
    for key, value in content.items():
        if isinstance(value, dict):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found

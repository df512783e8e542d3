"""What every settings record shares: frozen, unknown keys refused, in pydantic."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Config(BaseModel):
    """Settings that are checked when made and never change afterwards."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=())

"""The recipe, the log and the training state that a run leaves, checked as they are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from showtell.errors import DataError
from showtell.files import read_json, read_log
from showtell.renamed import upgrade_run, upgrade_settings


class _Checked(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow")


class _LogLine(_Checked):
    __pydantic_extra__: dict[str, float | str | None]
    step: int
    epoch: int
    validation: dict[str, float] = {}
    warnings: list[str] = []
    sentence: str = ""


class _Progress(_Checked):
    best: float | None = None
    best_epoch: int | None = None
    stopped: bool = False


class _State(_Checked):
    progress: _Progress = _Progress()


class _Data(_Checked):
    path: str
    validation_split: str | None = "val"
    features: str | None = None


class _Training(_Checked):
    epochs: int
    selection_metric: str = "cider"


class _Recipe(_Checked):
    data: _Data
    encoder: dict[str, Any]
    model: dict[str, Any]
    objective: dict[str, Any]
    training: _Training


def check_run_recipe(content: Any, path: Path) -> dict[str, Any]:
    """The content of a run's recipe.yaml, by the key names of today.

    Raises:
        DataError: it is damaged.
    """
    return _check(_Recipe, content, str(path), "restore it", upgrade_settings)


def read_run_log(path: Path) -> list[dict[str, Any]]:
    """The lines of a run's log.jsonl, by the key names of today.

    Raises:
        DataError: a line is damaged.
    """
    return [
        _check(_LogLine, line, f"Line {number} of {path}", "delete the line")
        for number, line in enumerate(read_log(path), start=1)
    ]


def read_run_state(path: Path) -> dict[str, Any]:
    """The numbers of a run's state.json, by the key names of today.

    Raises:
        DataError: the file is damaged.
    """
    return _check(_State, read_json(path), str(path), "begin anew with another --out")


def _check(
    model: type[_Checked],
    content: Any,
    name: str,
    advice: str,
    upgrade: Callable[[Mapping[str, Any]], dict[str, Any]] = upgrade_run,
) -> dict[str, Any]:
    """Make sure that content has the keys and types of a model."""
    if not isinstance(content, dict):
        raise DataError(f"{name} is damaged: it should be an object with keys; {advice}.")
    upgraded = upgrade(content)
    try:
        model.model_validate(upgraded)
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"]))
        raise DataError(f"{name} is damaged: {key}: {first['msg'].lower()}; {advice}.") from error
    return upgraded

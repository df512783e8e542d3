"""The models of learned scores as options of a verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from showtell.cli.settings_options import SettingsOptions

if TYPE_CHECKING:
    from showtell.scores import ScoreModels


_SETTINGS = SettingsOptions("showtell.scores.model_settings:ScoreModelSettings", "Models of learned scores")
ScoreModelChoice = Annotated[dict[str, Any], _SETTINGS]


def open_score_models(given: Mapping[str, Any]) -> ScoreModels | None:
    """The models that options name, opened before any work; None where there are none.

    Raises:
        ShowtellError: one cannot be used, or options do not go together.
    """
    from showtell.progress import reporting
    from showtell.scores import ScoreModels

    return ScoreModels(reporting=reporting, **given).open() if given else None

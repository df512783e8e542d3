"""The models of learned scores as options of a verb."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

from showtell.cli.settings_options import SettingsOptions

if TYPE_CHECKING:
    from pydantic.fields import FieldInfo

    from showtell.config import Config
    from showtell.scores import ScoreModels


class ScoreModelOptions(SettingsOptions):
    """Marks the parameter of a verb that takes the models of learned scores."""

    panel = "Models of learned scores"

    def config(self) -> type[Config]:
        """The class of the settings."""
        from showtell.scores.model_settings import ScoreModelSettings

        return ScoreModelSettings

    def default_of(self, field: FieldInfo) -> str | bool:
        """That of the settings."""
        return "none" if field.default is None else str(field.default)


ScoreModelChoice = Annotated[dict[str, Any], ScoreModelOptions()]


def open_score_models(given: Mapping[str, Any]) -> ScoreModels | None:
    """The models that options name, opened before any work; None where there are none.

    Raises:
        ShowtellError: one cannot be used, or options do not go together.
    """
    from showtell.progress import reporting
    from showtell.scores import ScoreModels

    return ScoreModels(reporting=reporting, **given).open() if given else None

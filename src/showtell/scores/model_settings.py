"""The models of learned scores: their settings, and the record that opens them when a score needs them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, get_args

from pydantic import Field

from showtell.config import Config

if TYPE_CHECKING:
    from showtell.scores.encoders import ClipEncoder

ModelName = Literal["clip_model", "pac_model"]  # the settings that name weights
_SOURCE = "a folder, or a repository on the Hugging Face hub (owner/name or owner/name@revision)."


class ScoreModelSettings(Config):
    """The models of learned scores, and how they are used."""

    clip_model: str | None = Field(None, description=f"CLIP of CLIPScore and RefCLIPScore: {_SOURCE}")
    pac_model: str | None = Field(None, description=f"CLIP of PAC-S and RefPAC-S: {_SOURCE}")
    score_batch_size: int = Field(64, ge=1, le=65_536, description="Photos or texts in a batch of these models.")


class ScoreModels:
    """The models of learned scores, each opened once, when it is first asked for; on a GPU if there is one.

    >>> ScoreModels(clip_model="openai/clip-vit-base-patch32").has("pac_model")
    False

    Args:
        settings: those of `ScoreModelSettings`.

    Raises:
        UsageError: a setting is unknown or out of range.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = ScoreModelSettings.checked(settings)
        self._opened: dict[ModelName, ClipEncoder] = {}

    def has(self, name: ModelName) -> bool:
        """Whether a person named it."""
        return getattr(self.settings, name) is not None

    def open(self) -> Self:
        """Open all that are named, so that mistakes are reported before any work.

        Raises:
            ShowtellError: a model cannot be used.
        """
        for name in filter(self.has, get_args(ModelName)):
            self.encoder(name)
        return self

    def encoder(self, name: ModelName) -> ClipEncoder:
        """The model that a person named."""
        from showtell.scores.encoders import ClipEncoder

        if name not in self._opened:
            self._opened[name] = ClipEncoder(str(getattr(self.settings, name)), self.settings.score_batch_size)
        return self._opened[name]

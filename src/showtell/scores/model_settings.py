"""The models that learned scores compare with: what a person names, and where they are opened when a score asks."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field

from showtell.config import Config

if TYPE_CHECKING:
    from showtell.scores.encoders import BertEncoder, ClipEncoder

ModelName = Literal["clip_model", "pac_model", "bert_model"]  # the settings that name weights
_SOURCE = "a folder, or a repository on the Hugging Face hub (owner/name or owner/name@revision)."


class ScoreModelSettings(Config):
    """The models of learned scores, and how they are used."""

    clip_model: str | None = Field(None, description=f"CLIP of CLIPScore and RefCLIPScore: {_SOURCE}")
    pac_model: str | None = Field(
        None,
        description="CLIP of PAC-S and RefPAC-S: a folder, a repository, or the file of weights that its authors "
        "publish, for the architecture and tokenizer of `clip_model`.",
    )
    bert_model: str | None = Field(None, description=f"Encoder of BERTScore: {_SOURCE}")
    bert_layer: int | None = Field(
        None,
        ge=0,
        le=1000,
        description="Layer whose vectors BERTScore compares; models that bert_score knows by name need none.",
    )
    score_batch_size: int = Field(64, ge=1, le=65_536, description="Photos or texts in a batch of these models.")


class ScoreModels:
    """The models of learned scores, each opened once, when it is first asked for; on a GPU if there is one.

    >>> ScoreModels(clip_model="openai/clip-vit-base-patch32").has("bert_model")
    False

    Args:
        settings: those of `ScoreModelSettings`.

    Raises:
        UsageError: a setting is unknown or out of range.
    """

    def __init__(self, **settings: Any) -> None:
        self.settings = ScoreModelSettings.checked(settings)

    def has(self, name: ModelName) -> bool:
        """Whether a person named it."""
        return getattr(self.settings, name) is not None

    def open(self) -> Self:
        """Open all that are named, so that mistakes are reported before any work.

        Raises:
            ShowtellError: a model cannot be used, or lacks the layer.
        """
        for name in ("clip", "pac", "bert"):
            if getattr(self.settings, f"{name}_model") is not None:
                getattr(self, name)
        return self

    @cached_property
    def clip(self) -> ClipEncoder:
        """That of CLIPScore."""
        return self._open_clip(str(self.settings.clip_model))

    @cached_property
    def pac(self) -> ClipEncoder:
        """That of PAC-S."""
        return self._open_clip(str(self.settings.pac_model))

    def _open_clip(self, name: str) -> ClipEncoder:
        from showtell.scores.encoders import ClipEncoder

        return ClipEncoder(name, self.settings.clip_model, self.settings.score_batch_size)

    @cached_property
    def bert(self) -> BertEncoder:
        """That of BERTScore."""
        from showtell.scores.encoders import BertEncoder

        settings = self.settings
        return BertEncoder(str(settings.bert_model), settings.bert_layer, settings.score_batch_size)

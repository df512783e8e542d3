"""The models that learned scores compare with: what a person names, and where they are opened when a score asks."""

from __future__ import annotations

from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

from pydantic import Field, model_validator

from showtell.config import Config

if TYPE_CHECKING:
    from showtell.scores.base import Floats
    from showtell.scores.encoders import BertEncoder, ClipEncoder, Reporting

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
    bert_idf: bool = Field(False, description="Weight the tokens of BERTScore by inverse document frequency.")
    bert_baseline: str | None = Field(
        None, description="Rescale BERTScore by the baselines in a file of bert_score (rescale_baseline/en/NAME.tsv)."
    )
    score_batch_size: int = Field(64, ge=1, le=65_536, description="Photos or texts in a batch of these models.")

    @model_validator(mode="after")
    def _goes_together(self) -> Self:
        for name in ("bert_layer", "bert_idf", "bert_baseline"):
            if self.bert_model is None and getattr(self, name) not in (None, False):
                raise ValueError(f"{name} is for BERTScore, and bert_model names no encoder for it")
        return self


class ScoreModels:
    """The models of learned scores, each opened once, when it is first asked for.

    >>> ScoreModels(clip_model="openai/clip-vit-base-patch32").has("bert_model")
    False

    Args:
        reporting: shows the progress of long work; see `showtell.progress.counting`.
        device: where to compute; None: on a GPU if there is one.
        settings: those of `ScoreModelSettings`.

    Raises:
        UsageError: a setting is unknown, out of range, or lacks another.
    """

    def __init__(self, *, reporting: Reporting | None = None, device: str | None = None, **settings: Any) -> None:
        self.settings = ScoreModelSettings.checked(settings)
        self._reporting = reporting or (lambda text: nullcontext(lambda done, total: None))
        self._device = device

    def has(self, name: ModelName) -> bool:
        """Whether a person named it."""
        return getattr(self.settings, name) is not None

    def open(self) -> Self:
        """Open all that are named, so that what is wrong with them is said before any work.

        Raises:
            CheckpointError: a model is missing, incomplete, damaged or of another kind.
            WeightsError: a file of weights cannot be read.
            UsageError: a model lacks the layer, or none is known for its name.
            DataError: the file of baselines cannot be used.
            MissingDependencyError: transformers is not installed.
        """
        named = {"clip_model": "clip", "pac_model": "pac", "bert_model": "bert", "bert_baseline": "baseline"}
        for name, attribute in named.items():
            if getattr(self.settings, name) is not None:
                getattr(self, attribute)
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

        settings = self.settings
        return ClipEncoder(name, settings.clip_model, settings.score_batch_size, self._device, self._reporting)

    @cached_property
    def bert(self) -> BertEncoder:
        """That of BERTScore."""
        from showtell.scores.encoders import BertEncoder

        name, layer, size = str(self.settings.bert_model), self.settings.bert_layer, self.settings.score_batch_size
        return BertEncoder(name, layer, size, self._device, self._reporting)

    @cached_property
    def baseline(self) -> Floats | None:
        """P, R and F that BERTScore is rescaled by: (3,)."""
        from showtell.scores.learned import read_baseline

        file = self.settings.bert_baseline
        return None if file is None else read_baseline(Path(file), self.bert.layer)

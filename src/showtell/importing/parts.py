"""A model of a source in our terms, before it is built."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from showtell.features import Encoder
from showtell.importing.source_options import SourceOptions
from showtell.importing.source_tensors import SourceTensors
from showtell.importing.source_words import SourceWords


@dataclass(frozen=True)
class Project:
    """Whose weights they are."""

    name: str
    address: str
    licence: str


@dataclass
class Parts:
    """What a converter makes of a file."""

    name: str  # of the model, as the source calls it
    config: dict[str, Any]  # settings of our model
    feature_size: int  # numbers of a feature vector
    features: str  # what the features are called; the source of an encoder that is not at hand
    features_described: str  # what they are, for people
    encoder_options: str  # of `showtell import`, that have them made from photos; empty if the source has an encoder
    tensors: dict[str, Tensor]  # of our decoder
    decoding: dict[str, Any]  # default decoding settings
    notes: list[str] = field(default_factory=list)
    scores: dict[str, float] = field(default_factory=dict)  # that the authors' run recorded
    encoder: Encoder | None = None  # with its weights, if the source brings it


@dataclass(frozen=True)
class Converted:
    """All that was made of the files of a source."""

    project: Project
    parts: Parts
    words: SourceWords
    options: SourceOptions
    tensors: SourceTensors

"""What an encoder is: prepared photos in, one vector per grid cell or region out, and where in the photo each looked.

batch = PreparedBatch.of(images)                      # (B, 3, height, width) uint8, by `encoder.preprocessing`
features = encoder(batch)                             # Features, R vectors for each of B images
boxes = encoder.rectangles(features, batch.windows)   # (B, R, 4) pixels of the photo that each vector saw
"""

from __future__ import annotations

import abc
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from showtell.config import Config, Seed
from showtell.files import listed_paths, names_of
from showtell.images.loading import PreparedPhoto, prepare_photo
from showtell.images.photo import PhotoSource
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch

# Settings that say how the weights came about or change; the fingerprint has the weights themselves.
_NO_PART_OF_FEATURES = {
    "trained", "start_epoch", "learning_rate", "frozen_batch_norm", "weights", "seed", "position_slope",
}  # fmt: skip


class EncoderConfig(Config):
    """Settings of every encoder: whether it learns, and how fast."""

    trained: bool = Field(True, description="Train the encoder; if false, it is frozen and in eval mode.")
    start_epoch: int = Field(
        0, ge=0, description="First epoch in which the encoder is trained, counted from 0; before, it is frozen."
    )
    learning_rate: float | None = Field(
        None, gt=0, description="Learning rate of the encoder (default: `training.learning_rate`)."
    )
    seed: Seed | None = Field(None, description="Random seed of fresh weights (default: `training.seed`).")

    def store_of(self, dataset: str, folder: str = "stores/") -> str:
        """A name for the store of a dataset's features, by dataset, encoder, weights and settings unlike defaults."""
        changed = self.model_dump(mode="json", exclude={"name", *_NO_PART_OF_FEATURES}, exclude_defaults=True)
        nested = {key: value for key, value in changed.items() if isinstance(value, list | dict)}
        weights = getattr(self, "weights", "pretrained")
        source = Path(weights).stem
        parts = [
            "+".join(names_of(listed_paths(dataset))),
            self.name,  # type: ignore[attr-defined]
            *([] if weights == "pretrained" else [source]),
            *([hashlib.sha256(weights.encode()).hexdigest()[:8]] if source != weights else []),
            *(f"{key}{value}" for key, value in changed.items() if key not in nested),
            *([hashlib.sha256(json.dumps(nested).encode()).hexdigest()[:8]] if nested else []),
        ]
        return folder + re.sub(r"[^\w.+-]+", "_", "-".join(parts))

    def feature_settings(self) -> dict[str, Any]:
        """The settings on which features depend, as JSON has them."""
        return self.model_dump(mode="json", exclude=_NO_PART_OF_FEATURES)


class Encoder(nn.Module, abc.ABC):
    """Images to features."""

    config: EncoderConfig  # kept in the checkpoint, enough to build it again
    preprocessing: Preprocessing
    feature_size: int  # D
    categories: tuple[str, ...] = ()  # what `Regions.labels` count, for encoders that name what they find
    attributes: tuple[str, ...] = ()  # what `Regions.attributes` count, for encoders that say how it is
    precisions: tuple[str, ...] = ("fp32",)  # that its products can have; `compute_in` chooses

    def prepare(self, photo: PhotoSource) -> PreparedPhoto:
        """Open a photo (an ImageError if it is none) and prepare it."""
        return prepare_photo(photo, self.preprocessing)

    @abc.abstractmethod
    def forward(self, batch: PreparedBatch) -> Features:
        """Features of a batch."""

    @abc.abstractmethod
    def rectangles(self, features: Features, windows: Tensor) -> Tensor | None:
        """Where each vector looked: (B, R, 4) left, top, right, bottom in pixels of the upright photo.

        Args:
            features: from `forward`.
            windows: (B, 4) the part of each photo that was seen.

        Returns:
            None where that is not known, of features that another program computed.
        """

    def train(self, mode: bool = True) -> Encoder:
        """A frozen encoder stays in eval mode, batch norm included."""
        return super().train(mode and bool(self.config.trained))

    def parameter_groups(self) -> list[tuple[float | None, list[nn.Parameter]]]:
        """The weights that learn, each group with its learning rate; None is the decoder's."""
        weights = [weight for weight in self.parameters() if weight.requires_grad]
        return [(self.config.learning_rate, weights)] if weights else []

    @property
    def precision(self) -> str:
        """The precision of the matrix products, from the settings."""
        return str(getattr(self.config, "precision", "fp32"))

    def compute_in(self, precision: str) -> None:
        """Compute in another of its `precisions` from now on, which settings and fingerprint then have."""
        if precision != self.precision:
            self.config = self.config.model_copy(update={"precision": precision})

    @torch.no_grad()
    def fingerprint(self) -> str:
        """12 hexadecimal digits of what it sees: its settings, its preprocessing and its weights."""
        digest = hashlib.sha256()
        digest.update(f"{json.dumps(self.config.feature_settings())}{self.preprocessing.model_dump_json()}".encode())
        for name, tensor in sorted(self.state_dict().items()):
            digest.update(f"{name}{tensor.dtype}{tuple(tensor.shape)}".encode())
            digest.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
        return digest.hexdigest()[:12]

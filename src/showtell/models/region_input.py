"""What happens to feature vectors before a decoder attends to them: normalisation, positions of boxes, batch norm.

    a_i <- a_i / |a_i|                                   `normalise_features: true`
    a_i <- [a_i; x1/w, y1/h, x2/w, y2/h, s_i / (w h)]    `box_features: appended`, corners and area of the region's box
    a_i <- BN(a_i)                                       `feature_batch_norm: before` and `before_and_after`
    a_i <- dropout(max(0, W a_i + b))                    the projection, which belongs to the model; `input_dropout`
    a_i <- BN(a_i)                                       `feature_batch_norm: before_and_after`

These are choices of ImageCaptioning.pytorch (Luo, 2017 to 2020), in which the published weights of `att2in`, `updown`
and `transformer` were trained: its options `norm_att_feat` (`normalise_features`), `use_box` (`box_features:
appended`, with `norm_box_feat` `normalised`), `use_bn` 1 and 2 (`feature_batch_norm: before` and `before_and_after`)
and `drop_prob_lm` (`input_dropout`). No paper has them, and all are off by default.

Where this differs from it:
 1. It sorts regions by area where boxes are used. No model here depends on their order, so they are not sorted.
 2. Batch norm in training normalises by the regions of a batch, padding left out: what a step learns then depends on
    how a batch is split over processes, as it does nowhere else here.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.counter_rng import Dropout
from showtell.errors import UsageError
from showtell.models.contract import DecoderConfig
from showtell.types import Features

BOX_NUMBERS = 5  # appended to each vector


class RegionInputConfig(DecoderConfig):
    """The settings of a decoder whose features go through `RegionInput`."""

    normalise_features: bool = Field(False, description="Divide each feature vector by its length.")
    box_features: Literal["none", "appended", "normalised"] = Field(
        "none",
        description="Append corners and area of its box to each vector, as shares of the photo or also normalised.",
    )
    feature_batch_norm: Literal["none", "before", "before_and_after"] = Field(
        "none", description="Batch norm of the feature vectors before their projection, or before and after it."
    )
    input_dropout: float = Field(
        0.0, ge=0, lt=1, description="Dropout on projected feature vectors and on word embeddings."
    )

    def input_size(self, feature_size: int) -> int:
        """Numbers of a vector in front of the projection, D or D + 5."""
        return feature_size + (0 if self.box_features == "none" else BOX_NUMBERS)


class RegionInput(nn.Module):
    """What is done to vectors before and after their projection to `projected_size`, which belongs to the model."""

    def __init__(self, config: RegionInputConfig, *, feature_size: int, projected_size: int) -> None:
        super().__init__()
        self.config = config
        self.feature_size = feature_size
        self.size = config.input_size(feature_size)
        norm = config.feature_batch_norm
        self.norm_before = None if norm == "none" else RegionBatchNorm(self.size)
        self.norm_after = RegionBatchNorm(projected_size) if norm == "before_and_after" else None
        self.dropout = Dropout(config.input_dropout)

    def vectors(self, features: Features) -> Tensor:
        """The vectors, (B, R, size), normalised, with the numbers of their boxes, which features may bring."""
        own = features.vectors[..., : self.feature_size]
        vectors = F.normalize(own, dim=-1) if self.config.normalise_features else own
        if self.config.box_features == "none":
            return vectors
        has_numbers = features.vectors.shape[-1] == self.size
        numbers = features.vectors[..., self.feature_size :] if has_numbers else box_numbers(features).to(vectors.dtype)
        if self.config.box_features == "normalised":
            numbers = F.normalize(numbers, dim=-1)
        return torch.cat([vectors, numbers], -1)

    def project(self, features: Features, projection: nn.Module) -> Tensor:
        """The vectors that are attended to, (B, R, projected_size)."""
        vectors = self.vectors(features)
        if self.norm_before is not None:
            vectors = self.norm_before(vectors, features.is_region)
        projected: Tensor = self.dropout(projection(vectors))
        return projected if self.norm_after is None else self.norm_after(projected, features.is_region)

    def initialise(self) -> None:
        """Batch norm begins as the identity."""
        for norm in (self.norm_before, self.norm_after):
            if norm is not None:
                norm.reset_parameters()


class RegionBatchNorm(nn.BatchNorm1d):
    """torch's batch norm over the regions of a batch, without padding, in fixed shapes, as a CUDA graph needs them."""

    def forward(self, vectors: Tensor, is_region: Tensor) -> Tensor:  # type: ignore[override]
        """(B, R, D) and (B, R) to (B, R, D)."""
        if not self.training:
            return super().forward(vectors.flatten(0, 1)).view_as(vectors)
        assert self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None
        present = is_region.unsqueeze(-1).to(vectors.dtype)  # (B, R, 1)
        count = present.sum()
        mean = (vectors * present).sum((0, 1)) / count
        centred = (vectors - mean) * present
        variance = centred.square().sum((0, 1)) / count
        with torch.no_grad():
            self.num_batches_tracked += 1
            share = self.momentum or 0.0
            self.running_mean.lerp_(mean, share)
            self.running_var.lerp_(variance * count / (count - 1).clamp(min=1), share)
        return centred * (variance + self.eps).rsqrt() * self.weight + self.bias * present


def box_numbers(features: Features) -> Tensor:
    """Left, top, right, bottom and area of each box as shares of the photo, (B, R, 5); a UsageError without boxes."""
    regions = features.regions
    if regions is None or regions.windows is None:
        raise UsageError(
            "This model reads the boxes of its regions (model.box_features), and these features have none, or not the "
            "size of their photos: caption photos with the encoder that it was trained with, or features with boxes."
        )
    left, top, right, bottom = regions.windows.unsqueeze(1).unbind(-1)  # (B, 1) each
    width, height = (right - left).clamp(min=1), (bottom - top).clamp(min=1)
    x = (regions.boxes[..., 0::2] - left.unsqueeze(-1)) / width.unsqueeze(-1)  # (B, R, 2)
    y = (regions.boxes[..., 1::2] - top.unsqueeze(-1)) / height.unsqueeze(-1)
    area = (x[..., 1] - x[..., 0]) * (y[..., 1] - y[..., 0])
    return torch.stack([x[..., 0], y[..., 0], x[..., 1], y[..., 1], area], -1)

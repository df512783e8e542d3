"""The encoder `roi_grid`: a grid encoder whose map is pooled at the boxes that the dataset brings."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, SerializeAsAny, model_validator
from torch import nn

from showtell.errors import RecipeError, UsageError
from showtell.features.contract import EncoderConfig
from showtell.features.grid import GridEncoder
from showtell.features.quick_import import quick_import
from showtell.features.regions import ImageRegions, RegionEncoder, collect_regions
from showtell.images.boxes import boxes_on_image
from showtell.types import Features, PreparedBatch

_SAMPLES = 8  # bilinear samples along each side of a box over a grid encoder's map


class RoiGridConfig(EncoderConfig):
    """A grid encoder whose map is pooled at the boxes that the dataset brings. It learns as its backbone says."""

    name: Literal["roi_grid"] = "roi_grid"
    backbone: SerializeAsAny[EncoderConfig] = Field(
        description="The grid encoder and its settings: `small_cnn` or a backbone of timm."
    )
    whole_photo: bool = Field(False, description="Add the whole photo as a region behind the boxes.")

    @model_validator(mode="before")
    @classmethod
    def _learns_as_its_backbone(cls, content: Any) -> Any:
        from showtell.features import encoder_config  # the registry, which imports this file

        if not isinstance(content, dict) or not isinstance(content.get("backbone"), dict | EncoderConfig):
            return content
        backbone = content["backbone"]
        backbone = encoder_config(backbone) if isinstance(backbone, dict) else backbone
        shared = {"trained": bool(backbone.trained), "learning_rate": backbone.learning_rate}
        for key, value in shared.items():
            if content.get(key, value) != value:
                raise ValueError(f"{key} is set within backbone, which is all that learns here")
        return {**content, **shared, "backbone": backbone}

    def feature_settings(self) -> dict[str, Any]:
        """Those of the backbone within its own."""
        return super().feature_settings() | {"backbone": self.backbone.feature_settings()}


class RoiGrid(RegionEncoder):
    """The mean of a grid encoder's map within each box (RoIAlign, He et al. 2017): bottom-up attention with perfect
    boxes."""

    takes_boxes = True
    config: RoiGridConfig

    def __init__(self, config: RoiGridConfig, load_weights: bool) -> None:
        super().__init__()
        from showtell.features import build_encoder  # the registry, which imports this file

        self.config = config
        backbone = build_encoder(config.backbone, load_weights)
        if not isinstance(backbone, GridEncoder):
            raise RecipeError(
                "encoder.backbone of roi_grid is an encoder of grids, such as small_cnn or a backbone of timm; "
                f"{type(backbone).__name__} gives no grid."
            )
        self.backbone = backbone
        self.preprocessing = backbone.preprocessing
        self.feature_size = backbone.feature_size

    def forward(self, batch: PreparedBatch) -> Features:
        """A vector for each box that the image shows, in their order; the whole photo's where it shows none.

        Raises:
            UsageError: there are no boxes.
        """
        if batch.boxes is None:
            raise UsageError(
                "This model looks at boxes that its dataset brings (encoder.name=roi_grid), and a photo on its own has "
                "none: caption images of a dataset with boxes, or train with encoder.name=faster_rcnn, which finds "
                "its own."
            )
        frames = zip(batch.boxes, batch.windows, batch.sizes, strict=True)
        shown = [boxes_on_image(*frame, self.config.whole_photo) for frame in frames]
        grid = self.backbone(batch).vectors.float()
        rows, columns = self.backbone.grid_of(grid.shape[1])
        # cells of the map for each pixel of an image
        scales = [grid.new_tensor([columns / width, rows / height] * 2) for height, width in batch.sizes]
        vectors = quick_import("torchvision.ops").roi_align(
            grid.transpose(1, 2).unflatten(2, (rows, columns)),
            [own * cells for own, cells in zip(shown, scales, strict=True)],
            output_size=1,
            sampling_ratio=_SAMPLES,
            aligned=True,
        )
        parts = vectors.flatten(1).split([len(own) for own in shown])
        return collect_regions([ImageRegions(*part) for part in zip(parts, shown, strict=True)], batch)

    def parameter_groups(self) -> list[tuple[float | None, list[nn.Parameter]]]:
        """Those of the backbone."""
        return self.backbone.parameter_groups()

"""The encoder `precomputed`: a placeholder for another program, whose features are on disk."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from showtell.errors import CheckpointError
from showtell.features.contract import Encoder, EncoderConfig
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch


class PrecomputedConfig(EncoderConfig):
    """Features that another program computed: only their size and where they come from is known."""

    name: Literal["precomputed"] = "precomputed"
    trained: Literal[False] = Field(False, description="Precomputed features are always frozen.")
    feature_size: int = Field(ge=1, le=2**20, description="Numbers of each feature vector.")
    source: str = Field(min_length=1, description="Where the features come from, for people: a file, project or URL.")


class Precomputed(Encoder):
    """Stands for the program that computed the features of a store."""

    config: PrecomputedConfig

    def __init__(self, config: PrecomputedConfig) -> None:
        super().__init__()
        self.config = config
        self.feature_size = config.feature_size
        self.preprocessing = Preprocessing(  # of no consequence: no photo gets further than `forward`
            image_size=224, resize="squash", interpolation="bilinear", mean=(0, 0, 0), deviation=(1, 1, 1)
        )

    def forward(self, batch: PreparedBatch) -> Features:
        """Raise a CheckpointError that says what to do."""
        raise CheckpointError(
            f"This model was trained on features from {self.config.source}, which were computed elsewhere, so it "
            "cannot look at a photo: caption images whose features are in a store (--features STORE), train with an "
            "encoder of ours (encoder.name=faster_rcnn), which travels with the checkpoint, or, if this one was "
            "imported, import it again with the encoder of these features (--features-from ENCODER weights=FILE)."
        )

    def rectangles(self, features: Features, windows: Tensor) -> Tensor | None:
        """The boxes that came with the features; None where they came without."""
        return None if features.regions is None else features.regions.boxes

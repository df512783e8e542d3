"""The encoders of an ensemble as one: every member's features of the same prepared photos."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from showtell.features.contract import Encoder, EncoderConfig
from showtell.types import EnsembleFeatures, Features, PreparedBatch


class EnsembleEncoder(Encoder):
    """Encoders that prepare photos in the same way. Those that are the same, weights included, look once for all."""

    def __init__(self, members: Sequence[Encoder]) -> None:
        super().__init__()
        prints = [member.fingerprint() for member in members]
        self._of_member = [prints.index(own) for own in prints]  # the first member that sees the same
        self.members = nn.ModuleList(members)
        first = members[0]
        self.config = EncoderConfig(trained=False)
        self.preprocessing, self.feature_size = first.preprocessing, first.feature_size
        self.categories, self.attributes = first.categories, first.attributes

    def forward(self, batch: PreparedBatch) -> EnsembleFeatures:
        """The features of all members; see `Encoder.forward`."""
        features: dict[int, Features] = {index: self.members[index](batch) for index in sorted(set(self._of_member))}
        return EnsembleFeatures.of([features[index] for index in self._of_member])

    def rectangles(self, features: Features, windows: Tensor) -> Tensor | None:
        """Where the vectors of the first member looked; see `Encoder.rectangles`."""
        first = self.members[0]
        assert isinstance(first, Encoder)
        return first.rectangles(features, windows)

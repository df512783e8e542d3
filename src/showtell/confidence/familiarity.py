"""Whether a photo looks like those that a captioner was calibrated on, by the features that the captioner sees.

The mean feature vector of a photo is projected on the principal components of those of a validation split; what the
projection leaves over is its distance. A photo is unfamiliar if its distance is above that of 99 % of validation, each
measured by components of other photos. Calibration alone cannot say so: it is fitted where all photos are familiar.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import FiniteFloat

from showtell.errors import DataError

Floats = NDArray[np.float64]
COMPONENTS = 128  # at most
QUANTILE = 0.99  # of the distances in validation, above which a photo is unfamiliar
FOLDS = 5


@dataclass(frozen=True)
class Familiarity:
    """The principal components of familiar photos."""

    mean: tuple[FiniteFloat, ...]  # (D,)
    components: tuple[tuple[FiniteFloat, ...], ...]  # (K, D), orthonormal
    limit: FiniteFloat  # distance from which a photo is unfamiliar

    @classmethod
    def fit(cls, vectors: Floats) -> Self:
        """Fit to the mean feature vectors (N, D) of a validation split."""
        fold = np.arange(len(vectors)) % FOLDS
        distances = np.empty(len(vectors))
        for number in range(FOLDS):
            distances[fold == number] = _distances(vectors[fold == number], *_components(vectors[fold != number]))
        mean, components = _components(vectors)
        rounded = [tuple(float(f"{value:.4g}") for value in row) for row in (mean, *components)]  # half the file
        return cls(rounded[0], tuple(rounded[1:]), float(np.quantile(distances, QUANTILE)))

    def coordinates(self, vectors: Floats) -> Floats:
        """Mean feature vectors (N, D) on the components: (N, K); a DataError if they are of another D."""
        self._check(vectors)
        coordinates: Floats = (vectors - np.asarray(self.mean)) @ np.asarray(self.components).T
        return coordinates

    def is_familiar(self, vectors: Floats) -> list[bool]:
        """Whether photos with these mean feature vectors (N, D) are familiar; a DataError if they are of another D."""
        self._check(vectors)
        distances = _distances(vectors, np.asarray(self.mean), np.asarray(self.components))
        return [bool(distance <= self.limit) for distance in distances]

    def _check(self, vectors: Floats) -> None:
        if {len(self.mean), *map(len, self.components)} != {vectors.shape[1]}:
            raise DataError(
                f"The calibration is not of this checkpoint, whose features have {vectors.shape[1]} numbers; calibrate "
                "the checkpoint again."
            )


def _components(vectors: Floats) -> tuple[Floats, Floats]:
    """The mean (D,) of vectors (N, D) and their first principal components (K, D)."""
    mean = vectors.mean(0)
    directions = np.linalg.svd(vectors - mean, full_matrices=False)[2]
    return mean, directions[: min(COMPONENTS, vectors.shape[1] // 3, len(vectors) // 4)]


def _distances(vectors: Floats, mean: Floats, components: Floats) -> Floats:
    """How far vectors (N, D) are from the span of components: (N,)."""
    centred = vectors - mean
    distances: Floats = np.linalg.norm(centred - centred @ components.T @ components, axis=1)
    return distances

"""Many photos as squares for an encoder: kept in memory where they fit, read by worker processes where not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.data import Dataset

from showtell.images.photo import open_photo
from showtell.images.preprocessing import Preprocessing


class Squares(Dataset[Tensor]):
    """The squares of some photos, by index: (3, size, size) uint8.

    Args:
        paths: of the photos.
        preprocessing: of the encoder.
        memory_megabytes: they are all read at once and kept if they need no more than this.
        progress: called with 1 after each photo that is read at once.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        preprocessing: Preprocessing,
        memory_megabytes: int = 0,
        progress: Callable[[int], None] | None = None,
    ) -> None:
        self._paths = paths
        self._preprocessing = preprocessing
        side = preprocessing.image_size
        self.in_memory = len(paths) * 3 * side * side <= memory_megabytes * 2**20
        self._kept: Tensor | None = None
        if self.in_memory:
            kept = torch.empty((len(paths), 3, side, side), dtype=torch.uint8)
            with ThreadPoolExecutor(max_workers=4) as pool:
                for index, square in enumerate(pool.map(self._read, paths)):
                    kept[index] = square
                    if progress:
                        progress(1)
            self._kept = kept

    def _read(self, path: Path) -> Tensor:
        return self._preprocessing.to_square(open_photo(path))

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Tensor:
        return self._read(self._paths[index]) if self._kept is None else self._kept[index]

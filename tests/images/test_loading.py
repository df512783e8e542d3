"""Photos in batches: what threads and processes read is the same, in order, with the errors of what is no photo."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from showtell.errors import ImageError
from showtell.images.loading import FEW, READERS, prepare_batches, prepare_photo
from showtell.images.preprocessing import Preprocessing

SETTINGS = Preprocessing(
    image_size=8, resize="fit", longest=12, interpolation="bilinear", mean=(0, 0, 0), deviation=(1, 1, 1)
)


def test_for_a_gpu_processes_read_the_same(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(5):
        pixels = random.integers(0, 256, (9 + number, 12, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number}.png")
    (tmp_path / "5.png").write_text("text")
    paths = [tmp_path / f"{number % 6}.png" for number in range(FEW + 23)]

    def read(count: int, device: str) -> list[tuple[Path, object]]:
        batches = list(
            prepare_batches(
                iter(paths[:count]), lambda path: prepare_photo(path, SETTINGS), 7, first_alone=True,
                device=torch.device(device),
            )
        )  # fmt: skip
        assert [len(batch) for batch in batches[:2]] == [1, 7]
        return [
            (path, str(photo) if isinstance(photo, ImageError) else (photo.pixels.tolist(), photo.size, photo.window))
            for batch in batches
            for path, photo in batch
        ]

    state, expected = torch.random.get_rng_state(), read(len(paths), "cpu")
    assert [path for path, _ in expected] == paths
    for count in (FEW, len(paths)):
        assert read(count, "cuda") == expected[:count]
    assert torch.equal(state, torch.random.get_rng_state())


def test_who_stops_early_leaves_no_process_behind(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "photo.png")
    paths, gpu = [tmp_path / "photo.png"] * (2 * FEW), torch.device("cuda")
    batches = prepare_batches(paths, lambda path: prepare_photo(path, SETTINGS), FEW + 1, device=gpu)
    next(batches)
    readers = multiprocessing.active_children()
    assert len(readers) == READERS
    del batches
    assert not any(reader.is_alive() for reader in readers)

"""Photos in batches: what threads and processes read is the same, in order, with the errors of what is no photo."""

import multiprocessing
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from showtell.errors import ImageError
from showtell.images.loading import (
    NUM_WORKERS,
    PHOTOS_BY_THREADS,
    prefetch,
    prefetch_map,
    prepare_batches,
    prepare_photo,
)
from showtell.images.preprocessing import Preprocessing

COLOURS = {"mean": (0, 0, 0), "deviation": (1, 1, 1)}
SETTINGS = Preprocessing(image_size=8, resize="fit", longest=12, interpolation="bilinear", **COLOURS)
prepare = partial(prepare_photo, preprocessing=SETTINGS)


def test_for_a_gpu_processes_read_the_same(tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    for number in range(5):
        Image.fromarray(random.integers(0, 256, (9 + number, 12, 3), dtype=np.uint8)).save(tmp_path / f"{number}.png")
    (tmp_path / "5.png").write_text("text")
    paths = [tmp_path / f"{number % 6}.png" for number in range(PHOTOS_BY_THREADS + 23)]

    def read(count: int, device: str) -> list[tuple[Path, object]]:
        batches = [*prepare_batches(iter(paths[:count]), prepare, 7, first_alone=True, device=torch.device(device))]
        assert [len(batch) for batch in batches[:2]] == [1, 7]
        return [
            (path, str(photo) if isinstance(photo, ImageError) else (photo.pixels.tolist(), photo.size, photo.window))
            for batch in batches
            for path, photo in batch
        ]

    state, expected = torch.random.get_rng_state(), read(len(paths), "cpu")
    assert [path for path, _ in expected] == paths
    for count in (PHOTOS_BY_THREADS, len(paths)):
        assert read(count, "cuda") == expected[:count]
    assert torch.equal(state, torch.random.get_rng_state())


def test_who_stops_early_leaves_no_process_behind(tmp_path: Path) -> None:
    Image.new("RGB", (9, 9)).save(tmp_path / "photo.png")
    paths, gpu = [tmp_path / "photo.png"] * (2 * PHOTOS_BY_THREADS), torch.device("cuda")
    batches = prepare_batches(paths, prepare, PHOTOS_BY_THREADS + 1, device=gpu)
    next(batches)
    readers = multiprocessing.active_children()
    assert len(readers) == NUM_WORKERS
    del batches
    assert not any(reader.is_alive() for reader in readers)


def test_items_and_results_come_in_order_from_threads():
    threads = set()

    def items():
        for number in range(7):
            threads.add(threading.get_ident())
            yield number

    def slow_first(number):
        time.sleep(0.02 * (number % 3 == 0))
        return number * number

    for ahead in (0, 1, 20):
        threads.clear()
        assert list(prefetch(items(), ahead=ahead)) == list(range(7)) and list(prefetch([], ahead=ahead)) == []
        assert len(threads) == 1 and threading.get_ident() not in threads
    for workers in (1, 4):
        assert list(prefetch_map(slow_first, range(10), ahead=5, workers=workers)) == [n * n for n in range(10)]


BICUBIC = Preprocessing(
    image_size=300, resize="squash", interpolation="bicubic", mean=(0.485, 0.456, 0.406),
    deviation=(0.229, 0.224, 0.225),
)  # fmt: skip


@pytest.mark.skipif(sys.platform != "linux", reason="the threads of a process are counted in /proc")
def test_a_thread_that_prepares_photos_starts_no_threads_of_its_own() -> None:
    photo = Image.effect_noise((400, 350), 50).convert("RGB")

    def count_threads(prepare: bool) -> int:
        before = torch.get_num_threads()
        torch.set_num_threads(2)  # of this thread; an operator of torch that runs in parallel would start one
        if prepare:
            BICUBIC.prepare(photo)
        torch.set_num_threads(before)
        return len(list(Path("/proc/self/task").iterdir()))

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(count_threads, False).result() == pool.submit(count_threads, True).result()


def test_pixels_are_those_of_the_photo_in_memory_of_their_own() -> None:
    photo = Image.effect_noise((300, 300), 50).convert("RGB")
    photo.putpixel((7, 2), (1, 2, 3))
    pixels = BICUBIC.prepare(photo)
    assert pixels.is_contiguous() and pixels[:, 2, 7].tolist() == [1, 2, 3]
    pixels[:, 2, 7] = 9
    assert photo.getpixel((7, 2)) == (1, 2, 3)
    assert BICUBIC.model_copy(update={"image_size": 1}).prepare(photo).shape == (3, 1, 1)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_normalised_numbers_are_those_of_the_plain_formula(layout: torch.memory_format) -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(2, 3, 1, 1).contiguous(memory_format=layout)
    kept = images.clone()
    mean, deviation = torch.tensor(BICUBIC.mean).view(3, 1, 1), torch.tensor(BICUBIC.deviation).view(3, 1, 1)
    assert torch.equal(BICUBIC.normalise(images), (images.float() / 255 - mean) / deviation)
    assert torch.equal(images, kept)

"""Preparing photos: no threads beside those that read, and the plain formula's bits."""

from __future__ import annotations

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from PIL import Image

from showtell.images.preprocessing import Preprocessing

SETTINGS = Preprocessing(
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
            SETTINGS.prepare(photo)
        torch.set_num_threads(before)
        return len(list(Path("/proc/self/task").iterdir()))

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(count_threads, False).result() == pool.submit(count_threads, True).result()


def test_pixels_are_those_of_the_photo_in_memory_of_their_own() -> None:
    photo = Image.effect_noise((300, 300), 50).convert("RGB")
    photo.putpixel((7, 2), (1, 2, 3))
    pixels = SETTINGS.prepare(photo)
    assert pixels.is_contiguous() and pixels[:, 2, 7].tolist() == [1, 2, 3]
    pixels[:, 2, 7] = 9
    assert photo.getpixel((7, 2)) == (1, 2, 3)
    assert SETTINGS.model_copy(update={"image_size": 1}).prepare(photo).shape == (3, 1, 1)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_normalised_numbers_are_those_of_the_plain_formula(layout: torch.memory_format) -> None:
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16).repeat(2, 3, 1, 1).contiguous(memory_format=layout)
    kept = images.clone()
    mean, deviation = torch.tensor(SETTINGS.mean).view(3, 1, 1), torch.tensor(SETTINGS.deviation).view(3, 1, 1)
    assert torch.equal(SETTINGS.normalise(images), (images.float() / 255 - mean) / deviation)
    assert torch.equal(images, kept)

import io
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from showtell.datasets.near_duplicates import MIN_CONTRAST, TOLERANCE, near_duplicates, thumbnail
from showtell.images.photo import open_photo


def difference(one: np.ndarray, other: np.ndarray) -> int:
    """The most that any cell differs."""
    return int(np.abs(one.astype(int) - other.astype(int)).max())


def test_the_tolerance_is_exact() -> None:
    one = np.zeros((8, 8, 3), np.uint8)
    one[:4] = 200
    other = one.copy()
    other[5, 5, 2] += TOLERANCE
    assert near_duplicates([one, other]) == [(0, 1)]
    other[5, 5, 2] += 1
    assert near_duplicates([one, other]) == []


def test_plain_photos_are_in_no_pair() -> None:
    plain = np.full((8, 8, 3), 100, np.uint8)
    plain[0] = 100 + MIN_CONTRAST - 1
    assert near_duplicates([plain, plain]) == []
    plain[0] += 1
    assert near_duplicates([plain, plain]) == [(0, 1)]


@given(st.integers(0, 10**6), st.integers(2, 25))
def test_the_quick_way_finds_what_comparing_all_finds(seed: int, photos: int) -> None:
    random = np.random.default_rng(seed)
    cells: list[np.ndarray] = [random.integers(0, 256, (8, 8, 3)).astype(np.uint8)]
    for _ in range(photos - 1):  # a new one, or an old one moved by about the tolerance, across the edges of buckets
        shift = random.integers(-TOLERANCE, TOLERANCE + 1, (8, 8, 3)) + random.integers(0, 2)
        old = cells[random.integers(len(cells))]
        is_new = random.random() < 0.4
        cells.append(np.clip(random.integers(0, 256, (8, 8, 3)) if is_new else old + shift, 0, 255).astype(np.uint8))
    leaders: list[int] = []
    expected = []
    for index, one in enumerate(cells):
        first = next((leader for leader in leaders if difference(cells[leader], one) <= TOLERANCE), None)
        if first is None:
            leaders.append(index)
        else:
            expected.append((first, index))
    assert near_duplicates(cells) == expected


def saved(photo: Image.Image, quality: int) -> Image.Image:
    stream = io.BytesIO()
    photo.save(stream, "JPEG", quality=quality)
    return Image.open(stream).convert("RGB")


@pytest.mark.shared
def test_real_photos_are_told_from_each_other_and_their_copies_are_found(shared_data: Path) -> None:
    photos = [open_photo(path) for path in sorted((shared_data / "coco-mini" / "images").glob("*.jpg"))]
    originals = [thumbnail(photo) for photo in photos]
    assert len(originals) == 145 and near_duplicates(originals) == []
    least = min(difference(one, other) for n, one in enumerate(originals) for other in originals[n + 1 :])
    assert least == 59  # as the module says
    for photo, original in zip(photos, originals, strict=True):
        half = (photo.width // 2, photo.height // 2)
        for copy in (saved(photo, 20), photo.resize(half), saved(photo.resize((224, 224)), 85)):
            assert difference(thumbnail(copy), original) <= 12

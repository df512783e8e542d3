from __future__ import annotations

import torch

from showtell.features.passes import PIXELS_AT_ONCE, group_by_shape

GPU, CPU = torch.device("cuda"), torch.device("cpu")


def test_passes_hold_photos_of_one_shape_and_no_more_than_fit():
    large = PIXELS_AT_ONCE // 8 // 1344
    shapes = [(large, 1344), (large, 1088), *[(large, 1344)] * 9, (large + 32, 1344)]
    passes = list(group_by_shape(shapes, GPU))
    assert passes == [[0, 2, 3, 4, 5, 6, 7, 8], [9, 10], [1], [11]]
    assert list(group_by_shape([(10**5, 10**5)] * 2, GPU)) == [[0], [1]]


def test_on_a_cpu_every_photo_goes_alone():
    assert list(group_by_shape([(64, 64), (64, 32), (64, 64)], CPU)) == [[0], [2], [1]]


def test_what_else_differs_keeps_photos_of_one_size_apart():
    assert list(group_by_shape([(64, 64, 0), (64, 64, 1), (64, 64, 0)], GPU)) == [[0, 2], [1]]

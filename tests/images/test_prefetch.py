"""Prefetching keeps the order, looks no further ahead than it is told, and hands on what goes wrong."""

from __future__ import annotations

import threading
import time

from showtell.images.prefetch import prefetch, prefetch_map


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


def test_items_are_drawn_as_many_ahead_as_asked_for():
    drawn = []

    def items():
        for number in range(100):
            drawn.append(number)
            yield number

    results = prefetch_map(lambda number: number, items(), ahead=4)
    assert drawn == []
    assert next(results) == 0 and len(drawn) == 5
    assert next(results) == 1 and len(drawn) == 6
    results.close()
    assert len(drawn) == 6

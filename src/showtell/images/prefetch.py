"""Prefetching: results in the order of their items, computed by threads a few items ahead."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, repeat, takewhile
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def prefetch(items: Iterable[ItemT], *, ahead: int) -> Iterator[ItemT]:
    """The same items, drawn by a thread ahead of their use; `ahead` is that of `prefetch_map`."""
    remaining = iter(items)
    drawn = prefetch_map(lambda _: list(islice(remaining, 1)), repeat(None), ahead=ahead)
    for (item,) in takewhile(len, drawn):
        yield item


def prefetch_map(
    function: Callable[[ItemT], ResultT], items: Iterable[ItemT], *, ahead: int, workers: int = 1
) -> Generator[ResultT]:
    """The results of a function for items, in their order, computed by threads ahead of their use.

    Args:
        function: called with one item.
        items: drawn by the consumer's thread, up to `ahead` items early.
        ahead: number of results that are computed while one is used.
        workers: number of threads.
    """
    remaining = iter(items)
    waiting: deque[Future[ResultT]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        while True:
            waiting.extend(pool.submit(function, item) for item in islice(remaining, ahead + 1 - len(waiting)))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)

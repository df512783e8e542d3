"""Prefetching: results in their order, the next few being made by threads while one is used."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice, repeat, takewhile
from typing import TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")


def prefetch(items: Iterable[ItemT], *, ahead: int, timeout: float | None = None) -> Iterator[ItemT]:
    """The same items, drawn by a thread before they are asked for; the arguments are those of `prefetch_map`."""
    remaining = iter(items)
    drawn = prefetch_map(lambda _: list(islice(remaining, 1)), repeat(None), ahead=ahead, timeout=timeout)
    for (item,) in takewhile(len, drawn):
        yield item


def prefetch_map(
    function: Callable[[ItemT], ResultT],
    items: Iterable[ItemT],
    *,
    ahead: int,
    workers: int = 1,
    timeout: float | None = None,
) -> Generator[ResultT]:
    """What a function makes of items, in their order, called by threads before it is asked for.

    Args:
        function: called with one item.
        items: drawn from by whoever asks for results, `ahead` items before they are used.
        ahead: results that are made while one is used.
        workers: threads.
        timeout: seconds to wait for a result; None: for ever.

    Raises:
        TimeoutError: a result did not come in time.
    """
    remaining = iter(items)
    waiting: deque[Future[ResultT]] = deque()
    pool = ThreadPoolExecutor(workers)
    try:
        while True:
            waiting.extend(pool.submit(function, item) for item in islice(remaining, ahead + 1 - len(waiting)))
            if not waiting:
                return
            yield waiting.popleft().result(timeout)
    finally:
        pool.shutdown(wait=False, cancel_futures=True)

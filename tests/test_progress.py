"""Progress in lines and bars: how many, how fast and how long."""

from __future__ import annotations

import io
import time
from collections.abc import Callable

import pytest
from rich.progress import Progress

from showtell.errors import UsageError
from showtell.progress import ProgressLines, counting


def test_a_line_has_items_rate_and_time_left(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("showtell.progress.time.monotonic", lambda: clock[0])
    with ProgressLines("captioning", 1000) as lines:
        clock[0] += 20  # starting up
        assert lines.describe() == "captioning: 0 of 1,000, 0:00:20 so far"
        lines.advance(10)
        clock[0] += 10
        lines.advance(20)
        assert lines.describe() == "captioning: 30 of 1,000, 2.0/s, 0:08:05 left"
        lines.detail = "loss 1.5"
        assert lines.describe() == "captioning: 30 of 1,000, loss 1.5, 0:08:05 left"


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_of_works_within_each_other_the_innermost_is_told(monkeypatch):
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setenv("SHOWTELL_PROGRESS_SECONDS", "0.02")
    with counting("training"):
        until(lambda: "showtell: training: 0, 0:00:00 so far" in err.getvalue())
        with counting("validating", 7) as count:  # lines come while an item takes long
            until(lambda: err.getvalue().count("validating: 0 of 7, ") >= 2)
            count(1)
            until(lambda: "validating: 1 of 7, " in err.getvalue())
            with counting("hidden", 2, quiet=True) as hidden:
                hidden(1)
        inner = err.getvalue().rindex("validating")
        until(lambda: "training" in err.getvalue()[inner:])
    printed = err.getvalue()
    assert "hidden" not in printed
    time.sleep(0.1)
    assert err.getvalue() == printed  # nothing after the end


def test_an_interval_that_is_no_number_is_refused(monkeypatch):
    for value in ("often", "0", "-3", "nan", "inf"):
        monkeypatch.setenv("SHOWTELL_PROGRESS_SECONDS", value)
        with pytest.raises(UsageError) as raised, counting("scoring", 2):
            pytest.fail("it was taken")
        assert str(raised.value) == (
            f'SHOWTELL_PROGRESS_SECONDS should be a number of seconds above 0, and is "{value}"; unset it.'
        )


def test_a_bar_inside_another_is_shown_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # as on a terminal
    shown: list[str] = []
    start, stop = Progress.start, Progress.stop
    monkeypatch.setattr(Progress, "start", lambda bar: (shown.append("start"), start(bar)))
    monkeypatch.setattr(Progress, "stop", lambda bar: (shown.append("stop"), stop(bar)))
    with counting("captioning", 2) as outer:
        outer(1)
        with counting("scoring") as inner:
            inner(1, 2)
        outer(1)
    assert shown == ["start", "stop", "start", "stop", "start", "stop"]

"""Progress in lines and bars: how many, how fast and how long."""

from __future__ import annotations

import io
import re
import time
from collections.abc import Callable

import pytest
from rich.progress import Progress

from showtell import progress
from showtell.errors import UsageError
from showtell.progress import counting, reporting, working


@pytest.fixture
def clock(monkeypatch):
    """A clock that is moved by hand."""

    class Clock:
        now = 100.0

        def monotonic(self) -> float:
            return self.now

    made = Clock()
    monkeypatch.setattr(progress, "time", made)
    return made


def test_lines_where_stderr_is_no_terminal(capsys, clock):
    with reporting("captioning", seconds=30) as report:
        clock.now += 20  # starting up
        report(10, 1000)
        clock.now += 9
        report(10, 1000)
        clock.now += 1
        report(10, 1000)
        clock.now += 29.9
        report(10, 1000)
        clock.now += 50.1
        report(960, 1010)
    assert capsys.readouterr().err.splitlines() == [
        "showtell: captioning: 30 of 1,000, 2.0/s, 0:08:05 left",  # 20 in the 10 seconds since the first
        "showtell: captioning: 1,000 of 1,010, 11.0/s, 0:00:01 left",  # 990 in 90 seconds
    ]


def test_lines_of_what_nobody_has_counted(capsys, clock):
    with reporting("captioning", seconds=5) as report:
        clock.now += 6
        report(10, None)
        clock.now += 5
        report(10, None)
    assert capsys.readouterr().err.splitlines() == ["showtell: captioning: 10", "showtell: captioning: 20, 2.0/s"]


def until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < limit
        time.sleep(0.005)


def test_a_line_comes_while_an_item_takes_long(monkeypatch):
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    with reporting("scoring", seconds=0.02, total=2) as report:
        until(lambda: err.getvalue().count("\n") >= 2)
        report(1, 2)
        until(lambda: "1 of 2" in err.getvalue())
    lines = err.getvalue().splitlines()
    assert lines[:2] == ["showtell: scoring: 0 of 2, 0:00:00 so far"] * 2
    assert lines[-1] == "showtell: scoring: 1 of 2"
    time.sleep(0.1)
    assert err.getvalue().splitlines() == lines  # nothing after the end


def test_of_works_within_each_other_the_innermost_is_told(monkeypatch):
    err = io.StringIO()
    monkeypatch.setattr("sys.stderr", err)
    monkeypatch.setenv("SHOWTELL_PROGRESS_SECONDS", "0.02")
    with working("train"):
        until(lambda: bool(err.getvalue()))
        with counting("validating", 7):
            err.truncate(0)
            until(lambda: err.getvalue().count("\n") >= 3)
            assert "train" not in err.getvalue()
        err.truncate(0)
        until(lambda: bool(err.getvalue()))
        assert "showtell: train: 0:00:00 so far" in err.getvalue()


def test_an_interval_that_is_no_number_is_refused(monkeypatch):
    for value in ("often", "0", "-3", "nan", "inf"):
        monkeypatch.setenv("SHOWTELL_PROGRESS_SECONDS", value)
        with pytest.raises(UsageError) as raised, counting("scoring", 2):
            pytest.fail("it was taken")
        assert str(raised.value) == (
            f'SHOWTELL_PROGRESS_SECONDS should be a number of seconds above 0, and is "{value}"; unset it.'
        )


@pytest.mark.parametrize(("width", "has_bar", "has_rate"), [(100, True, True), (60, False, True), (40, False, False)])
def test_a_narrow_terminal_has_fewer_fields(capsys, monkeypatch, width, has_bar, has_rate):
    for name, value in {"FORCE_COLOR": "1", "TERM": "xterm", "COLUMNS": str(width), "LINES": "30"}.items():
        monkeypatch.setenv(name, value)
    with counting("captioning", 500) as progress:
        for _ in range(4):
            time.sleep(0.05)
            progress(1)
        time.sleep(0.6)  # until it is drawn again
    frames = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", capsys.readouterr().err).replace("\r", "\n").splitlines()
    frame = next(one for one in reversed(frames) if "4/500" in one)
    assert re.search(r"captioning .*4/500.* \d?\d:\d\d left", frame), frame
    assert len(frame.rstrip()) <= width
    assert ("━" in frame, "/s" in frame) == (has_bar, has_rate)


def test_a_bar_inside_another_is_shown_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")  # as on a terminal
    shown: list[str] = []
    start, stop = Progress.start, Progress.stop
    monkeypatch.setattr(Progress, "start", lambda bar: (shown.append("start"), start(bar)))
    monkeypatch.setattr(Progress, "stop", lambda bar: (shown.append("stop"), stop(bar)))
    with counting("captioning", 2) as outer:
        outer(1)
        with reporting("scoring") as inner:
            inner(1, 2)
        outer(1)
    assert shown == ["start", "stop", "start", "stop", "start", "stop"]

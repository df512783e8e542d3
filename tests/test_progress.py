"""Progress in lines: how many, how fast and how long."""

from __future__ import annotations

import pytest

from showtell import progress
from showtell.progress import reporting


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

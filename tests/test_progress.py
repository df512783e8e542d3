"""Progress in lines and bars: how many, how fast and how long."""

from __future__ import annotations

from showtell.progress import ProgressLines, counting


def test_a_line_has_items_rate_and_time_left(monkeypatch):
    clock = [100.0]
    monkeypatch.setattr("showtell.progress.time.monotonic", lambda: clock[0])
    lines = ProgressLines("captioning", 1000)
    assert lines.describe() == "captioning: 0 of 1,000"
    lines.advance(10)
    clock[0] += 10
    lines.advance(20)
    assert lines.describe() == "captioning: 30 of 1,000, 2.0/s, 0:08:05 left"
    lines.detail = "loss 1.5"
    assert lines.describe() == "captioning: 30 of 1,000, loss 1.5, 0:08:05 left"


def test_a_line_comes_every_20_seconds_and_none_from_what_is_quiet(monkeypatch, capsys):
    clock = [0.0]
    monkeypatch.setattr("showtell.progress.SECONDS", 20)
    monkeypatch.setattr("showtell.progress.time.monotonic", lambda: clock[0])
    with counting("validating", 70) as count, counting("hidden", 2, quiet=True) as hidden:
        for _ in range(7):
            clock[0] += 9
            count(10)
            hidden(1)
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(" of")[0] for line in lines] == ["showtell: validating: 30", "showtell: validating: 60"]

"""A folder of captions in parts: whole parts alone count, whatever stopped the rest, and what failed is listed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

from showtell.bulk import CaptionedBatch, Part
from showtell.bulk.parts import FileList, TarShard
from showtell.cli.caption_formats import FORMATS
from showtell.cli.caption_parts import write_parts
from showtell.errors import DataError

PARTS = [FileList(("a", "b", "c")), TarShard("t.tar"), FileList(("d", "bad", "e"))]
NAMES = {0: "abc", 1: "wxyz", 2: ["d", "bad", "e"]}


def record(name: str) -> dict[str, Any]:
    return {"image": name, "error": f"{name} is no image."} if name == "bad" else {"image": name, "captions": []}


class Engine:
    """Gives records of two at a time, the parts mixed, and stops where it is told to."""

    def __init__(self, stop: BaseException | None = None, after: int = 0) -> None:
        self.asked: list[int] = []
        self._stop, self._after = stop, after

    def __call__(self, parts: Iterable[tuple[int, Part]]) -> Iterator[CaptionedBatch]:
        numbers = [number for number, _ in parts]
        self.asked = numbers
        steps = []
        for number in numbers:
            records = [record(name) for name in NAMES[number]]
            rows = [
                CaptionedBatch(number, first, records[first : first + 2], False) for first in range(0, len(records), 2)
            ]
            steps.append([*rows, CaptionedBatch(number, len(records), [], True)])
        longest = max(map(len, steps), default=0)
        mixed = [rows[step] for step in range(longest) for rows in reversed(steps) if step < len(rows)]
        for count, captioned in enumerate(mixed):
            if self._stop is not None and count == self._after:
                raise self._stop
            yield captioned


def write(folder: Path, engine: Engine, plan: list[Part] | None = None, **made_with: Any) -> None:
    write_parts(lambda: PARTS if plan is None else plan, engine, FORMATS["jsonl"], "jsonl", folder, made_with)


def lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def test_parts_manifest_and_side_list(tmp_path, capsys):
    with pytest.raises(DataError) as caught:
        write(tmp_path / "out", Engine())
    assert str(caught.value) == (
        f"1 of 10 photos could not be captioned, as {tmp_path}/out/failed.jsonl says: bad is no image."
    )
    for number, names in NAMES.items():
        assert lines(tmp_path / "out" / f"part-0000{number}.jsonl") == [record(name) for name in names]
    assert lines(tmp_path / "out" / "failed.jsonl") == [record("bad")]
    head, *parts, end = lines(tmp_path / "out" / "manifest.jsonl")
    assert (head["kind"], head["format"]) == ("showtell captions", "jsonl")
    assert sorted(parts, key=lambda part: part["part"]) == [
        {"part": "part-00000.jsonl", "photos": 3, "failed": []},
        {"part": "part-00001.jsonl", "photos": 4, "failed": []},
        {"part": "part-00002.jsonl", "photos": 3, "failed": [record("bad")]},
    ]
    assert end == {"part": "end", "photos": 10, "failed": 1}
    assert capsys.readouterr().err == f"showtell: {tmp_path}/out has the captions of 9 photos in 3 parts.\n"


@pytest.mark.parametrize("after", range(9))
def test_wherever_it_stops_it_goes_on_and_ends_the_same(tmp_path, after):
    """`RuntimeError` stands for any death: nothing is tidied up on its way."""
    with pytest.raises(DataError, match="bad is no image"):
        write(tmp_path / "whole", Engine())
    stopped, on = Engine(RuntimeError("dead"), after), Engine()
    with pytest.raises(RuntimeError, match="dead"):
        write(tmp_path / "out", stopped)
    done = {path.name for path in (tmp_path / "out").glob("part-*")}
    with pytest.raises(DataError, match="1 of 10 photos"):
        write(tmp_path / "out", on, None if done else PARTS)
    assert {f"part-0000{number}.jsonl" for number in on.asked} == {
        f"part-0000{number}.jsonl" for number in range(3)
    } - done
    for path in (tmp_path / "whole").glob("[pf]*.jsonl"):
        assert (tmp_path / "out" / path.name).read_bytes() == path.read_bytes()
    ends = [sorted(map(json.dumps, lines(tmp_path / name / "manifest.jsonl"))) for name in ("whole", "out")]
    assert ends[0] == ends[1]


def test_a_part_that_the_manifest_does_not_have_yet_is_written_again(tmp_path):
    with pytest.raises(RuntimeError):
        write(tmp_path, Engine(RuntimeError(), after=8))  # the parts 2 and 1 are whole, 0 is not
    manifest = tmp_path / "manifest.jsonl"
    kept = manifest.read_bytes()
    manifest.write_bytes(kept[: kept.rindex(b'{"part": "part-00001') + 20])  # killed while it was written
    engine = Engine()
    with pytest.raises(DataError, match="1 of 10"):
        write(tmp_path, engine)
    assert engine.asked == [0, 1]
    assert len(lines(manifest)) == 5


def test_photos_that_come_later_change_nothing(tmp_path, capsys):
    with pytest.raises(RuntimeError):
        write(tmp_path, Engine(RuntimeError(), after=8))
    engine = Engine()
    with pytest.raises(DataError, match="1 of 10"):
        write(tmp_path, engine, [FileList(("new", "a", "b", "c"))])
    assert engine.asked == [0]
    assert capsys.readouterr().err.startswith(f"showtell: resuming {tmp_path}: 2 of 3 parts are done.\n")


def test_once_more_when_all_is_done_does_nothing_and_says_the_same(tmp_path):
    messages = []
    engine = Engine()
    for one in (Engine(), engine):
        with pytest.raises(DataError) as caught:
            write(tmp_path, one)
        messages.append(str(caught.value))
    assert engine.asked == []
    assert messages[0] == messages[1]
    assert [line["part"] for line in lines(tmp_path / "manifest.jsonl")[1:]].count("end") == 1


def test_interrupted_it_says_how_to_go_on(tmp_path, capsys):
    with pytest.raises(typer.Exit) as caught:
        write(tmp_path, Engine(KeyboardInterrupt(), after=7))
    assert caught.value.exit_code == 130
    assert capsys.readouterr().err == (
        f"showtell: interrupted; 1 of 3 parts are kept in {tmp_path}; the same command resumes.\n"
    )


def test_a_folder_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "photo.jpg").touch()
    with pytest.raises(DataError, match=r"holds other things and no manifest\.jsonl; choose a new folder for --out\."):
        write(tmp_path, Engine())
    with pytest.raises(DataError, match=r"photo\.jpg is a file; --out of --engine ray needs the name of a folder\."):
        write(tmp_path / "photo.jpg", Engine())
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_other_settings_do_not_go_on(tmp_path):
    with pytest.raises(RuntimeError):
        write(tmp_path, Engine(RuntimeError(), after=8), photos=["a"])
    with pytest.raises(DataError, match=r"were made with other settings: photos \(was \[\"a\"\], now \[\"b\"\]\)"):
        write(tmp_path, Engine(), photos=["b"])


@pytest.mark.parametrize(
    "line", ["[]", "7", "null", "{}", '{"kind": "tar"}', '{"kind": "files", "names": [7]}', "[" * 50_000]
)
def test_a_damaged_plan_is_said_with_what_to_delete(line, tmp_path):
    with pytest.raises(RuntimeError):
        write(tmp_path / "out", Engine(RuntimeError(), after=8))
    (tmp_path / "out" / "plan.jsonl").write_text(line + "\n")
    with pytest.raises(DataError) as caught:
        write(tmp_path / "out", Engine())
    assert str(caught.value) == (
        f"{tmp_path}/out/plan.jsonl says what the parts are and is damaged; choose another --out, or delete "
        f"{tmp_path}/out to begin anew."
    )


@pytest.mark.parametrize(
    "line", ["[]", "7", '{"part": 7}', '{"part": "part-00000.jsonl", "photos": "3", "failed": []}']
)
def test_a_damaged_manifest_is_said_with_the_line(line, tmp_path):
    with pytest.raises(RuntimeError):
        write(tmp_path / "out", Engine(RuntimeError(), after=8))
    manifest = tmp_path / "out" / "manifest.jsonl"
    manifest.write_text(manifest.read_text().splitlines()[0] + "\n" + line + "\n")
    with pytest.raises(DataError, match=r"Line 2 of .*manifest\.jsonl is damaged: delete the file to begin anew\.$"):
        write(tmp_path / "out", Engine())

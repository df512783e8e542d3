"""Names that are no UTF-8, text that is no Unicode, and named pipes, at every verb: it works, or one line says why."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from showtell.cli import main
from showtell.errors import DataError
from showtell.files import open_file, parse_json, read_json, write_json, write_text
from tests.bad_input.conftest import everything

ODD = os.fsdecode(b"caf\xe9")  # a name in Latin-1, as old archives have it


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out, printed.err


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    status, out, err = run(capsys, *arguments)
    assert (status, out) == (2, ""), err
    assert err.startswith("showtell: ") and "Traceback" not in err
    assert all(line.startswith("  ") for line in err.rstrip("\n").split("\n")[1:])
    return err


# Every argument of every verb that names something to read; `%` is what is put there.
READS = [
    "data check %", "data split %",
    "features % --encoder small_cnn --out new", "features scenes --recipe % --out new",
    "features scenes --encoder small_cnn --weights % --out new", "features --from % --out new",
    "train %", "train r.yaml data.path=% --out new", "train r.yaml training.start_from=% --out new",
    "train r.yaml data.features=%/x encoder.trained=false --out new", "train r.yaml encoder.weights=% --out new",
    "sweep % training.epochs=1,2",
    "report % --out a.html", "report run --out a.html --data %",
    "evaluate % scenes", "evaluate run/best %", "evaluate run/best scenes --features %",
    "evaluate run/best scenes --document-frequency %", "evaluate run/best scenes --ensemble %",
    "caption % scenes", "caption run/best %", "caption run/best scenes/images/000001.png --ensemble %",
    "explain % scenes/images/000001.png", "explain run/best % --out a.html",
    "explain run/best scenes/images/000001.png --references % --out a.html",
    "explain run/best scenes/images/000001.png --against % --out a.html",
    "grounding % scenes", "grounding run/best %",
    "calibrate % scenes", "calibrate run/best %", "calibrate run/best scenes --features %",
    "score % --references ref.json", "score pred.json --references %", "score pred.json % --references ref.json",
    "score pred.json --references ref.json --document-frequency %",
    "doctor %", "doctor run/best --data %",
]  # fmt: skip


@pytest.mark.timeout(100)
def test_a_named_pipe_does_not_make_it_wait(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    for command in READS:
        assert refused(capsys, *(part.replace("%", "pipe") for part in shlex.split(command))), command


def test_bytes_that_are_no_utf_8_are_escaped_in_one_line(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(world)
    for command in [*READS[::3], "data get %", "train r.yaml --out new model.name=%", "%"]:
        err = refused(capsys, *(part.replace("%", ODD) for part in shlex.split(command)))
        assert err.replace("\n", "").isprintable(), command
    assert everything(world) == before


WORKS = [
    "caption run/best photo --format json --out new.json", "caption run/best photo --out %.txt",
    "explain run/best photo --out new.html", "evaluate run/best data --metrics bleu --out %.json",
    "data check data --json", "features data --encoder small_cnn --out new",
    "score pred.json --references data.json --metrics bleu --per-image %.json", "data scenes %x --images 20",
]  # fmt: skip


def test_photos_datasets_and_results_whose_names_are_no_utf_8(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {"photo": f"photo{ODD}.png", "data": f"data{ODD}", "data.json": f"data{ODD}.json"}
    shutil.copytree("scenes", names["data"])
    shutil.copy("ref.json", names["data.json"])
    shutil.copy("scenes/images/000001.png", names["photo"])
    for command in WORKS:
        verb, *rest = shlex.split(command)
        words = [verb, rest.pop(0)] if verb == "data" else [verb]
        status, out, err = run(capsys, *words, *(names.get(part, part).replace("%", ODD) for part in rest))
        assert status == 0 and "Traceback" not in err, (command, err)
        assert json.loads(out) is not None if "--json" in rest else True
    for made in Path().glob("new.*"):
        made.read_text(encoding="utf-8")


def test_json_keeps_the_bytes_of_a_name_and_refuses_other_surrogates(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    write_json(file, {"image": ODD})
    assert file.read_bytes() == b'{"image": "caf\\udce9"}\n'
    assert read_json(file) == {"image": ODD}
    write_text(file, ODD)
    assert file.read_text(encoding="utf-8") == r"caf\udce9"
    for good in (r'"\ud83d\udc36"', r'"\\ud800"', r'"\\\\udfff"', '"\N{DOG}"'):
        assert parse_json(good, "x") == json.loads(good)
    for bad in (r'"\ud800"', r'"a\uDFFFb"', r'"\ud83d \udc36"', r'"\\\ud800"', r'"\udc36\ud83d"'):
        with pytest.raises(DataError, match=r"x holds \\u[dD]\w{3} at line 2, which is no character; save it as valid"):
            parse_json("[\n" + bad + "]", "x")


def test_devices_and_pipes_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match=r"is a device, a pipe or a socket; give a regular file\."):
            open_file(path)
        with pytest.raises(DataError, match="is a device, a pipe or a socket"):
            read_json(path)
    with pytest.raises(DataError, match=r"missing\.$"):
        open_file(tmp_path / "missing")
    with pytest.raises(DataError, match=r"has 0 MB, more than such a file may have \(0 MB\)\.$"):
        write_text(tmp_path / "long", "12345")
        open_file(tmp_path / "long", max_bytes=4)


def test_the_pipe_of_a_shell_is_read(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    with open(writing, "w") as stream:  # noqa: PTH123
        stream.write('{"a": 1}')
    assert read_json(Path(f"/dev/fd/{reading}")) == {"a": 1}
    os.close(reading)

"""Names that are no UTF-8, text that is no Unicode, and named pipes, at every verb: it works, or one line says why."""

import os
import shutil
from pathlib import Path

import pytest

from showtell.errors import DataError
from showtell.files import open_file, read_json, write_json, write_text
from tests.bad_input.conftest import everything, refused, run

ODD = os.fsdecode(b"caf\xe9")  # a name in Latin-1, as old archives have it


# An argument of each kind that names something to read; `%` is what is put there.
READS = [
    "data check %", "features scenes --recipe % --out new", "features scenes --encoder small_cnn weights=% --out new",
    "features --from % --out new", "train %", "train r.yaml training.start_from=% --out new",
    "train r.yaml data.features=%/x encoder.trained=false --out new", "report % --out a.html",
    "report run --out a.html --data %", "evaluate run/best scenes --document-frequency %", "caption % scenes",
    "caption run/best %",
    "score pred.json % --references ref.json",
]  # fmt: skip


@pytest.mark.timeout(100)
def test_a_named_pipe_does_not_make_it_wait(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    os.mkfifo("pipe")
    for command in READS:
        assert refused(capsys, command.replace("%", "pipe")), command


def test_bytes_that_are_no_utf_8_are_escaped_in_one_line(world: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = everything(world)
    for command in [*READS[::2], "data get %", "train r.yaml --out new model.name=%", "%"]:
        assert refused(capsys, command.replace("%", ODD)).isprintable(), command
    assert everything(world) == before


WORKS = [
    "caption run/best photo --no-repeat-ngram-size 2 --format json --out new.json",
    "caption run/best photo --no-repeat-ngram-size 2 --out %.txt",
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
        verb, second, *rest = command.split()
        words = [verb, second if verb == "data" else names.get(second, second)]
        status, _, err = run(capsys, " ".join([*words, *(names.get(part, part).replace("%", ODD) for part in rest)]))
        assert status == 0 and "Traceback" not in err, (command, err)
    for made in Path().glob("new.*"):
        made.read_text(encoding="utf-8")


def test_devices_are_not_read_and_the_pipe_of_a_shell_is(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(DataError, match=r"is a device, a pipe or a socket; give a regular file\."):
            open_file(path)
    write_text(tmp_path / "long", "12345")
    with pytest.raises(DataError, match=r"has 0 MB, more than such a file may have \(0 MB\)\.$"):
        open_file(tmp_path / "long", max_bytes=4)
    reading, writing = os.pipe()
    with open(writing, "w") as stream:  # noqa: PTH123
        stream.write('{"a": 1}')
    assert read_json(Path(f"/dev/fd/{reading}")) == {"a": 1}
    os.close(reading)


def test_json_keeps_the_bytes_of_a_name(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"image": ODD})
    assert (tmp_path / "a.json").read_bytes() == b'{"image": "caf\\udce9"}\n'
    assert read_json(tmp_path / "a.json") == {"image": ODD}

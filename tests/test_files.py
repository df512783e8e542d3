import multiprocessing
import os
import shutil
import signal
import sys
from itertools import count
from pathlib import Path

import pytest

from showtell.errors import DataError
from showtell.files import read_json, recover_folder, write_folder

MISTAKES: dict[str | bytes, str] = {
    "[1, 2": "… is not valid JSON: Expecting ',' delimiter at line 1, column 6; it seems cut off, get it whole.",
    '{"a": 1, "b": {"a": 2, "a": 3}}': '… has the key "a" twice in one object; keep one of them.',
    "[" * 100_000: "… cannot be read as JSON: its lists and objects are nested too deeply.",
    "9" * 5_000: "… cannot be read as JSON: it holds a number of too many digits.",
    " \n": "… is empty; it should hold JSON.",
    '{"a": 1}'.encode("utf-16"): "… is in UTF-16; save it as JSON in UTF-8.",
    '{"b": 1,\r\n"a": "é"}'.encode("latin-1"): "… is not in UTF-8: line 2 cannot be read; save it as JSON in UTF-8.",
    '\n{"a": "\0"}': "… has null bytes; save it as JSON in UTF-8.",
    '["a\\ud83d"]': "… holds '\\ud83d', which is no character; save it as valid Unicode.",
}


def test_what_is_wrong_with_json_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    for content, sentence in MISTAKES.items():
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        with pytest.raises(DataError) as caught:
            read_json(file)
        assert str(caught.value).replace(str(file), "…") == sentence


def test_a_folder_that_is_found_wrong_leaves_nothing_behind(tmp_path: Path) -> None:
    def fill(folder: Path) -> None:
        (folder / "a").write_text("half")
        raise DataError("wrong")

    with pytest.raises(DataError, match="wrong"):
        write_folder(tmp_path / "made", fill)
    assert not list(tmp_path.iterdir())


def write_until(last_operation: int, folder: Path, version: int) -> None:
    """Write a folder of three files; before a certain operation on files the process dies."""
    operations = count(1)

    def kill(event: str, _: object) -> None:
        if event in ("open", "os.rename", "os.mkdir", "os.rmdir", "os.remove") and next(operations) == last_operation:
            os.kill(os.getpid(), signal.SIGKILL)

    def fill(new: Path) -> None:
        (new / "training").mkdir()
        for name in ("model", "config", "training/state"):
            (new / name).write_text(f"{name} {version} " * 1000)

    sys.addaudithook(kill)
    write_folder(folder, fill)


@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")  # torch has threads; the child starts none
def test_a_kill_at_any_operation_leaves_the_old_folder_or_the_new_one(tmp_path: Path) -> None:
    """One write after the other is killed, each an operation later and upon what the last one left."""
    folder, after_kill, kept, went_on = tmp_path / "run" / "last", tmp_path / "copy", 0, 0
    statuses: list[int | None] = []
    write_folder(folder, lambda new: (new / "version").touch())
    for version in count(1):
        process = multiprocessing.get_context("fork").Process(target=write_until, args=(version, folder, version))
        process.start()
        process.join(240)
        statuses.append(process.exitcode)
        shutil.rmtree(after_kill, ignore_errors=True)
        shutil.copytree(folder.parent, after_kill)
        recover_folder(after_kill / "last")
        assert [path.name for path in after_kill.iterdir()] == ["last"]
        paths = filter(Path.is_file, after_kill.rglob("*"))
        files = {str(path.relative_to(after_kill)): path.read_text() for path in paths}
        if files == {"last/version": ""}:
            assert kept == 0
            continue
        stored = int(files["last/model"].split()[1])
        assert files == {f"last/{name}": f"{name} {stored} " * 1000 for name in ("model", "config", "training/state")}
        assert stored in (kept, version)
        went_on += stored == version
        kept = stored
        if process.exitcode == 0:
            break
    assert statuses == [-signal.SIGKILL] * (len(statuses) - 1) + [0]
    assert len(statuses) > 15 and went_on > 3  # it was killed before the new one stood and behind that

"""What the machine does to people: full disks, closed doors, missing packages, interrupts and two programs at once."""

from __future__ import annotations

import json
import os
import resource
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from filelock import FileLock

from showtell.cli import main
from showtell.features.store import FeatureStore
from tests.bad_input.conftest import everything

NOBODY = 65534
FEATURES = "features scenes --encoder small_cnn image_size=48"
Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, command: str) -> tuple[int, str, str]:
    """Status, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as ended:
        main(shlex.split(command))
    printed = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, printed.out, printed.err


def refused(capsys: Captured, command: str) -> str:
    """The one line that a refused command prints."""
    status, out, err = run(capsys, command)
    assert (status, out) == (2, ""), err
    assert err.startswith("showtell: ") and err.count("\n") == 1
    return err.removeprefix("showtell: ").rstrip("\n")


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """No file may become larger, as on a disk that fills up."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


# --- a full disk ---


def test_no_room_for_a_checkpoint(world: Path, capsys: Captured) -> None:
    with room_for(6000):
        status, out, err = run(capsys, "train r.yaml --out new")
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("showtell: Cannot write new/") and "File too large" in err
    assert {path.name for path in Path("new").iterdir()} <= {"recipe.yaml", "log.jsonl", ".writing.lock"}


def test_no_room_for_the_log(world: Path, capsys: Captured) -> None:
    with room_for(Path("run/recipe.yaml").stat().st_size + 100):
        err = run(capsys, "train r.yaml training.log_every=1 training.batch_size=1 --out new")[2]
    assert "showtell: Cannot write new/log.jsonl: File too large; make room, then resume with --resume." in err


def test_no_room_for_scores(world: Path, capsys: Captured) -> None:
    before = everything(world)
    with room_for(10):
        sentence = refused(capsys, "score pred.json --references ref.json --metrics bleu --per-image out.json")
    assert sentence == "Cannot write out.json: File too large."
    assert everything(world) == before


def test_no_room_for_pictures(world: Path, capsys: Captured) -> None:
    with room_for(100):
        assert "File too large" in refused(capsys, "data scenes new --images 20")
    assert not Path("new/annotations").exists()


def test_what_was_extracted_is_whole_after_a_full_disk(world: Path, capsys: Captured) -> None:
    command = f"{FEATURES} widths=[8,64] --out new"
    with room_for(120_000):
        assert "Cannot write new" in refused(capsys, f"{command} --batch-size 1")
    kept = len(FeatureStore("new"))
    assert 0 < kept < 20
    status, out, _ = run(capsys, f"{command} --json")
    assert status == 0 and json.loads(out)["images"] == 20


# --- closed doors ---


@pytest.mark.parametrize(
    "command",
    [
        "data scenes closed/new --images 20",
        f"{FEATURES} --out closed/new",
        "train r.yaml --out closed/new",
        "caption run/best scenes/images/000001.png --out closed/new.txt",
        "score pred.json --references ref.json --metrics bleu --per-image closed/new",
        "evaluate run/best scenes --metrics bleu --out closed/new",
    ],
    ids=lambda command: command.split()[0],
)
def test_a_folder_that_is_read_only(world: Path, capsys: Captured, command: str) -> None:
    for folder in (world, *world.parents[:3]):  # the folders of pytest are closed to others
        folder.chmod(0o755)
    Path("closed").mkdir(mode=0o555)
    with as_nobody():
        sentence = refused(capsys, command)
    assert sentence.startswith("Cannot write closed/new") and "Permission denied" in sentence
    assert list(Path("closed").iterdir()) == []


def test_no_standard_input(world: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", None)
    assert refused(capsys, "caption run/best -").startswith("Standard input is closed, so there are no paths for -;")


def test_no_home(world: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/proc/none")
    status, out, _ = run(capsys, "caption run/best scenes/images/000001.png")
    assert status == 0 and out.startswith("scenes/images/000001.png\t")


# --- two programs ---


def test_two_programs_do_not_train_in_one_folder(world: Path, capsys: Captured) -> None:
    before = everything(world)
    with FileLock("run/.writing.lock"):
        sentence = refused(capsys, "train r.yaml --resume --out run")
    assert sentence == "Another program is training in run; wait for it, or choose another --out."
    assert everything(world) == before
    assert run(capsys, "train r.yaml --resume --out run")[0] == 0  # the lock of a program that is gone


def test_two_programs_do_not_write_one_store(world: Path, capsys: Captured) -> None:
    with FileLock("store/writing.lock"):
        sentence = refused(capsys, f"{FEATURES} widths=[8,16] --out store")
    assert sentence == "Another program is writing to store; wait for it, or end it."


# --- missing packages ---


@pytest.mark.parametrize(
    ("package", "command", "install"),
    [
        ("datasets", "data check hf:some/name", 'pip install "showtell[hub]"'),
        ("h5py", "features --from e.h5 --out new", 'pip install "showtell[hdf5]"'),
    ],
)
def test_a_package_that_is_missing(
    world: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch, package: str, command: str, install: str
) -> None:
    Path("e.h5").write_bytes(b"\x89HDF\r\n\x1a\n")
    monkeypatch.setitem(sys.modules, package, None)
    assert install in refused(capsys, command)


# --- interrupts ---


@pytest.mark.parametrize(
    ("arguments", "began", "kept"),
    [
        (["data", "scenes", "new", "--images", "40000"], "new/images/000010.png", "the same command draws the"),
        pytest.param(
            ["features", "scenes", "--encoder", "small_cnn", "--out", "new", "--batch-size", "1"],
            "new/data.mdb",
            "extracted features are kept, and the same command resumes",
            marks=pytest.mark.slow,
        ),
    ],
    ids=["scenes", "features"],
)
def test_an_interrupt_says_how_to_go_on(world: Path, arguments: list[str], began: str, kept: str) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "showtell", *arguments], stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    until = time.monotonic() + 60
    while not Path(began).exists() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    printed, errors = process.communicate(timeout=240)
    if process.returncode == 0:
        pytest.skip("it was done before it could be interrupted")
    assert (process.returncode, printed) == (130, "")
    assert errors.startswith("showtell: interrupted; ") and kept in errors and "Traceback" not in errors

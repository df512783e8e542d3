"""What the machine does to people: full disks, closed doors, missing packages, interrupts and two programs at once."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from showtell.files import locked
from tests.bad_input.conftest import Captured, everything, refused, run
from tests.toys import room_for

FEATURES = "features scenes --encoder small_cnn image_size=48"


@contextmanager
def as_nobody() -> Iterator[None]:
    """Without root's right to write everywhere."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_no_room_for_a_checkpoint(world: Path, capsys: Captured) -> None:
    with room_for(6000):
        status, out, err = run(capsys, "train r.yaml --out new")
    assert (status, out) == (2, "")
    assert err.splitlines()[-1].startswith("showtell: Cannot write new/") and "File too large" in err
    assert {path.name for path in Path("new").iterdir()} <= {"recipe.yaml", "log.jsonl", ".writing.lock"}


def test_a_folder_that_is_read_only(world: Path, capsys: Captured) -> None:
    for folder in (world, *world.parents[:3]):  # the folders of pytest are closed to others
        folder.chmod(0o755)
    Path("closed").mkdir(mode=0o555)
    for command in (
        "data scenes closed/new --images 20",
        "train r.yaml --out closed/new",
        "caption run/best scenes/images/000001.png --out closed/new.txt",
        "score pred.json --references ref.json --metrics bleu --per-image closed/new",
    ):
        with as_nobody():
            sentence = refused(capsys, command)
        assert sentence.startswith("Cannot write closed/new") and "Permission denied" in sentence
        assert list(Path("closed").iterdir()) == []


def test_two_programs_do_not_write_to_one_folder(world: Path, capsys: Captured) -> None:
    Path("quick").mkdir()
    before = everything(world)
    for lock, command, sentence in (
        ("run/.writing.lock", "train r.yaml --resume --out run", "training in run; wait for it, or choose another -"),
        ("store/.writing.lock", f"{FEATURES} widths=[8,16] --out store", "writing to store; wait for it, or choose "),
        (".a.txt.lock", "caption run/best scenes/images --out a.txt", "writing a.txt; wait for it, or choose another "),
        ("quick/.writing.lock", "quickstart --out quick --images 20", "running a quickstart in quick; wait for it, o"),
    ):
        with locked(Path(lock)):
            assert refused(capsys, command).startswith(f"Another program is {sentence}")
    assert everything(world) == before
    assert run(capsys, "train r.yaml --resume --out run")[0] == 0  # the lock of a program that is gone

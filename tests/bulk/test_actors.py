"""Ray Data gives the captions of the plain engine, whatever the photos come in; killed, it goes on."""

from __future__ import annotations

import importlib.util
import io
import json
import subprocess
import sys
import tarfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from showtell.bulk import read_part, require_ray
from showtell.bulk.actors import caption_sources
from showtell.bulk.parts import FileList, TarShard
from showtell.captioners import Captioner
from showtell.errors import ImageError, MissingDependencyError
from tests.cli.test_caption import run

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason='Ray is not installed; pip install "showtell[ray]"'
)


@pytest.fixture
def photos(tiny_scenes: Path) -> list[Path]:
    return sorted((tiny_scenes / "images").iterdir())


def write_tar(file: Path, photos: list[Path]) -> None:
    with tarfile.open(file, "w") as archive:
        for photo in photos:
            archive.add(photo, photo.name)
            about = tarfile.TarInfo(f"{photo.stem}.json")
            archive.addfile(about, io.BytesIO())


def without_names(records: list[dict]) -> list[object]:
    return [record.get("captions", "failed") for record in records]


def test_what_could_not_be_fetched_keeps_its_place(tiny_checkpoint, photos):
    captioner = Captioner.from_pretrained(tiny_checkpoint)
    lost = ImageError("It is lost.")
    named = [
        ("a", lost),
        ("b", photos[0]),
        ("c", b"text"),
        ("d", lost),
        ("e", lost),
        ("f", photos[1].read_bytes()),
        ("g", lost),
    ]
    records = list(caption_sources(captioner, named, captioner.settings(), 2))
    assert [record["image"] for record in records] == list("abcdefg")
    assert [record.get("error") for record in records] == [
        *("It is lost.", None, "c is not an image: it holds text.", "It is lost.", "It is lost.", None, "It is lost."),
    ]
    for record, photo in ((records[1], photos[0]), (records[5], photos[1])):
        (caption,), (plain,) = record["captions"], captioner.caption(photo)
        assert caption["text"] == plain.text
        assert caption["logprob"] == pytest.approx(plain.logprob, abs=1e-5)


def test_the_members_of_a_tar_have_the_captions_of_the_files(tiny_checkpoint, photos, tmp_path):
    write_tar(tmp_path / "a.tar", photos[:7])
    captioner = Captioner.from_pretrained(tiny_checkpoint)
    both = [
        list(caption_sources(captioner, read_part(part, 3), captioner.settings(), 3))
        for part in (FileList(tuple(map(str, photos[:7]))), TarShard(str(tmp_path / "a.tar")))
    ]
    assert without_names(both[0]) == without_names(both[1])
    assert [record["image"] for record in both[1]] == [f"{tmp_path}/a.tar/{photo.name}" for photo in photos[:7]]


def test_without_ray_the_install_line_is_said(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingDependencyError, match=r'^The engine ray needs Ray; pip install "showtell\[ray\]"\.$'):
        require_ray()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("--engine", "ray"), "--engine ray writes parts into a folder; name it with --out FOLDER, without --correct."),
        (("--workers", 2), "--workers and --column are of --engine ray; give that too."),
        (("--column", "a"), "--workers and --column are of --engine ray; give that too."),
    ],
)
def test_options_that_do_not_go_together(capsys, tiny_checkpoint, photos, given, sentence):
    assert run(capsys, "caption", tiny_checkpoint, photos[0], *given) == (2, "", f"showtell: {sentence}\n")


def ray_command(checkpoint: Path, *given: object) -> list[str]:
    return [sys.executable, "-m", "showtell", "caption", *map(str, (checkpoint, *given)), "--engine", "ray"]


@needs_ray
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1"])
def test_a_cluster_that_is_not_there(capsys, monkeypatch, tiny_checkpoint, photos, tmp_path, address):
    monkeypatch.setenv("RAY_ADDRESS", address)
    given = (tiny_checkpoint, photos[0], "--engine", "ray", "--out", tmp_path / "out")
    assert run(capsys, "caption", *given) == (
        2,
        "",
        f"showtell: No Ray cluster lets us in at RAY_ADDRESS={address}: start one with ray start --head, give its "
        "address and, where it wants a token, RAY_AUTH_MODE=token; or unset RAY_ADDRESS to work on this machine "
        "alone.\n",
    )


@needs_ray
@pytest.mark.slow
def test_row_for_row_as_the_plain_engine(capsys, tiny_checkpoint, photos, tmp_path):
    """Files, a pattern of URLs, a tar and a parquet file of bytes, captioned by two actors."""
    import pyarrow
    from pyarrow import parquet

    (tmp_path / "broken.png").write_bytes(b"text")
    write_tar(tmp_path / "a.tar", photos[:30])
    table = pyarrow.table({"image": [photo.read_bytes() for photo in photos[30:50]]})
    parquet.write_table(table, tmp_path / "a.parquet", row_group_size=8)
    (tmp_path / "more").mkdir()
    for photo in photos[50:]:
        (tmp_path / "more" / photo.name).write_bytes(photo.read_bytes())
    common = ("--format", "jsonl", "--batch-size", 4, "--num-beams", 2, "--num-return-sequences", 2)
    plain = tmp_path / "plain.jsonl"
    status, _, err = run(capsys, "caption", tiny_checkpoint, *photos, tmp_path / "broken.png", *common, "--out", plain)
    assert status == 2, err
    out = tmp_path / "out"
    inputs = (tmp_path / "a.tar", tmp_path / "a.parquet", f"file://{tmp_path}/more/*.png", tmp_path / "broken.png")
    done = subprocess.run(
        [*ray_command(tiny_checkpoint, *inputs, *common, "--out", out), "--workers", "2"],
        capture_output=True,
        text=True,
        timeout=280,
    )
    sentence = f"{tmp_path}/broken.png is not an image: it holds text."
    assert done.returncode == 2, done.stderr
    assert f"showtell: 1 of 61 photos could not be captioned, as {out}/failed.jsonl says: {sentence}\n" in done.stderr
    assert done.stdout == ""
    parts = sorted(out.glob("part-*"))
    results = [json.loads(line) for part in parts for line in part.read_text().splitlines()]
    wanted = [json.loads(line) for line in plain.read_text().splitlines()]
    assert [record["image"] for record in results[29:32]] == [
        f"{tmp_path}/a.tar/{photos[29].name}",
        f"{tmp_path}/a.parquet#0",
        f"{tmp_path}/a.parquet#1",
    ]
    assert len(results) == len(wanted) == 61
    for one, other in zip(results, wanted, strict=True):
        assert one.get("error") == other.get("error")
        for mine, plains in zip(one.get("captions", ()), other.get("captions", ()), strict=True):
            assert mine["text"] == plains["text"]
            assert mine["logprob"] == pytest.approx(plains["logprob"], abs=1e-5)
            assert [word["word"] for word in mine["words"]] == [word["word"] for word in plains["words"]]
            assert [word["logprob"] for word in mine["words"]] == pytest.approx(
                [word["logprob"] for word in plains["words"]], abs=1e-5
            )


@dataclass
class HalfWay:
    """A command that has written some parts and has others before it."""

    command: list[str]
    process: subprocess.Popen[str]
    out: Path
    whole: bytes  # what the plain engine writes of the same photos

    def written(self) -> bytes:
        return b"".join(path.read_bytes() for path in sorted(self.out.glob("part-*")))


@pytest.fixture
def half_way(capsys, tiny_checkpoint, photos, tmp_path) -> Iterator[HalfWay]:
    """60 photos in 30 parts, captioned by one actor."""
    given = (tiny_checkpoint, photos[0].parent, "--format", "jsonl", "--batch-size", 2)
    plain, out = tmp_path / "plain.jsonl", tmp_path / "out"
    assert run(capsys, "caption", *given, "--out", plain)[0] == 0
    command = ray_command(*given, "--out", out, "--workers", 1)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and len(list(out.glob("part-*"))) < 5 and process.poll() is None:
        time.sleep(0.01)
    yield HalfWay(command, process, out, plain.read_bytes())
    process.kill()
    process.communicate()


@needs_ray
@pytest.mark.slow
def test_killed_nothing_is_lost_and_nothing_there_twice(half_way):
    out, started = half_way.out, psutil.Process(half_way.process.pid).children(recursive=True)
    half_way.process.kill()
    half_way.process.wait()
    assert started
    # What computes ends with the process that started it; two small agents of Ray notice within some minutes.
    busy = [one for one in started if one.is_running() and not one.name().endswith("Agent")]
    _, alive = psutil.wait_procs(busy, timeout=60)
    assert not alive
    kept = {path.name: path.stat().st_mtime_ns for path in out.glob("part-*")}
    recorded = [json.loads(line).get("part") for line in (out / "manifest.jsonl").read_bytes().splitlines()[1:]]
    assert 4 <= len(recorded) < 30
    done = subprocess.run(half_way.command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    going_on, end = done.stderr.splitlines()[0], done.stderr.splitlines()[-1]  # Ray may say something in between
    assert going_on == f"showtell: resuming {out}: {len(recorded)} of 30 parts are done."
    assert end == f"showtell: {out} has the captions of 60 photos in 30 parts."
    assert all((out / name).stat().st_mtime_ns == kept[name] for name in recorded)  # they were not done again
    assert half_way.written() == half_way.whole


@needs_ray
@pytest.mark.slow
def test_an_actor_that_dies_is_replaced(half_way):
    """What the kernel does to a process that takes too much memory."""
    actors = [
        one
        for one in psutil.Process(half_way.process.pid).children(recursive=True)
        if "MapWorker" in one.name() or "MapWorker" in "".join(one.cmdline())
    ]
    assert len(actors) == 1
    assert len(list(half_way.out.glob("part-*"))) < 30
    actors[0].kill()
    _, err = half_way.process.communicate(timeout=200)
    assert half_way.process.returncode == 0, err
    assert half_way.written() == half_way.whole

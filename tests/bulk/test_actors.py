"""`showtell bulk` gives the captions of `showtell caption`, whatever the photos come in; killed, it resumes."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from showtell.bulk.actors import caption_part
from showtell.captioners import Captioner
from tests.bulk.test_parts import write_tar
from tests.cli.test_caption import run

needs_ray = pytest.mark.skipif(
    importlib.util.find_spec("ray") is None, reason='Ray is not installed; pip install "showtell[ray]"'
)


@pytest.fixture
def photos(tiny_scenes: Path) -> list[Path]:
    return sorted((tiny_scenes / "images").iterdir())


def results_of(out: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for part in sorted(out.glob("part-*")) for line in part.read_text().splitlines()]


def test_the_members_of_a_tar_have_the_captions_of_the_files(tiny_checkpoint, photos, tmp_path):
    tar = tmp_path / "a.tar"
    write_tar(tar, {photo.name: photo.read_bytes() for photo in photos[:7]} | {"text.jpg": b"text"})
    captioner = Captioner.from_pretrained(tiny_checkpoint)
    files = list(caption_part(captioner, tuple(map(str, photos[:7])), batch_size=3))
    *members, broken = caption_part(captioner, (str(tar),), batch_size=3)
    assert [one["captions"] for one in files] == [one["captions"] for one in members]
    assert [one["image"] for one in members] == [f"{tar}/{photo.name}" for photo in photos[:7]]
    assert broken == {"image": f"{tar}/text.jpg", "error": f"{tar}/text.jpg is not an image: it holds text."}


# --- the folder of parts, with the captions made in this process ---


@pytest.fixture
def engine(monkeypatch):
    """Caption parts without Ray, and stop before the part that it is told; it keeps the numbers of the parts."""
    asked: dict[str, Any] = {"stop": None, "numbers": []}

    def caption_parts(captioner, parts, *, column, workers, **options):
        for number, part in parts.items():
            if number == asked["stop"]:
                raise KeyboardInterrupt
            asked["numbers"].append(number)
            yield number, list(caption_part(captioner, part, column, **options))

    monkeypatch.setattr("showtell.bulk.caption_parts", caption_parts)
    monkeypatch.setattr("showtell.bulk.require_ray", lambda: None)
    return asked


def test_interrupted_it_resumes_with_the_parts_that_are_not_there(capsys, engine, tiny_checkpoint, photos, tmp_path):
    out, folder = tmp_path / "out", tmp_path / "photos"
    folder.mkdir()
    for photo in photos[:6]:
        (folder / photo.name).write_bytes(photo.read_bytes())
    (folder / "bad.png").write_text("text")
    given = ("bulk", tiny_checkpoint, folder, "--out", out, "--batch-size", 2)
    engine["stop"] = 2
    assert run(capsys, *given) == (
        130, "", f"showtell: interrupted; the parts in {out} are kept, and the same command resumes.\n",
    )  # fmt: skip
    kept = {path: path.read_bytes() for path in out.glob("part-*")}
    assert len(kept) == 2
    (folder / "later.png").write_bytes(photos[7].read_bytes())  # is not in the plan
    engine.update(stop=None, numbers=[])
    ends = (
        f"showtell: {out} has the captions of 6 photos in 4 parts.\n"
        '1 of 7 photos could not be captioned, each with its "error" in the parts: '
        f"{folder}/bad.png is not an image: it holds text.\n"
    )
    status, printed, err = run(capsys, *given)
    assert (status, printed) == (2, "") and engine["numbers"] == [2, 3]
    assert err == f"showtell: resuming {out}: 2 of 4 parts are done.\n{ends.replace('1 of 7', 'showtell: 1 of 7')}"
    assert all(path.read_bytes() == content for path, content in kept.items())
    plain = tmp_path / "plain.jsonl"
    (folder / "later.png").unlink()
    run(capsys, "caption", tiny_checkpoint, folder, "--batch-size", 2, "--out", plain)
    assert results_of(out) == [json.loads(line) for line in plain.read_text().splitlines()]
    engine["numbers"] = []
    assert run(capsys, *given)[0] == 2 and engine["numbers"] == []  # nothing is left to do
    status, _, err = run(capsys, *given, "--num-beams", 3)
    assert (status, engine["numbers"]) == (
        2,
        [],
    ) and "other settings: decoding.num_beams (was 2, now 3); use the" in err


def test_a_folder_of_something_else_is_left_alone(capsys, engine, tiny_checkpoint, photos, tmp_path):
    (tmp_path / "photo.jpg").touch()
    status, _, err = run(capsys, "bulk", tiny_checkpoint, photos[0], "--out", tmp_path)
    assert (status, err) == (
        2, f"showtell: {tmp_path} holds other things and no plan.json; choose a new folder for --out.\n",
    )  # fmt: skip
    assert [path.name for path in tmp_path.iterdir()] == ["photo.jpg"]


def test_without_ray_the_install_line_is_told(capsys, monkeypatch, tiny_checkpoint, photos, tmp_path):
    monkeypatch.setattr("showtell.bulk.actors.importlib.util.find_spec", lambda name: None)
    sentence = 'showtell: Many processes need Ray; pip install "showtell[ray]".\n'
    assert run(capsys, "bulk", tiny_checkpoint, photos[0], "--out", tmp_path / "out") == (2, "", sentence)


# --- Ray itself ---


@needs_ray
def test_a_cluster_that_is_not_there(capsys, monkeypatch, tiny_checkpoint, photos, tmp_path):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    status, _, err = run(capsys, "bulk", tiny_checkpoint, photos[0], "--out", tmp_path / "out")
    assert status == 2 and err.startswith("showtell: No Ray cluster lets us in at RAY_ADDRESS=127.0.0.1:1: start one")


def ray_command(checkpoint: Path, *given: object) -> list[str]:
    return [sys.executable, "-m", "showtell", "bulk", *map(str, (checkpoint, *given))]


@needs_ray
@pytest.mark.slow
def test_two_actors_give_the_captions_of_one_process(capsys, tiny_checkpoint, photos, tmp_path):
    """Files, a tar and a parquet file of bytes."""
    import pyarrow
    from pyarrow import parquet

    (tmp_path / "broken.png").write_bytes(b"text")
    write_tar(tmp_path / "a.tar", {photo.name: photo.read_bytes() for photo in photos[30:50]})
    parquet.write_table(pyarrow.table({"image": [photo.read_bytes() for photo in photos[50:]]}), tmp_path / "a.parquet")
    out, plain = tmp_path / "out", tmp_path / "plain.jsonl"
    search = ("--batch-size", 4, "--num-beams", 2, "--num-return-sequences", 2)
    named = [*photos[:30], tmp_path / "broken.png", *photos[30:]]
    assert run(capsys, "caption", tiny_checkpoint, *named, *search, "--out", plain)[0] == 2
    inputs = (*photos[:30], tmp_path / "broken.png", tmp_path / "a.tar", tmp_path / "a.parquet")
    command = ray_command(tiny_checkpoint, *inputs, *search, "--out", out, "--workers", "2")
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert "showtell: 1 of 61 photos could not be captioned" in done.stderr
    results, expected = results_of(out), [json.loads(line) for line in plain.read_text().splitlines()]
    assert [one["image"] for one in results[50:52]] == [
        f"{tmp_path}/a.tar/{photos[49].name}",
        f"{tmp_path}/a.parquet#0",
    ]
    for one, other in zip(results, expected, strict=True):
        assert one.get("error") == other.get("error")
        for mine, plains in zip(one.get("captions", ()), other.get("captions", ()), strict=True):
            assert mine["text"] == plains["text"]
            assert mine["logprob"] == pytest.approx(plains["logprob"], abs=1e-5)


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("victim", ["command", "actor"])
def test_killed_nothing_is_lost_and_nothing_there_twice(capsys, tiny_checkpoint, photos, tmp_path, victim):
    """60 photos in 30 parts, captioned by one actor, which the kernel may kill where memory is short."""
    given = (tiny_checkpoint, photos[0].parent, "--batch-size", 2)
    plain, out = tmp_path / "plain.jsonl", tmp_path / "out"
    assert run(capsys, "caption", *given, "--out", plain)[0] == 0
    command = ray_command(*given, "--out", out, "--workers", 1)
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 200
    while time.monotonic() < deadline and len(list(out.glob("part-*"))) < 5 and process.poll() is None:
        time.sleep(0.01)
    started = psutil.Process(process.pid).children(recursive=True)
    assert started and len(list(out.glob("part-*"))) < 30
    if victim == "actor":
        (actor,) = [one for one in started if "MapWorker" in one.name() or "MapWorker" in "".join(one.cmdline())]
        actor.kill()
        _, err = process.communicate(timeout=200)
        assert process.returncode == 0, err
    else:
        process.kill()
        process.communicate()
        # What computes ends with the process that started it; two small agents of Ray notice within some minutes.
        busy = [one for one in started if one.is_running() and not one.name().endswith("Agent")]
        assert not psutil.wait_procs(busy, timeout=60)[1]
        kept = {path: path.stat().st_mtime_ns for path in out.glob("part-*")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, done.stderr
        assert done.stderr.startswith(f"showtell: resuming {out}: {len(kept)} of 30 parts are done.\n")
        assert all(path.stat().st_mtime_ns == time for path, time in kept.items())  # they were not done again
    assert results_of(out) == [json.loads(line) for line in plain.read_text().splitlines()]

"""`showtell caption` to a file: killed, interrupted or out of room, it goes on and ends with the same bytes."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from showtell.captioner import Captioner
from showtell.cli.caption_formats import FORMATS
from showtell.cli.caption_journal import Journal
from showtell.datasets import open_dataset
from showtell.errors import DataError
from showtell.training import train
from tests.cli.test_caption import run


@pytest.fixture
def photos(tiny_scenes: Path) -> list[Path]:
    return sorted((tiny_scenes / "images").iterdir())


@pytest.fixture
def whole(capsys, tiny_checkpoint, tiny_scenes, tmp_path) -> bytes:
    """What an undisturbed run writes, one broken file included."""
    out = tmp_path / "whole.jsonl"
    assert run(capsys, "caption", *arguments(tiny_checkpoint, tiny_scenes, out))[0] == 0
    return out.read_bytes()


def arguments(checkpoint: Path, scenes: Path, out: Path) -> list[object]:
    return [checkpoint, scenes / "images", "--format", "jsonl", "--batch-size", 2, "--out", out]


def start(*given: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "showtell", "caption", *map(str, given)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_lines(file: Path, lines: int, process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if file.exists() and file.read_bytes().count(b"\n") >= lines:
            return
        time.sleep(0.001)


def test_killed_it_goes_on_and_ends_with_the_same_bytes(capsys, tiny_checkpoint, tiny_scenes, tmp_path, whole):
    out = tmp_path / "captions.jsonl"
    given = arguments(tiny_checkpoint, tiny_scenes, out)
    process = start(*given)
    wait_for_lines(tmp_path / "captions.jsonl.part", 9, process)
    process.kill()
    process.communicate()
    part = tmp_path / "captions.jsonl.part"
    assert not out.exists()
    kept = part.read_bytes()
    assert 9 <= kept.count(b"\n") < 61  # it was killed on its way
    part.write_bytes(kept + kept[100:150])  # and a line was torn
    status, printed, err = run(capsys, "caption", *given)
    assert (status, printed) == (0, "")
    done = (kept.count(b"\n") - 1) // 2 * 2
    assert err.splitlines() == [
        f"showtell: resuming {part}: {done} photos are done.",
        f"showtell: {out} has the captions of 60 photos.",
    ]
    assert out.read_bytes() == whole
    assert {path.name for path in tmp_path.iterdir()} <= {
        "captions.jsonl",
        "whole.jsonl",
        ".captions.jsonl.lock",
        ".whole.jsonl.lock",
    }


def test_interrupted_it_says_how_to_go_on(capsys, tiny_checkpoint, tiny_scenes, tmp_path, whole):
    out = tmp_path / "captions.jsonl"
    process = start(*arguments(tiny_checkpoint, tiny_scenes, out))
    wait_for_lines(tmp_path / "captions.jsonl.part", 5, process)
    process.send_signal(signal.SIGINT)
    printed, err = process.communicate(timeout=60)
    assert (process.returncode, printed) == (130, "")
    kept = len((tmp_path / "captions.jsonl.part").read_bytes().splitlines()) - 1
    said = [
        f"showtell: interrupted; {number} of 60 photos are kept in {out}.part; the same command resumes.\n"
        for number in (kept, kept - 2)  # a batch may be on the disk and not counted yet
    ]
    assert err in said
    assert run(capsys, "caption", *arguments(tiny_checkpoint, tiny_scenes, out))[0] == 0
    assert out.read_bytes() == whole


def test_a_full_disk_keeps_what_was_done(capsys, tiny_checkpoint, tiny_scenes, tmp_path, whole):
    out = tmp_path / "captions.jsonl"
    given = arguments(tiny_checkpoint, tiny_scenes, out)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(whole) // 2, before[1]))
    try:
        status, _, err = run(capsys, "caption", *given)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert status == 2
    assert err.startswith(f"showtell: Cannot write {out}: File too large; ")
    assert err.endswith(f"photos are kept in {out}.part.\n")
    assert not out.exists()
    assert run(capsys, "caption", *given)[0] == 0
    assert out.read_bytes() == whole


def test_a_reader_that_goes_away_ends_it_quietly(tiny_checkpoint, tiny_scenes):
    process = start(tiny_checkpoint, tiny_scenes / "images", "--batch-size", 1)
    assert process.stdout is not None and process.stderr is not None
    assert "\t" in process.stdout.readline()
    process.stdout.close()  # what `| head -1` does
    assert process.stderr.read() == ""
    process.stderr.close()
    process.wait(timeout=60)


def test_other_settings_do_not_go_on(tmp_path):
    out = tmp_path / "a.jsonl"
    with Journal(out, {"decoding": {"num_beams": 5}, "checkpoint": "x"}, 1) as journal:
        journal.append([{"image": "a", "captions": []}])
    with pytest.raises(DataError) as caught, Journal(out, {"decoding": {"num_beams": 3}, "checkpoint": "x"}, 2):
        pass
    assert str(caught.value) == (
        f"The captions in {out}.part were made with other settings: batch_size (was 1, now 2), "
        "decoding.num_beams (was 5, now 3); go on with the old ones, choose another --out, or delete that file to "
        "begin anew."
    )


def test_a_file_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "a.part").write_text("mine\n")
    with pytest.raises(DataError, match=r"a\.part is in the way: it is not of showtell; move it, or choose another"):
        Journal(tmp_path / "a", {}, 1).__enter__()
    assert (tmp_path / "a.part").read_text() == "mine\n"


def test_two_programs_do_not_write_one_file(capsys, tiny_checkpoint, photos, tmp_path):
    out = tmp_path / "a.txt"
    with FileLock(tmp_path / ".a.txt.lock"):
        status, _, err = run(capsys, "caption", tiny_checkpoint, photos[0], "--out", out)
    assert status == 2
    assert err == f"showtell: Another program is writing {out}; wait for it, or choose another --out.\n"
    assert run(capsys, "caption", tiny_checkpoint, photos[0], "--out", out)[0] == 0


def test_a_place_that_cannot_be_written_is_said_before_any_work(capsys, tiny_checkpoint, photos, tmp_path):
    (tmp_path / "file").touch()
    for out, sentence in (
        (tmp_path / "file" / "a.txt", f"Cannot write {tmp_path}/file/a.txt: "),
        (tmp_path, f"{tmp_path} is a folder; --out needs the name of a file."),
    ):
        status, _, err = run(capsys, "caption", tiny_checkpoint, photos[0], "--out", out)
        assert status == 2
        assert err.startswith(f"showtell: {sentence}")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_is_read_only(capsys, tiny_checkpoint, photos, tmp_path):
    tmp_path.chmod(0o500)
    status, _, err = run(capsys, "caption", tiny_checkpoint, photos[0], "--out", tmp_path / "a.txt")
    assert (status, err) == (2, f"showtell: Cannot write {tmp_path}/a.txt: Permission denied.\n")


@pytest.mark.parametrize("cut", range(0, 300, 7))
def test_a_journal_cut_anywhere_keeps_whole_batches(cut: int, tmp_path: Path) -> None:
    records = [{"image": f"{number}.jpg", "captions": []} for number in range(7)]
    with Journal(tmp_path / "a", {}, 2) as journal:
        for first in range(0, 7, 2):
            journal.append(records[first : first + 2])
        whole = journal.part.read_bytes()
    cut = min(cut, len(whole))
    journal.part.write_bytes(whole[:cut])
    with Journal(tmp_path / "a", {}, 2) as journal:
        lines = max(0, whole[:cut].count(b"\n") - 1)
        assert len(journal) == lines // 2 * 2
        left = [record for record in records if Path(record["image"]) not in journal]
        assert left == records[len(journal) :]
        journal.append(left)
        journal.finish([Path(record["image"]) for record in records], FORMATS["jsonl"])
    assert [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()] == records
    assert not journal.part.exists()


def test_photos_that_were_added_meanwhile_come_in_their_places(tmp_path):
    with Journal(tmp_path / "a", {}, 1) as journal:
        journal.append([{"image": "b", "error": "b is broken."}])
    with Journal(tmp_path / "a", {}, 1) as journal:
        assert Path("b") in journal and Path("a") not in journal
        journal.append([{"image": "a", "captions": []}])
        journal.finish([Path("a"), Path("b")], FORMATS["json"])
    assert json.loads((tmp_path / "a").read_text()) == [
        {"image": "a", "captions": []},
        {"image": "b", "error": "b is broken."},
    ]


def test_standard_input_names_the_photos(capsys, tiny_checkpoint, photos, monkeypatch):
    listed = "\n".join(map(str, [photos[1], "none.jpg", photos[0]]))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(listed.encode())))
    status, printed, err = run(capsys, "caption", tiny_checkpoint, "-", "--format", "jsonl")
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [row["image"] for row in rows] == [str(photos[1]), "none.jpg", str(photos[0])]
    assert (status, rows[1]["error"]) == (2, "There is no file none.jpg.")
    assert err == "showtell: 1 of 3 files could not be captioned: There is no file none.jpg.\n"


def test_a_name_that_is_no_utf_8(capsys, tiny_checkpoint, photos, tmp_path):
    odd = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.png")
    Path(odd).write_bytes(photos[0].read_bytes())
    for style in ("text", "csv"):
        assert run(capsys, "caption", tiny_checkpoint, odd, "--format", style, "--out", tmp_path / style)[0] == 0
        assert b"/caf\xe9.png" in (tmp_path / style).read_bytes()
    assert run(capsys, "caption", tiny_checkpoint, odd, "--json", "--out", tmp_path / "json")[0] == 0
    assert json.loads((tmp_path / "json").read_bytes())[0]["image"] == odd


# --- captions to correct ---


@pytest.fixture
def album(photos, tmp_path) -> Path:
    for place, photo in enumerate(photos[:6]):
        copy = tmp_path / "album" / ("sea" if place % 2 else "") / f"photo, {place}.png"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(photo.read_bytes())
    return tmp_path / "album"


def test_corrections_are_a_dataset_to_train_on(capsys, tiny_checkpoint, album, tmp_path):
    """Caption, correct, train on: what a person does, with the table edited as a spreadsheet would."""
    table = album / "corrections.csv"
    given = ["caption", tiny_checkpoint, album, "--correct", table, "--least-sure-first"]
    assert run(capsys, *given)[:2] == (0, "")
    with table.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["image", "caption", "confidence", "split"]
    assert sorted(row["image"] for row in rows) == [
        *(f"photo, {place}.png" for place in (0, 2, 4)),
        *(f"sea/photo, {place}.png" for place in (1, 3, 5)),
    ]
    sure = [float(row["confidence"]) for row in rows]
    assert sure == sorted(sure)
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    for row in rows:
        best = captioner.caption(album / row["image"])[0]
        assert row["caption"] == best.text
        probabilities = [word.logprob for word in best.words]
        ended = best.logprob - sum(probabilities)  # the end's own
        mean = sum([*probabilities, ended]) / (len(probabilities) + best.finished)
        assert float(row["confidence"]) == pytest.approx(2.718281828**mean, abs=6e-4)
    with pytest.raises(DataError, match='has no split "train"'):
        open_dataset(table).split("train")  # nobody has checked one yet
    for row in rows[:4]:
        row |= {"caption": "a Zebra, at last", "split": "train"}
    with table.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.DictWriter(stream, rows[0], delimiter=";")  # as spreadsheets of half of Europe write it
        writer.writeheader()
        writer.writerows(rows)
    records = open_dataset(table).split("train")
    assert {record.path for record in records} == {album / row["image"] for row in rows[:4]}
    assert {record.captions for record in records} == {("a Zebra, at last",)}
    recipe = {
        "data": {"path": str(table), "validation_split": None},
        "vocabulary": {"extend": True},
        "encoder": {"name": "small_cnn", "image_size": 48, "widths": [8, 16], "trained": False},
        "model": {"name": "sat", "embedding_size": 16, "hidden_size": 16, "attention_size": 8, "dropout": 0.0},
        "objective": {"name": "cross_entropy"},
        "training": {
            "start_from": str(tiny_checkpoint), "epochs": 80, "batch_size": 4, "learning_rate": 0.02, "trackers": [],
        },
        "decoding": {"num_beams": 2, "max_length": 8},
    }  # fmt: skip
    better = Captioner.from_pretrained(train(recipe, tmp_path / "run", quiet=True).folder / "best", device="cpu")
    assert better.caption(records[0].path)[0].text == "a zebra at last"


def test_an_edited_table_is_never_written_over(capsys, tiny_checkpoint, album):
    table = album / "corrections.csv"
    table.write_text("mine")
    status, _, err = run(capsys, "caption", tiny_checkpoint, album, "--correct", table)
    assert status == 2
    assert err == (f"showtell: {table} is there already and may hold corrections; choose another name for --correct.\n")
    assert table.read_text() == "mine"


def test_a_table_beside_its_photos_is_asked_for(capsys, tiny_checkpoint, album, tmp_path):
    table = tmp_path / "other" / "mine.csv"
    status, _, err = run(capsys, "caption", tiny_checkpoint, album, "--correct", table)
    assert status == 2
    assert err == (
        f"showtell: {album}/photo, 0.png lies outside the folder of {table}, and a dataset names its images from its "
        f"own folder; write the corrections to a folder that holds all the photos: --correct {album}/mine.csv.\n"
    )
    assert not table.parent.exists()


@pytest.mark.parametrize(
    ("more", "sentence"),
    [
        (["--correct", "a.txt"], '--correct writes a CSV file; give "a.txt" the suffix .csv.'),
        (["--correct", "a.csv", "--out", "b"], "--correct names the file to write, so it takes no --out beside it."),
        (["--least-sure-first"], "--least-sure-first sorts the table of --correct; give that too."),
    ],
)
def test_options_that_do_not_go_together(tiny_checkpoint, photos, more, sentence, capsys):
    status, _, err = run(capsys, "caption", tiny_checkpoint, photos[0], *more)
    assert (status, err) == (2, f"showtell: {sentence}\n")

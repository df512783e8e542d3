"""`showtell caption` to a file: killed, interrupted or out of room, it goes on and ends with the same bytes."""

from __future__ import annotations

import csv
import io
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pytest
from filelock import FileLock

from showtell.captioners import Captioner
from showtell.cli.caption_formats import WRITERS, FormatOptions
from showtell.cli.caption_journal import open_journal
from showtell.datasets import open_dataset, read_dataset
from showtell.errors import DataError
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


def test_what_people_wrote_is_not_replaced(capsys, tiny_checkpoint, photos, tmp_path):
    for name, content in (
        ("captions.csv", "image,caption\na.jpg,a dog\n"),
        ("results.json", '[{"image_id": 1, "caption": "a dog"}]'),
        ("rows.jsonl", '{"file": "a.jpg", "text": "a dog"}\n'),
        ("notes.txt", "a dog\n"),
    ):
        file = tmp_path / name
        file.write_text(content)
        status, out, err = run(capsys, "caption", tiny_checkpoint, *photos[:2], "--out", file)
        assert (status, out) == (2, "") and "was not written by showtell caption; choose another name for --out" in err
        assert file.read_text() == content
        file.unlink()
        for _ in range(2):  # what the command itself wrote it replaces
            assert run(capsys, "caption", tiny_checkpoint, *photos[:2], "--out", file)[0] == 0


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


def test_other_settings_do_not_go_on(tmp_path):
    out = tmp_path / "a.jsonl"
    with open_journal(out, {"decoding": {"num_beams": 5}, "checkpoint": "x"}, 1) as journal:
        journal.append([{"image": "a", "captions": []}])
    with pytest.raises(DataError) as caught, open_journal(out, {"decoding": {"num_beams": 3}, "checkpoint": "x"}, 2):
        pass
    assert str(caught.value) == (
        f"The captions in {out}.part were made with other settings: batch_size (was 1, now 2), "
        "decoding.num_beams (was 5, now 3); use the old ones, choose another --out, or delete that file to "
        "begin anew."
    )


def test_a_file_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "a.part").write_text("mine\n")
    with pytest.raises(DataError, match=r"a\.part is in the way: it is not of showtell; move it, or choose another"):
        open_journal(tmp_path / "a", {}, 1).__enter__()
    assert (tmp_path / "a.part").read_text() == "mine\n"


def test_two_programs_do_not_write_one_file(capsys, tiny_checkpoint, photos, tmp_path):
    out = tmp_path / "a.txt"
    with FileLock(tmp_path / ".a.txt.lock"):
        status, _, err = run(capsys, "caption", tiny_checkpoint, photos[0], "--out", out)
    assert status == 2
    assert err == f"showtell: Another program is writing {out}; wait for it, or choose another --out.\n"
    assert run(capsys, "caption", tiny_checkpoint, photos[0], "--out", out)[0] == 0


def lines_of(results):
    return WRITERS["jsonl"](results, FormatOptions())


def test_a_journal_cut_anywhere_keeps_whole_batches(tmp_path: Path) -> None:
    records = [{"image": f"{number}.jpg", "captions": []} for number in range(7)]
    with open_journal(tmp_path / "a", {}, 2) as journal:
        for first in range(0, 7, 2):
            journal.append(records[first : first + 2])
        whole = journal.part.read_bytes()
    for cut in range(0, len(whole) + 1, 7):
        journal.part.write_bytes(whole[:cut])
        with open_journal(tmp_path / "a", {}, 2) as journal:
            lines = max(0, whole[:cut].count(b"\n") - 1)
            assert len(journal.offsets) == lines // 2 * 2
            left = [record for record in records if record["image"] not in journal.offsets]
            assert left == records[len(journal.offsets) :]
            journal.append(left)
            journal.finish([record["image"] for record in records], lines_of)
        assert [json.loads(line) for line in (tmp_path / "a").read_text().splitlines()] == records
        assert not journal.part.exists()


def test_standard_input_names_the_photos(capsys, tiny_checkpoint, photos, monkeypatch):
    listed = "\n".join(map(str, [photos[1], "none.jpg", photos[0]]))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(listed.encode())))
    status, printed, err = run(capsys, "caption", tiny_checkpoint, "-", "--format", "jsonl")
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [row["image"] for row in rows] == [str(photos[1]), "none.jpg", str(photos[0])]
    assert (status, rows[1]["error"]) == (2, "There is no file none.jpg.")
    assert err == "showtell: 1 of 3 files could not be captioned: There is no file none.jpg.\n"


# --- captions to correct ---


@pytest.fixture
def album(photos, tmp_path) -> Path:
    for number, photo in enumerate(photos[:6]):
        copy = tmp_path / "album" / ("sea" if number % 2 else "") / f"photo, {number}.png"
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(photo.read_bytes())
    return tmp_path / "album"


def test_corrections_are_a_dataset_to_train_on(capsys, tiny_checkpoint, album, tmp_path):
    """Caption, correct, train on: what a person does, with the table edited as a spreadsheet would."""
    table = album / "corrections.csv"
    given = ["caption", tiny_checkpoint, album, "--format", "corrections", "--out", table, "--least-sure-first"]
    assert run(capsys, *given)[:2] == (0, "")
    with table.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["image", "caption", "confidence", "split"]
    assert sorted(row["image"] for row in rows) == [
        *(f"photo, {number}.png" for number in (0, 2, 4)),
        *(f"sea/photo, {number}.png" for number in (1, 3, 5)),
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
    with pytest.raises(DataError, match='has no split "train"') as caught:
        open_dataset(table).split("train")  # nobody has checked one yet
    assert str(caught.value) == (
        f'{table} has no split "train", and 6 images in split "unchecked": write "train" into the column split of each '
        "caption that is right."
    )
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
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    status, out, _ = run(capsys, "train", tmp_path / "recipe.yaml", "--out", tmp_path / "run")
    better = Captioner.from_pretrained(tmp_path / "run" / "best", device="cpu")
    assert better.caption(records[0].path)[0].text == "a zebra at last"
    unchecked = [record.path for record in open_dataset(table).split("unchecked")]
    assert (status, out.splitlines()[2:]) == (
        0,
        [
            "captions of unchecked before and after:",
            *(f"  {path.name}: {captioner.caption(path)[0]} -> {better.caption(path)[0]}" for path in unchecked),
        ],
    )


def test_sure_captions_are_marked_to_train_on_and_the_others_are_left_to_a_person(
    capsys, tiny_checkpoint, tiny_scenes, tmp_path
):
    photos = tiny_scenes / "images"
    captioner = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    captions = {path.name: made for path, made in captioner.caption_photos(sorted(photos.iterdir()))}
    confidences = sorted(made[0].confidence for made in captions.values())
    least = (confidences[19] + confidences[20]) / 2  # two thirds of 60 are surer
    table = tiny_scenes / "sure.csv"
    given = ["--format", "corrections", "--out", table, "--accept-above", least, "--num-return-sequences", 2]
    try:
        status, _, err = run(capsys, "caption", tiny_checkpoint, photos, *given)
        assert status == 0 and "40 unchecked" in err and " rows; a lower --accept-above accepts more.\n" in err
        with table.open(encoding="utf-8-sig", newline="") as stream:
            rows = list(csv.DictReader(stream))
        dataset = read_dataset(table)
    finally:
        table.unlink()
    assert dataset.problems == ()
    assert dataset.splits == {"unchecked": 20, "train": dataset.splits["train"], "val": 40 - dataset.splits["train"]}
    assert 1 <= dataset.splits["val"] <= 9
    for record in dataset.records:
        made = captions[record.path.name][0]
        assert (record.split != "unchecked") == (made.confidence >= least)
        assert record.captions[0] == made.text
    assert all(float(row["confidence"]) >= least - 6e-4 for row in rows if row["split"] != "unchecked")
    assert sum(row["split"] == "unchecked" for row in rows) == 40  # both captions, for a person to choose


def test_a_table_beside_its_photos_is_asked_for(capsys, tiny_checkpoint, album, tmp_path):
    table = tmp_path / "other" / "mine.csv"
    status, _, err = run(capsys, "caption", tiny_checkpoint, album, "--format", "corrections", "--out", table)
    assert status == 2
    assert err == (
        f"showtell: Not all photos lie in the folder of {table}, and a dataset names its images from its own folder; "
        f"write the corrections to a folder that holds all the photos: --out {album}/mine.csv.\n"
    )
    assert not table.parent.exists()
    inside = album / "mine.csv"
    inside.write_text("mine")
    status, _, err = run(capsys, "caption", tiny_checkpoint, album, "--format", "corrections", "--out", inside)
    assert status == 2 and err == (
        f"showtell: {inside} is there already and may hold corrections; choose another name for --out, or move that "
        "file away.\n"
    )
    assert inside.read_text() == "mine"


# --- what a file, a terminal and a spreadsheet may be given ---


def caption_of(text: str) -> dict[str, object]:
    words = [{"word": word, "logprob": -0.5} for word in text.split()]
    return {"text": text, "logprob": -1.0, "score": None, "finished": True, "words": words}


HOSTILE = "a\tb\nforged.png\ta cat\x1b[31m\x9b2J\u202egnp\x07.png"


@pytest.mark.parametrize("style", ["text", "json", "jsonl", "csv"])
def test_names_and_words_fill_no_second_row_and_do_nothing_to_a_terminal(style):
    result = {"image": HOSTILE, "captions": [caption_of(f"a cat{HOSTILE}")]}
    written = "".join(WRITERS[style]([result], FormatOptions()))
    if style == "text":
        assert written.count("\n") == 1 and written.count("\t") == 1
        assert written.startswith("a\\tb\\nforged.png\\ta cat\\x1b[31m\\x9b2J\\u202egnp\\x07.png\ta cat")
    elif style != "csv":
        (read,) = json.loads(written) if style == "json" else [json.loads(written)]
        assert read == result
    assert written.replace("\n", "").replace("\t", "").isprintable()


FORMULAS = [
    "=HYPERLINK(1)",
    "+1",
    "-1+2",
    "@SUM(A1)",
    "'=1",
    "''-1",
    "\t=1",
    "'quoted'",
    "a = b",
    "'",
    "'a",
    "-",
    "a-b",
]


def test_a_table_holds_no_formulas_and_is_read_as_it_was_meant(tmp_path):
    results = []
    for number, text in enumerate(FORMULAS):
        name = f"{text.strip()}{number}.png"
        (tmp_path / name).write_bytes(b"")
        results.append({"image": str(tmp_path / name), "captions": [caption_of(text)]})
    by_format = {
        "csv": WRITERS["csv"](
            [{**result, "image": Path(result["image"]).name} for result in results], FormatOptions(tmp_path)
        ),
        "corrections": WRITERS["corrections"](results, FormatOptions(out=tmp_path / "corrections.csv")),
    }
    for name, pieces in by_format.items():
        table = tmp_path / f"{name}.csv"
        table.write_text("".join(pieces))
        with table.open(encoding="utf-8-sig", newline="") as stream:
            cells = [cell for row in csv.DictReader(stream) for cell in (row["image"], row["caption"])]
        assert len(cells) == 2 * len(FORMULAS) and not any(cell[:1] in tuple("=+-@\t\r") for cell in cells)
        records = {record.path: record.captions for record in read_dataset(table).records}
        assert len(records) == len(FORMULAS)
        for result, text in zip(results, FORMULAS, strict=True):
            assert records[Path(result["image"])] == (text,)
        table.unlink()


def test_the_suffix_of_out_decides_the_format(capsys, tiny_checkpoint, photos, tmp_path):
    for suffix, style in (("csv", "csv"), ("JSON", "json"), ("jsonl", "jsonl"), ("txt", "text")):
        out, named = tmp_path / f"a.{suffix}", tmp_path / style
        assert run(capsys, "caption", tiny_checkpoint, photos[0], "--out", out)[0] == 0
        assert run(capsys, "caption", tiny_checkpoint, photos[0], "--out", named, "--format", style)[0] == 0
        assert out.read_bytes() == named.read_bytes()
    assert run(capsys, "caption", tiny_checkpoint, photos[0], "--out", tmp_path / "c.csv", "--format", "text")[0] == 0
    assert (tmp_path / "c.csv").read_text().count("\t") == 1


def test_photos_that_cannot_be_read_cost_nothing_but_themselves(capsys, tiny_checkpoint, photos, tmp_path):
    os.mkfifo(tmp_path / "pipe.png")
    bad = ["x" * 5000, tmp_path / "pipe.png", "/proc/self/environ", tmp_path]
    tmp_path.joinpath("empty.jpg").touch()
    status, out, err = run(capsys, "caption", tiny_checkpoint, photos[0], *bad, photos[1])
    assert status == 2
    assert [line.split("\t")[0] for line in out.splitlines()] == [str(photos[0]), str(photos[1])]
    assert err.startswith("showtell: 4 of 6 files could not be captioned: Cannot read xxxx")

"""`showtell caption` to a file: killed or out of room, it resumes and ends with the same captions."""

import copy
import csv
import filecmp
import io
import json
import math
import os
import signal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from showtell.captions import Caption
from showtell.cli.caption_formats import WRITERS
from showtell.cli.caption_journal import open_journal
from showtell.datasets import open_dataset, read_dataset
from showtell.errors import DataError
from tests.cli.test_caption import copied, run
from tests.toys import room_for
from tests.training.process_group import kill_command


@pytest.fixture(scope="module")
def texts(captioner, photos) -> list[str]:
    """The captions of all photos."""
    return [captions[0].text for _, captions in captioner.caption_photos(photos)]


def texts_in(file: Path) -> list[str]:
    return [one["text"] for line in file.read_text().splitlines() for one in json.loads(line)["captions"][:1]]


def test_killed_it_resumes_and_ends_with_the_same_captions(capsys, tiny_checkpoint, tiny_scenes, tmp_path, texts):
    out, part = tmp_path / "captions.jsonl", tmp_path / "captions.jsonl.part"
    given = ["caption", tiny_checkpoint, tiny_scenes / "images", "--batch-size", 2, "--out", out]
    kill_command(given, lambda: part.exists() and part.read_bytes().count(b"\n") >= 9)
    assert not out.exists()
    kept = part.read_bytes()
    assert 9 <= kept.count(b"\n") < 61  # it was killed on its way
    part.write_bytes(kept + kept[100:150])  # and a line was torn
    status, printed, err = run(capsys, *given)
    assert (status, printed) == (0, "")
    assert err.splitlines()[1:] == [
        f"showtell: resuming {part}: {len(kept.splitlines()) - 1} photos are done.",
        f"showtell: {out} has the captions of 60 photos.",
    ]
    assert texts_in(out) == texts
    assert {path.name for path in tmp_path.iterdir()} == {"captions.jsonl"}


def test_what_is_there_is_replaced_on_request_alone(capsys, tiny_checkpoint, photos, tmp_path):
    file = tmp_path / "captions.csv"
    file.write_text("image,caption\na.jpg,a dog\n")
    given = ["caption", tiny_checkpoint, *photos[:2], "--out", file]
    told = f"showtell: {file} exists already; choose another name for --out, or replace it with --overwrite.\n"
    for style in ((), ("--format", "corrections")):
        assert run(capsys, *given, *style) == (2, "", told)
    assert file.read_text() == "image,caption\na.jpg,a dog\n"
    assert run(capsys, *given, "--overwrite")[0] == 0
    assert file.read_text("utf-8-sig").startswith("image,caption,logprob")


def test_a_full_disk_keeps_what_was_done(capsys, tiny_checkpoint, tiny_scenes, tmp_path, texts):
    out = tmp_path / "captions.jsonl"
    given = ["caption", tiny_checkpoint, tiny_scenes / "images", "--batch-size", 2, "--out", out]
    with room_for(8_000):
        status, _, err = run(capsys, *given)
    assert status == 2 and f"\nshowtell: Cannot write {out}: File too large; " in err
    assert err.endswith(f"photos are kept in {out}.part.\n") and not out.exists()
    assert run(capsys, *given)[0] == 0
    assert texts_in(out) == texts


@pytest.fixture(params=["small", "of our own", "of transformers"])
def any_captioner(request, tiny_checkpoint) -> object:
    """The captioner in the box, which is calibrated, and each other kind, as the command line names it."""
    if request.param == "of transformers":
        return request.getfixturevalue("tiny_blip")
    return tiny_checkpoint if request.param == "of our own" else request.param


def test_interrupted_any_captioner_resumes(capsys, any_captioner, tiny_checkpoint, photos, tmp_path, monkeypatch):
    """Interrupted when the disk has something of it, the same command ends with what an undisturbed run gives."""
    given = ["caption", any_captioner, *photos[:4], "--batch-size", 2, "--format", "jsonl", "--out"]
    ending = run(capsys, *given, tmp_path / "whole")[0]
    assert ending == (2 if "blip" in str(any_captioner) else 0)  # its made-up weights repeat words: no caption
    # the settings, each batch, the file in the end; the captioners that open slowly are interrupted once
    for number in (1, 2, 3, 4) if any_captioner == tiny_checkpoint else (2,):
        out, writes = tmp_path / f"{number}", iter(range(1, 5))
        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", lambda _, at=number, of=writes: signal.raise_signal(2) if next(of) == at else 0)
            status, _, err = run(capsys, *given, out)
        assert status == 130 and err.endswith("the same command resumes.\n") and not out.exists()
        status, _, err = run(capsys, *given, out)
        assert status == ending and (f".part: {2 * min(number - 1, 2)} photos are done." in err) == (number > 1)
        assert filecmp.cmp(out, tmp_path / "whole", False)
    assert not list(tmp_path.glob(".*")) and not list(tmp_path.glob("*.part"))


JSON_LIKE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner).map(tuple) | st.lists(inner) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=8,
)


@given(made_with=st.dictionaries(st.text(max_size=5), JSON_LIKE, max_size=4))
def test_equal_settings_resume_whatever_they_hold(made_with, tmp_path_factory):
    out = tmp_path_factory.mktemp("journal") / "a"
    for number in range(2):
        with open_journal(out, copy.deepcopy(made_with)) as (kept, keep):
            assert len(kept) == number
            keep([{"image": str(number), "captions": []}])


def test_other_settings_do_not_resume(tmp_path):
    out = tmp_path / "a.jsonl"
    with open_journal(out, {"decoding": {"num_beams": 5}, "checkpoint": "x"}) as (_, keep):
        keep([{"image": "a", "captions": []}])
    with pytest.raises(DataError) as caught, open_journal(out, {"decoding": {"num_beams": 3}, "checkpoint": "x"}):
        pass
    assert str(caught.value) == (
        f"The captions in {out}.part were made with other settings: decoding.num_beams (was 5, now 3); use the old "
        "ones, choose another --out, or delete that file to begin anew."
    )


def test_a_file_that_is_not_ours_is_left_alone(tmp_path):
    (tmp_path / "a.part").write_text("mine\n")
    with pytest.raises(DataError, match=r"a\.part is in the way: it is not of showtell; move it, or choose another"):
        open_journal(tmp_path / "a", {}).__enter__()
    assert (tmp_path / "a.part").read_text() == "mine\n"


def test_a_journal_cut_anywhere_keeps_whole_lines(tmp_path: Path) -> None:
    results = [{"image": f"{number}.jpg", "captions": []} for number in range(7)]
    part = tmp_path / "a.part"
    with open_journal(tmp_path / "a", {}) as (_, keep):
        keep(results)
        whole = part.read_bytes()
    for cut in range(0, len(whole) + 1, 7):
        part.write_bytes(whole[:cut])
        with open_journal(tmp_path / "a", {}) as (kept, keep):
            assert list(map(json.loads, kept.values())) == results[: max(0, whole[:cut].count(b"\n") - 1)]
            keep(results[len(kept) :])
        assert part.read_bytes() == whole


def test_standard_input_names_the_photos(capsys, tiny_checkpoint, photos, monkeypatch):
    listed = "\n".join(map(str, [photos[1], "none.jpg", photos[0]]))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(listed.encode())))
    status, printed, err = run(capsys, "caption", tiny_checkpoint, "-", "--format", "jsonl")
    rows = [json.loads(line) for line in printed.splitlines()]
    assert [row["image"] for row in rows] == [str(photos[1]), "none.jpg", str(photos[0])]
    assert (status, rows[1]["error"]) == (2, "There is no file none.jpg.")
    assert err.endswith("\nshowtell: 1 of 3 files could not be captioned: There is no file none.jpg.\n")


@pytest.fixture
def album(photos, tmp_path) -> Path:
    return copied(photos[:6], tmp_path / "album", lambda number: f"{'sea/' * (number % 2)}photo, {number}.png")


def test_corrections_are_a_dataset(capsys, tiny_checkpoint, album, captioner):
    """Caption and correct: what a person does, with the table edited as a spreadsheet would."""
    table = album / "corrections.csv"
    given = ["caption", tiny_checkpoint, album, "--format", "corrections", "--out", table]
    assert run(capsys, *given)[:2] == (0, "")
    with table.open(encoding="utf-8-sig", newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["image", "caption", "confidence", "split"]
    names = [f"{'sea/' * (number % 2)}photo, {number}.png" for number in (0, 2, 4, 1, 3, 5)]
    assert sorted(row["image"] for row in rows) == names
    sure = [float(row["confidence"]) for row in rows]
    assert sure == sorted(sure)
    for row in rows:
        best = captioner.caption(album / row["image"])[0]
        assert row["caption"] == best.text
        mean = best.logprob / (len(best.words) + best.finished)
        assert float(row["confidence"]) == pytest.approx(math.exp(mean), abs=6e-4)
    with pytest.raises(DataError, match='has no split "train"') as caught:
        open_dataset(table)["train"]  # nobody has checked one yet
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
    records = open_dataset(table)["train"]
    assert {record.path for record in records} == {album / row["image"] for row in rows[:4]}
    assert {record.captions for record in records} == {("a Zebra, at last",)}


def test_sure_captions_are_marked_to_train_on_and_the_others_are_left_to_a_person(
    capsys, tiny_checkpoint, tiny_scenes, tmp_path, captioner
):
    photos = tiny_scenes / "images"
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


def caption_of(text: str) -> dict[str, object]:
    words = [{"word": word, "logprob": -0.5} for word in text.split()]
    return Caption.from_json({"text": text, "logprob": -1.0, "finished": True, "words": words}).to_json()


HOSTILE = "a\tb\nforged.png\ta cat\x1b[31m\x9b2J\u202egnp\x07.png"


@pytest.mark.parametrize("style", ["text", "json", "jsonl", "csv"])
def test_names_and_words_fill_no_second_row_and_do_nothing_to_a_terminal(style):
    result = {"image": HOSTILE, "captions": [caption_of(f"a cat{HOSTILE}")]}
    written = "".join(WRITERS[style]([result], None, None))
    if style == "text":
        assert written.count("\n") == 1 and written.count("\t") == 1
        assert written.startswith("a\\tb\\nforged.png\\ta cat\\x1b[31m\\x9b2J\\u202egnp\\x07.png\ta cat")
    elif style != "csv":
        (read,) = json.loads(written) if style == "json" else [json.loads(written)]
        assert read == result
    assert written.replace("\n", "").replace("\t", "").isprintable()


FORMULAS = [
    "=HYPERLINK(1)", "+1", "-1+2", "@SUM(A1)", "'=1", "''-1", "\t=1", "'quoted'", "a = b", "'", "'a", "-", "a-b",
]  # fmt: skip


def test_a_table_holds_no_formulas_and_is_read_as_it_was_meant(tmp_path):
    results = []
    for number, text in enumerate(FORMULAS):
        name = f"{text.strip()}{number}.png"
        (tmp_path / name).write_bytes(b"")
        results.append({"image": str(tmp_path / name), "captions": [caption_of(text)]})
    by_format = {
        "csv": WRITERS["csv"]([{**result, "image": Path(result["image"]).name} for result in results], tmp_path, None),
        "corrections": WRITERS["corrections"](results, tmp_path / "corrections.csv", None),
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

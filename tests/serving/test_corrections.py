"""What people correct is kept: nothing acknowledged is lost, nobody overwrites another, and it is a dataset."""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

from showtell.datasets import open_dataset, read_dataset
from showtell.datasets.corrections import JOURNAL, Correction
from showtell.errors import DataError, ImageError, StorageError, UsageError
from showtell.serving.corrections import ConflictError, CorrectionStore, thumbnail_of
from tests.cli.test_caption import run
from tests.serving.corrector import make_photo
from tests.toys import room_for

SMALL = [
    *("encoder.image_size=48", "encoder.widths=[8,16]", "model.embedding_size=16", "model.hidden_size=16"),
    *("model.attention_size=8", "model.dropout=0", "training.batch_size=4", "training.epochs=2"),
    *("training.patience=null", "training.warmup_steps=0", "training.trackers=[]", "vocabulary.min_count=1"),
]
HOSTILE = [
    *("<script>alert(1)</script>.jpg", "\x1b[31mred\x07.jpg", "../../etc/passwd", "C:\\Windows\\system32\\a.jpg"),
    *("a\0b.jpg", "x" * 10_000 + ".jpg", "half \ud800 a character.jpg", "собака \U0001f436 é.jpg", "=HYPERLINK(1).jpg"),
    *("nul", "", "line\nend\u2028.jpg"),
]


@pytest.fixture
def store(tmp_path: Path) -> CorrectionStore:
    return CorrectionStore(tmp_path / "kept")


def add(store: CorrectionStore, number: int, caption: str = "a dog", **given: object) -> Correction:
    _, content = make_photo(number)
    return store.add(content, caption=caption, name=f"{number}.png", **given)[0]  # type: ignore[arg-type]


def test_a_row_from_its_proposal_to_its_correction(store):
    row = add(store, 1, "a dog runs", captioner="scenes", confidence=0.25)
    changed = store.change(row.id, 1, caption="  a cat\truns ")
    assert (changed.caption, changed.proposed, changed.status) == ("a cat runs", "a dog runs", "corrected")
    back = store.change(row.id, 2, caption="a dog runs")
    assert (back.status, back.revision) == ("accepted", 3)
    assert row.created == row.changed == back.created <= back.changed
    last = store.change(row.id, 3, status="skipped")
    assert (last.caption, store.page().rows) == ("a dog runs", [last])
    for caption in ("собака \U0001f469\u200d\U0001f680 é", "=1+1", "<b>a dog</b>, \"quoted\"; 'twice'"):
        last = store.change(row.id, last.revision, caption=caption)
        assert store.page().rows[0].caption == caption


def test_a_photo_is_kept_once_by_its_name_and_its_correction_with_it(store):
    id, content = make_photo(1)
    row = store.change(add(store, 1).id, 1, caption="a cat")
    again, is_new = store.add(content, name="copy.png", caption="a horse", confidence=0.1)
    assert (again, is_new) == (row, False)
    assert store.photo(id) == store.folder / row.image == store.folder / "photos" / f"1-{id[:12]}.png"
    store.photo(id).unlink()
    with pytest.raises(StorageError, match=rf"^The photo .*1-{id[:12]}\.png is missing; put it back, or send it ag"):
        store.photo(id)
    assert store.add(content) == (row, False)
    stream = BytesIO()
    Image.new("RGB", (600, 300), "navy").save(stream, "WEBP")
    other, _ = store.add(stream.getvalue(), name="sea.exe")
    assert store.photo(other.id).name == f"sea.exe-{other.id[:12]}.webp"  # the suffix is that of the content
    assert Image.open(BytesIO(thumbnail_of(stream.getvalue()))).size == (256, 128)


def test_photos_and_changes_that_are_refused(store):
    _, content = make_photo(1)
    with pytest.raises(ImageError, match=r'^"a.png" is damaged'):
        store.add(content[:-100], name="a.png")
    with pytest.raises(UsageError, match=r"^confidence: Input should be "):
        store.add(content, confidence=float("nan"))
    assert list((store.folder / "photos").iterdir()) == []
    row = add(store, 1)
    no_text = "A caption that is corrected is learned from, so it has words and no <unknown>; change it, or"
    for caption, sentence in (
        (" ", no_text),
        ("a <unknown> runs", no_text),
        ("a\0b", "The caption a\\x00b has control characters or half characters; remove them."),
        ("dog \udc80", "The caption dog \\udc80 has control characters"),
        ("x" * 10_000, "The caption has 10,000 characters, and 2,000 are allowed; shorten it."),
    ):
        with pytest.raises(UsageError) as error:
            store.change(row.id, 1, caption=caption)
        assert str(error.value).startswith(sentence)
    assert store.page().rows == [row]


def test_filters_and_pages(store):
    rows = [add(store, number) for number in range(5)]
    store.change(rows[3].id, 1, status="accepted")
    store.change(rows[1].id, 1, caption="a cat")

    def numbers(*arguments: object) -> tuple[list[int], int]:
        page = store.page(*arguments)
        return [int(row.name.removesuffix(".png")) for row in page.rows], page.total

    assert numbers() == ([0, 1, 2, 3, 4], 5)
    assert numbers((), 1, 2) == ([1, 2], 5)
    assert numbers(["unchecked"]) == ([0, 2, 4], 3)
    assert numbers(["accepted", "corrected"], 0, 1) == ([1], 2)


def test_of_many_threads_that_change_one_row_the_first_wins(store):
    row = add(store, 1)

    def change(number: int) -> str | None:
        try:
            return store.change(row.id, 1, caption=f"a dog {number}").caption
        except ConflictError as conflict:
            assert conflict.now == store.page().rows[0]
            return None

    with ThreadPoolExecutor(8) as pool:
        (caption,) = filter(None, pool.map(change, range(40)))
    assert (store.page().rows[0].revision, store.page().rows[0].caption) == (2, caption)


def correct(folder: Path, seed: int, rounds: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.serving.corrector", str(folder), str(seed), str(rounds)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_two_processes_begin_together_and_lose_no_change(tmp_path):
    """Each change adds one to a revision, so the revisions count all of them."""
    processes = [correct(tmp_path / "kept", seed, 20) for seed in (1, 2)]
    confirmed = [line for process in processes for line in process.communicate(timeout=120)[0].splitlines()]
    assert [process.returncode for process in processes] == [0, 0]
    assert len(confirmed) == len({tuple(line.split()[:2]) for line in confirmed}) == 40
    rows = CorrectionStore(tmp_path / "kept").page().rows
    assert sum(row.revision - 1 for row in rows) == 40


@pytest.mark.parametrize("kills", [3, pytest.param(40, marks=pytest.mark.slow)])
def test_killed_nothing_that_was_acknowledged_is_lost(tmp_path, kills):
    """Kill a corrector after a random number of lines and a moment more; what it had said must be there."""
    folder, moments = tmp_path / "kept", random.Random(kills)
    for seed in range(kills):
        process = correct(folder, seed, 10_000)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(moments.randrange(1, 30))]
        time.sleep(moments.uniform(0, 0.01))
        process.send_signal(signal.SIGKILL)
        lines += process.communicate()[0].splitlines()
        assert process.returncode == -signal.SIGKILL
        store = CorrectionStore(folder)
        rows = {row.id: row for row in store.page().rows}
        for line in lines:
            id, revision, caption = line.rstrip("\n").split(" ", 2)
            assert rows[id].revision >= int(revision)
            if rows[id].revision == int(revision):
                assert rows[id].caption == caption
        for row in rows.values():
            assert store.photo(row.id).read_bytes() in {content for _, content in map(make_photo, range(4))}
    assert sum(row.revision for row in rows.values()) > kills


@pytest.mark.parametrize("way", ["path", "parent", "link", "hard link", "pipe"])
def test_a_folder_from_elsewhere_gives_out_no_other_file(store, tmp_path, way):
    """Its journal, or a link in it, may name any file; an id names the bytes that were sent and no others."""
    secret = tmp_path / "secret.png"  # a photo of somebody else, outside of the folder
    secret.write_bytes(make_photo(99)[1])
    row = add(store, 1)
    kept = store.photo(row.id)
    other = {"path": str(secret), "parent": "../secret.png"}.get(way, kept.name)
    journal = store.folder / JOURNAL
    journal.write_text(journal.read_text().replace(f"photos/{kept.name}", f"photos/{other}"))
    kept.unlink()
    if way in ("link", "hard link"):
        getattr(kept, f"{'sym' if way == 'link' else 'hard'}link_to")(secret)
    elif way == "pipe":
        os.mkfifo(kept)
    is_told = "is missing; put it back|is not the one that was sent; put it back|has a line that is no correction"
    with pytest.raises(StorageError, match=is_told):
        CorrectionStore(store.folder).photo(row.id)
    assert all(record.path.parent == store.folder / "photos" for record in read_dataset(store.folder).records)


DAMAGE = {  # what others may have done to a journal, and what is told
    "a byte": (lambda text: text.replace('"caption"', '"cap\xfftion"'), "is no correction"),
    "a state": (lambda text: text.replace("unchecked", "done"), r"is no correction \(status: Input should be 'unch"),
    "a number": (lambda text: text.replace('"revision":1', '"revision":"many"'), "is no correction"),
    "a key": (lambda text: text.replace('"name"', '"more"'), "is no correction"),
    "another file": (lambda text: "dog.jpg,a dog\n", "is no correction"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_something_else_wrote_into_a_journal_is_told_and_left(store, damage):
    row, journal = add(store, 1), store.folder / JOURNAL
    change, told = DAMAGE[damage]
    content = change(journal.read_text()).encode("latin-1")
    journal.write_bytes(content)
    for use in (
        lambda: CorrectionStore(store.folder).change(row.id, 1, caption="a cat"),
        lambda: open_dataset(store.folder),
    ):
        with pytest.raises(DataError, match=told):
            use()
    assert journal.read_bytes() == content


def test_what_is_replaced_or_cut_off_is_read_anew(store):
    first, second = add(store, 1), add(store, 2)
    journal = store.folder / JOURNAL
    lines = journal.read_bytes().splitlines(keepends=True)
    journal.write_bytes(lines[0] + lines[1][:-20])  # as a program leaves it that is killed while it writes
    assert store.page().rows == [first] == CorrectionStore(store.folder).page().rows
    assert store.add(make_photo(2)[1], name="2.png", caption="a dog")[1]
    assert [row.id for row in store.page().rows] == [first.id, second.id]
    journal.unlink()
    assert store.page().total == 0
    journal.write_bytes(b"".join(lines))
    assert store.page().rows == [first, second]


def test_a_file_is_no_folder_of_corrections(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(UsageError, match=r"^.*/file is a file; --corrections needs the name of a folder\.$"):
        CorrectionStore(tmp_path / "file")


def test_a_full_disk_is_told_and_what_was_there_stays(store):
    first = add(store, 1)
    with room_for(1000):
        with pytest.raises(StorageError, match="make room or change the folder, and send the photo again"):
            add(store, 2)
        with pytest.raises(StorageError, match=r"jsonl cannot be written: File too large; repeat what was not confirm"):
            store.change(first.id, 1, caption="a cat " * 200)
    assert store.page().rows == [first]
    assert [path.name for path in (store.folder / "photos").iterdir()] == [first.file]
    assert store.change(first.id, 1, caption="a cat").revision == 2
    assert add(store, 2).revision == 1


def corrected_store(folder: Path, photos: list[Path], checked: int) -> CorrectionStore:
    store = CorrectionStore(folder)
    for number, photo in enumerate(photos):
        row, _ = store.add(photo.read_bytes(), name=f"{'=' * (number == 0)}{photo.name}", caption="a red circle")
        if number < checked:
            store.change(row.id, row.revision, caption=f"a blue square above a green circle {number}")
        elif number < checked + 2:
            store.change(row.id, row.revision, status="skipped")
    return store


def records_of(path: Path) -> dict[bytes, tuple[str, tuple[str, ...]]]:
    """Split and captions of each photo of a dataset, by its bytes."""
    dataset = open_dataset(path)
    return {record.path.read_bytes(): (record.split, record.captions) for record in dataset.records}


def test_the_table_is_the_same_dataset(photos, tmp_path):
    store = corrected_store(tmp_path / "kept", photos[:20], 12)
    records = records_of(tmp_path / "kept")
    assert records_of(tmp_path / "kept" / JOURNAL) == records
    splits = [split for split, _ in records.values()]
    assert splits.count("unchecked") == 8
    assert splits.count("train") + splits.count("val") == 12
    assert 1 <= splits.count("val") <= 6  # a tenth by the photos' bytes
    beside = tmp_path / "photos of the client"
    shutil.copytree(photos[0].parent, beside)
    (beside / photos[0].name).rename(beside / f"={photos[0].name}")  # a name that a spreadsheet would compute
    (beside / "corrected.csv").write_text("".join(store.table()), encoding="utf-8")
    assert records_of(beside / "corrected.csv") == records
    assert f"'={photos[0].name}," in "".join(store.table())
    assert len(store.table(["corrected"])) == 1 + 12


def test_a_table_calls_photos_as_the_client_does(store):
    """But for names that lead elsewhere, and those of two photos; none of the store's files leads out of its folder."""
    names = ["dog.jpg", "trip/dog.jpg", "dog.jpg", "../dog.jpg", "/etc/dog.jpg", "C:\\dog.jpg", *HOSTILE]
    files = []
    for number, name in enumerate(names):
        row, _ = store.add(make_photo(number)[1], name=name, captioner=name, caption="a dog")
        assert row.name.isprintable() and 1 <= len(row.name) <= 200
        row.model_dump_json().encode()
        files.append(row.file)
    shown = [line.rsplit(",a dog,", 1)[0] for line in store.table()[1:]]
    assert shown[:6] == ["dog.jpg", "trip/dog.jpg", *files[2:6]]
    assert {path.name for path in (store.folder / "photos").iterdir()} == set(files)
    for file in files:
        assert not set(file) & set('<>:"|?*\\/') and file.isprintable() and len(file.encode()) < 130
    assert files[6 + HOSTILE.index("собака \U0001f436 é.jpg")].startswith("собака \U0001f436 é-")


def test_without_photos_and_without_corrections_the_dataset_says_what_to_do(store):
    remedy = f"accept or correct captions on the page of: showtell serve CHECKPOINT --corrections {store.folder}."
    with pytest.raises(DataError, match=re.escape(f"holds no photo with a caption yet; {remedy}")):
        open_dataset(store.folder)
    add(store, 1)
    told = f'has no split "train", and 1 images in split "unchecked": {remedy}'
    with pytest.raises(DataError, match=re.escape(told)):
        open_dataset(store.folder)["train"]


def test_training_on_the_folder_while_it_is_in_use(capsys, tiny_checkpoint, photos, tmp_path):
    store = corrected_store(tmp_path / "kept", photos[:16], 10)
    start, data, out = f"training.start_from={tiny_checkpoint}", f"data.path={store.folder}", tmp_path / "run"
    status, _, err = run(capsys, "train", "adapt/corrections", data, start, *SMALL, "--out", out)
    assert status == 0, err
    about = json.loads((out / "best" / "config.json").read_text())["about"]
    assert about["train_images"] == len(open_dataset(store.folder)["train"]) >= 5

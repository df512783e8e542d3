"""`showtell caption --corrections`: what people wrote goes to their photos; doubt goes with captions."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from PIL import Image

from showtell.captions import UNLIKELY, Caption
from showtell.images import xmp
from showtell.serving.corrections import CorrectionStore
from showtell.sidecars import SidecarPlan, TextSidecars, XmpSidecars
from tests.cli.test_caption import copied, loaded, run
from tests.training.process_group import kill_command

WRITTEN = "two\u200c puppies on the beach"  # with what joins letters of Persian


def expected(number: int) -> str:
    return WRITTEN if number % 2 == 0 else f"proposed {number}"


@pytest.fixture
def album(photos: list[Path], tmp_path: Path) -> Path:
    return copied(photos[:12], tmp_path / "album", "{}.png".format)


@pytest.fixture
def store(album: Path, tmp_path: Path) -> CorrectionStore:
    """Corrections of the photos 0 to 5: those of even numbers were written anew, the others accepted as proposed."""
    store = CorrectionStore(tmp_path / "corrected")
    for number in range(8):
        photo = album / f"{number}.png"
        row, _ = store.add(photo.read_bytes(), name=photo.name, captioner="tiny", caption=f"proposed {number}")
        if number < 6:
            store.change(row.id, 1, caption=expected(number))
    return store


def test_every_format_has_what_people_wrote_and_the_captioner_s_words_for_the_others(
    capsys, tiny_checkpoint, album, store, captioner
):
    """Photos that were moved and renamed are known by their content, and no other is."""
    (album / "sea").mkdir()
    (album / "0.png").rename(album / "sea" / "renamed.png")
    given = ["caption", tiny_checkpoint, album, "--corrections", store.folder]
    status, out, err = run(capsys, *given, "--format", "json")
    assert status == 0 and f"showtell: 6 photos have a caption by a person in {store.folder}.\n" in err
    captions = {Path(row["image"]).stem: row["captions"][0] for row in loaded(out)}
    texts = {str(number): expected(number) for number in range(1, 6)} | {"renamed": WRITTEN}
    assert {name for name, one in captions.items() if one["writer"] == "person"} == texts.keys()
    for name, one in captions.items():
        assert one["text"] == texts.get(name) or one["text"] == captioner.caption(album / f"{name}.png")[0].text
    assert captions["2"] | {"confidence": None, "doubt": None, "keywords": ["puppy", "dog", "beach"]} == captions["2"]

    rows = list(csv.DictReader(io.StringIO(run(capsys, *given, "--format", "csv")[1])))
    assert all(row["writer"] == captions[Path(row["image"]).stem]["writer"] for row in rows)
    assert {row["keywords"] for row in rows if row["caption"] == WRITTEN} == {"puppy; dog; beach"}
    assert run(capsys, *given)[1].count("\tby a person\n") == 6
    table = album / "table.csv"
    run(capsys, *given, "--format", "corrections", "--out", table)
    with table.open(encoding="utf-8-sig", newline="") as stream:
        checked = [row["caption"] for row in csv.DictReader(stream) if row["split"] != "unchecked"]
    assert sorted(checked) == sorted(texts.values())


def test_an_interrupted_table_gets_what_a_person_wrote_meanwhile(capsys, tiny_checkpoint, album, store, monkeypatch):
    out, writes = album / "table.csv", iter(range(1, 9))
    given = ["caption", tiny_checkpoint, album, "--corrections", store.folder, "--batch-size", 2, "--out", out]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: signal.raise_signal(2) if next(writes) == 4 else 0)
        assert run(capsys, *given)[0] == 130
    (row,) = (row for row in store.page(("corrected",)).rows if row.name == "0.png")
    store.change(row.id, row.revision, caption="my own words")
    assert run(capsys, *given)[0] == 0
    captions = {Path(one["image"]).name: one["caption"] for one in csv.DictReader(out.read_text().splitlines())}
    assert captions["0.png"] == "my own words"


@pytest.mark.parametrize("kind", [TextSidecars(), XmpSidecars("tiny", with_keywords=True)], ids=["text", "xmp"])
def test_a_correction_replaces_what_a_captioner_wrote_and_nothing_of_a_person(kind, album, store):
    rows = {album / row.name: row for row in store.page(("accepted", "corrected")).rows}
    for photo, row in rows.items():
        kind.write(kind.file_of(photo), Caption(row.proposed, -1.0, True, ()))
    mine, blank, *others = [album / f"{number}.png" for number in (0, 2, 1, 3, 4, 5)]
    theirs = "edited by hand" if isinstance(kind, TextSidecars) else None
    file = kind.file_of(mine)
    file.write_text(theirs or file.read_text().replace(">proposed 0</rdf:li>", ">edited by hand</rdf:li>"))
    kind.file_of(blank).unlink()
    plan = SidecarPlan.of(rows, kind, rows)
    plan.write()
    assert [*plan.taken] == [mine] and "edited by hand" in file.read_text() and not plan.failures
    assert {*plan.written, *plan.done} == {blank, *others}
    assert all(kind.existing(photo, kind.file_of(photo)).text == rows[photo].caption for photo in plan.written)
    again = SidecarPlan.of(rows, kind, rows)
    assert not again.files and {*again.done} == {blank, *others} and [*again.taken] == [mine]
    row = rows[others[2]]
    rows[others[2]] = store.change(row.id, row.revision, caption="better still")
    later = SidecarPlan.of(rows, kind, rows)  # corrected once more on the page
    assert [*later.files] == ([others[2]] if isinstance(kind, XmpSidecars) else [])


def test_photos_that_are_gone_or_edited_are_named_and_metadata_are_no_edit(capsys, tiny_checkpoint, album, store):
    (album / "0.png").unlink()
    Image.new("RGB", (90, 60), "teal").save(album / "1.png")
    with Image.open(album / "2.png") as image:
        image.save(album / "2.png", exif=b"Exif\0\0MM\0*\0\0\0\x08\0\0\0\0\0\0")
    _, _, err = run(capsys, "caption", tiny_checkpoint, album, "--corrections", store.folder, "--xmp")
    assert "showtell: 4 photos have a caption by a person in " in err
    assert f"showtell: 1 photos were edited since somebody corrected them; correct them again: {album}/1.png.\n" in err
    assert "showtell: 1 corrections are of none of these photos: 0.png.\n" in err
    assert xmp.Sidecar(album / "2.png.xmp")[xmp.DESCRIPTION] == WRITTEN
    assert xmp.Sidecar(album / "1.png.xmp")[xmp.WRITER] == "captioner"
    status, _, err = run(capsys, "caption", tiny_checkpoint, album, "--corrections", album)
    assert status == 2 and f"{album} holds no corrections; name the folder of showtell serve --corrections." in err


def test_killed_every_sidecar_is_whole_and_a_second_run_finishes(capsys, tiny_checkpoint, album, store):
    given = ["caption", tiny_checkpoint, album, "--corrections", store.folder, "--xmp", "--keywords", "--batch-size", 1]
    kill_command(given, lambda: len([*album.glob("*.xmp")]) >= 5)
    before = {file: file.read_bytes() for file in album.glob("*.xmp")}
    assert all(xmp.Sidecar(file)[xmp.WRITER] for file in before)
    assert run(capsys, *given)[0] == 0
    assert {file: file.read_bytes() for file in before} == before and len([*album.iterdir()]) == 24
    assert [xmp.Sidecar(album / f"{n}.png.xmp")[xmp.DESCRIPTION] for n in range(6)] == [*map(expected, range(6))]


def test_doubtful_captions_are_listed_and_written_on_request_with_their_doubt(album):
    photos, kind = sorted(album.iterdir())[:3], XmpSidecars("tiny")
    made = [Caption("a dog", -1.0, True, (), calibrated_confidence=chance) for chance in (0.9, 0.2, 0.1)]
    for least, written in ((None, 1), (0.15, 1), (0, 1)):  # one more each time
        plan = SidecarPlan.of(photos, kind)
        plan.write(((photo, [one]) for photo, one in zip(photos, made, strict=True) if photo in plan.files), least)
        assert (len(plan.written), len(plan.rejected)) == (written, len(plan.files) - written)
    doubts = [xmp.Sidecar(kind.file_of(photo))[xmp.DOUBT] for photo in photos]
    assert doubts == ["", UNLIKELY, UNLIKELY]
    assert json.loads(json.dumps(made[1].to_json()))["doubt"] == UNLIKELY and f"doubt='{UNLIKELY}'" in repr(made[1])


@pytest.mark.skipif(shutil.which("exiftool") is None, reason="exiftool is not installed")
def test_exiftool_reads_what_is_written(album):
    photo, kind = album / "0.png", XmpSidecars("tiny", with_keywords=True)
    kind.write(kind.file_of(photo), Caption("two puppies", -1.0, True, (), calibrated_confidence=0.2))
    read = subprocess.run(["exiftool", "-json", kind.file_of(photo)], capture_output=True, check=True).stdout
    (tags,) = json.loads(read)
    named = {"Description": "two puppies", "AltTextAccessibility": "Two puppies.", "Subject": ["puppy", "dog"]}
    ours = {"Writer": "captioner", "Captioner": "tiny", "Doubt": UNLIKELY, "Confidence": 0.2, "Keywords": "puppy; dog"}
    assert tags | named | ours == tags

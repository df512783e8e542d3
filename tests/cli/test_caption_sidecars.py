"""`showtell caption --format sidecar`: a text beside each photo, which the reader of text files takes as a dataset."""

from __future__ import annotations

from pathlib import Path

import pytest

from showtell.datasets import open_dataset
from tests.cli.test_caption import copied, run


@pytest.fixture
def album(photos: list[Path], tmp_path: Path) -> Path:
    """Twelve photos, one of them in a folder for validation."""
    return copied(photos[:12], tmp_path / "album", lambda number: "val/3.png" if number == 3 else f"{number}.png")


def texts_of(folder: Path) -> dict[str, str]:
    return {
        path.relative_to(folder).as_posix(): path.read_text("utf-8")
        for path in sorted(folder.rglob("*"))
        if path.suffix in (".txt", ".TXT") and path.exists()
    }


def test_a_folder_with_its_texts_is_a_dataset(capsys, tiny_checkpoint, album, captioner):
    status, out, err = run(capsys, "caption", tiny_checkpoint, album, "--format", "sidecar")
    assert (status, out) == (0, "")
    assert err.endswith("\nshowtell: 12 files are written beside their photos.\n")
    records = {record.path: record for record in open_dataset(album).records}
    assert len(records) == 12 and records[album / "val" / "3.png"].split == "val"
    for path, record in records.items():
        assert record.captions == (captioner.caption(path)[0].text,)


def test_a_text_for_an_image_generator_has_its_prefix_suffix_and_extension(capsys, tiny_checkpoint, album, captioner):
    """The options of kohya's scripts, by their names."""
    given = ["--caption-extension", ".caption", "--caption-prefix", "sks, ", "--caption-suffix", ", photo"]
    assert run(capsys, "caption", tiny_checkpoint, album / "0.png", "--format", "sidecar", *given)[0] == 0
    text = captioner.caption(album / "0.png")[0].text
    assert (album / "0.caption").read_text() == f"sks, {text}, photo\n"
    assert texts_of(album) == {}


def test_texts_that_are_there_are_left_alone_unless_told_otherwise(capsys, tiny_checkpoint, album):
    (album / "0.txt").write_text("mine")
    (album / "1.TXT").write_text("mine too")
    (album / "2.txt").symlink_to("nowhere")
    status, _, err = run(capsys, "caption", tiny_checkpoint, album, "--format", "sidecar")
    assert status == 0 and err.splitlines()[1:] == [
        f"showtell: 3 photos have a text already and are skipped: {album}/0.txt, {album}/1.TXT, {album}/2.txt; "
        "--overwrite replaces them.",
        "showtell: 9 files are written beside their photos.",
    ]
    written = texts_of(album)
    assert (written.pop("0.txt"), written.pop("1.TXT"), len(written)) == ("mine", "mine too", 9)
    assert run(capsys, "caption", tiny_checkpoint, album, "--format", "sidecar", "--overwrite")[0] == 0
    now = texts_of(album)
    assert now["0.txt"] != "mine" and now["1.TXT"] != "mine too" and len(now) == 12
    assert not (album / "2.txt").is_symlink()
    assert {name: now[name] for name in written} == written


def test_photos_that_cannot_have_a_text_are_named(capsys, tiny_checkpoint, album):
    (album / "broken.jpg").write_text("no picture")
    (album / "0.jpg").write_bytes((album / "0.png").read_bytes())
    (album / "photo.txt").write_bytes((album / "1.png").read_bytes())
    photo = (album / "photo.txt").read_bytes()
    status, _, err = run(
        capsys, "caption", tiny_checkpoint, album, album / "photo.txt", "--format", "sidecar", "--overwrite"
    )
    assert status == 2
    assert (
        "4 of 15 files could not be captioned: "
        f"{album}/0.jpg would share 0.txt with another; rename it, "
        f"{album}/0.png would share 0.txt with another; rename it, "
        f"{album}/photo.txt would share photo.txt with another; rename it, "
    ) in err
    assert f"{album}/broken.jpg" in err
    assert not (album / "0.txt").exists() and not (album / "broken.txt").exists()
    assert (album / "photo.txt").read_bytes() == photo
    assert (album / "1.txt").exists()


def test_only_sure_captions_are_written_on_request(capsys, tiny_checkpoint, album, captioner):
    photos = sorted(album.rglob("*.png"))
    sure = {path: captioner.caption(path)[0].confidence for path in photos}
    least = sorted(sure.values())[6]
    status, _, err = run(
        capsys, "caption", tiny_checkpoint, album, "--format", "sidecar", "--accept-above", least - 1e-4
    )
    assert status == 0
    accepted = {path for path, confidence in sure.items() if confidence >= least - 1e-4}
    assert {path for path in photos if path.with_suffix(".txt").exists()} == accepted
    assert f"{12 - len(accepted)} photos have no caption of confidence {least - 1e-4:g} or more: " in err

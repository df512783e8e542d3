"""`showtell caption --format sidecar`: a text beside each photo, which the reader of text files takes as a dataset."""

import os
import shutil
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from showtell.datasets import open_dataset
from showtell.text.endings import is_degenerate
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
    assert (status, out) == (0, "") and err.endswith("\nshowtell: 12 files are written beside their photos.\n")
    records = {record.path: record for record in open_dataset(album).records}
    assert len(records) == 12 and records[album / "val" / "3.png"].split == "val"
    for path, record in records.items():
        assert record.captions == (captioner.caption(path)[0].text,)


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
    given = ["caption", tiny_checkpoint, album, album / "photo.txt"]
    status, _, err = run(capsys, *given, "--format", "sidecar", "--overwrite")
    assert status == 2
    assert (
        "4 of 15 files could not be captioned: "
        f"{album}/0.jpg would share 0.txt with another; rename it, "
        f"{album}/0.png would share 0.txt with another; rename it, "
        f"{album}/photo.txt would share photo.txt with another; rename it, "
    ) in err
    assert f"{album}/broken.jpg" in err
    assert [(album / f"{name}.txt").exists() for name in ("0", "broken", "1")] == [False, False, True]
    assert (album / "photo.txt").read_bytes() == photo


def test_only_sure_captions_are_written_on_request(capsys, tiny_checkpoint, album, captioner):
    photos = sorted(album.rglob("*.png"))
    sure = {path: captioner.caption(path)[0].confidence for path in photos}
    least = sorted(sure.values())[6] - 1e-4
    status, _, err = run(capsys, "caption", tiny_checkpoint, album, "--format", "sidecar", "--accept-above", least)
    assert status == 0
    accepted = {path for path, confidence in sure.items() if confidence >= least}
    assert {path for path in photos if path.with_suffix(".txt").exists()} == accepted
    assert f"{12 - len(accepted)} photos have no caption of confidence {least:g} or more: " in err


STYLES = {"text": ("--format", "sidecar"), "xmp": ("--xmp",)}


def sidecar_of(photo: Path, style: str) -> Path:
    return photo.with_suffix(".txt") if style == "text" else photo.with_name(f"{photo.name}.xmp")


@pytest.fixture(params=STYLES)
def style(request) -> str:
    return request.param


def test_what_stands_where_a_sidecar_would_be_is_left_alone_and_named(capsys, tiny_checkpoint, album, style):
    """Links, pipes, folders and names that are too long stop no other photo, even with --overwrite."""
    (album.parent / "mine").write_text("mine")
    blocked = [sidecar_of(album / f"{number}.png", style) for number in range(4)]
    blocked[0].symlink_to(album.parent / "mine")
    blocked[1].symlink_to(album.parent / "nowhere")
    os.mkfifo(blocked[2])
    blocked[3].mkdir(parents=True)  # the photo of this number lies elsewhere
    shutil.copy(album / "0.png", album / "3.png")
    (album / "4.png").rename(album / f"{'x' * 251}.png")
    taken = 4 if style == "text" else 0  # as texts that are there
    for more, is_kept in (((), True), (("--overwrite",), style == "xmp")):
        status, _, err = run(capsys, "caption", tiny_checkpoint, album, *STYLES[style], *more)
        assert (status, f"{taken} photos have a text already" in err) == (0 if taken else 2, bool(taken))
        assert (album.parent / "mine").read_text() == "mine" and not (album.parent / "nowhere").exists()
        assert [file.is_symlink() for file in blocked] == [is_kept, is_kept, False, False]
        assert blocked[2].is_fifo() and blocked[3].is_dir() and not any(blocked[3].iterdir())
        taken = 0
    reasons = ("is a named pipe", "is a folder") + (("is a link", "too long") if style == "xmp" else ())
    assert [reason for reason in reasons if reason not in err] == [], err
    assert sidecar_of(album / "5.png", style).is_file()
    assert sidecar_of(album / f"{'x' * 251}.png", "text").exists() == (style == "text")


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o664])
def test_permissions_stay(capsys, tiny_checkpoint, album, style, mode):
    given = ["caption", tiny_checkpoint, album / "0.png", *STYLES[style]]
    file = sidecar_of(album / "0.png", style)
    assert run(capsys, *given)[0] == 0
    before = file.read_bytes()
    file.chmod(mode)
    is_writable = os.access(file, os.W_OK)
    status, _, _ = run(capsys, *given, "--overwrite", "--search", "sample", "--seed", 3)
    assert status == (0 if is_writable else 2)
    assert (file.read_bytes() != before) == is_writable and stat.S_IMODE(file.stat().st_mode) == mode


WRITE_AND_WAIT = """
import sys
from pathlib import Path
from showtell.files import writing
with writing(Path(sys.argv[1])) as stream:
    stream.write(b"whole")
    print("written", flush=True)
    sys.stdin.read()
"""


def test_what_a_kill_leaves_behind_goes_and_what_others_write_stays(capsys, tiny_checkpoint, album, style):
    command, pipes = [sys.executable, "-c", WRITE_AND_WAIT], {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    writers = [subprocess.Popen([*command, album / name], **pipes) for name in ("0.txt", "other.txt")]
    assert [writer.stdout.readline() for writer in writers] == [b"written\n"] * 2
    writers[0].send_signal(signal.SIGKILL)
    writers[0].wait()
    hidden = {*album.glob(".*")}
    (album / ".mine.tmp").touch()
    assert run(capsys, "caption", tiny_checkpoint, album, *STYLES[style])[0] == 0
    assert len(hidden) == 2 and len({*album.glob(".*")} & hidden) == 1
    writers[1].communicate()
    assert (album / "other.txt").read_text() == "whole" and {*album.glob(".*")} == {album / ".mine.tmp"}
    for writer in writers:
        writer.communicate()


def test_a_caption_that_repeats_itself_is_listed_and_not_written(capsys, tiny_checkpoint, album, style, captioner):
    settings = captioner.settings(no_repeat_ngram_size=0, no_unknown=True)
    texts = dict(captioner.caption_photos(sorted(album.rglob("*.png")), settings))
    bad = [photo for photo, captions in texts.items() if is_degenerate(captions[0].text)]
    assert 0 < len(bad) < 12
    status, _, err = run(capsys, "caption", tiny_checkpoint, album, *STYLES[style], "--no-repeat-ngram-size", 0)
    assert status == 2 and err.count("has no caption, for all that the captioner says repeats itself") == len(bad)
    assert {photo for photo in texts if not sidecar_of(photo, style).exists()} == set(bad)


SYSTEMS = ["@eaDir", "#recycle", "$RECYCLE.BIN", "__MACOSX", ".thumbnails", "lost+found", "System Volume Information"]


def test_folders_of_systems_are_left_alone(capsys, tiny_checkpoint, album, style, monkeypatch):
    for name in SYSTEMS:
        shutil.copytree(album, album.parent / name)
    for name in SYSTEMS:
        (album.parent / name).rename(album / "val" / name)
    monkeypatch.chdir(album)
    for photos in (".", "**/*.png", "*"):
        assert run(capsys, "caption", tiny_checkpoint, photos, *STYLES[style], "--overwrite")[0] == 0
    written = [file for file in album.rglob("*") if file.suffix in (".txt", ".xmp")]
    assert len(written) == 12 and not any(name in file.parts for name in SYSTEMS for file in written)
    assert len(open_dataset(album).records) == 12


@pytest.mark.parametrize("content", [b"", b"\n", b"\xef\xbb\xbf \r\n"])
def test_an_empty_text_is_none(capsys, tiny_checkpoint, album, content):
    (album / "0.txt").write_bytes(content)
    assert "12 files are written" in run(capsys, "caption", tiny_checkpoint, album, "--format", "sidecar")[2]
    assert (album / "0.txt").read_bytes() != content

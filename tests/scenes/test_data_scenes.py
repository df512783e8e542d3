"""`showtell data scenes` as a person runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from showtell.cli import main
from showtell.scenes import LANGUAGE_VERSION, read_scenes


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of one command."""
    with pytest.raises(SystemExit) as stopped:
        main(["data", "scenes", *arguments])
    captured = capsys.readouterr()
    return int(stopped.value.code or 0), captured.out, captured.err


def test_words_for_people(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "drawn"
    status, out, _ = run([str(folder), "--images", "20", "--seed", "2"], capsys)
    assert status == 0
    assert out.splitlines()[0].split() == ["train", "17", "images", "85", "captions"]
    assert out.splitlines()[-1] == f"Next: showtell data check {folder}"
    assert len(read_scenes(folder) or {}) == 20


def test_json_is_one_object(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = run([str(tmp_path / "drawn"), "--images", "20", "--json"], capsys)
    assert status == 0
    assert json.loads(out) == {
        "path": str(tmp_path / "drawn"),
        "images": 20,
        "captions": 100,
        "seed": 0,
        "language": LANGUAGE_VERSION,
        "splits": {"train": 17, "val": 1, "test": 1, "test_compositional": 1},
    }


def test_too_few_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = run([str(tmp_path / "drawn"), "--images", "2"], capsys)
    assert (status, out) == (2, "")
    assert err == "showtell: 2 images are too few: scenes has 4 splits of at least one image each.\n"


@pytest.mark.parametrize("images", [10**6, 10**12, 10**40])
def test_too_many_images(tmp_path: Path, capsys: pytest.CaptureFixture[str], images: int) -> None:
    status, out, err = run([str(tmp_path / "drawn"), "--images", str(images)], capsys)
    assert (status, out) == (2, "")
    assert err == f"showtell: {images} images are too many: scenes has 999,999 at most.\n"
    assert not (tmp_path / "drawn").exists()


def test_a_folder_in_use(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "thesis.tex").write_text("")
    status, _, err = run([str(tmp_path)], capsys)
    assert status == 2
    assert "is not empty and holds no scenes dataset" in err

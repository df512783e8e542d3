import json
from pathlib import Path

import pytest

from showtell.datasets import download
from showtell.datasets.download import SOURCES, Source
from tests.cli.test_caption import Captured, run
from tests.datasets.makers import write_table

CLEAN = "image,caption,split\na.png,A dog runs.,train\na.png,A dog,train\nb.png,A cat sits.,val\nc.png,A cow.,test\n"
REPORT = """\
mine (format: table)

split     images   captions
train          1          2
val            1          1
test           1          1
total          3          4

captions per image: 1 to 2, mean 1.3, median 1, 95% have 2 or fewer
words per caption:  2 to 3, mean 2.5, median 2.5, 95% have 3 or fewer
different words:    3, of which 0 occur five times or more; unseen in train: 66.7% of val, 50.0% of test

No problems.
"""


def test_a_clean_dataset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    write_table(tmp_path / "mine", CLEAN, "a.png b.png c.png")
    monkeypatch.chdir(tmp_path)
    assert run(capsys, "data", "check", "mine") == (0, REPORT, "")
    status, out, err = run(capsys, "data", "check", "mine", "--json")
    report = json.loads(out)
    assert (status, err, report["problems"], report["warnings"]) == (0, "", [], [])
    assert report["images"] == {"train": 1, "val": 1, "test": 1}
    assert report["captions"] == {"train": 2, "val": 1, "test": 1}


def test_problems_and_warnings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    write_table(tmp_path / "mine", CLEAN.replace("train", "test"), "a.png b.png d.png")
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, "data", "check", "mine")
    assert (status, err) == (2, "showtell: mine cannot be used: it has a problem, listed in the report.\n")
    assert out.splitlines()[-3:] == [
        "problem: 1 image file is missing: c.png; put the files there or take their captions out.",
        "warning: 1 image has no captions, unlike others in the folder, left out: d.png.",
        "warning: There is no split train, only val, test: nothing can be learned from this, only scored.",
    ]
    (tmp_path / "mine/b.png").write_bytes(b"")
    status, out, err = run(capsys, "data", "check", "mine", "--json")
    assert (status, len(json.loads(out)["problems"])) == (2, 2)
    assert err == "showtell: mine cannot be used: it has 2 problems, listed in the report.\n"


def test_the_list_names_every_address_licence_and_checksum(capsys: Captured) -> None:
    status, out, err = run(capsys, "data", "get", "--list")
    assert (status, err) == (0, "")
    for name, source in SOURCES.items():
        assert f"{name}: {source.title}" in out and source.licence in out
        for archive in source.archives:
            assert all(url in out for url in archive.urls) and str(archive.digest) in out


def test_the_licence_is_shown_before_anything_is_fetched(tmp_path, monkeypatch, capsys):
    def download_dataset(source: Source, folder: Path, only: str | None) -> None:
        assert source.licence in capsys.readouterr().err
        assert (folder, only) == (tmp_path / "f", "captions")

    monkeypatch.setattr(download, "download_dataset", download_dataset)
    status, out, err = run(capsys, "data", "get", "flickr30k", "--to", str(tmp_path / "f"), "--only", "captions")
    assert (status, out, err) == (0, f"{tmp_path / 'f'}\n\nNext: showtell data check {tmp_path / 'f'}\n", "")

import json
from pathlib import Path

import pytest

from showtell.cli import main
from tests.datasets.makers import write_table

Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capsys.readouterr()
    return int(ended.value.code or 0), captured.out, captured.err


CLEAN = "image,caption,split\na.png,A dog runs.,train\na.png,A dog,train\nb.png,A cat sits.,val\nc.png,A cow.,test\n"


def test_a_clean_dataset_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    write_table(tmp_path / "mine", CLEAN, "a.png b.png c.png")
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, "data", "check", "mine")
    assert (status, err) == (0, "")
    assert out == (
        "mine (format: table)\n"
        "\n"
        "split     images   captions\n"
        "train          1          2\n"
        "val            1          1\n"
        "test           1          1\n"
        "total          3          4\n"
        "\n"
        "captions per image: 1 to 2, mean 1.3, median 1, 95% have 2 or fewer\n"
        "words per caption:  2 to 3, mean 2.5, median 2.5, 95% have 3 or fewer\n"
        "different words:    3, of which 0 occur five times or more; unseen in train: 66.7% of val, 50.0% of test\n"
        "\n"
        "No problems.\n"
    )


def test_problems_and_warnings_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    write_table(tmp_path / "mine", CLEAN.replace("train", "test"), "a.png b.png d.png")
    monkeypatch.chdir(tmp_path)
    status, out, err = run(capsys, "data", "check", "mine")
    assert status == 2
    assert out.splitlines()[-3:] == [
        "problem: 1 image file is missing: c.png; put the files there or take their captions out.",
        "warning: 1 image has no captions, unlike others in the folder, left out: d.png.",
        "warning: There is no split train, only val, test: nothing can be learned from this, only scored.",
    ]
    assert err == "showtell: mine cannot be used: it has a problem, listed in the report.\n"


def test_one_json_object_whatever_the_outcome(tmp_path: Path, capsys: Captured) -> None:
    write_table(tmp_path, CLEAN, "a.png b.png c.png")
    status, out, err = run(capsys, "data", "check", str(tmp_path), "--json")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert [report[key] for key in ("images", "captions", "problems", "warnings")] == [3, 4, [], []]
    assert report["splits"] == {"train": 1, "val": 1, "test": 1}

    (tmp_path / "a.png").unlink()
    (tmp_path / "b.png").write_bytes(b"")
    status, out, err = run(capsys, "data", "check", str(tmp_path), "--json")
    assert status == 2 and len(json.loads(out)["problems"]) == 2
    assert err == f"showtell: {tmp_path} cannot be used: it has 2 problems, listed in the report.\n"


def test_the_help_says_what_counts(capsys: Captured) -> None:
    status, out, _ = run(capsys, "data", "check", "--help")
    assert status == 0 and "DATASET" in out and "--json" in out

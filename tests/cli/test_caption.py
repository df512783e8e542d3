"""`showtell caption` as a person calls it."""

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import pytest

from showtell.cli import main
from showtell.cli.caption import Format
from showtell.cli.caption_formats import WRITERS


@pytest.fixture
def photos(photos: list[Path]) -> list[Path]:
    return photos[:4]


Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *arguments: object) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    try:
        main([str(argument) for argument in arguments])
        status = 0
    except SystemExit as ended:
        status = int(ended.code or 0)
    captured = capsys.readouterr()
    return status, captured.out, captured.err


def copied(photos: list[Path], folder: Path, name: Callable[[int], str]) -> Path:
    """A folder with copies of photos, under names by their numbers."""
    for number, photo in enumerate(photos):
        (folder / name(number)).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(photo, folder / name(number))
    return folder


def loaded(text: str) -> Any:
    """JSON without NaN and Infinity, which are none."""
    return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))


def as_json(capsys: Captured, *arguments: object) -> Any:
    """What a command that succeeds prints with --json."""
    status, out, err = run(capsys, *arguments, "--json")
    assert status == 0, err
    return loaded(out)


def test_json_is_what_programs_rely_on(capsys, tiny_checkpoint, photos):
    status, out, _ = run(capsys, "caption", tiny_checkpoint, *photos, "--num-return-sequences", 2, "--format", "json")
    rows = json.loads(out)
    assert status == 0 and [row["image"] for row in rows] == [str(path) for path in photos]
    for row in rows:
        assert len(row["captions"]) == 2
        for caption in row["captions"]:
            keys = {"text", "logprob", "score", "confidence", "calibrated", "doubt", "finished", "words"}
            assert set(caption) == keys | {"writer", "keywords"}
            assert caption["text"] == " ".join(word["word"] for word in caption["words"])
        assert row["captions"][0]["logprob"] >= row["captions"][1]["logprob"]


def test_every_format_says_the_same(capsys, tiny_checkpoint, photos, tmp_path):
    texts, sure = {}, {}
    for style in ("text", "json", "jsonl", "csv"):
        out = tmp_path / style
        assert run(capsys, "caption", tiny_checkpoint, *photos, "--format", style, "--out", out)[:2] == (0, "")
        content = out.read_text()
        if style == "text":
            assert [line.split("\t")[0] for line in content.splitlines()] == [str(path) for path in photos]
            texts[style] = [line.split("\t")[1] for line in content.splitlines()]
        elif style == "csv":
            table = list(csv.DictReader(io.StringIO(content)))
            texts[style] = [row["caption"] for row in table]
        else:
            rows = json.loads(content) if style == "json" else [json.loads(line) for line in content.splitlines()]
            texts[style] = [row["captions"][0]["text"] for row in rows]
            assert all(row["captions"][0]["calibrated"] is False for row in rows)
            sure[style] = [f"{row['captions'][0]['confidence']:.3f}" for row in rows]
    assert texts["text"] == texts["json"] == texts["jsonl"] == texts["csv"]
    assert [row["confidence"] for row in table] == sure["json"] == sure["jsonl"]


def test_a_bad_file_is_named_at_the_end_and_costs_nothing(capsys, tiny_checkpoint, photos, tmp_path):
    bad = tmp_path / "bad.jpg"
    bad.write_text("no picture")
    status, out, err = run(capsys, "caption", tiny_checkpoint, photos[0], bad, photos[1], "--format", "jsonl")
    rows = [json.loads(line) for line in out.splitlines()]
    assert status == 2 and [row["image"] for row in rows] == [str(photos[0]), str(bad), str(photos[1])]
    assert set(rows[1]) == {"image", "error"} and str(bad) in rows[1]["error"]
    knows, failure = err.splitlines()
    assert re.fullmatch(rf"showtell: {tiny_checkpoint} has \d+ words, learned from the photos of tiny scenes\.", knows)
    assert failure.startswith("showtell: 1 of 3 files could not be captioned: ") and str(bad) in failure


def test_unknown_words_are_told_and_never_written_to_train_on(capsys, tiny_checkpoint, photos, tmp_path):
    given = ["caption", tiny_checkpoint, *photos, "--unknown", "--search", "sample", "--num-return-sequences", 20]
    status, out, err = run(capsys, *given)
    count = sum("<unknown>" in line for line in out.splitlines())
    assert status == 0 and count > 0
    assert err.endswith(
        f"\nshowtell: <unknown> stands for a word that the checkpoint does not know, in {count} of the captions; "
        "--no-unknown lets it choose a word that it knows.\n"
    )
    plain = tmp_path / "checkpoint"
    shutil.copytree(tiny_checkpoint, plain)
    settings = json.loads((plain / "config.json").read_text())
    settings["decoding"]["no_unknown"] = False
    (plain / "config.json").write_text(json.dumps(settings))
    folder = copied(photos, tmp_path / "photos", "{}.png".format)
    sampled = ["--search", "sample", "--num-return-sequences", 20]
    assert "<unknown>" in run(capsys, "caption", plain, folder, *sampled)[1]
    for option in (["--format", "sidecar"], ["--format", "corrections", "--out", folder / "captions.csv"]):
        assert run(capsys, "caption", plain, folder, *sampled, *option)[0] == 0
    written = [path for path in folder.iterdir() if path.suffix in (".txt", ".csv")]
    assert len(written) == 5 and not any("<unknown>" in path.read_text("utf-8") for path in written)


@pytest.mark.parametrize("option", ["--prompt", "--bad-word", "--out"])
def test_a_value_longer_than_a_file_name_is_taken_or_refused_for_what_it_is(capsys, tiny_checkpoint, photos, option):
    status, _, err = run(capsys, "caption", tiny_checkpoint, photos[0], option, "x" * 300)
    reason = {"--prompt": "takes no prompt", "--out": "Cannot write xxx"}.get(option, "")
    assert status == (2 if reason else 0) and reason in err


def test_every_format_of_the_command_line_has_a_writer():
    assert {*get_args(Format)} == {*WRITERS, "sidecar"}

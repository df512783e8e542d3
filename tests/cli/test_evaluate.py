"""`showtell evaluate` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from showtell.cli import main


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def test_it_captions_a_split_writes_results_and_scores_them(capsys, tiny_checkpoint, tiny_scenes, tmp_path):
    out = tmp_path / "results.json"
    status = run("evaluate", tiny_checkpoint, tiny_scenes, "--split", "val", "--num-beams", 3, "--out", out, "--json")
    found = json.loads(capsys.readouterr().out)
    assert status == 0
    assert (found["split"], found["search"], found["num_beams"]) == ("val", "beam", 3)
    results = json.loads(out.read_text())
    assert len(results) == found["images"]
    assert all(isinstance(entry["image_id"], int) and isinstance(entry["caption"], str) for entry in results)
    # Scored once more from the file, the numbers are the same.
    status = run("score", out, tiny_scenes, "--split", "val", "--json")
    again = json.loads(capsys.readouterr().out)
    assert status == 0
    assert again["scores"] == found["scores"]


def test_the_card_has_intervals_rates_and_the_servers_file(capsys, tiny_checkpoint, tiny_scenes, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("evaluate", tiny_checkpoint, tiny_scenes, "--metrics", "bleu", "--server", "val2014_tiny") == 0
    card, warned = capsys.readouterr()
    assert warned == (
        f"showtell: {card.splitlines()[1]} are too few to judge a captioner by: on as many others the scores would be "
        "others; mind the intervals.\n"
    )
    assert card.startswith("split test, search beam, num beams 2\n")
    assert "bleu_4" in card
    assert "[" in card.split("bleu_1")[1].splitlines()[0]  # an interval
    assert "mean_length" in card
    results = json.loads((tmp_path / "captions_val2014_tiny_results.json").read_text())
    assert set(results[0]) == {"image_id", "caption"}


def test_a_missing_split_is_a_sentence(capsys, tiny_checkpoint, tiny_scenes):
    assert run("evaluate", tiny_checkpoint, tiny_scenes, "--split", "tets") == 2
    assert 'has no split "tets": did you mean "test"' in capsys.readouterr().err


def test_a_missing_dataset_is_a_sentence(capsys, tiny_checkpoint, tmp_path):
    assert run("evaluate", tiny_checkpoint, tmp_path / "none") == 2
    assert "There is no file or folder" in capsys.readouterr().err
    assert not Path("results.json").exists()

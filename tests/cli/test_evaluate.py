"""`showtell evaluate` as a person calls it."""

import json
from pathlib import Path

import pytest

from showtell.captioners import EncoderDecoderCaptioner
from showtell.datasets import open_dataset
from showtell.scores import DocumentFrequency, image_facts, score
from showtell.text.tokenizer import tokenize
from tests.cli.test_caption import as_json, run


def test_the_table_has_intervals_rates_and_how_captions_were_made(capsys, tiny_checkpoint, tiny_scenes):
    status, table, warned = run(capsys, "evaluate", tiny_checkpoint, tiny_scenes, "--metrics", "bleu")
    assert status == 0 and warned == (
        f"showtell: {table.splitlines()[1]} are too few to judge a captioner by: on as many others the scores would be "
        "others; mind the intervals.\n"
    )
    assert table.startswith("tiny: split test, search beam, num beams 2\n")
    assert "[" in table.split("BLEU-1")[1].splitlines()[0]  # an interval
    assert "words per caption" in table


@pytest.fixture
def other_checkpoint(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    """The tiny checkpoint with other weights."""
    captioner = EncoderDecoderCaptioner.from_pretrained(tiny_checkpoint, device="cpu")
    captioner.decoder.embedding.weight.data.mul_(-3)
    captioner.save_pretrained(tmp_path / "other")
    return tmp_path / "other"


def test_several_checkpoints_are_compared_on_the_same_draws(capsys, tiny_checkpoint, tiny_scenes, other_checkpoint):
    asked = (tiny_scenes, "--split", "val", "--metrics", "bleu,cider")
    content = as_json(capsys, "evaluate", tiny_checkpoint, other_checkpoint, *asked)
    alone = [as_json(capsys, "evaluate", checkpoint, *asked) for checkpoint in (tiny_checkpoint, other_checkpoint)]
    assert content["systems"] == [{**one, "system": name} for one, name in zip(alone, ("tiny", "other"), strict=True)]
    differences = {one["number"]: one for one in content["comparisons"]}
    assert {(one["first"], one["second"]) for one in differences.values()} == {("tiny", "other")}
    for name in ("bleu_1", "bleu_4", "cider"):
        expected = alone[0]["scores"][name] - alone[1]["scores"][name]
        assert differences[name]["value"] == pytest.approx(expected)
        assert differences[name]["low"] <= expected <= differences[name]["high"] and 0 < differences[name]["p"] <= 1


def test_different_searches_are_said_aloud(capsys, tiny_checkpoint, tiny_scenes, other_checkpoint):
    settings = json.loads((other_checkpoint / "config.json").read_text())
    settings["decoding"] |= {"num_beams": 4, "length_penalty": 0.5}
    (other_checkpoint / "config.json").write_text(json.dumps(settings))
    asked = ("evaluate", tiny_checkpoint, other_checkpoint, tiny_scenes, "--split", "val", "--metrics", "bleu")
    assert "other was searched otherwise than tiny (num_beams 4 and 2, length_pen" in run(capsys, *asked)[2]
    status, _, err = run(capsys, *asked, "--num-beams", 3, "--length-penalty", 0)
    assert status == 0 and "searched otherwise" not in err


def test_a_dataset_with_boxes_is_scored_for_hallucinated_objects(capsys, tiny_checkpoint, tiny_boxes, tmp_path):
    out = tmp_path / "results.json"
    arguments = ("--split", "val", "--metrics", "chair,rouge_l")
    content = as_json(capsys, "evaluate", tiny_checkpoint, tiny_boxes, *arguments, "--out", out)
    assert not content["skipped"]
    again = as_json(capsys, "score", out, "--references", tiny_boxes, *arguments)
    assert (again["scores"], again["signatures"]) == (content["scores"], content["signatures"])
    facts = image_facts(open_dataset(tiny_boxes)["val"])
    expected = score({str(row["image_id"]): row["caption"] for row in json.loads(out.read_text())}, facts, ["chair"])
    categories = {category for one in facts.values() for category in one.objects or ()}
    assert f"categories:{len(categories)}|" in content["signatures"]["chair_i"]
    assert content["scores"] | expected.scores == content["scores"]


def test_document_frequencies_are_counted_in_the_train_split(capsys, tiny_checkpoint, tiny_scenes, tmp_path):
    out = tmp_path / "results.json"
    arguments = ("--split", "val", "--metrics", "cider", "--document-frequency", tiny_scenes)
    content = as_json(capsys, "evaluate", tiny_checkpoint, tiny_scenes, *arguments, "--out", out)
    dataset = open_dataset(tiny_scenes)
    assert f"df:data/train:{len(dataset['train'])}|" in content["signatures"]["cider"]
    assert as_json(capsys, "score", out, "--references", tiny_scenes, *arguments)["scores"] == content["scores"]
    texts = {str(row["image_id"]): row["caption"] for row in json.loads(out.read_text())}
    tokens = [[tokenize(text) for text in record.captions] for record in dataset["train"]]
    frequency = DocumentFrequency.of(tokens, "data/train")
    references = {record.image_id: record.captions for record in dataset["val"]}
    assert content["scores"] == score(texts, references, ["cider"], document_frequency=frequency).scores
    err = run(capsys, "evaluate", tiny_checkpoint, tiny_scenes, "--document-frequency", out, "--out", out)[2]
    assert "would replace what is read from" in err


def test_at_most_some_references_are_scored_against(capsys, tiny_checkpoint, tiny_scenes, tmp_path):
    out = tmp_path / "results.json"
    command = ("evaluate", tiny_checkpoint, tiny_scenes, "--metrics", "bleu", "--out", out)
    scores = as_json(capsys, *command, "--max-captions", 1)["scores"]
    results = json.loads(out.read_text())
    assert all(isinstance(entry["image_id"], int) and isinstance(entry["caption"], str) for entry in results)
    texts = {f"{entry['image_id']}": entry["caption"] for entry in results}
    records = open_dataset(tiny_scenes)["test"]
    first = {str(int(Path(record.image_id).stem)): list(record.captions[:1]) for record in records}
    assert scores == pytest.approx(score(texts, first, ["bleu"]).scores)


def test_a_number_that_is_not_defined_has_no_interval(capsys, tiny_scenes, tmp_path):
    """No caption names a relation."""
    texts = {record.image_id: "a circle" for record in open_dataset(tiny_scenes)["val"]}
    (tmp_path / "own.json").write_text(json.dumps(texts))
    (tmp_path / "other.json").write_text(json.dumps(texts))
    given = ("--references", tiny_scenes, "--split", "val", "--metrics", "truth")
    lines = run(capsys, "score", tmp_path / "own.json", *given)[1].splitlines()
    assert ["relations", "-"] in [line.split() for line in lines]
    content = as_json(capsys, "score", tmp_path / "own.json", tmp_path / "other.json", *given)
    assert [one["scores"]["truth_relations"] for one in content["systems"]] == [None, None]
    differences = {one["number"]: one["value"] for one in content["comparisons"]}
    assert differences["truth"] == 0 and "truth_relations" not in differences

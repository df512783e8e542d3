"""`showtell score` as a person calls it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from showtell.cli import main

REFERENCES = {"1": ["a dog runs on grass", "the dog is running"], "2": ["a red ball", "a ball that is red"]}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("references.json").write_text(json.dumps(REFERENCES))
    Path("predictions.json").write_text(json.dumps({"1": "a dog runs on grass", "2": "a red ball"}))


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    main_ended = pytest.raises(SystemExit)
    with main_ended as ended:
        main(["score", *arguments])
    captured = capsys.readouterr()
    assert ended.value.code in (0, None), captured.err
    return captured.out


def test_json_is_what_programs_rely_on(capsys):
    content = json.loads(run(capsys, "predictions.json", "references.json", "--metrics", "bleu,cider", "--json"))
    assert set(content) == {"scores", "signatures", "images", "skipped"}
    assert list(content["scores"]) == ["bleu_1", "bleu_2", "bleu_3", "bleu_4", "cider", "cider_plain"]
    assert content["scores"]["bleu_1"] == pytest.approx(1.0)
    assert content["images"] == 2
    assert set(content["signatures"]) == set(content["scores"])


def test_every_form_of_predictions_and_references_gives_the_same(capsys):
    results = [
        {"image_id": int(image), "caption": text}
        for image, text in json.loads(Path("predictions.json").read_text()).items()
    ]
    Path("results.json").write_text(json.dumps(results))
    coco = {
        "images": [{"id": int(image), "file_name": f"{image}.jpg"} for image in REFERENCES],
        "annotations": [
            {"id": number, "image_id": int(image), "caption": text}
            for number, (image, text) in enumerate(
                (image, text) for image, texts in REFERENCES.items() for text in texts
            )
        ],
    }
    Path("captions_test.json").write_text(json.dumps(coco))
    first = run(capsys, "predictions.json", "references.json", "--metrics", "bleu", "--json")
    assert run(capsys, "results.json", "captions_test.json", "--metrics", "bleu", "--json") == first


def test_the_table_names_each_number_and_how_it_was_made(capsys):
    out = run(capsys, "predictions.json", "references.json", "--metrics", "bleu,rouge_l")
    assert "2 images" in out
    assert "rouge_l 1.0000" in " ".join(out.split())
    assert "signatures" in out


def test_numbers_of_each_image_go_to_a_file(capsys):
    run(capsys, "predictions.json", "references.json", "--metrics", "rouge_l", "--per-image", "each.json")
    assert json.loads(Path("each.json").read_text()) == {"1": {"rouge_l": 1.0}, "2": {"rouge_l": 1.0}}


def test_a_split_of_scenes_is_scored_for_truth_too(capsys, tiny_scenes):
    captions = json.loads((tiny_scenes / "annotations" / "captions_test.json").read_text())["annotations"]
    first = {str(entry["image_id"]): entry["caption"] for entry in reversed(captions)}
    Path("own.json").write_text(json.dumps(first))
    content = json.loads(run(capsys, "own.json", str(tiny_scenes), "--metrics", "truth,bleu", "--json"))
    assert content["scores"]["truth"] == 1.0
    assert content["scores"]["truth_whole"] == 1.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["none.json", "references.json"], "There is no file none.json."),
        (["predictions.json", "none.json"], "There is no file or folder none.json."),
        (
            ["predictions.json", "references.json", "--metrics", "bleuu"],
            'There is no metric "bleuu": did you mean "bleu"',
        ),
        (["partial.json", "references.json"], "1 image(s) have no prediction: 2"),
        (
            ["predictions.json", "references.json", "--limit", "1"],
            "references.json is a file of captions; score what both have with --common.",
        ),
        (["predictions.json", "references.json", "--per-image", "/"], "--per-image"),
        (["predictions.json", "references.json", "--per-image", "."], ". is a folder; --per-image needs the name of a"),
        (["predictions.json", "references.json", "--per-image", ""], "--per-image"),
        (["deep.json", "references.json"], "deep.json cannot be read as JSON: its lists and objects are nested too"),
        (
            ["digits.json", "references.json"],
            "digits.json cannot be read as JSON: it holds a number of too many digits",
        ),
        (["surrogate.json", "references.json"], r"surrogate.json holds \ud800 at line 1, which is no character"),
        (["bytes.json", "references.json"], "bytes.json is not in UTF-8"),
        (["nan.json", "references.json"], "The image_id of prediction number 0 is a number, not a text or a whole"),
        (
            ["predictions.json", "references.json", "--document-frequency", "nan.json"],
            "nan.json is not a dataset: it is JSON without",
        ),
    ],
)
def test_mistakes_are_sentences(capsys, arguments, sentence):
    Path("partial.json").write_text(json.dumps({"1": "a dog"}))
    Path("deep.json").write_text("[" * 100_000)
    Path("digits.json").write_text("[" + "1" * 5000 + "]")
    Path("surrogate.json").write_text('{"1": "a \\ud800", "2": "b"}')
    Path("bytes.json").write_bytes(b'{"1": "\xff"}')
    Path("nan.json").write_text('[{"image_id": NaN, "caption": "a"}]')
    with pytest.raises(SystemExit) as ended:
        main(["score", *arguments])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_two_systems_compared(capsys):
    Path("other.json").write_text(json.dumps({"1": "a dog", "2": "a red ball"}))
    arguments = ["predictions.json", "references.json", "--metrics", "bleu,rouge_l", "--compare", "other.json"]
    content = json.loads(run(capsys, *arguments, "--bootstrap", "200", "--json"))
    assert set(content) == {"scores", "signatures", "images", "skipped", "compare"}
    rouge = content["compare"]["differences"]["rouge_l"]
    assert rouge["value"] == pytest.approx(content["scores"]["rouge_l"] - content["compare"]["scores"]["rouge_l"])
    assert rouge["low"] <= rouge["value"] <= rouge["high"]
    assert 0 < rouge["p"] <= 1
    out = run(capsys, *arguments)
    assert "minus other.json" in out
    assert "p = " in out


def test_the_table_has_intervals_and_what_is_wrong_with_the_captions(capsys):
    out = " ".join(run(capsys, "predictions.json", "references.json", "--metrics", "rouge_l").split())
    assert "rouge_l 1.0000 [1.0000, 1.0000]" in out
    assert "bad_endings 0.0000" in out
    assert "[" not in run(capsys, "predictions.json", "references.json", "--metrics", "rouge_l", "--bootstrap", "0")


def test_document_frequencies_from_a_file_and_from_references(capsys):
    Path("df.json").write_text(json.dumps({"ref_len": 500, "document_frequency": {"a": 400, "dog": 20}}))
    arguments = ["predictions.json", "references.json", "--metrics", "cider", "--json", "--document-frequency"]
    assert "df:df.json:500" in json.loads(run(capsys, *arguments, "df.json"))["signatures"]["cider"]
    own = json.loads(run(capsys, *arguments, "references.json"))
    assert "df:references.json:2" in own["signatures"]["cider"]
    without = json.loads(run(capsys, *arguments[:-1]))
    assert own["scores"] == pytest.approx(without["scores"])


def test_few_images_are_warned_of_on_stderr(capsys):
    with pytest.raises(SystemExit):
        main(["score", "predictions.json", "references.json", "--metrics", "cider", "--json"])
    captured = capsys.readouterr()
    assert "CIDEr's document frequencies come from 2 images" in captured.err
    json.loads(captured.out)


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        ('{"1": "a", "1": "b", "2": "c"}', 'twice.json has the key "1" twice in one object; keep one of them.'),
        ('[{"image_id": 1, "caption": "a"}, {"image_id": 1, "caption": "b"}]', "predicted more than once: 1"),
    ],
)
def test_duplicate_predictions_are_listed(capsys, content, sentence):
    Path("twice.json").write_text(content)
    with pytest.raises(SystemExit) as ended:
        main(["score", "twice.json", "references.json"])
    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


def test_a_comparison_needs_draws(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["score", "predictions.json", "references.json", "--compare", "predictions.json", "--bootstrap", "0"])
    assert ended.value.code == 2
    assert "give --bootstrap at least 1 draw" in capsys.readouterr().err

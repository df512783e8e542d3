"""Files of lmms-eval and VLMEvalKit in their own layout, and captions that n-gram scores cannot judge."""

from __future__ import annotations

import csv
import json
from pathlib import Path
from typing import Any

import pytest

import showtell
from showtell.errors import DataError
from showtell.scores import ImageFacts
from showtell.scores.files import ScoredImages
from showtell.scores.kit_files import without_prompt
from showtell.scores.prediction_files import read_kit_references, read_prediction_file, read_prediction_sets
from tests.cli.test_caption import run

REFERENCES = {
    "391895": ["A man with a red helmet on a small moped on a dirt road.", "Man riding a motor bike on a dirt road."],
    "60623": ["A young girl inhales with the intent of blowing out a candle.", "A girl prepares to blow out candles."],
    "483108": ["A man on a bicycle riding next to a train.", "A person is riding a bicycle but there is a train."],
}
CAPTIONS = {
    "391895": "A man riding a moped on a dirt road.",
    "60623": "A girl blowing out a candle.",
    "483108": "A man on a bicycle.",
}
PROMPT = "Provide a one-sentence caption for the provided image."
METRICS = ("Bleu_4", "METEOR", "CIDEr")
PARAGRAPH = (
    "The image captures a moment on a dusty road, where the light of the late afternoon falls on all that can be "
    "seen. In the foreground there is a person, and in the background one notices hills, trees and a sky with a few "
    "clouds. The composition draws the eye of the viewer to the middle, and the overall atmosphere is calm and warm."
)


def sample(image: str, caption: str, number: int, **changes: Any) -> dict[str, Any]:
    """A line of ..._samples_coco2014_cap_val.jsonl, as lmms-eval 0.5 writes it."""
    basis = {"answer": REFERENCES[image], "pred": caption, "image_id": int(image), "id": number}
    return {
        "doc_id": number,
        "target": str(REFERENCES[image]),
        "filtered_resps": caption,
        "token_counts": [{"output_tokens": 12}],
        "doc_hash": "0" * 64,
        **{f"coco_{metric}": {**basis, **changes} for metric in METRICS},
        "input": PROMPT,
    }


def samples_file(folder: Path, *rows: dict[str, Any]) -> Path:
    path = folder / "20260806_102223_samples_coco2014_cap_val.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return path


def predictions_file(folder: Path, style: str, captions: dict[str, str], **columns: str) -> Path:
    """Predictions of VLMEvalKit: a table that pandas wrote with every cell quoted, or its records."""
    rows = [
        {"index": image, "answer": str(REFERENCES[image]), "question": PROMPT, **columns, "prediction": caption}
        for image, caption in captions.items()
    ]
    path = folder / f"Qwen3-VL-32B-Instruct_COCO_VAL.{style}"
    if style == "json":
        path.write_text(json.dumps([{**row, "index": int(row["index"])} for row in rows], indent=4))
        return path
    with path.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, list(rows[0]), delimiter="\t" if style == "tsv" else ",", quoting=csv.QUOTE_ALL)
        writer.writeheader()
        writer.writerows(rows)
    return path


def images() -> ScoredImages:
    return ScoredImages({image: ImageFacts(tuple(texts)) for image, texts in REFERENCES.items()})


@pytest.mark.parametrize("style", ["samples", "tsv", "csv", "json"])
def test_a_kits_file_has_the_scores_of_its_captions(capsys, tmp_path, style):
    if style == "samples":
        path = samples_file(tmp_path, *[sample(image, CAPTIONS[image], n) for n, image in enumerate(CAPTIONS)])
    else:
        path = predictions_file(tmp_path, style, CAPTIONS)
    references = tmp_path / "references.json"
    references.write_text(json.dumps(REFERENCES))
    expected = showtell.score(CAPTIONS, REFERENCES, ["bleu", "cider"]).scores
    for given in ([path, references], [path]):  # against a file, and against what it has itself
        status, printed, err = run(capsys, "score", *given, "--metrics", "bleu,cider", "--json")
        assert (status, json.loads(printed)["scores"]) == (0, expected)
        kit, field = ("lmms-eval", "pred") if style == "samples" else ("VLMEvalKit", "prediction")
        assert f'is of {kit}: "' in err
        assert f'"{field}" its caption, "answer" its references; capitals and punctuation do not count.\n' in err


def test_answers_are_read_without_prompts_reasoning_and_tokens(tmp_path):
    written = {
        "391895": f"USER: <image>\n{PROMPT.upper()} ASSISTANT: {CAPTIONS['391895']}</s>",
        "60623": f"<think>A girl.\nCandles?</think>\n\n{CAPTIONS['60623']}<|im_end|>",
        "483108": "Failed to obtain answer via API.",
    }
    expected = {**CAPTIONS, "483108": ""}
    for path in (
        samples_file(tmp_path, *[sample(image, text, n) for n, (image, text) in enumerate(written.items())]),
        predictions_file(tmp_path, "tsv", written),
    ):
        captions, (note,) = read_prediction_file(path, images())
        assert captions == expected
        assert (
            "1 of 3 had reasoning in front, which was cut off; 1 of 3 repeated the prompt, which was cut off; " in note
        )
        assert "2 of 3 ended in tokens of the model, which were cut off; 1 of 3 are " in note
        assert '"Failed to obtain answer" and scored as empty; capitals' in note


def test_a_prompt_in_the_middle_of_a_caption_is_part_of_it():
    said = "A sign on a wall asks people who pass by to describe the image."
    assert without_prompt(said, "Describe the image.") == said
    assert without_prompt("describe the image\nA dog", "Describe the image") == "A dog"


def test_several_answers_of_an_image_are_its_captions(tmp_path):
    row = {**sample("60623", "A girl.", 0), "resps": ["A girl.", "A child.", "A girl."]}
    older = {"args": {}, "logs": [{**row, "doc": {"url": "x"}, "resps": [["A girl."], ["A child."], ["A girl."]]}]}
    (tmp_path / "coco_cap.json").write_text(json.dumps(older))
    for path in (samples_file(tmp_path, row), tmp_path / "coco_cap.json"):
        assert read_prediction_sets(path, images())[0] == {"60623": ("A girl.", "A child.", "A girl.")}


def test_older_samples_have_the_prompt_among_their_arguments(tmp_path):
    for arguments, expected in (([PROMPT, {}], "A girl."), (5, f"{PROMPT} A girl.")):
        row = {"doc_id": 60623, "target": "x", "filtered_resps": [f"{PROMPT} A girl."], "arguments": arguments}
        path = tmp_path / "old.jsonl"
        path.write_text(json.dumps(row))
        assert read_prediction_file(path, images())[0] == {"60623": expected}


def test_the_answer_before_a_filter_is_no_second_caption(tmp_path):
    row = {**sample("60623", "A girl.", 0), "resps": ["<think>hm</think>A girl."]}
    assert read_prediction_sets(samples_file(tmp_path, row), images())[0] == {"60623": ("A girl.",)}


def test_results_of_a_test_set_have_a_list_as_caption(tmp_path):
    path = tmp_path / "coco_captions_test2014_alg_results.json"
    path.write_text(json.dumps([{"image_id": int(image), "caption": [text]} for image, text in CAPTIONS.items()]))
    assert read_prediction_file(path, images())[0] == CAPTIONS


def test_references_that_were_read_letter_by_letter_are_joined(tmp_path):
    letters = list(str(REFERENCES["60623"]))  # what becomes of a list that a local dataset keeps as text
    path = samples_file(tmp_path, sample("60623", "A girl.", 0, answer=letters))
    assert read_kit_references(path) == {"60623": tuple(REFERENCES["60623"])}
    _, (note,) = read_prediction_file(path, images())
    assert "the references of 1 of 1 were kept letter by letter and joined" in note
    report = showtell.score({"60623": "A girl."}, {"60623": letters}, ["bleu"])
    assert "100% of the references are single characters, so every score is near zero" in report.warnings[0]


def test_images_are_found_by_their_files_where_the_ids_are_row_numbers(tmp_path):
    rows = {"0": "A moped.", "1": "A girl."}
    path = tmp_path / "model_COCO_VAL.json"
    files = ["/data/images/COCO_VAL/COCO_val2014_000000391895.jpg", "COCO_val2014_000000060623.jpg"]
    path.write_text(
        json.dumps(
            [
                {"index": index, "image_path": file, "prediction": text}
                for (index, text), file in zip(rows.items(), files, strict=True)
            ]
        )
    )
    captions, notes = read_prediction_file(path, images())
    assert captions == {"391895": "A moped.", "60623": "A girl."}
    assert "by number at the end of the file name: 2 of 2." in notes[1]


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        (
            "a.xlsx",
            "",
            "a.xlsx is a table that is not read: save it as TSV, CSV or JSON (VLMEvalKit: export PRED_FORMAT=tsv",
        ),
        ("a.pkl", "", "a.pkl is a pickle that is not read"),
        (
            "a_results.json",
            {"results": {"coco_cap": {}}, "configs": {}},
            "is the summary of a run of lmms-eval, which has",
        ),
        ("a.jsonl", [sample("60623", "A girl.", 0)] * 2, "a.jsonl has several rows of 1 image(s): 60623; keep one of"),
        ("a.jsonl", [{"doc_id": 1, "target": "x"}], 'Sample 1 of a.jsonl has no answer: neither "pred" nor'),
        ("a.jsonl", [{"doc_id": 1, "filtered_resps": "x"}, 7], "Sample 2 of a.jsonl is not a JSON object"),
        ("a.json", [{"prediction": "x"}], 'has a column "prediction" and no column "index" that says of which image'),
        ("a.json", [{"index": 1, "prediction": None}], 'Row 1 of a.json has no "index" or no text as "prediction".'),
        ("a.json", [{"index": 1, "prediction": "x"}], "a.json has no references for 1 of 1 image(s): 1; name a file"),
        ("a.json", {"60623": "A girl."}, "a.json is named without references; name them after it: COCO captions JSON"),
    ],
)
def test_what_cannot_be_scored_is_a_sentence(capsys, tmp_path, monkeypatch, name, content, sentence):
    monkeypatch.chdir(tmp_path)
    lines = "".join(f"{json.dumps(row)}\n" for row in content) if name.endswith(".jsonl") else json.dumps(content)
    Path(name).write_text(lines)
    status, printed, err = run(capsys, "score", name)
    assert (status, printed) == (2, "")
    assert sentence in err


def test_ids_that_no_image_has_point_to_the_files_own_references(tmp_path):
    path = predictions_file(tmp_path, "tsv", CAPTIONS)
    with pytest.raises(DataError, match="to score against the references that the file itself has, give no others"):
        read_prediction_file(path, ScoredImages({"x.jpg": ImageFacts(("a",))}))


# --- what n-gram scores cannot judge ---


def many(caption: str, references: tuple[str, ...] = ("a man rides a bike", "a man on a bike"), count: int = 20) -> Any:
    facts = {str(image): ImageFacts(references) for image in range(count)}
    return showtell.score(dict.fromkeys(facts, caption), facts, ["cider", "bleu"])


def test_paragraphs_are_diagnosed_with_numbers():
    warning = many(PARAGRAPH).warnings[1]  # the first is of few images for document frequencies
    assert "captions have 64.0 words against 5.0, 12.8 times as many; 100% are more than twice as long" in warning
    assert (
        "2% of their word pairs stand in a reference; CIDEr-D's penalty for the difference in length leaves 1e-21"
        in warning
    )
    assert "can judge paragraphs by such references: ask the model for one sentence" in warning


def test_a_third_of_paragraphs_is_diagnosed_too():
    facts = {str(image): ImageFacts(("a man rides a bike",)) for image in range(30)}
    captions = {image: "two men ride a bike and a dog runs" if int(image) % 3 == 0 else "a man" for image in facts}
    captions |= {
        image: PARAGRAPH.partition(".")[0] for image in ("0", "3", "6", "9", "12", "15", "18", "21", "24", "27")
    }
    (warning,) = (one for one in showtell.score(captions, facts, ["bleu"]).warnings if "form" in one)
    assert "33% are more than twice as long as their longest reference" in warning


@pytest.mark.parametrize(
    ("caption", "sentence"),
    [
        (
            "a man rides a bike along a road with a big red house",
            "CIDEr is low because of the form: captions have 13.0",
        ),
        ("- a man\n- a bike\n- a road with a tree\n- a dog that runs beside the man", "can judge lists by such"),
        (
            "A man rides.\nHe is on a bike.\nBehind him stands a house with a red roof.",
            "can judge texts of several lines",
        ),
        ("man", "Captions are far shorter than their references, 1.0 words against 5.0: BLEU's"),
        ("", "20 of 20 captions are empty and score zero, that of image 0 first."),
        ("The image shows a bike", '100% of the captions begin with "the image shows" and 0% of the references'),
    ],
)
def test_other_forms_are_diagnosed(caption, sentence):
    assert sentence in " ".join(many(caption).warnings[1:])


def test_usual_captions_are_not_diagnosed():
    assert len(many("a man rides a bike").warnings) == 1
    assert len(many("there is a dog", ("there is a cat", "there is a mat")).warnings) == 1  # references begin so too
    assert not showtell.score({"1": PARAGRAPH}, {"1": ["a dog"]}, ["chair"]).warnings

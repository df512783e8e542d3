"""CHAIR with objects and words from files, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from showtell.datasets import open_dataset
from tests.cli.test_caption import run

REFERENCES = {"1": ["an animal on grass"], "2": ["somebody outside"], "3": ["an empty street"]}


@pytest.fixture(autouse=True)
def _files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("references.json").write_text(json.dumps(REFERENCES))
    categories = ["dog", "person", "cat", "dining table"]
    instances = {
        "images": [{"id": int(image)} for image in REFERENCES],
        "annotations": [
            {"id": 1, "image_id": 1, "bbox": [0, 0, 5, 5], "category_id": 0, "segmentation": [[0, 0, 5, 5]]},
            {"id": 2, "image_id": 2, "bbox": [0, 0, 5, 5], "category_id": 1, "segmentation": []},
        ],
        "categories": [{"id": number, "name": name} for number, name in enumerate(categories)],
    }
    Path("instances_val2014.json").write_text(json.dumps(instances))


def predictions(captions: dict[str, str]) -> Path:
    Path("captions.json").write_text(json.dumps(captions))
    return Path("captions.json")


def scored(capsys: Any, captions: dict[str, str], *options: str) -> tuple[dict[str, Any], str]:
    arguments = [predictions(captions), "--references", "references.json", "--metrics", "chair", "--json", *options]
    status, out, err = run(capsys, "score", *arguments)
    assert status == 0, err
    return json.loads(out), err


def test_objects_of_instances_make_chair_run_on_any_references(capsys):
    captions = {"1": "a dog and a cat", "2": "a woman at a table", "3": "a street"}
    content, _ = scored(capsys, captions, "--objects", "instances_val2014.json")
    # dog and woman are there; the cat and the table are not, which no image of these shows
    assert content["scores"] == {"chair_i": 0.5, "chair_s": pytest.approx(2 / 3)}
    assert "|categories:2|of:4|words:showtell|" in content["signatures"]["chair_i"]
    without, _ = scored(capsys, captions)
    assert without["scores"]["chair_i"] is None


def test_mistakes_are_sentences(capsys):
    for content, sentence in [
        (
            '{"images": [{"id": 9}], "annotations": [], "categories": []}',
            "lists none of the images (1, 2, 3) but 9",
        ),
        ("{}", "other.json is not a COCO file: it should be an object with the lists"),
    ]:
        Path("other.json").write_text(content)
        given = [predictions(dict.fromkeys(REFERENCES, "a")), "--references", "references.json"]
        status, out, err = run(capsys, "score", *given, "--objects", "other.json")
        assert (status, out) == (2, "")
        assert sentence in err


def test_evaluate_takes_objects_as_score_does(capsys, tiny_checkpoint, tiny_boxes):
    records = open_dataset(tiny_boxes).split("test")
    boxes = [
        {"id": number, "image_id": int(record.image_id), "bbox": [0, 0, 5, 5], "category_id": 7}
        for number, record in enumerate(records)
    ]
    images = [{"id": int(record.image_id)} for record in records]
    content = {
        "images": images,
        "annotations": boxes,
        "categories": [{"id": 7, "name": "zebra"}, {"id": 8, "name": "ox"}],
    }
    Path("instances.json").write_text(json.dumps(content))
    given = ["--objects", "instances.json", "--metrics", "chair", "--json"]
    status, out, _ = run(capsys, "evaluate", tiny_checkpoint, tiny_boxes, *given, "--out", "results.json")
    evaluated = json.loads(out)
    assert (status, evaluated["images"]) == (0, len(records))
    assert "|categories:1|of:2|words:showtell|" in evaluated["signatures"]["chair_i"]
    assert evaluated["scores"]["chair_i"] is not None
    assert (
        json.loads(run(capsys, "score", "results.json", "--references", tiny_boxes, *given)[1])["scores"]
        == evaluated["scores"]
    )

"""CHAIR with objects from a file of COCO's instances, counted by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_caption import run

REFERENCES = {"1": ["an animal on grass"], "2": ["somebody outside"], "3": ["an empty street"]}
CAPTIONS = {"1": "a dog and a cat", "2": "a woman at a table", "3": "a street"}
INSTANCES = {
    "images": [{"id": int(image)} for image in REFERENCES],
    "annotations": [
        {"id": 1, "image_id": 1, "bbox": [0, 0, 5, 5], "category_id": 0, "segmentation": [[0, 0, 5, 5]]},
        {"id": 2, "image_id": 2, "bbox": [0, 0, 5, 5], "category_id": 1, "segmentation": []},
    ],
    "categories": [
        {"id": number, "name": name} for number, name in enumerate(["dog", "person", "cat", "dining table"])
    ],
}
GIVEN = ("score", "captions.json", "--references", "references.json", "--metrics", "chair", "--json")
OTHER = [
    ({**INSTANCES, "images": [{"id": 9}], "annotations": []}, "lists none of the images (1, 2, 3) but 9"),
    ({}, "other.json is not a COCO file: it should be an object with the lists"),
]


def test_objects_of_instances_make_chair_run_on_any_references(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, content in (("references", REFERENCES), ("captions", CAPTIONS), ("instances", INSTANCES)):
        Path(f"{name}.json").write_text(json.dumps(content))
    content = json.loads(run(capsys, *GIVEN, "--objects", "instances.json")[1])
    # dog and woman are there; the cat and the table are not, which no image of these shows
    assert content["scores"] == {"chair_i": 0.5, "chair_s": pytest.approx(2 / 3)}
    assert "|categories:2|of:4|words:showtell|" in content["signatures"]["chair_i"]
    assert json.loads(run(capsys, *GIVEN)[1])["scores"]["chair_i"] is None
    for content, sentence in OTHER:
        Path("other.json").write_text(json.dumps(content))
        status, out, err = run(capsys, *GIVEN, "--objects", "other.json")
        assert (status, out) == (2, "")
        assert sentence in err

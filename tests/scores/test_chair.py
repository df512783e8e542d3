"""CHAIR by the rules of its authors: which words name what, the numbers by hand, and objects from a file."""

import json
from pathlib import Path

import pytest

import showtell
from showtell.scores import ImageFacts
from showtell.text.objects import Mention, mentions, phrases_of
from tests.cli.test_caption import run

COCO = (
    "airplane", "bench", "bird", "bus", "chair", "couch", "cow", "cup", "dog", "elephant", "hot dog", "knife",
    "motorcycle", "person", "sports ball", "tie", "toilet", "traffic light", "train", "wine glass",
)  # fmt: skip
NAMED = [  # a caption, and what it names by the authors' code
    ("a couple of cows and a baby elephant", ["cow", "elephant"]),
    ("a man in a baseball uniform with balls", ["person", "sports ball"]),
    ("a toilet seat and the seat of a toilet", ["toilet", "toilet"]),
    ("two buses at a bus stop", ["bus"]),  # the singular is not found: its singular is "bu"
    ("ties and a tie", ["tie"]),
    ("chicken on a plate", []),
    ("passenger trains on train tracks, a passenger jet", ["train", "airplane"]),
    ("hot dogs eaten with knives", ["hot dog", "knife"]),
    ("geese, policemen, children and people", ["bird", "person", "person", "person"]),
    ("a motor bike, a motorbike, a bike", ["motorcycle"]),  # no bicycle is annotated here
    ("a man at home plate beside a street light", ["person", "traffic light"]),
    ("wine glasses", ["wine glass"]),
]


def test_what_words_name_is_what_the_authors_code_finds() -> None:
    objects = frozenset(COCO)
    for caption, named in NAMED:
        report = showtell.score({"1": caption}, {"1": ImageFacts(objects=objects)}, ["chair"])
        (sums,) = report.statistics["chair"].rows
        assert (sums[3], sums[2]) == (len(named), len(set(named))), caption
    words = ["a", "man", "eats", "hot", "dogs", "with", "glasses"]
    located = mentions(words, phrases_of({"dog", "hot dog", "glasses"}))  # a category that COCO has not
    assert located == [Mention(3, 5, "hot dog"), Mention(6, 7, "glasses")]


def test_chair_by_hand() -> None:
    objects = {"1": ["dog", "person"], "2": ["hot dog"], "3": [], "4": ["cat", "dining table"]}
    captions = {"1": "a woman with two dogs" + " and" * 20 + " a cat", "2": "a hot dog on a table"}
    captions |= {"3": "a field", "4": "a dog and a dog"}
    references = {"1": ["a lady and her puppies"], "2": ["food on a table"], "3": ["grass"], "4": ["a cat"]}
    facts = {image: ImageFacts(tuple(references[image]), frozenset(objects[image])) for image in captions}
    report = showtell.score(captions, facts, metrics=["chair"])
    # 1: woman, dogs, cat: the cat is not there. 2: hot dog, table: a reference names the table. 4: two dogs, not there.
    # There are dog, person; hot dog, table; cat, table: four of the six are named.
    precision, recall = 4 / 7, 4 / 6
    f1 = 2 * precision * recall / (precision + recall)
    expected = {"chair_i": 3 / 7, "chair_s": 2 / 4, "chair_recall": recall, "chair_f1": f1, "chair_i_16": 2 / 6}
    assert report.scores == pytest.approx(expected | {f"chair_i_{n}": 3 / 7 for n in (32, 64, 128)})
    assert report.per_image["4"]["chair_i"] == 1.0 and report.per_image["4"]["chair_recall"] == 0.0
    assert "categories:5|words:rohrbach2018|" in report.signatures["chair_i"]


REFERENCES = {"1": ["an animal on grass"], "2": ["somebody outside"], "3": ["an empty street with a cat"]}
INSTANCES = {
    "images": [{"id": int(image)} for image in (*REFERENCES, 4)],
    "annotations": [
        {"id": 1, "image_id": 1, "bbox": [0, 0, 5, 5], "category_id": 0, "segmentation": [[0, 0, 5, 5]]},
        {"id": 2, "image_id": 2, "bbox": [0, 0, 5, 5], "category_id": 1, "segmentation": []},
    ],
    "categories": [
        {"id": number, "name": name} for number, name in enumerate(["dog", "person", "cat", "dining table"])
    ],
}


def test_objects_of_a_dataset_make_chair_run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    captions = {"1": "a dog and a cat", "2": "a woman at a table", "3": "a cat in a street"}
    coco = {
        "images": [{"id": int(image), "file_name": f"{image}.jpg"} for image in REFERENCES],
        "annotations": [{"image_id": int(image), "caption": text} for image, (text,) in REFERENCES.items()],
    }
    files = {"references": REFERENCES, "captions": captions, "captions_val2014": coco, "instances_val2014": INSTANCES}
    for name, content in files.items():
        Path(f"{name}.json").write_text(json.dumps(content))
    given = ("score", "captions.json", "--json", "--metrics", "chair", "--references")
    content = json.loads(run(capsys, *given, ".", "--split", "val")[1])
    # dog and woman are there; cat and table are no categories of this dataset
    assert (content["scores"]["chair_i"], content["scores"]["chair_s"]) == (0, 0)
    assert "|categories:2|words:rohrbach2018|" in content["signatures"]["chair_i"]
    skipped = json.loads(run(capsys, *given, "references.json")[1])["skipped"]["chair_i"]
    needed = (
        '"chair" needs annotated objects; score against a dataset with boxes, such as COCO\'s instances_*.json gives'
    )
    assert skipped == f"{needed} (3 of 3 image(s) lack them: 1, 2, 3)."

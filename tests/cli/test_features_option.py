"""`--features STORE` of every verb, over features that another tool extracted."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from showtell.datasets import CaptionRecord, open_dataset
from showtell.features.precomputed import convert
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary
from tests.cli.test_caption import as_json, run
from tests.toys import random_captioner

SIZE = 5  # of a feature vector
ENCODER = {"name": "precomputed", "feature_size": SIZE, "source": "tsv"}
MODEL = {"name": "updown", "embedding_size": 8, "hidden_size": 8, "attention_size": 8}


def regions_of(record: CaptionRecord) -> tuple[np.ndarray, np.ndarray]:
    """Vectors and boxes as a detector might give them: those of the dataset, and the whole picture."""
    boxes = [(box.x, box.y, box.x + box.width, box.y + box.height) for box in record.boxes or ()]
    chance = np.random.default_rng(int(record.image_id))
    return chance.random((len(boxes) + 1, SIZE), dtype="f4"), np.array([*boxes, (0, 0, 48, 48)], "f4")


def write_foreign(records: tuple[CaptionRecord, ...], path: Path) -> Path:
    """What bottom-up-attention writes."""
    regions = {record.image_id: regions_of(record) for record in records}
    cells = [
        [image_id, "48", "48", str(len(boxes)), *(base64.b64encode(x.tobytes()).decode() for x in (boxes, vectors))]
        for image_id, (vectors, boxes) in regions.items()
    ]
    path.write_text("\n".join("\t".join(row) for row in cells))
    return path


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, tiny_scenes: Path) -> Path:
    """A folder with stores from two sources, a checkpoint over the first, and a dataset whose photos are gone."""
    folder = tmp_path_factory.mktemp("foreign")
    records = open_dataset(tiny_scenes).records
    foreign = write_foreign(records, folder / "foreign.tsv")
    for source in ("tsv", "npz"):
        assert convert(foreign, folder / source, source=source, dtype="fp32") == 60
    vocabulary = Vocabulary.build(tokenize(text) for record in records for text in record.captions)
    captioner = random_captioner(ENCODER, MODEL, vocabulary, num_beams=2, max_length=6, no_repeat_ngram_size=2)
    captioner.save_pretrained(folder / "tsv-checkpoint")
    shutil.copytree(tiny_scenes, folder / "data")
    shutil.rmtree(folder / "data" / "images")
    return folder


def test_caption(made: Path, tiny_scenes: Path, tmp_path: Path, capsys: Any) -> None:
    checkpoint, store = made / "tsv-checkpoint", made / "tsv"
    status, out, _ = run(capsys, "caption", checkpoint, "--features", store)
    texts = dict(line.split("\t") for line in out.splitlines())
    assert status == 0 and len(texts) == 60 and len(set(texts.values())) > 1
    status, out, _ = run(capsys, "caption", checkpoint, "7", "12", "--features", store, "--format", "json")
    first, second = json.loads(out)
    assert (status, first["image"], second["image"]) == (0, "7", "12")
    assert first["captions"][0]["text"] == texts["7"] and second["captions"][0]["text"] == texts["12"]
    photo = tiny_scenes / "images" / "000007.png"
    status, out, err = run(capsys, "caption", checkpoint, photo, "--features", store)
    assert (status, out) == (0, f"{photo}\t{texts['7']}\n")
    assert "1 photo is matched to images of" in err and "by number at the end of the file name" in err
    own = Path(shutil.copy(photo, tmp_path))
    assert run(capsys, "caption", checkpoint, own, "--features", store, "--format", "sidecar")[0] == 0
    assert own.with_suffix(".txt").read_text().strip() == texts["7"]
    sampled = ["--search", "sample", "--features", store, "--format", "jsonl"]
    alone, together = (run(capsys, "caption", checkpoint, *ids, *sampled)[1] for ids in (["12"], ["7", "12"]))
    assert together.splitlines()[1] == alone.strip()  # samples depend on the id and not on the batch


def test_explain(made: Path, tmp_path: Path, capsys: Any) -> None:
    checkpoint, store = made / "tsv-checkpoint", made / "tsv"
    ids = ["explain", checkpoint, "7", "12", "--features", store]
    status, out, _ = run(capsys, *ids, "--saliency", "mean")
    first = json.loads(out)[0]
    assert (status, first["image"], first["size"]) == (0, "7", [48, 48])
    regions = len(first["models"][0]["boxes"])
    assert regions > 1 and len(first["models"][0]["captions"][0]["words"][0]["saliency"]) == regions
    assert run(capsys, *ids, "--out", tmp_path / "page.html")[0] == 0
    assert (tmp_path / "page.html").read_text().count("<article") == 2
    assert run(capsys, *ids, "--out", tmp_path / "png")[0] == 0
    assert sorted(file.name for file in (tmp_path / "png").iterdir()) == ["12.png", "7.png"]
    status, out, _ = run(capsys, "explain", checkpoint, made / "data", "--features", store)
    explained = json.loads(out)
    assert status == 0 and len(explained) == len(open_dataset(made / "data", with_photos=False)["test"])
    assert all(one["references"] and one["models"][0]["scores"] for one in explained)


def test_evaluate_needs_no_photos(made: Path, capsys: Any) -> None:
    checkpoint, data = made / "tsv-checkpoint", made / "data"
    given = ("--features", made / "tsv", "--split", "val", "--metrics", "bleu")
    content = as_json(capsys, "evaluate", checkpoint, data, *given)
    assert content["images"] == len(open_dataset(data, with_photos=False)["val"])


def test_images_of_a_dataset_that_the_store_lacks_are_named(made, tiny_scenes, tmp_path, capsys):
    dataset = open_dataset(tiny_scenes)
    lacking, *others = (record.image_id for record in dataset["test"])
    records = tuple(record for record in dataset.records if record.image_id != lacking)
    store, checkpoint = tmp_path / "part", made / "tsv-checkpoint"
    foreign = write_foreign(records, tmp_path / "foreign.tsv")
    assert run(capsys, "features", "--from", foreign, "--out", store, "--source", "tsv")[0] == 0
    status, out, err = run(capsys, "explain", checkpoint, made / "data", "--features", store, "--split", "test")
    assert status == 2 and len(json.loads(out)) == len(others)
    assert f"1 of {len(others) + 1} files could not be explained: {store} has no features of image {lacking}" in err


def test_a_captioner_that_reads_no_features_is_compared_by_its_photos(made, tiny_scenes, tiny_blip, capsys):
    checkpoint, store = made / "tsv-checkpoint", made / "tsv"
    photo = tiny_scenes / "images" / "000007.png"
    status, out, err = run(capsys, "explain", checkpoint, photo, "--against", tiny_blip, "--features", store)
    assert status == 0 and f"blip does not read the features in {store}; it looks at the photos." in err
    (explained,) = json.loads(out)
    alone = [["explain", checkpoint, "7", "--features", store], ["explain", tiny_blip, photo]]
    models = [json.loads(run(capsys, *command)[1])[0]["models"][0] for command in alone]
    assert [model["captions"] for model in explained["models"]] == [model["captions"] for model in models]
    both = [checkpoint, tiny_blip, tiny_scenes, "--split", "val", "--metrics", "bleu", "--features", store, "--json"]
    status, out, err = run(capsys, "evaluate", *both)
    assert status == 0 and "blip does not read the features" in err
    status, _, err = run(capsys, "caption", tiny_blip, "7", "--features", store)
    assert status == 2 and "looks at photos itself and reads no features from a store; give it photos." in err


def test_a_run_over_features_from_training_to_its_report(made: Path, tmp_path: Path, capsys: Any) -> None:
    store = tmp_path / "my store"
    shutil.copytree(made / "tsv", store)
    recipe = {
        "data": {"path": str(made / "data"), "features": str(store), "limit": 12},
        "encoder": ENCODER,
        "model": MODEL,
        "objective": {"name": "cross_entropy"},
        "training": {"epochs": 1, "batch_size": 8, "learning_rate": 0.01, "trackers": []},
    }
    (tmp_path / "recipe.yaml").write_text(json.dumps(recipe))
    status, out, _ = run(capsys, "train", tmp_path / "recipe.yaml", "--out", tmp_path / "run")
    assert status == 0
    command = out.splitlines()[-1].partition(": showtell ")[2]
    assert command == f"caption {tmp_path / 'run' / 'best'} --features '{store}' 1"
    best = tmp_path / "run" / "best"
    assert run(capsys, "caption", best, "--features", store, "1", "--no-repeat-ngram-size", 2)[0] == 0
    page = tmp_path / "report.html"
    assert run(capsys, "report", tmp_path / "run", "--out", page, "--split", "train", "--photos", 3)[0] == 0
    assert page.read_text().count("<article") == 3 and "<h2>Scores</h2>" in page.read_text()
    store.rename(tmp_path / "elsewhere")
    assert run(capsys, "report", tmp_path / "run", "--out", page)[0] == 0
    assert f"the run reads features of other tools, and their store {store} is not there" in page.read_text()
    moved = ["--features", tmp_path / "elsewhere", "--photos", 1]
    assert run(capsys, "report", tmp_path / "run", "--out", page, *moved)[0] == 0
    assert page.read_text().count("<article") == 1
    status, _, err = run(capsys, "train", tmp_path / "recipe.yaml", "--out", tmp_path / "again")
    assert status == 2 and f"no feature store {store}; convert the features with: showtell features --from PATH" in err
    assert "--source tsv" in err and "--encoder" not in err


WRONG = [
    ("caption CHECKPOINT", "Missing argument: image files, folders or patterns; with --features STORE"),
    ("caption CHECKPOINT PHOTO", "cannot look at a photo: caption images whose features are in a store ("),
    ("caption CHECKPOINT 999 --features STORE", "and none of 999: name images by their ids, or by"),
    ("caption CHECKPOINT 7 999 --features STORE", "1 of 2 files could not be captioned:"),
    ("explain CHECKPOINT 7 999 --features STORE", "tsv has no features of 999"),
    ("caption CHECKPOINT 7 --features OTHER", "source 'npz' instead of 'tsv'; use the encoder that"),
    ("caption CHECKPOINT 7 --features gone", "features of other tools: showtell features --from PATH"),
    ("caption CHECKPOINT 7 --features STORE --format sidecar", "sidecar needs photos; "),
    ("explain CHECKPOINT 7 --features STORE --saliency pixels", "Occlusion by pixels fills parts of the photo and"),
]


def test_what_does_not_go_is_a_sentence(made, tiny_scenes, monkeypatch, capsys):
    monkeypatch.chdir(made)
    photo = tiny_scenes / "images" / "000007.png"
    names = {"CHECKPOINT": "tsv-checkpoint", "STORE": "tsv", "OTHER": "npz", "PHOTO": photo, "DATA": "data"}
    for command, sentence in WRONG:
        status, _, err = run(capsys, *(names.get(word, word) for word in command.split()))
        assert status == 2 and sentence in err, (command, err)

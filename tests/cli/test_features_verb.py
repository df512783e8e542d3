"""`showtell features` as people call it."""

import shutil
from pathlib import Path

import pytest
import yaml

from showtell.training import load_recipe, train
from tests.cli.test_caption import as_json, run

SMALL = ["--encoder", "small_cnn"]


def test_a_dataset_becomes_a_store(tiny_scenes, tmp_path, capsys):
    arguments = ["features", tiny_scenes, "image_size=48", "widths=[8,8]", *SMALL, "--out", tmp_path / "s"]
    facts = as_json(capsys, *arguments)
    assert (facts["images"], facts["feature_size"], facts["dtype"]) == (60, 8, "fp16")
    assert facts["unreadable"] == []
    assert facts["bytes"] == (tmp_path / "s" / "data.mdb").stat().st_size
    assert as_json(capsys, *arguments) == facts  # again: nothing to do
    code, _, message = run(capsys, *arguments, "seed=1")
    assert code == 2 and "are of small_cnn (fingerprint" in message


def test_a_recipe_finds_the_store_that_was_extracted_for_it(tiny_recipe, tmp_path, capsys):
    tiny_recipe["encoder"]["trained"] = False
    tiny_recipe["data"]["features"] = str(tmp_path / "store")
    tiny_recipe["training"]["epochs"] = 1
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny_recipe))
    assert run(capsys, "features", "--recipe", recipe)[0] == 0
    changed = (tmp_path / "store" / "data.mdb").stat().st_mtime_ns
    result = train(recipe, tmp_path / "run", quiet=True)
    assert (tmp_path / "store" / "data.mdb").stat().st_mtime_ns == changed  # training had nothing to add
    best = result.folder / "best"
    data = tiny_recipe["data"]["path"]
    settings = ["--split", "val", "--metrics", "bleu"]
    stored = as_json(capsys, "evaluate", best, data, "--features", tmp_path / "store", *settings)
    photos = as_json(capsys, "evaluate", best, data, *settings)
    assert stored["scores"] == pytest.approx(photos["scores"], abs=0.05)
    assert run(capsys, "features", data, "image_size=48", *SMALL, "--out", tmp_path / "other")[0] == 0
    code, _, message = run(capsys, "evaluate", best, data, "--features", tmp_path / "other", *settings)
    assert code == 2 and "are of small_cnn (fingerprint" in message


def test_a_folder_of_stores_names_each_by_dataset_and_encoder(tiny_recipe, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data = tiny_recipe["data"]["path"]
    tiny_recipe["encoder"]["trained"] = False
    tiny_recipe["data"]["features"] = "stores/"
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(yaml.safe_dump(tiny_recipe))
    for settings in ([], ["widths=[8,16]"]):
        overrides = [f"encoder.{setting}" for setting in settings]
        store = load_recipe(recipe, overrides).data.features
        facts = as_json(capsys, "features", "--recipe", recipe, data, *settings, "--split", "val")
        assert facts["store"] == store and Path(store).is_dir()  # where training looks
    assert len(list(Path("stores").iterdir())) == 2
    vgg = load_recipe("flickr8k/sat_soft_xu2015", ["encoder.name=tf_efficientnet_lite2", "encoder.weights=package"])
    assert vgg.data.features == "stores/flickr8k-tf_efficientnet_lite2-package-image_size224-stage4"


def test_a_broken_photo_is_named_at_the_end(tiny_scenes, tmp_path, capsys):
    data = tmp_path / "data"
    shutil.copytree(tiny_scenes, data)
    broken = next((data / "images").iterdir())
    broken.write_bytes(b"nonsense")
    code, out, message = run(capsys, "features", data, "image_size=48", *SMALL, "--out", tmp_path / "s")
    assert code == 2 and "59 images" in out and f"{broken.name} is not an image" in message
    assert "1 photo could not be read, all others are done:" in message

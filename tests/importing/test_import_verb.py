"""`showtell import` as a person calls it."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from published_parity import FEATURE_SIZE
from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.errors import CheckpointError
from showtell.training import train
from tests.cli.test_caption import run
from tests.importing.makers import write_luo


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return write_luo(tmp_path / "source", "att2in2, use_bn 0")


def test_what_was_read_is_printed_and_a_dry_run_writes_nothing(capsys, source, tmp_path):
    out, before = tmp_path / "checkpoint", sorted(tmp_path.rglob("*"))
    status, printed, err = run(capsys, "import", source.parent, "--dry-run")
    assert (status, err) == (0, "") and printed.endswith("nothing was written (--dry-run)\n")
    lines = printed.splitlines()
    for line in ("model: att2in2", "licence: MIT", "tensors: 17", "words: 17 words and one for unknown words"):
        assert line in lines, line
    (options,) = (line for line in lines if line.startswith("options: "))
    assert {"norm_att_feat=0", "max_length=9"} <= set(options.removeprefix("options: ").split(", "))
    status, printed, _ = run(capsys, "import", source, "--dry-run", "--out", out, "--json")
    content = json.loads(printed)
    assert status == 0 and content["checkpoint"] is None
    assert (content["model"], content["tensors"], content["options"]["max_length"]) == ("att2in2", 17, 9)
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_there_is_not_replaced(capsys, source, tmp_path):
    out = tmp_path / "out"
    assert run(capsys, "import", source, "--out", out)[0] == 0
    assert sorted(path.name for path in out.iterdir()) == ["config.json", "model.safetensors"]
    status, _, err = run(capsys, "import", source, "--out", out)
    assert status == 2 and "is not empty; choose another name for --out, or remove it first." in err
    status, _, err = run(capsys, "import", source)
    assert status == 2 and err.startswith("showtell: Missing option --out FOLDER, for the checkpoint")


def test_features_of_a_store_are_captioned_and_scored(capsys, source, tmp_path, tiny_scenes):
    """The way of somebody who has the features that the model was trained on."""
    arrays = tmp_path / "toy_att"
    arrays.mkdir()
    generator = np.random.default_rng(0)
    for image_id in [record.image_id for record in open_dataset(tiny_scenes)["test"]]:
        np.savez(arrays / f"{image_id}.npz", feat=generator.normal(size=(4, FEATURE_SIZE)).astype(np.float32))
    store, out = tmp_path / "store", tmp_path / "out"
    assert run(capsys, "features", "--from", arrays, "--out", store, "--source", "toy regions")[0] == 0
    status, printed, err = run(capsys, "import", source, "--out", out, "--features-from", store)
    assert (status, err) == (0, "") and 'it reads stores of features whose source is "toy regions"' in printed
    status, printed, _ = run(capsys, "evaluate", out, tiny_scenes, "--features", store, "--split", "test", "--json")
    assert status == 0 and "scores" in json.loads(printed)


def test_photos_are_captioned_and_trained_on_by_a_given_encoder(capsys, source, tmp_path, tiny_scenes, tiny_recipe):
    photo = next((tiny_scenes / "images").iterdir())
    blind, out = tmp_path / "blind", tmp_path / "out"
    assert run(capsys, "import", source, "--out", blind)[0] == 0
    with pytest.raises(CheckpointError, match=r"trained on features from bottom-up regions, 10 to 100, which were"):
        Captioner.from_pretrained(blind).caption(photo)
    encoder = ("--features-from", "small_cnn", "image_size=48", f"encoder.widths=[8,{FEATURE_SIZE}]")
    status, printed, _ = run(capsys, "import", source, *encoder, "--out", out)
    note = "notes: small_cnn makes the features; the model was trained on bottom_up weights=FILE, and of others"
    assert status == 0 and note in printed
    assert run(capsys, "caption", out, photo, "--no-repeat-ngram-size", 2)[0] == 0
    for arguments, sentence in (
        (("image_size=48",), "image_size=48 is a setting of an encoder; name the encoder with --features-from."),
        (("--features-from", "nothing"), 'There is no encoder "nothing"'),
        ((*encoder[:3], "widths=[8,16]"), "vectors of --features-from have 16 numbers, and the model in"),
    ):
        status, _, err = run(capsys, "import", source, *arguments, "--dry-run")
        assert status == 2 and sentence in err

    content = json.loads((out / "config.json").read_text())
    training = {**tiny_recipe["training"], "epochs": 1, "learning_rate": 1e-9, "start_from": str(out)}
    parts = {"encoder": content["encoder"], "model": content["model"], "objective": {"name": "cross_entropy"}}
    recipe = {**tiny_recipe, **parts, "vocabulary": {"extend": True}, "training": training}
    trained = Captioner.from_pretrained(train(recipe, tmp_path / "run", quiet=True).folder / "last")
    kept, old = (one.decoder.state_dict() for one in (trained, Captioner.from_pretrained(out)))
    assert torch.allclose(kept["lstm.weight_ih"], old["lstm.weight_ih"], atol=1e-5)
    assert len(kept["embedding.weight"]) > len(old["embedding.weight"])
    imported = trained.about.origin["imported"]
    assert trained.about.licence == "MIT" and imported["project"] == "ImageCaptioning.pytorch"
    digests = {name: len(digest) for name, digest in imported["files"].items()}
    assert digests == {"model-best.pth": 64, "infos_run-best.pkl": 64}

from __future__ import annotations

import json
import pickletools
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from showtell.captioner import Captioner
from showtell.checkpoint import find_checkpoint
from showtell.errors import CheckpointError


@pytest.fixture
def copy(tiny_checkpoint: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_checkpoint, tmp_path / "copy"))


def edit(folder: Path, change) -> None:
    settings = json.loads((folder / "config.json").read_text())
    change(settings)
    (folder / "config.json").write_text(json.dumps(settings))


def test_saved_and_opened_it_says_the_same(tiny_checkpoint, tiny_scenes, tmp_path):
    first = Captioner.from_pretrained(tiny_checkpoint, device="cpu")
    first.save_pretrained(tmp_path / "again")
    second = Captioner.from_pretrained(tmp_path / "again", device="cpu")
    for photo in sorted((tiny_scenes / "images").iterdir())[:5]:
        assert first.caption(photo, num_return_sequences=2) == second.caption(photo, num_return_sequences=2)
    files = [
        (folder / name).read_bytes()
        for folder in (tiny_checkpoint, tmp_path / "again")
        for name in ("model.safetensors",)
    ]
    assert files[0] == files[1]


def test_there_is_no_pickle_in_it(tiny_checkpoint):
    assert sorted(path.name for path in tiny_checkpoint.iterdir()) == ["config.json", "model.safetensors"]
    with pytest.raises(ValueError, match="opcode"):
        list(pickletools.genops((tiny_checkpoint / "model.safetensors").read_bytes()))


def test_its_settings_say_what_it_is(tiny_checkpoint):
    settings = json.loads((tiny_checkpoint / "config.json").read_text())
    assert set(settings) == {
        "format", "showtell", "encoder", "preprocessing", "model", "decoding", "about", "fingerprints", "vocabulary",
    }  # fmt: skip
    assert settings["model"]["name"] == "sat"
    assert settings["preprocessing"]["image_size"] == 48


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda s: s["vocabulary"]["words"].pop(), "was trained with .*: its words were changed"),
        (lambda s: s["fingerprints"].update(weights="0" * 12), "config.json beside them was written for 000000000000"),
        (lambda s: s["model"].update(name="sad"), 'a model "sad" that is not known here: did you mean "sat"'),
        (lambda s: s["model"].update(hidden_size=0), "has a bad value at hidden_size"),
        (lambda s: s["model"].update(hidden_size=17), "do not fit the decoder of config.json: .* size mismatch"),
        (lambda s: s.pop("decoding"), "config.json has no key 'decoding'"),
        (
            lambda s: s.update(format=99, showtell="9.9"),
            "written by showtell 9.9 in format 99; .* install the newer one",
        ),
        (lambda s: s.pop("format"), 'is not of a showtell checkpoint: it has no key "format"'),
    ],
)
def test_a_changed_setting_has_its_sentence(copy, change, sentence):
    edit(copy, change)
    with pytest.raises(CheckpointError, match=sentence):
        Captioner.from_pretrained(copy)


def test_the_vocabulary_of_another_model_is_refused_with_both_sizes(copy):
    def shorten(settings):
        from showtell.text.vocabulary import Vocabulary

        settings["vocabulary"] = Vocabulary(["a", "b"]).to_json()

    edit(copy, shorten)
    weights = len(load_file(copy / "model.safetensors")["decoder.embedding.weight"])
    with pytest.raises(CheckpointError, match=f"are for {weights} words and the vocabulary in .* has 6"):
        Captioner.from_pretrained(copy)


def test_the_weights_of_another_model_are_refused(copy):
    tensors = {name: torch.zeros_like(tensor) for name, tensor in load_file(copy / "model.safetensors").items()}
    save_file(tensors, copy / "model.safetensors")
    with pytest.raises(CheckpointError, match="the two files are not of the same checkpoint"):
        Captioner.from_pretrained(copy)


@pytest.mark.parametrize("content", [b"", b"not weights at all", None])
def test_damaged_weights_are_named(copy, content):
    file = copy / "model.safetensors"
    file.write_bytes(file.read_bytes()[:1000] if content is None else content)
    with pytest.raises(CheckpointError, match=r"The checkpoint is damaged: .*model.safetensors cannot be read"):
        Captioner.from_pretrained(copy)


@pytest.mark.parametrize("content", ["", "{", "[1]"])
def test_damaged_settings_are_named(copy, content):
    (copy / "config.json").write_text(content)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Captioner.from_pretrained(copy)


def test_a_run_folder_is_pointed_to_its_best(tiny_checkpoint, tmp_path):
    shutil.copytree(tiny_checkpoint, tmp_path / "run" / "best")
    with pytest.raises(CheckpointError, match=r"has no config.json; it looks like a run: use .*run/best"):
        Captioner.from_pretrained(tmp_path / "run")


def test_what_is_no_checkpoint_at_all(tmp_path, monkeypatch):
    with pytest.raises(CheckpointError, match="There is no checkpoint folder /no/such/folder; give a folder"):
        find_checkpoint("/no/such/folder")
    file = tmp_path / "model.pt"
    file.write_bytes(b"x")
    with pytest.raises(CheckpointError, match=r"is a file; a checkpoint is a folder with model\.safetensors"):
        find_checkpoint(file)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(
        CheckpointError, match="no folder someone/something, and the Hugging Face hub gave no repository"
    ):
        find_checkpoint("someone/something")


def test_the_local_cache_of_the_hub_comes_before_the_hub(tiny_checkpoint, tmp_path, monkeypatch):
    """A cache laid out as huggingface_hub does: a name for the commit, and a folder of that commit."""
    import huggingface_hub.constants as constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    repository = tmp_path / "models--someone--something"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(tiny_checkpoint, repository / "snapshots" / commit)
    assert find_checkpoint("someone/something") == repository / "snapshots" / commit

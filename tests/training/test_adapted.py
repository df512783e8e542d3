"""`train` from a captioner of transformers: what comes out, what stays equal, and what is refused."""

import json
import shutil
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers as hf
from safetensors.torch import load_file, save_file

from showtell.captioners import Captioner
from showtell.captioners.hugging_face import TransformersCaptioner
from showtell.captioners.hugging_face_adapters import learned
from showtell.datasets import open_dataset
from showtell.errors import CheckpointError, RecipeError
from showtell.training import make_recipe, train
from tests.cli.test_caption import run
from tests.training.test_loop import fingerprints, log_of
from tests.training.test_options import train_killed

pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning")  # by peft


def recipe_from(start: Path, data: Path, **training: Any) -> dict[str, Any]:
    return {
        "data": {"path": str(data), "captions_per_image": 2, "workers": 0, "limit": 24, "validation_split": None},
        "objective": {"name": "cross_entropy"},
        "training": {
            "start_from": str(start), "epochs": 2, "batch_size": 8, "learning_rate": 0.01, "trackers": [],
            "log_every": 1, **training,
        },
    }  # fmt: skip


@pytest.fixture(scope="module")
def adapted(tiny_blip: Path, tiny_scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The last checkpoint of a run on captions, which is the best where nothing is validated."""
    folder = tmp_path_factory.mktemp("adapted") / "run"
    return train(recipe_from(tiny_blip, tiny_scenes, epochs=3), folder, quiet=True).folder / "best"


def opened(folder: Path) -> TransformersCaptioner:
    captioner = Captioner.from_pretrained(folder, "cpu")
    assert isinstance(captioner, TransformersCaptioner)
    return captioner


def texts(captioner: Captioner, data: Path) -> list[str]:
    photos = [record.path for record in open_dataset(data)["val"]]
    return [caption.text for (caption,) in captioner.caption(photos, max_length=10)]


def test_a_checkpoint_has_adapters_alone_and_everything_opens_it(tiny_blip, adapted, tiny_scenes):
    log = [line["validation"]["loss"] for line in log_of(adapted.parent) if "validation" in line]
    assert log == sorted(log, reverse=True)
    assert all(".lora_A." in name or ".lora_B." in name for name in load_file(adapted / "adapter_model.safetensors"))
    assert sorted(path.name for path in adapted.iterdir()) == [
        "adapter_config.json", "adapter_model.safetensors", "config.json",
    ]  # fmt: skip
    settings = json.loads((adapted / "config.json").read_text())
    base = opened(tiny_blip)
    assert settings["base"] == {"name": str(tiny_blip), "revision": None, "weights": base.about.fingerprints["weights"]}
    captioner = opened(adapted)
    assert captioner.about.fingerprints["weights"] != settings["base"]["weights"]
    assert captioner.decoding == base.decoding  # whose search is kept
    assert captioner.about.origin["train_images"] == 24
    assert texts(captioner, tiny_scenes) != texts(base, tiny_scenes)
    before, after = base.model.state_dict(), captioner.model.state_dict()
    for name, tensor in before.items():  # frozen weights are those of the base
        layer = name if name in after else f"{name.rpartition('.')[0]}.base_layer.{name.rpartition('.')[2]}"
        assert torch.equal(after[layer], tensor), name

    plain = hf.AutoModelForImageTextToText.from_pretrained(tiny_blip)
    theirs = peft.PeftModel.from_pretrained(plain, adapted)  # without showtell
    weights = {name.replace(".default", ""): weight for name, weight in theirs.named_parameters()}
    assert all(torch.equal(weights[name], weight) for name, weight in learned(captioner.model).items())


def test_an_export_says_the_same_in_transformers_alone(adapted, tiny_scenes, tmp_path, capsys):
    assert run(capsys, "export", adapted, "--to", "transformers", tmp_path / "whole")[0] == 0
    ours, merged = opened(adapted), opened(tmp_path / "whole")
    assert texts(merged, tiny_scenes) == texts(ours, tiny_scenes)
    assert merged.adapted is None and not [name for name in merged.model.state_dict() if "lora" in name]
    model = hf.AutoModelForImageTextToText.from_pretrained(tmp_path / "whole").eval()
    processor = hf.AutoProcessor.from_pretrained(tmp_path / "whole")
    photo = ours.prepare(open_dataset(tiny_scenes)["val"][0].path)
    ids = model.generate(**processor(images=photo, return_tensors="pt"), max_new_tokens=10, num_beams=1)[0, 1:].tolist()
    (own,) = ours.caption(photo, max_length=10, num_beams=1)
    assert ids[: len(own.tokens)] == [token.id for token in own.tokens]


def test_killed_and_resumed_it_ends_with_the_same_bits(adapted, tiny_scenes, tmp_path, monkeypatch):
    """From adapters that have learned already, whose search and settings the recipe takes."""
    recipe = recipe_from(adapted, tiny_scenes, save_every=2)
    assert make_recipe(recipe).model == opened(adapted).adapted.config
    whole = train(recipe, tmp_path / "whole", quiet=True).folder
    train_killed(monkeypatch, 5, recipe, tmp_path / "broken", quiet=True)
    assert fingerprints(train(recipe, tmp_path / "broken", resume=True, quiet=True).folder) == fingerprints(whole)
    assert fingerprints(whole / "last") != fingerprints(adapted)


def test_another_base_and_other_settings_are_refused(tiny_blip, adapted, tiny_scenes, tmp_path):
    mine, base = tmp_path / "mine", tmp_path / "base"
    shutil.copytree(adapted, mine)
    settings = json.loads((mine / "config.json").read_text())
    settings["base"]["name"] = str(base)
    (mine / "config.json").write_text(json.dumps(settings))
    with pytest.raises(CheckpointError, match="holds adapters alone, and their base cannot be opened: There is no che"):
        opened(mine)
    shutil.copytree(tiny_blip, base)
    opened(mine)
    tensors = load_file(base / "model.safetensors")
    tensors["text_decoder.cls.predictions.bias"] += 1
    save_file(tensors, base / "model.safetensors", {"format": "pt"})
    with pytest.raises(CheckpointError, match=r"was trained on top of .*base with the weights \w+, and now these are"):
        opened(mine)
    recipe = recipe_from(adapted, tiny_scenes) | {"model": {"rank": 4}}
    with pytest.raises(RecipeError, match=r"another encoder or model than the recipe; to start from it, add.*rank=8"):
        train(recipe, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()

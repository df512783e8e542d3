"""Recipes: every mistake has its sentence, and all of them come together."""

import copy
from pathlib import Path

import pytest
import yaml

from showtell.errors import RecipeError
from showtell.training import load_recipe, make_recipe

GOOD = {
    "data": {"path": "photos"},
    "encoder": {"name": "small_cnn"},
    "model": {"name": "sat"},
    "objective": {"name": "cross_entropy"},
    "training": {"epochs": 2, "batch_size": 4, "learning_rate": 0.001},
}


def refused(change: dict[str, object]) -> str:
    content = copy.deepcopy(GOOD)
    for path, value in change.items():
        section, _, key = path.partition(".")
        if key:
            content.setdefault(section, {})[key] = value
        else:
            content[section] = value
    with pytest.raises(RecipeError) as caught:
        make_recipe(content, "my.yaml")
    return str(caught.value)


MISTAKES: list[tuple[dict[str, object], str]] = [
    ({"training.learning_rat": 1}, 'training.learning_rat: no such key; did you mean "learning_rate"? Known: '),
    ({"training.epochs": 0}, "training.epochs: input should be greater than or equal to 1, got 0"),
    ({"training.schedule": "stairs"}, "input should be 'constant', 'linear', 'cosine', 'inverse_sqrt' or 'step', got"),
    ({"training.optimizer": {"nam": "adam"}}, 'training.optimizer.nam: no such key; did you mean "name"?'),
    ({"model.name": "sad"}, 'model.name: there is no model "sad"; did you mean "sat"? Known: att2in, hacap, nic, sat,'),
    ({"model.hidden": 4}, 'model.hidden: no such key; did you mean "hidden_size"?'),
    ({"decoding.no_repeat_words": "maybe"}, "should be a valid boolean, unable to interpret input, got 'maybe'"),
    ({"model.name": "updown", "model.fine_stages": 2}, "of stack; leave it out, or change model.name. Keys of updown:"),
    ({"encoder.proposals": 9}, "encoder.proposals: no key of small_cnn, but of bottom_up; leave it out, or change "),
    ({"encoder.name": "vgg19x"}, 'encoder.name: There is no encoder "vgg19x"; did you mean "vgg19"?'),
    ({"trainning": {}}, 'trainning: no such section; did you mean "training"?'),
    ({"data": 3}, "data: should be a mapping of keys to values, got 3"),
    ({"data": {}}, "data.path: this key is needed and missing"),
]


def test_each_mistake_has_its_sentence():
    for change, sentence in MISTAKES:
        message = refused(change)
        assert sentence in message
        assert "got {" not in message  # no section as a whole


CONTRADICTIONS: list[tuple[dict[str, object], str]] = [
    ({"decoding.stage": 1}, "decoding.stage=1 and model.name=sat contradict each other: the model has one stage, 0;"),
    ({"model.name": "stack", "decoding.stage": 3}, "the model has stages 0 to 2; leave out decoding.stage for the"),
    ({"model.attention": "hard"},
     "model.attention=hard and objective.name=cross_entropy contradict each other: sampled regions get no "
     "gradient from it; set objective.name=hard_attention, or model.attention=soft"),
    ({"data.features": "store"}, "and encoder.trained=True contradict each other: features on disk do not change"),
    ({"encoder.trained": False, "encoder.start_epoch": 1}, "=false contradict each other: leave out one of them"),
    ({"encoder.start_epoch": 2}, "is not reached in training.epochs=2, which count from 0: set it lower, or "),
    ({"training.patience": 3, "data.validation_split": None}, "validation, and data.validation_split=null has none"),
    ({"objective.scheduled_sampling": {"max_probabilty": 0.2}},
     'objective.scheduled_sampling.max_probabilty: no such key; did you mean "max_probability"?'),
]  # fmt: skip


def test_sections_that_contradict_each_other_are_named_together():
    for change, sentence in CONTRADICTIONS:
        message = refused(change)
        assert message.startswith("my.yaml has 1 problem:\n")
        assert sentence in message
    message = refused({"training.epochs": 0, "model.name": "sad", "data.paht": "x", "extra": {}})
    assert message.startswith("my.yaml has 4 problems:\n") and message.count("\n") == 4


def test_overrides_change_values_and_are_checked(tmp_path: Path):
    file = tmp_path / "r.yaml"
    file.write_text(yaml.safe_dump(GOOD))
    recipe = load_recipe(file, ["training.epochs=7", "encoder.widths=[8, 16]", "training.optimizer.name=adamw"])
    assert load_recipe(file, ["training.mixed_precision=no"]).training.mixed_precision == "no"  # YAML 1.1: false
    assert recipe.training.epochs == 7
    assert recipe.encoder.widths == (8, 16)  # type: ignore[attr-defined]
    assert recipe.training.optimizer.name == "adamw"
    for bad, sentence in {
        "epochs": '"epochs" is no override; write section.key=value',
        "epochs=3": '"epochs" is no override; write section.key=value',
        "training.epochs=[": 'The value in "training.epochs=\\[" is not valid YAML',
        "training.epochs.x=3": '"training.epochs.x" reaches into epochs, which holds a value',
        "training.speed=3": "training.speed: no such key",
    }.items():
        with pytest.raises(RecipeError, match=sentence):
            load_recipe(file, [bad])


def test_a_saved_recipe_is_the_same_recipe(tmp_path: Path):
    recipe = make_recipe(copy.deepcopy(GOOD))
    recipe.save(tmp_path / "resolved.yaml")
    assert load_recipe(tmp_path / "resolved.yaml") == recipe


def test_files_that_are_no_recipe(tmp_path: Path):
    file = tmp_path / "r.yaml"
    for content, sentence in (
        (b"", "is empty or no mapping; it needs the sections data, vocabulary, encoder"),
        (b"data: [", "is not valid YAML: .*, at line 1"),
        (b"\xff\xfe\x00", "is in UTF-16; save it as YAML in UTF-8"),
    ):
        file.write_bytes(content)
        with pytest.raises(RecipeError, match=sentence):
            load_recipe(file)

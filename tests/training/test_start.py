"""Training on from a checkpoint: which weights and words are taken, what is refused, and a kill changes nothing."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from showtell.captioners import EncoderDecoderCaptioner
from showtell.checkpoint import load_checkpoint
from showtell.errors import CheckpointError, RecipeError
from showtell.models import MODELS, build_decoder
from showtell.testing import shrink
from showtell.text.vocabulary import SPECIAL, Vocabulary
from showtell.training import make_recipe, train
from showtell.training.start import _take_weights, start
from tests.training.test_loop import fingerprints
from tests.training.test_options import train_killed


@pytest.fixture(scope="module")
def first_run(tiny_scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of one epoch."""
    return train(base_recipe(tiny_scenes), tmp_path_factory.mktemp("first") / "run", quiet=True).folder / "last"


def base_recipe(data: Path) -> dict[str, Any]:
    return {
        "data": {"path": str(data), "captions_per_image": 2, "validation_split": None},
        "vocabulary": {"min_count": 1},
        "encoder": {"name": "small_cnn", "image_size": 48, "widths": [8, 16]},
        "model": {"name": "sat", "embedding_size": 12, "hidden_size": 16, "attention_size": 8},
        "objective": {"name": "cross_entropy"},
        "training": {"epochs": 1, "batch_size": 10, "learning_rate": 0.004, "trackers": [], "log_every": 1},
        "decoding": {"num_beams": 2, "max_length": 12},
    }


@pytest.fixture
def continued(tiny_scenes: Path, first_run: Path) -> dict[str, Any]:
    recipe = base_recipe(tiny_scenes)
    recipe["training"]["start_from"] = str(first_run)
    return recipe


CAPTIONS = [["a", "zebra", "near", "a", "circle"], ["zebra", "and", "gnu"]]


def test_weights_and_words_are_the_checkpoints(continued, first_run):
    recipe = make_recipe(continued)
    before, now = load_checkpoint(first_run), start(recipe, CAPTIONS, first_run)
    assert now.vocabulary.words == before.vocabulary.words
    for part in ("encoder", "decoder"):
        kept = getattr(before, part).state_dict()
        assert all(torch.equal(value, kept[name]) for name, value in getattr(now, part).state_dict().items())
    assert now.unknown[0] == "zebra" and "gnu" in now.unknown  # the most frequent first
    assert now.added == 0
    words = len(before.vocabulary) - len(SPECIAL)
    assert now.describe("C") == (
        f"starting from C, vocabulary {words}; {len(now.unknown)} words of the captions stay unknown: "
        f"{', '.join(now.unknown)}; vocabulary.extend=true adds words"
    )


def test_new_words_get_fresh_rows_behind_the_old_ones(continued, first_run):
    continued["vocabulary"] = {"min_count": 2, "extend": True}
    before, now = load_checkpoint(first_run), start(make_recipe(continued), CAPTIONS, first_run)
    old = len(before.vocabulary)
    assert now.vocabulary.words == (*before.vocabulary.words, "zebra")  # gnu occurs once
    assert now.added == 1
    assert " and 1 new: zebra; " in now.describe("C")
    kept = before.decoder.state_dict()
    for name, value in now.decoder.state_dict().items():
        if value.shape == kept[name].shape:
            assert torch.equal(value, kept[name])
        else:
            assert value.shape[0] == old + 1
            assert torch.equal(value[:old], kept[name])
            assert value[old:].isfinite().all()
    assert now.decoder.state_dict()["embedding.weight"][old].abs().sum() > 0


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_model_keeps_its_old_rows(name):
    small, large = (build_decoder(shrink(MODELS[name][0]), feature_size=6, vocabulary_size=size) for size in (9, 11))
    _take_weights(large, small)
    kept = small.state_dict()
    grown = 0
    for key, value in large.state_dict().items():
        grown += value.shape != kept[key].shape
        assert torch.equal(value[tuple(slice(size) for size in kept[key].shape)], kept[key])
    assert grown >= 2  # what words are read with, and what they are said with


def test_what_cannot_be_started_from_is_refused(continued, tmp_path):
    training, nowhere = continued["training"], str(tmp_path / "none")
    differing = {
        "model": continued["model"] | {"hidden_size": 20, "dropout": 0.1},  # dropout may differ
        "encoder": continued["encoder"]
        | {"widths": [8, 8], "trained": False, "learning_rate": 0.1},  # as how it learns
    }
    fresh = {name: value for name, value in training.items() if name != "start_from"}
    for change, error, message in (
        (
            differing, RecipeError,
            r"has another encoder or model than the recipe; to start from it, add 'encoder\.widths=\[8, 16\]' "
            r"model\.hidden_size=16$",
        ),
        (
            {"model": continued["model"] | {"name": "updown"}}, RecipeError,
            r"has the model sat and .* updown; leave model\.name out, or choose a recipe of sat\.",
        ),
        ({"training": training | {"start_from": nowhere}}, CheckpointError, "There is no checkpoint folder"),
        (
            {"training": fresh, "vocabulary": {"extend": True}}, RecipeError,
            r"vocabulary\.extend adds words to those of a checkpoint; name it in training",
        ),
    ):  # fmt: skip
        with pytest.raises(error, match=message):
            train(continued | change, tmp_path / "run", quiet=True)
        assert not (tmp_path / "run").exists()


def test_the_checkpoint_stays_the_best_where_no_epoch_validates_better(continued, first_run, tmp_path):
    continued["data"]["validation_split"] = "val"
    continued["training"]["learning_rate"] = 1000.0
    result = train(continued, tmp_path / "run", quiet=True)
    before, best = load_checkpoint(first_run), load_checkpoint(result.folder / "best")
    assert (result.epochs, result.best_epoch) == (1, 0)
    kept = before.decoder.state_dict()
    assert all(torch.equal(value, kept[name]) for name, value in best.decoder.state_dict().items())


def test_settings_without_a_name_are_those_of_the_checkpoint(continued):
    named = make_recipe(continued)
    left = continued | {"encoder": {"trained": False}, "model": {"dropout": 0.25}}
    recipe = make_recipe(left)
    assert recipe.model == named.model.model_copy(update={"dropout": 0.25})
    assert recipe.encoder == named.encoder.model_copy(update={"trained": False})
    assert left["model"] == {"dropout": 0.25}  # what was given is left as it is
    del left["encoder"], left["model"]
    assert make_recipe(left) == named

    with pytest.raises(RecipeError, match=r"model\.hiden_size: no such key"):
        make_recipe(left | {"model": {"hiden_size": 20}})
    del left["training"]["start_from"]
    with pytest.raises(RecipeError, match=r"model\.name: a name is needed; .* sat, .* with training\.start_from it ma"):
        make_recipe(left)


def test_killed_and_resumed_it_ends_with_the_same_bits(continued, tmp_path, capsys, monkeypatch):
    """With words added, weights averaged with the start's, and the checkpoint it started from gone in between."""
    mine = tmp_path / "checkpoint"
    shutil.copytree(continued["training"]["start_from"], mine)
    kept = load_checkpoint(mine)
    fewer = Vocabulary(kept.vocabulary.words[len(SPECIAL) : -3])
    decoder = build_decoder(kept.decoder.config, feature_size=16, vocabulary_size=len(fewer))
    EncoderDecoderCaptioner(
        encoder=kept.encoder, decoder=decoder, vocabulary=fewer, decoding=kept.decoding, origin=kept.origin
    ).save_pretrained(mine)
    continued["training"] |= {"start_from": str(mine), "epochs": 3, "start_share": 0.25}
    continued["vocabulary"]["extend"] = True
    whole = train(continued, tmp_path / "whole").folder
    assert " and 3 new: " in capsys.readouterr().err
    train_killed(monkeypatch, 7, continued, tmp_path / "broken")
    shutil.rmtree(mine)
    broken = train(continued, tmp_path / "broken", resume=True).folder
    assert "resuming at step" in capsys.readouterr().err
    assert fingerprints(broken) == fingerprints(whole)
    learned, best = (load_checkpoint(whole / name).decoder.state_dict() for name in ("last", "best"))
    for name, before in decoder.state_dict().items():
        old = tuple(slice(size) for size in before.shape)
        torch.testing.assert_close(best[name][old], 0.75 * learned[name][old] + 0.25 * before)
    assert not torch.equal(best["embedding.weight"], learned["embedding.weight"])
    with pytest.raises(RecipeError, match=r"start_share=0\.25 is a share of the weights of training\.start_from: name"):
        make_recipe(continued | {"vocabulary": {}, "training": continued["training"] | {"start_from": None}})

"""The loop through its public call: what a run leaves behind, and that stopping anywhere changes nothing."""

import copy
import hashlib
import json
import os
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
import yaml

from showtell.captioners import Captioner
from showtell.errors import DataError, RecipeError, TrainingError, UsageError
from showtell.training import make_recipe, train
from showtell.training.console import TrainingConsole
from showtell.training.loop import Trainer
from showtell.training.run_folder import changes
from tests.cli.test_caption import run as run_command
from tests.conftest import tiny_recipe_for


def fingerprints(run: Path) -> dict[str, str]:
    """A hash of every file of a run but for TensorBoard's, which hold times."""
    return {
        str(path.relative_to(run)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(run.rglob("*"))
        if path.is_file() and "tensorboard" not in path.parts
    }


def log_of(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def test_a_run_step_by_step_leaves_checkpoints_a_log_its_recipe_and_what_trackers_keep(
    tiny_recipe, tmp_path, monkeypatch
):
    monkeypatch.setenv("WANDB_MODE", "offline")
    tiny_recipe["training"]["trackers"] = ["tensorboard", "wandb"]
    trainer = Trainer(make_recipe(tiny_recipe), tmp_path / "run", resume=False, quiet=True)
    weight = trainer.model.decoder.output.weight
    seen = [(numbers.step, float(weight.detach().norm())) for numbers in trainer.iterate()]
    assert [step for step, _ in seen] == list(range(1, 22)) and len({norm for _, norm in seen}) == 21
    result = trainer.result
    assert (result.epochs, result.interrupted) == (3, False)
    log = log_of(result.folder)
    steps = [line for line in log if "validation" not in line]
    validations = [line for line in log if "validation" in line]
    assert [line["step"] for line in steps] == list(range(1, 22))  # 50 images in batches of 8: 7 steps an epoch
    assert [line["epoch"] for line in validations] == [1, 2, 3]
    assert validations[-1]["validation"]["loss"] < validations[0]["validation"]["loss"]
    assert {"loss", "words", "doubly_stochastic", "word_presence", "gradient_norm"} <= set(steps[0])
    assert result.best == max(line["validation"]["cider"] for line in validations)
    for name in ("last", "best"):
        assert Captioner.from_pretrained(result.folder / name).origin["train_images"] == 50
    assert (result.folder / "recipe.yaml").exists()
    assert list((result.folder / "tensorboard").rglob("events*"))
    assert list((result.folder / "wandb").glob("offline-run-*/*.wandb"))


@pytest.fixture(scope="module")
def recipe_of_two_epochs(tiny_scenes: Path) -> dict[str, Any]:
    """Whose learning rate falls by steps, so that a run may be made longer; tests change copies."""
    recipe = tiny_recipe_for(tiny_scenes)
    recipe["training"] |= {"epochs": 2, "schedule": "step", "decay_epochs": 2}
    return recipe


@pytest.fixture(scope="module")
def two_epochs(recipe_of_two_epochs: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its run; who changes it takes a copy."""
    return train(recipe_of_two_epochs, tmp_path_factory.mktemp("loop") / "run", quiet=True).folder


@pytest.mark.parametrize(("during", "step"), [("the middle", 3), ("the last step", 6), ("validation", None)])
def test_ctrl_c_in_an_epoch_saves_and_resuming_ends_with_the_same_bits(
    during, step, recipe_of_two_epochs, two_epochs, tmp_path, monkeypatch, capsys
):
    """SIGKILL is in test_kills.py. Where the steps of the epoch are done, it is validated when the run is resumed."""
    recipe, folder = tmp_path / "tiny.yaml", tmp_path / "broken"
    recipe.write_text(yaml.safe_dump(recipe_of_two_epochs))
    with monkeypatch.context() as patch:
        if step is None:
            counted = TrainingConsole.counting
            patch.setattr(TrainingConsole, "counting", lambda *a: (signal.raise_signal(signal.SIGINT), counted(*a))[1])
        else:
            run_step = Trainer._step
            patch.setattr(
                Trainer, "_step",
                lambda self, group: (self.progress.step == step and signal.raise_signal(2), run_step(self, group))[1],
            )  # fmt: skip
        assert run_command(capsys, "train", recipe, "--out", folder)[0] == 130
    assert not any("validation" in line for line in log_of(folder))
    status, _, err = run_command(capsys, "train", recipe, "--out", folder, "--resume")
    assert status == 0 and "resuming at step" in err
    assert fingerprints(folder) == fingerprints(two_epochs)


def test_a_run_trains_for_longer_where_a_longer_run_would_have_begun_alike(
    recipe_of_two_epochs, two_epochs, tmp_path, capsys
):
    recipe = copy.deepcopy(recipe_of_two_epochs)
    recipe["training"]["epochs"] = 3
    whole = train(recipe, tmp_path / "whole", quiet=True).folder
    longer = shutil.copytree(two_epochs, tmp_path / "longer")
    assert run_command(capsys, "train", longer, "--resume", "training.epochs=3")[0] == 0
    assert fingerprints(longer) == fingerprints(whole)
    assert "the run is finished; a greater" in run_command(capsys, "train", longer, "--resume")[2]
    before = make_recipe(recipe_of_two_epochs)
    for change, is_accepted in (
        ({"epochs": 4}, True), ({"epochs": 1}, False), ({"patience": 3}, False), ({"learning_rate": 1.0}, False),
        ({"patience_steps": 60}, True),
    ):  # fmt: skip
        now = make_recipe({**recipe, "training": recipe_of_two_epochs["training"] | change})
        assert (changes(before, now) == []) is is_accepted, change
    decaying = recipe["training"] | {"schedule": "cosine"}
    before, now = (make_recipe({**recipe, "training": decaying | {"epochs": n}}) for n in (2, 3))
    assert changes(before, now) == ["training.epochs (was 2, now 3)"]


def test_patience_may_grow_and_counts_steps_too(tiny_recipe, tmp_path):
    """7 steps an epoch: no better score for 15 steps is that after the third epoch without one."""
    tiny_recipe["training"] |= {"epochs": 4, "patience": 1, "learning_rate": 1e-9}
    tiny_recipe["encoder"]["learning_rate"] = 1e-9  # nothing is learned, so the second validation is no better
    stopped = train(tiny_recipe, tmp_path / "run", quiet=True)
    assert (stopped.epochs, stopped.best_epoch) == (2, 1)
    tiny_recipe["training"]["patience_steps"] = 15
    assert train(tiny_recipe, tmp_path / "run", resume=True, quiet=True).epochs == 4


def test_what_may_not_be_overwritten_or_resumed_is_refused(recipe_of_two_epochs, two_epochs, tiny_scenes, tmp_path):
    tiny_recipe, run = recipe_of_two_epochs, shutil.copytree(two_epochs, tmp_path / "run")
    before = fingerprints(run)
    changed = tmp_path / "data"
    (changed / "annotations").mkdir(parents=True)
    for file in (tiny_scenes / "annotations").glob("captions_*.json"):
        (changed / "annotations" / file.name).write_text(file.read_text().replace("circle", "disk"))
    (changed / "images").symlink_to(tiny_scenes / "images")
    faster = tiny_recipe | {"training": tiny_recipe["training"] | {"learning_rate": 0.5}}
    elsewhere = tiny_recipe | {"data": tiny_recipe["data"] | {"path": str(changed)}}
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "a.png").touch()
    foreign = r"photos holds a\.png and no run; choose a new folder, or an empty one"
    for recipe, folder, resume, error, message in (
        (tiny_recipe, photos, False, UsageError, foreign),
        (tiny_recipe, photos, True, UsageError, foreign),
        (tiny_recipe, run, False, UsageError, r"already holds a run; add --resume \(in Python resume=True\)"),
        (faster, run, True, RecipeError, r"training.learning_rate \(was 0.004, now 0.5\)"),
        (elsewhere, run, True, DataError, "have changed since the run in"),
    ):
        with pytest.raises(error, match=message):
            train(recipe, folder, resume=resume, quiet=True)
        assert fingerprints(run) == before
    train(copy.deepcopy(tiny_recipe), run, resume=True, quiet=True)  # finished: nothing to do
    assert fingerprints(run) == before


def test_a_run_without_its_last_checkpoint_replaces_nothing(recipe_of_two_epochs, two_epochs, tmp_path):
    """It is written before the log and before best/: whatever else is there shows that it was lost."""
    tiny_recipe, run = recipe_of_two_epochs, two_epochs
    for lost in (["last"], ["last", "best"], ["last", "log.jsonl"]):
        broken = Path(shutil.copytree(run, tmp_path / "-".join(lost)))
        for name in lost:
            shutil.rmtree(broken / name) if (broken / name).is_dir() else (broken / name).unlink()
        before = fingerprints(broken)
        with pytest.raises(UsageError, match=r"last is gone, so there is nothing to resume from, .* another --out"):
            train(tiny_recipe, broken, resume=True, quiet=True)
        assert fingerprints(broken) == before
    begun = tmp_path / "begun"  # and killed before its first checkpoint
    begun.mkdir()
    shutil.copy(run / "recipe.yaml", begun)
    (begun / "log.jsonl").touch()
    assert fingerprints(train(tiny_recipe, begun, resume=True, quiet=True).folder) == fingerprints(run)


def test_a_run_writes_through_no_link(recipe_of_two_epochs, two_epochs, tmp_path):
    tiny_recipe, run = copy.deepcopy(recipe_of_two_epochs), shutil.copytree(two_epochs, tmp_path / "run")
    precious = tmp_path / "precious"
    precious.mkdir()
    for name in (".writing.lock", ".last.new", "best", "last", "log.jsonl", "recipe.yaml", "tensorboard"):
        linked = Path(shutil.copytree(run, tmp_path / name))
        kept = precious / name
        shutil.move(linked / name, kept) if (linked / name).exists() else kept.mkdir()
        (linked / name).symlink_to(kept)
        before = fingerprints(precious)
        with pytest.raises((UsageError, DataError), match=rf"holds links \({name}\), and a run writes|symbolic links"):
            train(tiny_recipe, linked, resume=True, quiet=True)
        assert fingerprints(precious) == before
    shutil.copytree(run, tmp_path / "copy", copy_function=os.link)
    before = fingerprints(tmp_path / "copy")
    tiny_recipe["training"]["epochs"] = 3
    assert train(tiny_recipe, run, resume=True, quiet=True).epochs == 3
    assert fingerprints(tmp_path / "copy") == before  # hard links: both names are of one file


def test_a_loss_that_is_no_number_stops_the_run_in_words(tiny_recipe, tmp_path):
    tiny_recipe["training"] |= {"learning_rate": 1e30, "clip_norm": None, "optimizer": {"name": "sgd"}}
    message = (
        r"The loss is \S+( its gradient (nan|inf),)? at step \d+, over the images \d+, \d+, \d+, \d+, \d+ and 3 more: "
        r"training has diverged; lower training.learning_rate \(now 1e\+30\) or training.clip_norm, or look at these "
        "images and their captions; .*run/last is the last good checkpoint"
    )
    with pytest.raises(TrainingError, match=message):
        train(tiny_recipe, tmp_path / "run", quiet=True)

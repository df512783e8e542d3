"""The reward watchdog: the signs of harm, rollbacks, and that a run under it resumes exactly."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch

from showtell.captioners import Captioner
from showtell.captions import Caption
from showtell.errors import CheckpointError
from showtell.objectives import OBJECTIVES
from showtell.objectives.contract import HealthRange
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.training import loop, train
from showtell.training.checkpoints import RunCheckpoints
from showtell.training.recipe import RewardWatchdogConfig
from showtell.training.reward_watchdog import RewardWatchdog
from showtell.training.validation import Validation
from showtell.types import Terms
from tests.training.test_loop import fingerprints, log_of
from tests.training.test_options import KilledError
from tests.training.test_start import base_recipe

NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
RANGES = (
    HealthRange("spread", "the goals are alike ({value:.2f})", "lower the rate", minimum=0.1, is_collapse=True),
    HealthRange("known", "it knows {value:.0%}", "rewards say little", maximum=0.9),
)
ALIKE = ("10 of 10 images have the same",)


def validation(score: float, warnings: tuple[str, ...] = (), words: int = 5, **bad: int) -> Validation:
    """Ten captions of so many words, all different; the first few of them bad in a way: endings=2, cut=3."""
    captions = {}
    for number, name in enumerate(NAMES):
        text = " ".join([name, "dog", "runs", "far", "away", *NAMES[:9]][:words])
        text += " with" * (number < bad.get("endings", 0)) + " red red" * (number < bad.get("repeats", 0))
        captions[str(number)] = Caption(text, 0.0, number >= bad.get("cut", 0), ())
    return Validation({"cider": score, "bleu_4": score / 10}, captions, warnings)


def make_watchdog(start: Validation | None = None, **settings: float) -> RewardWatchdog:
    watchdog = RewardWatchdog(
        RewardWatchdogConfig(**settings),  # type: ignore[arg-type]
        selection_metric="cider", reference_words=5.0, best=Path("runs/x/best"), health_ranges=RANGES,
    )  # fmt: skip
    watchdog.record_start(start or validation(0.5), "runs/a/best")
    return watchdog


SIGNS = [
    (validation(0.47), "cider is 0.470 and was 0.500: the steps lead away from good captions"),  # 0.475 is 5% below
    (validation(0.9, words=8), "the captions grew from 5.0 to 8.0 words: the reward is being gamed"),  # 1.6 times
    (validation(0.9, words=3), "the captions shrank from 5.0 to 3.0 words: the reward is won by saying little"),
    (validation(0.9, endings=4), '0% of the captions at the start, 40% now are captions that end in a word like "a"'),
    (validation(0.9, repeats=3), "0% of the captions at the start, 30% now are captions that say words twice in a row"),
    (validation(0.9, cut=10), "0% of the captions at the start, 100% now are captions that are cut off before they"),
]


def test_each_sign_of_harm_has_its_sentence_and_two_in_a_row_roll_back():
    for worse, sentence in SIGNS:
        watchdog = make_watchdog()
        first = watchdog.check_validation(worse, 0.5)
        ((kind, message),) = first.messages
        assert kind == "harm" and message.startswith(sentence)
        assert first.is_harmful and not first.rolls_back and watchdog.state.lr_factor == 1
        second = watchdog.check_validation(worse, 0.5)
        assert second.rolls_back and not second.stops
        assert second.messages[-1] == (
            "rollback",
            "because of 2 validations in a row: back to the best weights, cider 0.500, with 0.5 times the learning "
            "rate and a fresh optimiser (1 of 3)",
        )
        assert watchdog.state.lr_factor == second.metrics["lr_factor"] == 0.5


def test_a_collapse_rolls_back_at_once():
    for collapsed, tolerance in ((validation(0.24), 0.05), (validation(0.24), 0.9), (validation(0.5, ALIKE), 0.05)):
        decision = make_watchdog(max_score_drop=tolerance).check_validation(collapsed, 0.5)
        assert decision.is_harmful and decision.rolls_back
        assert [kind for kind, _ in decision.messages] == ["harm", "rollback"]
        assert "because of this validation: back to the best weights" in decision.messages[-1][1]


def test_parts_outside_of_their_ranges_are_warned_of_and_a_collapse_rolls_back():
    good, poor = {"spread": 0.5, "known": 0.6}, {"spread": 0.05, "known": 0.95}
    watchdog = make_watchdog()
    watchdog.observe(good)
    assert watchdog.check_validation(validation(0.6), 0.5).messages == ()
    watchdog.observe(poor)
    watchdog.observe({"known": 0.95})  # a step that lacks a part
    decision = watchdog.check_validation(validation(0.6), 0.5)
    assert decision.is_harmful and decision.rolls_back
    assert decision.messages[:2] == (
        ("harm", "the goals are alike (0.05): lower the rate"), ("warning", "it knows 95%: rewards say little"),
    )  # fmt: skip
    assert watchdog.check_validation(validation(0.6), 0.5).messages == ()  # no step since
    from_the_start = make_watchdog()
    from_the_start.observe(poor)
    assert not from_the_start.check_validation(validation(0.6), 0.5).is_harmful


def test_after_its_rollbacks_it_stops_with_the_best_weights_and_after_the_last_step_does_neither():
    watchdog = make_watchdog(max_rollbacks=2, patience=1)
    decisions = [watchdog.check_validation(validation(0.4), 0.5) for _ in range(3)]
    assert [(decision.rolls_back, decision.stops) for decision in decisions] == [(True, False)] * 2 + [(True, True)]
    assert decisions[-1].messages[-1] == (
        "stop",
        "because of this validation, after 2 rollbacks (training.reward_watchdog.max_rollbacks): stopping; runs/x/best "
        "has the best weights; try a lower training.learning_rate or another reward",
    )
    assert watchdog.state.lr_factor == 0.25
    last = make_watchdog(patience=1).check_validation(validation(0.1), 0.5, is_last=True)
    assert last.is_harmful and not last.rolls_back


# ---- in a run


class SpoilerConfig(CrossEntropyConfig):
    """Cross-entropy that becomes its opposite."""

    name: Literal["spoiler"] = "spoiler"  # type: ignore[assignment]
    spoils_from: int = 0  # epoch


class Spoiler(CrossEntropy):
    """Says that it optimises a reward, and from an epoch on makes captions less likely instead of more."""

    config: SpoilerConfig
    optimises_reward: ClassVar[bool] = True
    epoch = 0

    def begin_step(self, step: int, epoch: int) -> None:
        self.epoch = epoch

    def forward(self, batch, features, decoder):
        terms = super().forward(batch, features, decoder)
        parts = {**terms.parts, "reward": -terms.parts["words"], "length": torch.tensor(6.0)}
        return Terms(-terms.total if self.epoch >= self.config.spoils_from else terms.total, parts)


@pytest.fixture(autouse=True)
def _spoiler(monkeypatch):
    monkeypatch.setitem(OBJECTIVES.builtin, "spoiler", (SpoilerConfig, Spoiler))


def small_recipe(data: Path, **training: Any) -> dict[str, Any]:
    recipe = base_recipe(data)
    recipe["data"] = {"path": str(data), "captions_per_image": 5}
    recipe["model"]["hidden_size"] = 24
    recipe["training"] |= {"epochs": 12, "learning_rate": 0.01, "log_every": 2, **training}
    return recipe


@pytest.fixture(scope="module")
def first_run(tiny_scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of cross-entropy."""
    return train(small_recipe(tiny_scenes), tmp_path_factory.mktemp("first") / "run", quiet=True).folder


@pytest.fixture
def spoiled(tiny_scenes: Path, first_run: Path) -> dict[str, Any]:
    """A recipe whose captions get worse from the first step on."""
    recipe = small_recipe(
        tiny_scenes, start_from=str(first_run / "best"), epochs=5, batch_size=25, learning_rate=0.05,
        reward_watchdog={"patience": 1, "max_rollbacks": 2, "min_cider": 0},
    )  # fmt: skip
    return recipe | {"objective": {"name": "spoiler"}}


def decisions(run: Path) -> list[tuple[int, str]]:
    return [
        (line["epoch"], line["reward_watchdog"])
        for line in log_of(run)
        if line.get("reward_watchdog") not in (None, "warning", "harm")
    ]


def test_a_run_that_only_gets_worse_ends_with_what_it_began_with(spoiled, first_run, tmp_path, capsys):
    result = train(spoiled, tmp_path / "run")
    output = capsys.readouterr().err
    log = log_of(result.folder)
    remembered = Captioner.from_pretrained(first_run / "best").origin["validation"]["scores"]
    validations = [line["validation"] for line in log_of(first_run) if "validation" in line]
    assert remembered == max(validations, key=lambda scores: scores["cider"])
    assert log[0]["validation"] == remembered and (log[0]["epoch"], log[0]["step"]) == (0, 0)
    assert decisions(result.folder) == [(1, "rollback"), (2, "rollback"), (3, "stop")]
    assert (result.epochs, result.best, result.best_epoch) == (3, remembered["cider"], 0)
    for name in ("best", "last"):
        files = (result.folder / name / "model.safetensors", first_run / "best" / "model.safetensors")
        assert files[0].read_bytes() == files[1].read_bytes()
    state = json.loads((result.folder / "last" / "training" / "state.json").read_text())
    assert state["optimizer"]["plain"] == {} and state["progress"]["reward_watchdog"]["lr_factor"] == 0.25
    assert [line["learning_rate"] for line in log if "learning_rate" in line] == [0.05, 0.025, 0.0125]
    shown = [line for line in log if "reward_watchdog" in line]
    assert all(f"  reward watchdog {line['reward_watchdog']}: {line['sentence']}" in output for line in shown)
    assert "a reward watchdog supervises this run (training.reward_watchdog; null turns it off)" in output
    assert sum(line["reward_watchdog"] == "harm" for line in shown) >= 3
    assert f"stopping; {tmp_path / 'run' / 'best'} has the best weights" in output


def test_weights_that_win_a_score_with_harm_are_not_kept(spoiled, tmp_path, monkeypatch):
    """Captions that grow by half are never the best, whatever they score."""
    spoiled["objective"]["spoils_from"] = 9
    real, calls = loop.validate, 0

    def longer(*arguments):
        nonlocal calls
        validated = real(*arguments)
        if (calls := calls + 1) == 1:
            return validated
        texts = {image: kept.text + " near the very big old house" * 3 for image, kept in validated.captions.items()}
        captions = {image: Caption(text, 0.0, True, ()) for image, text in texts.items()}
        return Validation({**validated.scores, "cider": 9.0}, captions, ())

    monkeypatch.setattr(loop, "validate", longer)
    result = train(spoiled, tmp_path / "run", quiet=True)
    assert result.best_epoch == 0 and result.best < 9


@pytest.mark.parametrize(
    "objective",
    [
        {"name": "spoiler", "spoils_from": 1},
        pytest.param({"name": "self_critical", "samples": 2}, marks=pytest.mark.slow),
    ],
)
def test_killed_before_and_after_going_back_it_ends_with_the_same_bits(objective, spoiled, tmp_path, monkeypatch):
    """Killed at each save in turn, before it is written."""
    spoiled["objective"] = objective
    spoiled["training"] |= {"epochs": 4, "save_every": 1}
    spoiled["training"]["reward_watchdog"] |= {"max_rollbacks": 9, "max_score_drop": 0.0}
    train(copy.deepcopy(spoiled), tmp_path / "whole", quiet=True)
    assert [kind for _, kind in decisions(tmp_path / "whole")].count("rollback") >= 2
    real, saved, kills = RunCheckpoints.save_last, -1, 0

    def save(self, progress):
        nonlocal saved
        if progress.step > saved:  # the first time at this step
            saved = progress.step
            raise KilledError
        real(self, progress)

    monkeypatch.setattr(RunCheckpoints, "save_last", save)
    while True:
        try:
            train(copy.deepcopy(spoiled), tmp_path / "broken", resume=True, quiet=True)
            break
        except KilledError:
            kills += 1
    assert kills == 9  # once before the first step
    assert fingerprints(tmp_path / "broken") == fingerprints(tmp_path / "whole")


def test_a_start_that_has_learned_nothing_is_refused_and_leaves_no_trace(spoiled, tmp_path):
    make_watchdog(validation(0.05))
    with pytest.raises(CheckpointError, match=r"has CIDEr-D 0\.049 on the validation split and a reward needs"):
        make_watchdog(validation(0.049))
    spoiled["training"]["reward_watchdog"]["min_cider"] = 9.9
    with pytest.raises(CheckpointError, match=r"9.9 \(training.reward_watchdog.min_cider\): it has learned nothing ye"):
        train(spoiled, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()

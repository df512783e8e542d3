from __future__ import annotations

import copy
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file

from showtell.captioners import Captioner
from showtell.captions import Caption
from showtell.errors import CheckpointError, RecipeError
from showtell.objectives import OBJECTIVES
from showtell.objectives.contract import HealthRange
from showtell.objectives.cross_entropy import CrossEntropy, CrossEntropyConfig
from showtell.training import loop, make_recipe, train
from showtell.training.recipe import RewardWatchdogConfig
from showtell.training.reward_watchdog import RewardWatchdog, validation_record
from showtell.training.validation import Validation, Validator
from showtell.types import Terms
from tests.training.test_loop import fingerprints, log_of

NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


def captions(count: int = 10, words: int = 5, **others: int) -> dict[str, Caption]:
    """Captions of so many words, all different; the first few of them bad in a way: endings=2, cut=3, same=4."""
    by_image = {}
    for number in range(count):
        text = " ".join([NAMES[number], "dog", "runs", "far", "away", *NAMES[:9]][:words])
        if number < others.get("endings", 0):
            text += " with"
        if number < others.get("repeats", 0):
            text += " red red"
        if number < others.get("same", 0):
            text = "some dog runs far away"
        by_image[str(number)] = Caption(text, 0.0, number >= others.get("cut", 0), ())
    return by_image


def validation(score: float, warnings: tuple[str, ...] = (), **shape: int) -> Validation:
    return Validation({"cider": score, "bleu_4": score / 10}, captions(**shape), warnings)


def make_watchdog(
    start: Validation | None = None, health_ranges: tuple[HealthRange, ...] = (), **settings: float
) -> RewardWatchdog:
    config = RewardWatchdogConfig(**settings)  # type: ignore[arg-type]
    watchdog = RewardWatchdog(
        config, selection_metric="cider", reference_words=5.0, best="runs/x/best", health_ranges=health_ranges
    )
    watchdog.record_start(start or validation(0.5), None, "f")
    return watchdog


def test_a_start_that_has_learned_nothing_is_refused():
    with pytest.raises(CheckpointError) as caught:
        make_watchdog().check_start("runs/a/best", {"cider": 0.049})
    assert str(caught.value) == (
        "training.start_from=runs/a/best has CIDEr-D 0.049 on the validation split and a reward needs a start of at "
        "least 0.05 (training.reward_watchdog.min_cider): it has learned nothing yet that a reward could tell apart; "
        "train it longer with objective.name=cross_entropy first."
    )
    make_watchdog().check_start("runs/a/best", {"cider": 0.05})


@pytest.mark.parametrize(
    ("remembered", "sentences"),
    [
        (validation_record("val", "f", {"cider": 0.509}), []),  # 0.009 is less than 2% of 0.509
        (
            validation_record("val", "f", {"cider": 0.6}),
            [
                "the starting weights have cider 0.500, and their checkpoint records 0.600 on these captions: "
                "photos, features or weights are not those that it was validated with"
            ],
        ),
        (
            validation_record("test", "g", {"cider": 0.6}),
            [
                "the starting weights have cider 0.500, and their checkpoint records 0.600 on other images or "
                'captions (split "test"), so that the two do not compare'
            ],
        ),
        (validation_record("val", "f", {"meteor": 0.1}), []),
        (None, []),
        ("nonsense", []),
        ({"scores": {"cider": "high"}}, []),
    ],
)
def test_the_start_is_held_against_what_its_checkpoint_remembers(remembered, sentences):
    watchdog = RewardWatchdog(RewardWatchdogConfig(), selection_metric="cider", reference_words=5.0, best="b")
    decision = watchdog.record_start(validation(0.5), remembered, "f")
    assert decision.messages == tuple(("warning", sentence) for sentence in sentences)
    assert not decision.is_harmful and not decision.rolls_back


@pytest.mark.parametrize(
    ("worse", "sentence"),
    [
        (
            validation(0.47),  # 0.475 is 5% below 0.5
            "cider is 0.470 and was 0.500: the steps lead away from good captions; lower training.learning_rate",
        ),
        (
            validation(0.3, words=8),  # with a lower score it is no gaming
            "cider is 0.300 and was 0.500, the captions grew from 5.0 to 8.0 words: the steps lead away from good "
            "captions; lower training.learning_rate",
        ),
        (
            validation(0.9, words=8),  # 1.6 times as many
            "the captions grew from 5.0 to 8.0 words: the reward is being gamed; weigh it less, or reward CIDEr-D, "
            "which punishes words too many, and let the end of a caption count",
        ),
        (
            validation(0.9, words=3),  # below 5 / 1.3
            "the captions shrank from 5.0 to 3.0 words: the reward is won by saying little; weigh it less, or reward "
            "CIDEr-D, which asks for as many words as people use",
        ),
        (
            validation(0.9, endings=4),
            'captions that end in a word like "a" or "with" rose from 0% to 40%: the end of a caption has to be part '
            "of the reward and of the gradient",
        ),
        (
            validation(0.9, repeats=3),
            "captions that say words twice in a row rose from 0% to 30%: the reward counts words without their order; "
            "reward CIDEr-D, or add bleu_4 to it",
        ),
        (
            validation(0.9, cut=10),
            "captions that are cut off before they end rose from 0% to 100%: the end of a caption has to be part of "
            "the reward, or decoding.max_length is too small",
        ),
    ],
)
def test_each_sign_of_harm_has_its_sentence_and_two_in_a_row_send_back(worse, sentence):
    watchdog = make_watchdog()
    first = watchdog.check_validation(worse, 0.5)
    assert first.messages == (("harm", sentence),)
    assert first.is_harmful and not first.rolls_back and watchdog.lr_factor == 1
    second = watchdog.check_validation(worse, 0.5)
    assert second.rolls_back and not second.stops
    assert second.messages[-1] == (
        "rollback",
        "because of 2 validations in a row: back to the best weights, cider 0.500, with 0.5 times the learning rate "
        "and a fresh optimiser (1 of 3)",
    )
    assert watchdog.lr_factor == second.metrics["lr_factor"] == 0.5


@pytest.mark.parametrize(
    "fine",
    [
        validation(0.48),
        validation(0.9, words=6),
        validation(0.9, words=4),
        validation(0.9, endings=2),  # 20% more, but of two captions
        validation(0.9, repeats=2, cut=2),
    ],
)
def test_what_lies_within_the_tolerances_is_let_pass(fine):
    watchdog = make_watchdog()
    results = [watchdog.check_validation(fine, 0.5) for _ in range(5)]
    assert [decision.messages for decision in results] == [()] * 5
    assert not any(decision.is_harmful for decision in results)


def test_lengths_are_held_against_the_references_too():
    """A start of 3 words may grow to the 5 of people, and on to 1.3 times as many."""
    watchdog = make_watchdog(validation(0.5, words=3))
    assert not watchdog.check_validation(validation(0.6, words=6), 0.5).is_harmful
    assert watchdog.check_validation(validation(0.6, words=7), 0.5).is_harmful


def test_a_good_validation_between_two_bad_ones_starts_the_count_again():
    watchdog = make_watchdog()
    assert [watchdog.check_validation(validation(score), 0.5).rolls_back for score in (0.4, 0.5, 0.4, 0.4)] == [
        0,
        0,
        0,
        1,
    ]


def test_a_reward_that_rises_while_the_score_falls_is_named():
    watchdog = make_watchdog()
    windows(watchdog, {"reward": 0.5}, {"reward": 0.61})
    assert [sentence for _, sentence in watchdog.check_validation(validation(0.4, words=8), 0.5).messages] == [
        "cider is 0.400 and was 0.500, while the mean reward of the samples rose from 0.500 to 0.610: the reward asks "
        "for something else than cider",
        "the captions grew from 5.0 to 8.0 words: the reward is being gamed; weigh it less, or reward CIDEr-D, which "
        "punishes words too many, and let the end of a caption count",
    ]


@pytest.mark.parametrize("collapsed", [validation(0.24), validation(0.5, ("10 of 10 images have the same caption",))])
def test_a_collapse_sends_back_at_once(collapsed):
    decision = make_watchdog().check_validation(collapsed, 0.5)
    assert decision.is_harmful and decision.rolls_back
    assert "because of this validation: back to the best weights" in decision.messages[-1][1]


def test_a_collapse_is_a_sign_of_harm_however_much_may_be_lost():
    decision = make_watchdog(max_score_drop=0.9).check_validation(validation(0.24), 0.5)
    assert decision.is_harmful and decision.rolls_back
    assert [kind for kind, _ in decision.messages] == ["harm", "rollback"]
    assert "because of this validation" in decision.messages[-1][1]


def test_a_start_that_had_collapsed_is_not_blamed_on_the_steps():
    watchdog = make_watchdog(validation(0.1, ("the same",)))
    assert not watchdog.check_validation(validation(0.1, ("the same",)), 0.1).is_harmful


def test_after_its_returns_it_stops_with_the_best_weights():
    watchdog = make_watchdog(max_rollbacks=2, patience=1, rollback_lr_factor=0.5)
    results = [watchdog.check_validation(validation(0.4), 0.5) for _ in range(3)]
    assert [decision.rolls_back for decision in results] == [True, True, True]
    assert [decision.stops for decision in results] == [False, False, True]
    assert results[-1].messages[-1] == (
        "stop",
        "because of this validation, after 2 rollbacks (training.reward_watchdog.max_rollbacks): stopping; runs/x/best "
        "has the best weights; try a lower training.learning_rate or another reward",
    )
    assert watchdog.lr_factor == 0.25


def test_after_the_last_step_there_is_nothing_to_go_back_for():
    decision = make_watchdog(patience=1).check_validation(validation(0.1), 0.5, is_last=True)
    assert decision.is_harmful and not decision.rolls_back


def test_captions_that_become_alike_are_a_note_and_no_harm():
    watchdog = make_watchdog()
    decision = watchdog.check_validation(validation(0.6, same=4), 0.5)
    assert watchdog.check_validation(validation(0.6, same=4), 0.5).messages == ()  # once is enough
    assert decision.messages == (
        (
            "warning",
            "40% of the captions are identical to another image's, 0% at the start: the model falls back on safe "
            "captions; lower training.learning_rate if they say less",
        ),
    )
    assert not decision.is_harmful


def test_a_window_is_the_mean_of_its_steps():
    watchdog = make_watchdog()
    for reward in (0.2, 0.4, 0.9):
        watchdog.observe({"reward": reward, "length": 6.0, "loss": -1.0})
    means, warnings = watchdog.close_window()
    assert means == pytest.approx({"reward": 0.5, "length": 6.0})
    assert warnings == []
    watchdog.observe({"reward": 0.7, "length": 6.0})
    assert watchdog.close_window()[0]["reward"] == 0.7


def windows(watchdog: RewardWatchdog, *parts: Mapping[str, float]) -> list[list[str]]:
    messages = []
    for part in parts:
        watchdog.observe(part)
        messages.append(watchdog.close_window()[1])
    return messages


def test_what_lasts_for_three_windows_is_said_once_and_again_after_going_back():
    watchdog = make_watchdog(patience=1)
    good, poor = {"reward": 0.5}, {"reward": 0.39}  # 20% below 0.5 is 0.4
    sentence = (
        "the mean reward of the samples fell from 0.500 to 0.390: the steps are too long; lower training.learning_rate"
    )
    assert windows(watchdog, good, poor, poor, good, poor, poor, poor, poor) == [[]] * 6 + [[sentence], []]
    assert watchdog.check_validation(validation(0.1), 0.5).rolls_back
    assert windows(watchdog, poor, poor, poor) == [[], [], [sentence]]


def test_after_going_back_the_steps_before_it_are_forgotten():
    """Neither the mean of the window that was open nor the reward of the last one is that of the weights after."""
    watchdog = make_watchdog(patience=1)
    windows(watchdog, {"reward": 0.5}, {"reward": 0.7})
    watchdog.observe({"reward": 0.9, "length": 20.0})
    assert "while the mean reward of the samples rose" in watchdog.check_validation(validation(0.4), 0.5).messages[0][1]
    again = watchdog.check_validation(validation(0.4), 0.5)  # before any window: who knows what the reward is now
    assert again.messages[0] == (
        "harm",
        "cider is 0.400 and was 0.500: the steps lead away from good captions; lower training.learning_rate",
    )
    watchdog.observe({"reward": 0.5})
    watchdog.observe({"reward": 0.6})
    assert watchdog.close_window()[0] == pytest.approx({"reward": 0.55})


def test_samples_that_grow_are_named():
    watchdog = make_watchdog()
    messages = windows(watchdog, {"length": 9.8}, *[{"length": 17.2}] * 3)
    assert messages[-1][0].startswith("the samples grew from 9.8 to 17.2 words: the reward is being gamed")


def test_a_window_with_steps_that_lack_a_part_has_the_mean_of_the_others():
    watchdog = make_watchdog()
    for parts in ({"reward": 0.2}, {"words": 3.0}, {"reward": 0.4, "length": 7.0}):
        watchdog.observe(parts)
    assert watchdog.close_window()[0] == pytest.approx({"reward": 0.3, "length": 7.0})


RANGES = (
    HealthRange("spread", "the goals are alike ({value:.2f})", "lower the rate", minimum=0.1, is_collapse=True),
    HealthRange("known", "it knows {value:.0%}", "rewards say little", maximum=0.9),
)


def test_parts_outside_of_their_limits_are_named_and_a_collapse_sends_back():
    watchdog = make_watchdog(health_ranges=RANGES)
    good, poor = {"spread": 0.5, "known": 0.6}, {"spread": 0.05, "known": 0.95}
    messages = windows(watchdog, good, poor, poor, poor, poor)
    assert messages == [
        [],
        [],
        [],
        ["the goals are alike (0.05): lower the rate", "it knows 95%: rewards say little"],
        [],
    ]
    decision = watchdog.check_validation(validation(0.6), 0.5)
    assert decision.is_harmful and decision.rolls_back
    assert decision.messages[0] == ("harm", "the goals are alike (0.05): lower the rate")
    assert [kind for kind, _ in decision.messages] == ["harm", "rollback"]  # what it knows is no harm
    assert watchdog.check_validation(validation(0.6), 0.5).messages == ()  # said of the weights that were left
    assert windows(watchdog, good, poor, poor) == [[], [], []]  # and counted anew


def test_what_was_outside_of_its_limits_from_the_start_sends_nowhere():
    watchdog = make_watchdog(health_ranges=RANGES)
    messages = windows(watchdog, *[{"spread": 0.05}] * 3)
    assert messages[-1] == ["the goals are alike (0.05): lower the rate"]
    assert not watchdog.check_validation(validation(0.6), 0.5).is_harmful


EVENTS = st.one_of(
    st.tuples(st.just("step"), st.floats(-1, 1), st.floats(1, 30), st.floats(0, 0.2)),
    st.tuples(st.just("window")),
    st.tuples(st.just("validation"), st.floats(0, 1), st.integers(1, 10)),
)


@given(st.lists(EVENTS, max_size=30), st.integers(0, 30))
def test_what_is_kept_of_it_is_all_it_knows(events, kept_at):
    """A watchdog that is written as JSON and read back anywhere says what an undisturbed one says."""

    def follow(watchdog: RewardWatchdog, event: tuple[Any, ...]) -> object:
        if event[0] == "step":
            return watchdog.observe({"reward": event[1], "length": event[2], "spread": event[3]})
        if event[0] == "validation":
            return watchdog.check_validation(validation(event[1], words=event[2]), 0.8)
        return watchdog.close_window() if watchdog.state_dict()["steps"] else None

    whole, broken = make_watchdog(health_ranges=RANGES), make_watchdog(health_ranges=RANGES)
    for number, event in enumerate(events):
        if number == kept_at:
            content = json.loads(json.dumps(broken.state_dict()))
            broken = make_watchdog(health_ranges=RANGES)
            broken.load_state_dict(content)
        assert follow(whole, event) == follow(broken, event)


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

    def begin_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def forward(self, batch, features, decoder):
        terms = super().forward(batch, features, decoder)
        parts = {**terms.parts, "reward": -terms.parts["words"], "length": torch.tensor(6.0)}
        return Terms(-terms.total if self.epoch >= self.config.spoils_from else terms.total, parts)


@pytest.fixture(autouse=True)
def _spoiler(monkeypatch):
    monkeypatch.setitem(OBJECTIVES.builtin, "spoiler", (SpoilerConfig, Spoiler))


def base_recipe(data: Path) -> dict[str, Any]:
    return {
        "data": {"path": str(data), "captions_per_image": 5},
        "vocabulary": {"min_count": 1},
        "encoder": {"name": "small_cnn", "image_size": 48, "widths": [8, 16]},
        "model": {"name": "sat", "embedding_size": 12, "hidden_size": 24, "attention_size": 8},
        "objective": {"name": "cross_entropy"},
        "training": {"epochs": 12, "batch_size": 10, "learning_rate": 0.01, "trackers": [], "log_every": 2},
        "decoding": {"num_beams": 2, "max_length": 12},
    }


@pytest.fixture(scope="module")
def first_run(tiny_scenes: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of cross-entropy."""
    return train(base_recipe(tiny_scenes), tmp_path_factory.mktemp("first") / "run", quiet=True).folder


@pytest.fixture
def spoiled(tiny_scenes: Path, first_run: Path) -> dict[str, Any]:
    """A recipe whose captions get worse from the first step on."""
    recipe = base_recipe(tiny_scenes)
    recipe["objective"] = {"name": "spoiler"}
    recipe["training"] |= {"start_from": str(first_run / "best"), "epochs": 5, "batch_size": 25, "learning_rate": 0.05}
    recipe["training"]["reward_watchdog"] = {"patience": 1, "max_rollbacks": 2, "min_cider": 0}
    return recipe


def decisions(run: Path) -> list[tuple[int, str]]:
    return [
        (line["epoch"], line["reward_watchdog"])
        for line in log_of(run)
        if line.get("reward_watchdog") not in (None, "warning", "harm")
    ]


def weights(checkpoint: Path) -> bytes:
    return (checkpoint / "model.safetensors").read_bytes()


def test_best_remembers_its_validation(first_run):
    lines = {line["epoch"]: line["validation"] for line in log_of(first_run) if "validation" in line}
    best = max(lines, key=lambda epoch: lines[epoch]["cider"])
    kept = Captioner.from_pretrained(first_run / "best").origin["validation"]
    assert (kept["split"], kept["scores"]) == ("val", lines[best])
    assert "validation" not in Captioner.from_pretrained(first_run / "last").origin


def test_a_run_that_only_gets_worse_ends_with_what_it_began_with(spoiled, first_run, tmp_path, capsys):
    result = train(spoiled, tmp_path / "run")
    output = capsys.readouterr().err
    log = log_of(result.folder)
    remembered = Captioner.from_pretrained(first_run / "best").origin["validation"]["scores"]
    assert log[0]["validation"] == remembered and (log[0]["epoch"], log[0]["step"]) == (0, 0)
    assert decisions(result.folder) == [(1, "rollback"), (2, "rollback"), (3, "stop")]
    assert (result.epochs, result.best, result.best_epoch) == (3, remembered["cider"], 0)
    for name in ("best", "last"):
        assert weights(result.folder / name) == weights(first_run / "best")
    state = json.loads((result.folder / "last" / "training" / "state.json").read_text())
    assert state["optimizer"]["plain"] == {} and state["reward_watchdog"]["lr_factor"] == 0.25
    assert [line["learning_rate"] for line in log if "learning_rate" in line] == [0.05, 0.025, 0.0125]
    sentences = [
        f"  reward watchdog {line['reward_watchdog']}: {line['sentence']}" for line in log if "reward_watchdog" in line
    ]
    assert all(sentence in output.splitlines() for sentence in sentences)
    assert (
        "a reward watchdog supervises this run: after a validation with a sign of harm it rolls back to the best "
        "weights, at most 2 times, then stops (training.reward_watchdog; null turns it off)" in output.splitlines()
    )
    assert [sentence.split(":")[0].strip() for sentence in sentences].count("reward watchdog harm") >= 3
    assert f"stopping; {tmp_path / 'run' / 'best'} has the best weights" in output


def test_weights_that_win_a_score_with_harm_are_not_kept(spoiled, tmp_path, monkeypatch):
    """Captions that grow by half are never the best, whatever they score."""
    spoiled["objective"]["spoils_from"] = 9
    real, calls = Validator.validate, 0

    def longer(self, progress):
        nonlocal calls
        validated = real(self, progress)
        if (calls := calls + 1) == 1:
            return validated
        texts = {image: kept.text + " near the very big old house" * 3 for image, kept in validated.captions.items()}
        return Validation(
            {**validated.scores, "cider": 9.0},
            {image: Caption(text, 0.0, True, ()) for image, text in texts.items()},
            (),
        )

    monkeypatch.setattr(Validator, "validate", longer)
    result = train(spoiled, tmp_path / "run", quiet=True)
    assert result.best_epoch == 0 and result.best < 9


class KilledError(Exception):
    pass


@pytest.mark.parametrize("objective", [{"name": "spoiler", "spoils_from": 1}, {"name": "self_critical", "samples": 2}])
def test_killed_before_and_after_going_back_it_ends_with_the_same_bits(objective, spoiled, tmp_path, monkeypatch):
    """Killed at each save in turn, before it is written, with an average of the weights."""
    spoiled["objective"] = objective
    spoiled["training"] |= {"epochs": 4, "save_every": 1, "ema_decay": 0.5}
    spoiled["training"]["reward_watchdog"] |= {"max_rollbacks": 9, "max_score_drop": 0.0}
    train(copy.deepcopy(spoiled), tmp_path / "whole", quiet=True)
    assert [kind for _, kind in decisions(tmp_path / "whole")].count("rollback") >= 2

    real, saved = loop.Trainer._save, -1

    def save(self):
        nonlocal saved
        if self.progress.step > saved:  # the first time at this step
            saved = self.progress.step
            raise KilledError
        real(self)

    monkeypatch.setattr(loop.Trainer, "_save", save)
    kills = 0
    while True:
        try:
            train(copy.deepcopy(spoiled), tmp_path / "broken", resume=True, quiet=True)
            break
        except KilledError:
            kills += 1
    assert kills == 8
    assert fingerprints(tmp_path / "broken") == fingerprints(tmp_path / "whole")


def test_the_average_goes_back_too(spoiled, first_run, tmp_path):
    spoiled["training"]["ema_decay"] = 0.9
    spoiled["training"]["reward_watchdog"]["max_rollbacks"] = 0
    train(spoiled, tmp_path / "run", quiet=True)
    state = load_file(tmp_path / "run" / "last" / "training" / "optimizer.safetensors")
    kept = load_file(first_run / "best" / "model.safetensors")
    averages = {name.removeprefix("extra.average."): value for name, value in state.items() if "average." in name}
    assert averages and all(torch.equal(value, kept[name]) for name, value in averages.items())


def test_a_start_that_says_nothing_leaves_no_trace(spoiled, tmp_path):
    spoiled["training"]["reward_watchdog"]["min_cider"] = 9.9
    with pytest.raises(CheckpointError, match="it has learned nothing yet"):
        train(spoiled, tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_start_on_other_photos_is_warned_of(spoiled, first_run, tmp_path):
    settings = json.loads((first_run / "best" / "config.json").read_text())
    settings["about"]["validation"]["scores"]["cider"] += 1.0
    copied = tmp_path / "start"
    copied.mkdir()
    (copied / "config.json").write_text(json.dumps(settings))
    (copied / "model.safetensors").write_bytes(weights(first_run / "best"))
    spoiled["training"] |= {"start_from": str(copied), "epochs": 1}
    train(spoiled, tmp_path / "run", quiet=True)
    (first, second, *_) = log_of(tmp_path / "run")
    assert "validation" in first and second["reward_watchdog"] == "warning"
    assert second["sentence"].endswith("photos, features or weights are not those that it was validated with")


def test_a_reward_needs_a_start_and_a_validation(spoiled):
    spoiled["training"]["start_from"] = None
    spoiled["data"]["validation_split"] = None
    with pytest.raises(RecipeError) as caught:
        make_recipe(spoiled)
    assert str(caught.value) == (
        "the recipe has 2 problems:\n"
        "  objective.name=spoiler needs training.start_from: "
        "a reward teaches only a model that says something already; "
        "train with objective.name=cross_entropy first and set training.start_from to that run's best/, or set "
        "training.reward_watchdog=null to begin with fresh weights\n"
        "  objective.name=spoiler and data.validation_split=null contradict each other: the reward watchdog goes "
        "by validations; name a split, or set training.reward_watchdog=null"
    )
    spoiled["training"]["reward_watchdog"] = None
    assert make_recipe(spoiled).training.reward_watchdog is None


def test_wrong_settings_have_their_sentence(spoiled):
    spoiled["training"]["reward_watchdog"] = {"patients": 3}
    with pytest.raises(RecipeError, match=r'training\.reward_watchdog\.patients: no such key; did you mean "patience"'):
        make_recipe(spoiled)


def test_without_a_watchdog_no_validation_is_judged(spoiled, tmp_path):
    spoiled["training"] |= {"reward_watchdog": None, "epochs": 2}
    run = train(spoiled, tmp_path / "run", quiet=True).folder
    assert not [line for line in log_of(run) if "reward_watchdog" in line]
    assert [line["epoch"] for line in log_of(run) if "validation" in line] == [1, 2]


def test_a_finished_run_under_a_watchdog_is_not_trained_for_longer(spoiled, tmp_path):
    """The watchdog let its last validation pass, at which a longer run would have gone back."""
    spoiled["training"]["epochs"] = 1
    run = train(copy.deepcopy(spoiled), tmp_path / "run", quiet=True).folder
    before = fingerprints(run)
    spoiled["training"]["epochs"] = 2
    with pytest.raises(RecipeError, match=r"took no action at the last validation, as it would have in a run of 2"):
        train(copy.deepcopy(spoiled), run, resume=True, quiet=True)
    assert fingerprints(run) == before
    spoiled["training"]["reward_watchdog"] = None
    whole = train(copy.deepcopy(spoiled), tmp_path / "whole", quiet=True).folder
    spoiled["training"]["epochs"] = 1
    longer = train(copy.deepcopy(spoiled), tmp_path / "longer", quiet=True).folder
    spoiled["training"]["epochs"] = 2
    train(spoiled, longer, resume=True, quiet=True)
    assert fingerprints(longer) == fingerprints(whole)

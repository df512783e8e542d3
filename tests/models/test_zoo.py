"""The contract that every decoder keeps.

A model in MODELS is tested as it comes and in combinations of settings with other equations; what it is held to follows
from its capabilities. A new one needs no edit here.
"""

from collections.abc import Iterator
from dataclasses import replace
from types import NoneType
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load, save

from showtell import counter_rng
from showtell.decoding import teacher_forced
from showtell.decoding.policy import policy_logprobs, rollouts
from showtell.models import MODELS, Capability, Decoder, DecoderConfig, spread, take_rows
from showtell.objectives import OBJECTIVES, build_objective
from showtell.objectives.compatibility import contradictions
from showtell.objectives.contract import ObjectiveConfig
from showtell.types import Batch, Features, Regions, map_tensors

VOCABULARY, FEATURES = 11, 6


# Combinations of settings whose equations differ from those of a model as it comes.
COMBINATIONS: dict[str, dict[str, Any]] = {
    "hacap worker": {"name": "hacap", "goals": False, "highway": False, "layers": 2},
    "nic rnn": {"name": "nic", "cell": "rnn", "layers": 2},
    "nic lstm input": {"name": "nic", "cell": "lstm", "image": "input", "layers": 3},
    "sat hard": {"name": "sat", "attention": "hard", "init_layers": 2, "project_features": 8},
    "sat tutorial": {
        "name": "sat", "attention_activation": "relu", "gate_per": "channel", "init_activation": "none",
        "readout": "hidden",
    },
    "stack of one": {"name": "stack", "fine_stages": 0},
    "transformer luo": {
        "name": "transformer", "heads": 2, "layer_norm": "unbiased", "normalise_features": True,
        "feature_batch_norm": "before_and_after", "box_features": "normalised", "input_dropout": 0.5,
    },
    "updown elbaz": {"name": "updown", "attention_activation": "relu", "weight_norm": True, "multi_label": True},
    "updown luo": {
        "name": "updown", "project_features": 8, "attention_bias": True, "mean_projection": "own",
        "embedding_relu": True, "feature_batch_norm": "before_and_after", "normalise_features": True,
        "box_features": "appended", "input_dropout": 0.5,
    },
}  # fmt: skip
ZOO: dict[str, dict[str, Any]] = {name: {"name": name} for name in sorted(MODELS)} | COMBINATIONS


def single_changes(name: str) -> Iterator[dict[str, Any]]:
    """The settings of a model with each other value of each of its choices."""
    for key, field in MODELS[name][0].model_fields.items():
        values = (True, False) if field.annotation is bool else get_args(field.annotation)
        for value in values if key != "name" and NoneType not in values else ():
            if value != field.default:
                yield {"name": name, key: value}


def config_of(settings: dict[str, Any]) -> DecoderConfig:
    """Settings with sizes of 8 and at most 2 layers, through which rounding does not grow beyond the tolerances."""
    config = MODELS[settings["name"]][0]
    small = {field: 8 for field in config.model_fields if field.endswith("_size")}
    small |= {key: 2 for key, field in config.model_fields.items() if key.endswith("_layers") and field.default > 2}
    return config.model_validate({**small, **settings})


def build(config: DecoderConfig) -> Decoder:
    torch.manual_seed(0)
    return MODELS[config.name][1](config, feature_size=FEATURES, vocabulary_size=VOCABULARY)


def make(kind: str) -> Decoder:
    return build(config_of(ZOO[kind]))


def features(images: int = 3, regions: int = 5) -> Features:
    generator = torch.Generator().manual_seed(2)
    vectors = torch.randn(images, regions, FEATURES, generator=generator)
    corners = 50 * torch.rand(images, regions, 4, generator=generator)
    corners[..., 2:] += corners[..., :2]
    windows = torch.tensor([0.0, 0.0, 120.0, 100.0]).expand(images, 4)
    return Features(vectors, torch.ones(images, regions, dtype=torch.bool), Regions(corners, windows=windows))


def captions(images: int = 3, rows: int = 2, words: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    made = torch.randint(4, VOCABULARY, (images, rows, words), generator=generator)
    made[..., 0], made[..., -1] = 1, 2
    return made


everyone = pytest.mark.parametrize("name", ZOO)


@everyone
def test_shapes_and_numbers_saved_and_loaded(name):
    decoder, other = make(name).eval(), make(name).eval()
    forced = teacher_forced(decoder, features(), captions())
    assert forced.logits.shape == (3, 2, 6, VOCABULARY)
    assert bool(torch.isfinite(forced.logits).all())
    for parameter in other.parameters():
        torch.nn.init.constant_(parameter, 0.3)
    other.load_state_dict(load(save(decoder.state_dict())))
    assert torch.equal(teacher_forced(other, features(), captions()).logits, forced.logits)
    state = decoder.start(features())
    map_tensors(state.rows, lambda x: x if x.shape[:2] == (3, 1) else pytest.fail(f"rows of shape {tuple(x.shape)}"))
    map_tensors(state.image, lambda x: x if x.shape[0] == 3 else pytest.fail(f"image half {tuple(x.shape)}"))


def objective_config(name: str, model: DecoderConfig) -> ObjectiveConfig:
    """An objective as it comes, with the terms on that train layers of the model."""
    config, objective = OBJECTIVES[name]
    trained = objective.setting_trains.items()
    return config.model_validate({setting: 1.0 for capability, setting in trained if capability in model.capabilities})


def objectives_of(model: DecoderConfig) -> list[str]:
    """The objectives that can train a model: it has what they need, and nothing that they refuse."""
    return [name for name in sorted(OBJECTIVES) if not contradictions(objective_config(name, model), model)]


def without_gradient(decoder: Decoder, objective: str) -> tuple[str, ...]:
    """How the names of the weights begin that an objective has no gradient for, by the capabilities of the model."""
    kind, able = OBJECTIVES[objective][1], decoder.capabilities
    if not kind.needs.isdisjoint({Capability.GOALS, Capability.MANAGER}):
        return ()
    if Capability.GOALS in able:  # the words have none for what makes the goals
        return ("discriminator.", "manager.", "to_goal.")
    if not kind.optimises_reward:
        return ()
    # Stages before the last, or the first, have no reward; the most likely region is attended to, which no small change
    # moves.
    silent = [f"outputs.{stage}." for stage in range(1 if Capability.STAGES in kind.needs else decoder.stages - 1)]
    by_capability = {Capability.SAMPLED_ATTENTION: "attention.", Capability.LABELS: "labels."}
    return (*silent, *(prefix for capability, prefix in by_capability.items() if capability in able))


def weights_without_gradient(model: DecoderConfig, objective: str) -> set[str]:
    """The names of the weights whose gradient is absent though an objective should have one, or the other way round."""
    decoder = build(model)
    config = objective_config(objective, model)
    loss = build_objective(config, feature_size=FEATURES, vocabulary_size=VOCABULARY)
    batch = Batch(
        ("a", "b", "c"), torch.zeros(3, 3, 2, 2, dtype=torch.uint8), captions(), torch.ones(3, 2, dtype=torch.bool)
    )
    loss.prepare(dict(zip(batch.image_ids, batch.words.tolist(), strict=True)), 6)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):
        loss(batch, features(), decoder).total.backward()
    silent = without_gradient(decoder, objective)
    return {
        name
        for name, weight in decoder.named_parameters()
        if (weight.grad is None or not float(weight.grad.abs().sum()) > 0) != name.startswith(silent)
    }


@everyone
def test_every_objective_trains_all_weights_and_given_words_are_read_as_by_steps(name):
    model = config_of(ZOO[name])
    names = objectives_of(model)
    assert names and {own: wrong for own in names if (wrong := weights_without_gradient(model, own))} == {}
    assert_walk_is_single_steps(build(model))


@pytest.mark.parametrize("name", sorted(MODELS))
def test_every_choice_trains_all_its_weights_and_reads_given_words_as_steps_do(name):
    for settings in single_changes(name):
        model = config_of(settings)
        own = next(one for one in ("cross_entropy", "hard_attention") if one in objectives_of(model))
        assert (settings, weights_without_gradient(model, own)) == (settings, set())
        assert_walk_is_single_steps(build(model))


@everyone
def test_neither_other_rows_nor_other_images_nor_padded_regions_change_anything(name):
    decoder, seen, words = make(name).eval(), features(), captions(rows=3)
    assert seen.regions is not None
    batched = teacher_forced(decoder, seen, words).logits
    padded = Features(
        torch.cat([seen.vectors, torch.full((3, 2, FEATURES), 7.0)], 1),
        torch.cat([seen.is_region, torch.zeros(3, 2, dtype=torch.bool)], 1),
        replace(seen.regions, boxes=torch.cat([seen.regions.boxes, torch.full((3, 2, 4), 7.0)], 1)),
    )
    cases = [(padded, words, batched)]
    cases += [(seen, words[:, [row]], batched[:, [row]]) for row in range(3)]
    cases += [(map_tensors(seen, lambda x, own=own: x[[own]]), words[[own]], batched[[own]]) for own in range(3)]
    for own_features, own_words, expected in cases:
        logits = teacher_forced(decoder, own_features, own_words).logits
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def assert_walk_is_single_steps(decoder: Decoder) -> None:
    """Teacher forcing reads words in advance, reads out all steps at once and gathers gradients; a loop does not."""
    decoder, image_features, words = decoder.eval().double(), features(), captions()
    vectors = image_features.vectors.double().requires_grad_()
    values = [vectors, *decoder.parameters()]
    image_features = replace(image_features, vectors=vectors)
    forced = teacher_forced(decoder, image_features, words).logits
    state, readouts = spread(decoder.start(image_features), 2), []
    for time in range(words.shape[-1]):
        output, state = decoder.step(words[..., time], state)
        readouts.append(decoder.readout(output))
    torch.testing.assert_close(forced, torch.stack(readouts, 2))
    gradients, expected = (
        torch.autograd.grad(logits.log_softmax(-1).square().sum(), values, allow_unused=True)
        for logits in (forced, torch.stack(readouts, 2))
    )
    for one, other in zip(gradients, expected, strict=True):
        torch.testing.assert_close(one, other)


@everyone
def test_rows_can_be_taken_in_any_order(name):
    decoder, words = make(name).eval(), captions(rows=3)
    _, state = decoder.step(words[..., 0], spread(decoder.start(features()), 3))
    _, state = decoder.step(words[..., 1], state)
    parents = torch.tensor([[2, 0, 0], [1, 1, 2], [0, 2, 1]])
    following = torch.full((3, 3), 5)
    after, _ = decoder.step(following, take_rows(state, parents))
    before, _ = decoder.step(following, state)
    taken = decoder.readout(before).gather(1, parents.unsqueeze(-1).expand(-1, -1, VOCABULARY))
    torch.testing.assert_close(decoder.readout(after), taken)


@everyone
def test_gradients_that_a_walk_of_samples_kept_are_those_of_feeding_them_again(name):
    decoder, image_features = make(name).eval().double(), features()
    image_features = replace(image_features, vectors=image_features.vectors.double())
    rollout = rollouts(decoder, image_features, 4, 3)
    begin = torch.ones_like(rollout.samples.words[..., :1])
    again = teacher_forced(decoder, image_features, torch.cat([begin, rollout.samples.words], -1)).outputs
    one, other = (policy_logprobs(decoder, outputs, rollout.samples) for outputs in (rollout.outputs, again))
    torch.testing.assert_close(one, other)
    weights, parameters = torch.randn(one.shape[:2]).double(), list(decoder.parameters())
    kept, expected = (
        torch.autograd.grad((weights * logprobs.sum(-1)).sum(), parameters, allow_unused=True)
        for logprobs in (one, other)
    )
    for ours, theirs in zip(kept, expected, strict=True):
        torch.testing.assert_close(ours, theirs)

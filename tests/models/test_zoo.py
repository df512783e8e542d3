"""The contract that every decoder keeps. A new model is found by its name in MODELS; nothing here needs an edit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load, save

from showtell import counter_rng
from showtell.decoding import beam, greedy, teacher_forced
from showtell.decoding.policy import policy_logprobs, rollouts
from showtell.models import MODELS, Decoder, build_decoder, spread, take_rows
from showtell.objectives import OBJECTIVES, build_objective
from showtell.types import Batch, Features, map_tensors, unstack

VOCABULARY, FEATURES = 11, 6

# Every model as it comes, and what else it can be: other equations, not other numbers.
ZOO: dict[str, dict[str, Any]] = {
    **{name: {"name": name} for name in sorted(MODELS)},
    "hacap worker": {"name": "hacap", "goals": False, "highway": False, "layers": 2},
    "nic gru_torch": {"name": "nic", "cell": "gru_torch"},
    "nic lstm": {"name": "nic", "cell": "lstm"},
    "nic lstm input": {"name": "nic", "cell": "lstm", "image": "input", "layers": 3},
    "sat hard": {"name": "sat", "attention": "hard"},
    "sat hidden": {"name": "sat", "gate": False, "readout": "hidden"},
    "sat plain": {"name": "sat", "gate": False, "readout_tanh": False, "init_layers": 2, "project_features": 8},
    "stack independent": {"name": "stack", "attention": "independent", "project_features": 8},
    "stack of two": {"name": "stack", "fine_stages": 1},
}


def make(kind: str) -> Decoder:
    torch.manual_seed(0)
    config = MODELS[ZOO[kind]["name"]][0]
    small = {field: 8 for field in config.model_fields if field.endswith("_size")}
    return build_decoder(
        config.model_validate({**small, **ZOO[kind]}), feature_size=FEATURES, vocabulary_size=VOCABULARY
    )


def features(images: int = 3, regions: int = 5) -> Features:
    generator = torch.Generator().manual_seed(2)
    return Features(
        torch.randn(images, regions, FEATURES, generator=generator), torch.ones(images, regions, dtype=torch.bool)
    )


def captions(images: int = 3, rows: int = 2, words: int = 6) -> torch.Tensor:
    generator = torch.Generator().manual_seed(3)
    made = torch.randint(4, VOCABULARY, (images, rows, words), generator=generator)
    made[..., 0], made[..., -1] = 1, 2
    return made


everyone = pytest.mark.parametrize("name", ZOO)


@everyone
def test_shapes_and_numbers(name):
    decoder = make(name).eval()
    forced = teacher_forced(decoder, features(), captions())
    assert forced.logits.shape == (3, 2, 6, VOCABULARY)
    assert bool(torch.isfinite(forced.logits).all())
    state = decoder.start(features())
    map_tensors(state.rows, lambda x: x if x.shape[:2] == (3, 1) else pytest.fail(f"rows of shape {tuple(x.shape)}"))
    map_tensors(state.image, lambda x: x if x.shape[0] == 3 else pytest.fail(f"image half {tuple(x.shape)}"))


def objectives_of(kind: str) -> list[str]:
    """Hard attention has an objective of its own for the likelihood; whatever samples no places has the other.
    One with several stages has one that compares those, and one with a manager and a discriminator two that teach them.
    """
    is_hard, has_goals = ZOO[kind].get("attention") == "hard", ZOO[kind] == {"name": "hacap"}
    without = {"cross_entropy" if is_hard else "hard_attention"}
    if ZOO[kind]["name"] != "stack":
        without.add("coarse_to_fine")
    if not has_goals:
        without |= {"adversarial", "adversarial_pretraining"}
    return [name for name in sorted(OBJECTIVES) if name not in without]


def unmoved(kind: str, objective: str, decoder: Decoder) -> tuple[str, ...]:
    """How the names of weights begin that an objective has no gradient for."""
    if hasattr(decoder, "manager") and not objective.startswith("adversarial"):
        return ("discriminator.", "manager.", "to_goal.")
    if objective not in ("self_critical", "coarse_to_fine"):
        return ()
    if ZOO[kind].get("attention") == "hard":  # the likeliest place is looked at, which no small change moves
        return ("attention.",)
    # The last stage alone is rewarded, or all but the first.
    silent = 1 if objective == "coarse_to_fine" else decoder.stages - 1
    return tuple(f"outputs.{stage}." for stage in range(silent))


@pytest.mark.parametrize(("name", "objective"), [(kind, own) for kind in ZOO for own in objectives_of(kind)])
def test_every_weight_gets_a_gradient(name, objective):
    decoder = make(name)
    config = OBJECTIVES[objective][0]()
    loss = build_objective(config, feature_size=FEATURES, vocabulary_size=VOCABULARY)
    batch = Batch(
        ("a", "b", "c"), torch.zeros(3, 3, 2, 2, dtype=torch.uint8), captions(), torch.ones(3, 2, dtype=torch.bool)
    )
    loss.prepare(dict(zip(batch.image_ids, batch.words.tolist(), strict=True)), 6)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):
        loss(batch, features(), decoder).total.backward()
    for parameter_name, parameter in decoder.named_parameters():
        if parameter_name.startswith(unmoved(name, objective, decoder)):
            assert parameter.grad is None, parameter_name
            continue
        assert parameter.grad is not None, parameter_name
        assert float(parameter.grad.abs().sum()) > 0, parameter_name


@everyone
def test_saved_and_loaded_it_says_the_same(name):
    decoder = make(name).eval()
    other = make(name).eval()
    for parameter in other.parameters():
        torch.nn.init.constant_(parameter, 0.3)
    other.load_state_dict(load(save(decoder.state_dict())))
    first, second = (teacher_forced(one, features(), captions()).logits for one in (decoder, other))
    assert torch.equal(first, second)


@everyone
def test_rows_do_not_know_of_each_other(name):
    decoder = make(name).eval()
    words = captions(rows=3)
    together = teacher_forced(decoder, features(), words).logits
    for row in range(3):
        alone = teacher_forced(decoder, features(), words[:, [row]]).logits
        torch.testing.assert_close(together[:, [row]], alone, atol=1e-5, rtol=1e-5)


@everyone
def test_images_do_not_know_of_each_other(name):
    decoder, seen, words = make(name).eval(), features(), captions()
    together = teacher_forced(decoder, seen, words).logits
    for image in range(3):
        alone = Features(seen.vectors[[image]], seen.is_region[[image]])
        torch.testing.assert_close(
            together[[image]], teacher_forced(decoder, alone, words[[image]]).logits, atol=1e-5, rtol=1e-5
        )


@everyone
def test_padding_regions_changes_nothing(name):
    decoder, seen, words = make(name).eval(), features(), captions()
    padding = torch.full((3, 2, FEATURES), 7.0)
    padded = Features(
        torch.cat([seen.vectors, padding], 1), torch.cat([seen.is_region, torch.zeros(3, 2, dtype=torch.bool)], 1)
    )
    torch.testing.assert_close(
        teacher_forced(decoder, seen, words).logits, teacher_forced(decoder, padded, words).logits, atol=1e-5, rtol=1e-5
    )


@everyone
def test_readout_of_a_step_is_that_of_the_stack(name):
    decoder, words = make(name).eval(), captions()
    forced = teacher_forced(decoder, features(), words)
    state = spread(decoder.start(features()), 2)
    for time in range(words.shape[-1]):
        output, state = decoder.step(words[..., time], state)
        torch.testing.assert_close(decoder.readout(output), forced.logits[:, :, time], atol=1e-5, rtol=1e-5)


@everyone
def test_words_read_in_advance_are_words_read_at_their_step(name):
    decoder, words = make(name).eval(), captions()
    said = unstack(decoder.embed(words.movedim(-1, 0)))
    ours = theirs = spread(decoder.start(features()), 2)
    for time in range(words.shape[-1]):
        one, ours = decoder.step(said[time], ours)
        other, theirs = decoder.step(words[..., time], theirs)
        torch.testing.assert_close(decoder.readout(one), decoder.readout(other))


@everyone
def test_gradients_of_the_walk_are_those_of_single_steps(name):
    """Teacher forcing gathers gradients over time; a plain loop over steps leaves them to autograd."""
    decoder, seen, words = make(name).eval().double(), features(), captions()
    vectors = seen.vectors.double().requires_grad_()
    values = [vectors, *decoder.parameters()]
    forced = teacher_forced(decoder, Features(vectors, seen.is_region), words).logits
    state, said = spread(decoder.start(Features(vectors, seen.is_region)), 2), []
    for time in range(words.shape[-1]):
        output, state = decoder.step(words[..., time], state)
        said.append(decoder.readout(output))
    found, expected = (
        torch.autograd.grad(logits.log_softmax(-1).square().sum(), values, allow_unused=True)
        for logits in (forced, torch.stack(said, 2))
    )
    for one, other in zip(found, expected, strict=True):
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
def test_a_beam_of_one_is_greedy(name):
    decoder = make(name).eval()
    one, other = beam(decoder, features(), 8, 1), greedy(decoder, features(), 8)
    assert torch.equal(one.words, other.words)


@everyone
def test_gradients_that_a_walk_of_samples_kept_are_those_of_feeding_them_again(name):
    decoder, seen = make(name).eval().double(), features()
    seen = Features(seen.vectors.double(), seen.is_region)
    found = rollouts(decoder, seen, 4, 3)
    begin = torch.ones_like(found.samples.words[..., :1])
    again = teacher_forced(decoder, seen, torch.cat([begin, found.samples.words], -1)).outputs
    one, other = (policy_logprobs(decoder, outputs, found.samples) for outputs in (found.outputs, again))
    torch.testing.assert_close(one, other)
    weights, parameters = torch.randn(one.shape[:2]).double(), list(decoder.parameters())
    kept, expected = (
        torch.autograd.grad((weights * logprobs.sum(-1)).sum(), parameters, allow_unused=True)
        for logprobs in (one, other)
    )
    for ours, theirs in zip(kept, expected, strict=True):
        torch.testing.assert_close(ours, theirs)

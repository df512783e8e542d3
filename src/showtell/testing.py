"""The contract of a decoder as tests: that of showtell's own models, for those of a package of one's own.

    import pytest
    from showtell.testing import DECODER_CHECKS, shrink

    @pytest.mark.parametrize("check", DECODER_CHECKS)
    def test_contract(check):
        check(shrink(MyConfig), MyDecoder)

Each check builds the decoder by settings and raises an AssertionError that says what does not hold. What a decoder is
held to follows from its capabilities.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

import torch
from safetensors.torch import load, save
from torch import Tensor

from showtell import counter_rng
from showtell.decoding import teacher_forced
from showtell.decoding.policy import policy_logprobs, rollouts
from showtell.models import Capability, Decoder, DecoderConfig, spread, take_rows
from showtell.objectives import OBJECTIVES, build_objective
from showtell.objectives.compatibility import contradictions
from showtell.objectives.contract import ObjectiveConfig
from showtell.types import Batch, Features, Regions, map_tensors, tensors_of

__all__ = ["DECODER_CHECKS", "check_gradients", "check_steps", "shrink"]

VOCABULARY, FEATURES = 11, 6  # V and D of the decoders that are built
BuildDecoder = Callable[..., Decoder]  # the class of a decoder


def shrink(config: type[DecoderConfig], **settings: Any) -> DecoderConfig:
    """Settings with sizes of 8 and at most 2 layers, through which rounding does not grow beyond the tolerances."""
    small: dict[str, Any] = {field: 8 for field in config.model_fields if field.endswith("_size")}
    small |= {key: 2 for key, field in config.model_fields.items() if key.endswith("_layers") and field.default > 2}
    return config.model_validate({**small, **settings})


def build(config: DecoderConfig, decoder: BuildDecoder) -> Decoder:
    torch.manual_seed(0)
    return decoder(config, feature_size=FEATURES, vocabulary_size=VOCABULARY)


def features(images: int = 3, regions: int = 5) -> Features:
    generator = torch.Generator().manual_seed(2)
    vectors = torch.randn(images, regions, FEATURES, generator=generator)
    corners = 50 * torch.rand(images, regions, 4, generator=generator)
    corners[..., 2:] += corners[..., :2]
    windows = torch.tensor([0.0, 0.0, 120.0, 100.0]).expand(images, 4)
    return Features(vectors, torch.ones(images, regions, dtype=torch.bool), Regions(corners, windows=windows))


def captions(images: int = 3, rows: int = 2, words: int = 6) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    made = torch.randint(4, VOCABULARY, (images, rows, words), generator=generator)
    made[..., 0], made[..., -1] = 1, 2
    return made


def check_shapes(config: DecoderConfig, decoder: BuildDecoder) -> None:
    """Logits and both halves of the state have their shapes, and weights that were saved and loaded give the same."""
    model, other = build(config, decoder).eval(), build(config, decoder).eval()
    forced = teacher_forced(model, features(), captions())
    assert forced.logits.shape == (3, 2, 6, VOCABULARY), f"logits are {tuple(forced.logits.shape)}"
    assert bool(torch.isfinite(forced.logits).all()), "a logit is no number"
    for parameter in other.parameters():
        torch.nn.init.constant_(parameter, 0.3)
    other.load_state_dict(load(save(model.state_dict())))
    assert torch.equal(teacher_forced(other, features(), captions()).logits, forced.logits), "weights were lost"
    state = model.start(features())
    for x in tensors_of(state.rows):
        assert x.shape[:2] == (3, 1), f"rows of the state have a tensor {tuple(x.shape)}; it should be (B, 1, ...)"
    for x in tensors_of(state.image):
        assert len(x) == 3, f"the image half of the state has a tensor {tuple(x.shape)}; it should be (B, ...)"


@torch.no_grad()
def check_attention(config: DecoderConfig, decoder: BuildDecoder) -> None:
    """Attention is over the regions, none of it over padding; a sentinel may have the rest. Diagnostics are (.., K)."""
    model, given = build(config, decoder).eval(), features()
    given.is_region[1, 3:] = False
    outputs = model.forced_outputs(given, captions())
    has = Capability.ATTENTION in model.capabilities
    assert (outputs.attention is not None) == has, f"the settings {'' if has else 'do not '}say that it attends"
    if outputs.attention is not None:
        assert outputs.attention.shape == (3, 2, 6, 5), f"attention is {tuple(outputs.attention.shape)}"
        assert float(outputs.attention.min()) >= 0 and float(outputs.attention.sum(-1).max()) <= 1 + 1e-5
        assert float(outputs.attention[1, ..., 3:].sum()) == 0, "padding is attended to; mask it with is_region"
    for name, values in outputs.diagnostics().items():
        assert values.dim() == 4 and values.shape[:3] == (3, 2, 6), f"{name} is {tuple(values.shape)}, not (B, N, T, K)"


def objective_config(name: str, model: DecoderConfig) -> ObjectiveConfig:
    """An objective as it comes, with the terms on that train layers of the model."""
    config, objective = OBJECTIVES[name]
    trained = objective.setting_trains.items()
    return config.model_validate({setting: 1.0 for capability, setting in trained if capability in model.capabilities})


def objectives_of(model: DecoderConfig) -> list[str]:
    """The objectives that can train a model: it has what they need, and nothing that they refuse."""
    return [name for name in sorted(OBJECTIVES) if not contradictions(objective_config(name, model), model)]


def _without_gradient(decoder: Decoder, objective: str) -> tuple[str, ...]:
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


def _wrong_gradients(model: DecoderConfig, kind: BuildDecoder, objective: str) -> set[str]:
    """The names of the weights whose gradient is absent though an objective should have one, or the other way round."""
    decoder = build(model, kind)
    config = objective_config(objective, model)
    loss = build_objective(config, feature_size=FEATURES, vocabulary_size=VOCABULARY)
    batch = Batch(
        ("a", "b", "c"), torch.zeros(3, 3, 2, 2, dtype=torch.uint8), captions(), torch.ones(3, 2, dtype=torch.bool)
    )
    loss.prepare(dict(zip(batch.image_ids, batch.words.tolist(), strict=True)), 6)
    with counter_rng.use(counter_rng.CounterRNG(0, 0, batch.image_ids)):
        torch.autograd.backward(loss(batch, features(), decoder).total)
    silent = _without_gradient(decoder, objective)
    return {
        name
        for name, weight in decoder.named_parameters()
        if (weight.grad is None or not float(weight.grad.abs().sum()) > 0) != name.startswith(silent)
    }


def check_gradients(config: DecoderConfig, decoder: BuildDecoder, objectives: Collection[str] = OBJECTIVES) -> None:
    """Every objective (default: all) that fits the model trains all weights that it should."""
    names = [name for name in objectives_of(config) if name in objectives]
    assert names, "no objective can train it"
    for name in names:
        wrong = _wrong_gradients(config, decoder, name)
        assert not wrong, f"{name} trains these weights not, or though it should not: {', '.join(sorted(wrong))}"


def check_independence(config: DecoderConfig, decoder: BuildDecoder) -> None:
    """Neither other rows nor other images nor padded regions change a row."""
    model, seen, words = build(config, decoder).eval(), features(), captions(rows=3)
    assert seen.regions is not None
    batched = teacher_forced(model, seen, words).logits
    padded = Features(
        torch.cat([seen.vectors, torch.full((3, 2, FEATURES), 7.0)], 1),
        torch.cat([seen.is_region, torch.zeros(3, 2, dtype=torch.bool)], 1),
        replace(seen.regions, boxes=torch.cat([seen.regions.boxes, torch.full((3, 2, 4), 7.0)], 1)),
    )
    cases = [(padded, words, batched)]
    cases += [(seen, words[:, [row]], batched[:, [row]]) for row in range(3)]
    cases += [(map_tensors(seen, lambda x, own=own: x[[own]]), words[[own]], batched[[own]]) for own in range(3)]
    for own_features, own_words, expected in cases:
        logits = teacher_forced(model, own_features, own_words).logits
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def check_steps(config: DecoderConfig, decoder: BuildDecoder) -> None:
    """Teacher forcing reads words in advance, reads out all steps at once and gathers gradients; a loop does not."""
    model, image_features, words = build(config, decoder).eval().double(), features(), captions()
    vectors = image_features.vectors.double().requires_grad_()
    values = [vectors, *model.parameters()]
    image_features = replace(image_features, vectors=vectors)
    forced = teacher_forced(model, image_features, words).logits
    state, readouts = spread(model.start(image_features), 2), []
    for time in range(words.shape[-1]):
        output, state = model.step(words[..., time], state)
        readouts.append(model.readout(output))
    torch.testing.assert_close(forced, torch.stack(readouts, 2))
    gradients, expected = (
        torch.autograd.grad(logits.log_softmax(-1).square().sum(), values, allow_unused=True)
        for logits in (forced, torch.stack(readouts, 2))
    )
    torch.testing.assert_close(gradients, expected)


def check_rows(config: DecoderConfig, decoder: BuildDecoder) -> None:
    """Rows can be taken in any order, as a beam search does."""
    model, words = build(config, decoder).eval(), captions(rows=3)
    _, state = model.step(words[..., 0], spread(model.start(features()), 3))
    _, state = model.step(words[..., 1], state)
    parents = torch.tensor([[2, 0, 0], [1, 1, 2], [0, 2, 1]])
    following = torch.full((3, 3), 5)
    after, _ = model.step(following, take_rows(state, parents))
    before, _ = model.step(following, state)
    taken = model.readout(before).gather(1, parents.unsqueeze(-1).expand(-1, -1, VOCABULARY))
    torch.testing.assert_close(model.readout(after), taken)


def check_samples(config: DecoderConfig, decoder: BuildDecoder) -> None:
    """The gradients that a walk of samples kept are those of feeding the samples again."""
    model, image_features = build(config, decoder).eval().double(), features()
    image_features = replace(image_features, vectors=image_features.vectors.double())
    rollout = rollouts(model, image_features, 4, 3)
    begin = torch.ones_like(rollout.samples.words[..., :1])
    again = teacher_forced(model, image_features, torch.cat([begin, rollout.samples.words], -1)).outputs
    assert rollout.outputs is not None
    one, other = (policy_logprobs(model, outputs, rollout.samples) for outputs in (rollout.outputs, again))
    torch.testing.assert_close(one, other)
    weights, parameters = torch.randn(one.shape[:2]).double(), list(model.parameters())
    kept, expected = (
        torch.autograd.grad((weights * logprobs.sum(-1)).sum(), parameters, allow_unused=True)
        for logprobs in (one, other)
    )
    torch.testing.assert_close(kept, expected)


DECODER_CHECKS = (
    check_shapes, check_attention, check_gradients, check_steps, check_independence, check_rows, check_samples,
)  # fmt: skip

"""Norms of gradients at the states: by hand for a linear network, by finite differences for the real ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

from showtell.decoding.likelihood import plain_log_likelihood
from showtell.decoding.rollout import teacher_forced
from showtell.models.capabilities import DecoderConfig
from showtell.models.contract import Decoder, Output, State
from showtell.models.hacap import HacapConfig
from showtell.models.nic import NicConfig
from showtell.models.stack import StackConfig
from showtell.training.gradient_norms import by_steps_back, gradient_norms, last_words
from showtell.types import Features
from tests.toys import random_decoder

# begin 1, end 2, pad 0: captions of 4 targets and of 2
WORDS = torch.tensor([[[1, 5, 6, 7, 2], [1, 4, 2, 0, 0]]])


@dataclass(frozen=True)
class LinearRows:
    hidden: Tensor


@dataclass(frozen=True, kw_only=True)
class LinearOutput(Output):
    hidden: Tensor


class LinearDecoder(Decoder):
    """h_t = W h_{t-1} + e(y_{t-1}), whose logits are h_t: its Jacobian is W."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.config = DecoderConfig(name="linear")
        self.matrix = matrix
        self.embedding = torch.randn(8, 8, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def start(self, features: Features) -> State:
        return State(None, LinearRows(features.vectors[:, :1]))

    def step(self, words: Any, state: State) -> tuple[LinearOutput, State]:
        hidden = state.rows.hidden @ self.matrix.T + self.embedding[words]
        return LinearOutput(hidden=hidden), State(None, LinearRows(hidden))

    def readout(self, output: Output, stage: int = -1) -> Tensor:
        assert isinstance(output, LinearOutput)
        return output.hidden


def features(size: int = 8) -> Features:
    vectors = torch.randn(1, 3, size, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    return Features(vectors, torch.ones(1, 3, dtype=torch.bool))


def test_of_a_linear_network_they_are_powers_of_its_jacobian():
    matrix = 0.3 * torch.randn(8, 8, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    decoder = LinearDecoder(matrix)
    targets = WORDS[..., 1:]
    probabilities = teacher_forced(decoder, features(), WORDS[..., :-1]).logits.softmax(-1)
    one_hot = torch.nn.functional.one_hot(targets, 8).double()
    error = probabilities - one_hot  # dL_t / d logits_t
    last = gradient_norms(decoder, features(), WORDS, weights=last_words(targets))["hidden"]
    whole = gradient_norms(decoder, features(), WORDS)["hidden"]
    for caption, length in enumerate((4, 2)):
        powers = [torch.linalg.matrix_power(matrix.T, k) for k in range(length)]
        for t in range(4):
            if t >= length:
                assert last[0, caption, t] == whole[0, caption, t] == 0
                continue
            alone = powers[length - 1 - t] @ error[0, caption, length - 1]
            all_later = sum(powers[s - t] @ error[0, caption, s] for s in range(t, length))
            torch.testing.assert_close(last[0, caption, t], alone.norm())
            torch.testing.assert_close(whole[0, caption, t], all_later.norm())


def test_a_jacobian_of_a_half_halves_them_at_each_step_back():
    decoder = LinearDecoder(0.5 * torch.eye(8, dtype=torch.float64))
    targets = WORDS[:, :1, 1:]
    norms = gradient_norms(decoder, features(), WORDS[:, :1], weights=last_words(targets))["hidden"]
    profile = by_steps_back(norms, targets)
    torch.testing.assert_close(profile / profile[0], torch.tensor([1, 0.5, 0.25, 0.125], dtype=torch.float64))


def test_steps_back_are_counted_from_each_captions_own_end():
    norms = torch.tensor([[[1.0, 2, 3, 4], [7, 9, 99, 99]]])
    torch.testing.assert_close(by_steps_back(norms, WORDS[..., 1:]), torch.tensor([6.5, 5, 2, 1]))
    assert last_words(WORDS[..., 1:]).tolist() == [[[False, False, False, True], [False, True, False, False]]]


CASES = {
    "gru": (NicConfig(cell="gru", layers=2, embedding_size=3, hidden_size=4), "cells.0", "hidden.0"),
    "lstm": (NicConfig(cell="lstm", layers=3, image="input", embedding_size=3, hidden_size=4), "cells.1", "hidden.1"),
    "stack": (StackConfig(embedding_size=3, hidden_size=4, attention_size=3), "fine.0.lstm", "hidden.1"),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("stages", ["all", "last"])
def test_they_are_the_finite_differences_at_the_hidden_vector(case, stages):
    config, module, name = CASES[case]
    decoder = random_decoder(config, seed=0, std=0.5, feature_size=6, vocabulary_size=8)
    decoder.requires_grad_(False)  # a frozen model is measured as any other
    weights = [1.0] * decoder.stages if stages == "all" else [0.0] * (decoder.stages - 1) + [1.0]
    targets = WORDS[..., 1:]
    norms = gradient_norms(
        decoder, features(6), WORDS, weights=last_words(targets), stage_weights=None if stages == "all" else weights
    )[name]

    def loss(caption: int, at: int, unit: int, delta: float) -> float:
        """The loss of a caption's last word with a unit of the hidden vector after step `at` raised."""
        calls = iter(range(-1 if config.name == "nic" and config.image == "input" else 0, 99))

        def raise_unit(_module: Any, _inputs: Any, result: Any) -> Any:
            if next(calls) != at:
                return result
            hidden = result[0] if isinstance(result, tuple) else result
            raised = hidden.clone()
            raised[0, caption, unit] += delta
            return (raised, *result[1:]) if isinstance(result, tuple) else raised

        hook = decoder.get_submodule(module).register_forward_hook(raise_unit)
        with torch.no_grad():
            forced = teacher_forced(decoder, features(6), WORDS[..., :-1])
            total = sum(
                weight * plain_log_likelihood(decoder.readout(forced.outputs, stage), targets)
                for stage, weight in enumerate(weights)
            )
        hook.remove()
        assert isinstance(total, Tensor)
        return -float((total * last_words(targets))[0, caption].sum())

    for caption, length in enumerate((4, 2)):
        for at in range(length):
            slopes = [
                (loss(caption, at, unit, 1e-5) - loss(caption, at, unit, -1e-5)) / 2e-5
                for unit in range(config.hidden_size)
            ]
            assert float(norms[0, caption, at]) == pytest.approx(torch.tensor(slopes).norm().item(), rel=1e-5)
    assert norms[0, 1, 2:].tolist() == [0, 0]


def test_at_a_cell_vector_it_comes_through_the_hidden_vector_and_through_the_next_cell():
    decoder = random_decoder(
        NicConfig(cell="lstm", image="state", embedding_size=3, hidden_size=4), seed=0, std=0.5, feature_size=6,
        vocabulary_size=8,
    )  # fmt: skip
    (cell,) = decoder.cells
    words = WORDS[:, :1]
    hidden, memory = decoder.image_to_state(features(6).vectors.mean(1)).chunk(2, -1)
    memories, loss = [], torch.zeros((), dtype=torch.float64)
    for at in range(4):
        inputs = decoder.embedding(words[0, :, at]) @ cell.weight_ih.T + cell.bias_ih
        i, f, g, o = (inputs + hidden @ cell.weight_hh.T + cell.bias_hh).chunk(4, -1)
        memory = f.sigmoid() * memory + i.sigmoid() * g.tanh()
        hidden = o.sigmoid() * memory.tanh()
        memories.append(memory)
        loss = loss - decoder.output(hidden).log_softmax(-1)[0, words[0, 0, at + 1]]
    expected = torch.stack(torch.autograd.grad(loss, memories)).norm(dim=-1)[:, 0]
    torch.testing.assert_close(gradient_norms(decoder, features(6), words)["cell.0"][0, 0], expected)


def test_the_loss_of_a_stage_reaches_a_later_stage_only_through_the_next_step():
    decoder = random_decoder(
        StackConfig(embedding_size=3, hidden_size=4, attention_size=3), seed=0, std=0.5, feature_size=6,
        vocabulary_size=8,
    )  # fmt: skip
    norms = gradient_norms(decoder, features(6), WORDS, stage_weights=[1, 0, 0])
    length = 3  # the last of the four steps of the longer caption
    assert norms["hidden.0"][0, 0, length] > 0
    assert norms["hidden.1"][0, 0, length] == norms["hidden.2"][0, 0, length] == 0  # the first stage comes before them
    assert norms["hidden.2"][0, 0, 0] > 0  # which the first stage reads one step later


def test_measuring_leaves_model_and_gradients_as_they_were():
    decoder = random_decoder(
        HacapConfig(embedding_size=3, hidden_size=4, attention_size=3, output_size=3, manager_size=4),
        seed=0, std=0.5, feature_size=6, vocabulary_size=8,
    ).train()  # fmt: skip
    with torch.no_grad():
        norms = gradient_norms(decoder, features(6), WORDS)
    assert decoder.training
    assert all(weight.grad is None for weight in decoder.parameters())
    assert {"hidden", "worker.0", "manager.0", "discriminator.0", "goals"} <= norms.keys()
    assert norms["goals"].count_nonzero() == 0  # no gradient flows from the words into the subgoals
    assert norms["worker.0"][0, 0].count_nonzero() == 4

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from showtell.decoding import teacher_forced
from showtell.models.nic import NicConfig, NicDecoder
from showtell.models.recurrent import GruCell
from showtell.models.sru import Sru, SruLayer
from showtell.types import Features
from tests.toys import random_features


def sigmoid(x: float) -> float:
    return 1 / (1 + math.exp(-x))


def test_the_reset_gate_acts_in_front_of_the_product():
    """The formula of Boustany and Sarfati, §2.1, one number at a time."""
    torch.manual_seed(0)
    cell = GruCell(2, 3)
    x, a = [0.5, -1.0], [0.2, -0.7, 0.9]
    w, u = cell.weight_ih.tolist(), cell.weight_hh.tolist()
    b = (cell.bias_ih + cell.bias_hh).tolist()

    def line(row: int, hidden: list[float]) -> float:
        return b[row] + sum(w[row][j] * x[j] for j in range(2)) + sum(u[row][j] * hidden[j] for j in range(3))

    reset = [sigmoid(line(row, a)) for row in range(3)]
    update = [sigmoid(line(3 + row, a)) for row in range(3)]
    guarded = [gate * value for gate, value in zip(reset, a, strict=True)]
    candidate = [math.tanh(line(6 + row, guarded)) for row in range(3)]
    expected = [z * n + (1 - z) * old for z, n, old in zip(update, candidate, a, strict=True)]
    hidden = cell(cell.project_input(torch.tensor([[x]])), torch.tensor([[a]]))
    assert hidden[0, 0].tolist() == pytest.approx(expected, abs=1e-6)


@given(st.integers(1, 19), st.integers(1, 3), st.booleans(), st.integers(0, 1000))
def test_all_steps_at_once_are_the_steps_one_by_one(steps, layers, highway, seed):
    torch.manual_seed(seed)
    sru = Sru(3, 4, layers=layers, highway=highway).double()
    inputs = torch.randn(2, 3, steps, 3, dtype=torch.float64)
    products = sru.first.project_input(inputs)
    cells = tuple(cell.expand(-1, 3, -1) for cell in sru.start(inputs))
    singly = []
    for step in range(steps):
        hidden, cells = sru.step(products[:, :, step], cells)
        singly.append(hidden)
    torch.testing.assert_close(sru(products), torch.stack(singly, 2))


def test_matrices_begin_orthogonal():
    for matrix in SruLayer(6, 4).weight.split(4):
        torch.testing.assert_close(matrix @ matrix.T, torch.eye(4), atol=1e-6, rtol=0)


WORDS = torch.tensor([[[1, 5, 6, 7], [1, 7, 7, 4]], [[1, 4, 8, 5], [1, 6, 5, 4]]])  # (B, N, T)


def features() -> Features:
    return random_features(dtype=torch.float32, present=(3, 2))


def make(**settings: object) -> NicDecoder:
    torch.manual_seed(0)
    config = NicConfig.model_validate({"embedding_size": 5, "hidden_size": 4, **settings})
    return NicDecoder(config, feature_size=6, vocabulary_size=9).eval()


def pooled() -> torch.Tensor:
    vectors = features().vectors
    return torch.stack([vectors[0].mean(0), vectors[1, :2].mean(0)])  # the last of the second image is padding


def copy_weights(decoder: NicDecoder, reference: nn.RNNBase) -> None:
    for layer, cell in enumerate(decoder.cells):
        for name, value in cell.state_dict().items():
            getattr(reference, f"{name}_l{layer}").data.copy_(value)


@pytest.mark.parametrize("layers", [1, 3])
def test_with_the_image_as_first_input_it_is_an_lstm_over_image_and_words(layers):
    decoder = make(cell="lstm", layers=layers, image="input")
    reference = nn.LSTM(5, 4, num_layers=layers, batch_first=True)
    copy_weights(decoder, reference)
    image = decoder.image_to_input(pooled())[:, None, None].expand(-1, 2, 1, -1)  # (B, N, 1, E)
    inputs = torch.cat([image, decoder.embedding(WORDS)], 2).flatten(0, 1)
    expected = decoder.output(reference(inputs)[0][:, 1:]).view(2, 2, 4, 9)
    torch.testing.assert_close(teacher_forced(decoder, features(), WORDS).logits, expected)


@pytest.mark.parametrize(("cell", "whole"), [("gru_torch", nn.GRU), ("rnn", nn.RNN)])
def test_with_the_image_as_first_state_the_recurrence_begins_there(cell, whole):
    decoder = make(cell=cell, layers=2)
    reference = whole(5, 4, num_layers=2, batch_first=True)
    copy_weights(decoder, reference)
    first = decoder.image_to_state(pooled()).unflatten(-1, (2, 4))  # (B, layers, H)
    first = first.transpose(0, 1).repeat_interleave(2, 1).contiguous()  # (layers, B x N, H)
    expected = decoder.output(reference(decoder.embedding(WORDS).flatten(0, 1), first)[0]).view(2, 2, 4, 9)
    torch.testing.assert_close(teacher_forced(decoder, features(), WORDS).logits, expected)


def test_an_lstm_has_its_cell_from_the_image_too():
    decoder = make(cell="lstm", layers=2)
    rows = decoder.start(features()).rows
    torch.testing.assert_close((*rows.hidden, *rows.cell), decoder.image_to_state(pooled()).unsqueeze(1).chunk(4, -1))

from __future__ import annotations

import pytest
import torch
from torch import nn

from showtell.decoding import teacher_forced
from showtell.models.nic import NicConfig, NicDecoder
from showtell.types import Features

WORDS = torch.tensor([[[1, 5, 6, 7], [1, 7, 7, 4]], [[1, 4, 8, 5], [1, 6, 5, 4]]])  # (B, N, T)


def features() -> Features:
    vectors = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1))
    return Features(vectors, torch.tensor([[True, True, True], [True, True, False]]))


def make(**settings: object) -> NicDecoder:
    torch.manual_seed(0)
    config = NicConfig.model_validate({"embedding_size": 5, "hidden_size": 4, **settings})
    return NicDecoder(config, feature_size=6, vocabulary_size=9).eval()


def pooled() -> torch.Tensor:
    vectors = features().vectors
    return torch.stack([vectors[0].mean(0), vectors[1, :2].mean(0)])  # the last of the second image is padding


@pytest.mark.parametrize("layers", [1, 3])
def test_with_the_image_as_first_input_it_is_an_lstm_over_image_and_words(layers):
    decoder = make(cell="lstm", layers=layers, image="input")
    reference = nn.LSTM(5, 4, num_layers=layers, batch_first=True)
    for layer, cell in enumerate(decoder.cells):
        for name, value in cell.state_dict().items():
            getattr(reference, f"{name}_l{layer}").data.copy_(value)
    image = decoder.image_to_input(pooled())[:, None, None].expand(-1, 2, 1, -1)  # (B, N, 1, E)
    inputs = torch.cat([image, decoder.embedding(WORDS)], 2).flatten(0, 1)
    expected = decoder.output(reference(inputs)[0][:, 1:]).view(2, 2, 4, 9)
    torch.testing.assert_close(teacher_forced(decoder, features(), WORDS).logits, expected)


@pytest.mark.parametrize(("cell", "whole"), [("gru_torch", nn.GRU), ("rnn", nn.RNN)])
def test_with_the_image_as_first_state_the_recurrence_begins_there(cell, whole):
    decoder = make(cell=cell, layers=2)
    reference = whole(5, 4, num_layers=2, batch_first=True)
    for layer, cell in enumerate(decoder.cells):
        for name, value in cell.state_dict().items():
            getattr(reference, f"{name}_l{layer}").data.copy_(value)
    first = decoder.image_to_state(pooled()).unflatten(-1, (2, 4))  # (B, layers, H)
    first = first.transpose(0, 1).repeat_interleave(2, 1).contiguous()  # (layers, B x N, H)
    expected = decoder.output(reference(decoder.embedding(WORDS).flatten(0, 1), first)[0]).view(2, 2, 4, 9)
    torch.testing.assert_close(teacher_forced(decoder, features(), WORDS).logits, expected)


def test_an_lstm_has_its_cell_from_the_image_too():
    decoder = make(cell="lstm", layers=2)
    rows = decoder.start(features()).rows
    expected = decoder.image_to_state(pooled()).unsqueeze(1).chunk(4, -1)
    for state, wanted in zip((*rows.hidden, *rows.cell), expected, strict=True):
        torch.testing.assert_close(state, wanted)

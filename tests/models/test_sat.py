"""Show, Attend and Tell against the formulas of the paper, written out plainly."""

import pytest
import torch
from torch import Tensor

from showtell.decoding import teacher_forced
from showtell.models.sat import SatConfig, SatDecoder
from tests.models import plain
from tests.toys import SMALL, random_decoder, random_features


def make(**settings: object) -> SatDecoder:
    config = {"name": "sat", **SMALL, **settings}
    return random_decoder(config, seed=0, std=0.5, feature_size=7, vocabulary_size=9).train()


def paper(decoder: SatDecoder, a: Tensor, words: list[int]) -> tuple[list[Tensor], list[Tensor]]:
    """Logits and attention for one image (L, D) and one caption, in the symbols of Xu et al. 2015, §3.1.2."""
    config, w = decoder.config, dict(decoder.named_parameters())
    mean = a.mean(0)
    h = c = a.new_zeros(config.hidden_size)
    if config.init_state == "mean":
        h = torch.tanh(w["init_hidden.0.weight"] @ mean + w["init_hidden.0.bias"])
        c = torch.tanh(w["init_cell.0.weight"] @ mean + w["init_cell.0.bias"])
    logits, attention = [], []
    for y in words:
        alpha = plain.attention(decoder.attention, a, h)
        z = sum(alpha[i] * a[i] for i in range(len(a)))
        if config.gate:
            z = torch.sigmoid(w["beta.weight"][0] @ h + w["beta.bias"][0]) * z
        word = w["embedding.weight"][y]
        h, c = plain.lstm(decoder.lstm, torch.cat([word, z]), h, c)
        inner = word + w["hidden_to_output.weight"] @ h + w["hidden_to_output.bias"]
        inner = inner + w["context_to_output.weight"] @ z + w["context_to_output.bias"]
        logits.append(w["output.weight"] @ (torch.tanh(inner) if config.readout_tanh else inner) + w["output.bias"])
        attention.append(alpha)
    return logits, attention


@pytest.mark.parametrize(
    ("tanh", "gated", "init_state"), [(True, True, "mean"), (False, True, "zeros"), (True, False, "mean")]
)
def test_it_computes_the_equations_of_the_paper(tanh, gated, init_state):
    decoder, image_features = make(readout_tanh=tanh, gate=gated, init_state=init_state), random_features(size=7)
    words = torch.tensor([[[1, 4, 5, 2], [1, 7, 7, 3]], [[1, 8, 2, 0], [1, 5, 4, 6]]])
    forced = teacher_forced(decoder, image_features, words)
    for image, row, regions, caption in plain.rows(image_features, words):
        logits, attention = paper(decoder, regions, caption)
        torch.testing.assert_close(forced.logits[image, row], torch.stack(logits))
        torch.testing.assert_close(forced.outputs.attention[image, row], torch.stack(attention))


def test_initial_weights_are_those_of_the_table():
    torch.manual_seed(0)
    decoder = SatDecoder(
        SatConfig(embedding_size=64, hidden_size=96, attention_size=48), feature_size=80, vocabulary_size=500
    )
    for gate in decoder.lstm.weight_hh.chunk(4):
        torch.testing.assert_close(gate @ gate.T, torch.eye(96), atol=1e-5, rtol=0)
    i, f, g, o = decoder.lstm.bias_ih.detach().chunk(4)
    assert [float(bias.unique()) for bias in (i, f, g, o)] == [0, 1, 0, 0]
    assert float(decoder.lstm.bias_hh.detach().abs().max()) == 0
    assert float(decoder.embedding.weight.detach().std()) == pytest.approx(0.1, rel=0.02)
    assert float(decoder.output.weight.detach().abs().max()) == pytest.approx((6 / (64 + 500)) ** 0.5, rel=0.01)

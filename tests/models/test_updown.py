from __future__ import annotations

import torch

from showtell.models import spread
from showtell.models.updown import UpDownConfig, UpDownDecoder
from showtell.types import Features


def make(**settings: object) -> UpDownDecoder:
    torch.manual_seed(0)
    config = UpDownConfig.model_validate({"embedding_size": 5, "hidden_size": 4, "attention_size": 3, **settings})
    return UpDownDecoder(config, feature_size=6, vocabulary_size=9).eval()


def lstm(cell: torch.nn.LSTMCell, x: torch.Tensor, h: torch.Tensor, c: torch.Tensor) -> tuple[torch.Tensor, ...]:
    i, f, g, o = (cell.weight_ih @ x + cell.bias_ih + cell.weight_hh @ h + cell.bias_hh).chunk(4)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def test_two_steps_are_the_equations_written_out():
    """Equations 1 to 5 and the two that our copy lacks, for one row of one image at a time."""
    decoder = make()
    vectors = torch.randn(2, 3, 6, generator=torch.Generator().manual_seed(1))
    present = [3, 2]  # regions of each image; the rest is padding
    words = torch.tensor([[[1, 5], [1, 7]], [[1, 4], [1, 8]]])
    is_region = torch.tensor([[True, True, True], [True, True, False]])
    state = spread(decoder.start(Features(vectors, is_region)), 2)
    steps = []
    for time in range(2):
        output, state = decoder.step(words[..., time], state)
        steps.append((output.attention, decoder.readout(output)))

    attention = decoder.attention
    for image in range(2):
        regions = vectors[image, : present[image]]
        for row in range(2):
            h1 = c1 = h2 = c2 = torch.zeros(4)
            for time in range(2):
                word = decoder.embedding.weight[words[image, row, time]]
                h1, c1 = lstm(decoder.attention_lstm, torch.cat([h2, regions.mean(0), word]), h1, c1)  # eq. 1, 2
                inner = regions @ attention.of_features.weight.T + attention.of_query.weight @ h1
                alpha = (torch.tanh(inner) @ attention.score.weight[0]).softmax(0)  # eq. 3, 4
                h2, c2 = lstm(decoder.language_lstm, torch.cat([alpha @ regions, h1]), h2, c2)  # eq. 5
                torch.testing.assert_close(steps[time][0][image, row, : present[image]], alpha, atol=1e-6, rtol=1e-5)
                expected = decoder.output.weight @ h2 + decoder.output.bias
                torch.testing.assert_close(steps[time][1][image, row], expected, atol=1e-6, rtol=1e-5)


def test_the_attention_has_no_bias():
    assert make().attention.of_features.bias is None


def test_features_may_be_projected_first():
    decoder = make(project_features=7)
    features = Features(torch.randn(2, 3, 6), torch.ones(2, 3, dtype=torch.bool))
    vectors = decoder.start(features).image.vectors
    assert vectors.shape == (2, 3, 7)
    assert float(vectors.detach().min()) >= 0  # ReLU

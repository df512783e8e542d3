import pytest
import torch

from showtell.decoding import teacher_forced
from showtell.models import Decoder
from tests.models import plain
from tests.toys import SMALL, random_decoder, random_features


def make(name: str, **settings: object) -> Decoder:
    return random_decoder({"name": name, **SMALL, **settings}, seed=1, std=0.5, feature_size=6, vocabulary_size=9)


def rows_of(layer: torch.nn.Module) -> torch.Tensor:
    """Its matrix, with rows of g w / |w| where it is normalised."""
    weights = dict(layer.named_parameters())
    if "weight" in weights:
        return weights["weight"]
    g, w = weights["parametrizations.weight.original0"], weights["parametrizations.weight.original1"]
    return torch.stack([length[0] * row / row.square().sum().sqrt() for length, row in zip(g, w, strict=True)])


@pytest.mark.parametrize(
    ("activation", "squash", "weight_norm"), [("tanh", torch.tanh, False), ("relu", torch.relu, True)]
)
def test_two_steps_are_the_equations_written_out(activation, squash, weight_norm):
    """Equations 1 to 5 and the two that our copy lacks, for one row of one image at a time."""
    decoder = make("updown", attention_activation=activation, weight_norm=weight_norm, multi_label=weight_norm)
    words = torch.tensor([[[1, 5], [1, 7]], [[1, 4], [1, 8]]])
    features = random_features(present=(3, 2))
    forced = teacher_forced(decoder, features, words)
    labels = decoder.score_labels(forced.outputs) if weight_norm else None
    attention = decoder.attention
    of_features, of_query, score = map(rows_of, (attention.of_features, attention.of_query, attention.score))
    weight = rows_of(decoder.output)
    for image, row, regions, caption in plain.rows(features, words):
        h1 = c1 = h2 = c2 = torch.zeros(4, dtype=torch.float64)
        for time, word in enumerate(decoder.embedding.weight[caption]):
            h1, c1 = plain.lstm(decoder.attention_lstm, torch.cat([h2, regions.mean(0), word]), h1, c1)  # eq. 1, 2
            inner = regions @ of_features.T + of_query @ h1
            alpha = (squash(inner) @ score[0]).softmax(0)  # eq. 3, 4
            h2, c2 = plain.lstm(decoder.language_lstm, torch.cat([alpha @ regions, h1]), h2, c2)  # eq. 5
            torch.testing.assert_close(forced.outputs.attention[image, row, time, : len(regions)], alpha)
            torch.testing.assert_close(forced.logits[image, row, time], weight @ h2 + decoder.output.bias)
            if weight_norm:
                expected = rows_of(decoder.labels) @ h1 + decoder.labels.bias
                torch.testing.assert_close(labels[image, row, time], expected)


@pytest.mark.parametrize("settings", [{}, {"project_features": 7, "embedding_relu": True}], ids=["att2in", "att2in2"])
def test_three_steps_are_the_equations_written_out(settings):
    decoder = make("att2in", **settings)
    words = torch.tensor([[[1, 5, 4], [1, 7, 7]], [[1, 4, 6], [1, 8, 5]]])
    features = random_features(present=(3, 2))
    forced = teacher_forced(decoder, features, words)
    w = {name: value.detach() for name, value in decoder.state_dict().items()}
    for image, row, regions, caption in plain.rows(features, words):
        if settings:
            projected = regions @ w["feature_projection.0.weight"].T + w["feature_projection.0.bias"]
            regions = projected.clamp(min=0)
        h, c = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
        for time, x in enumerate(w["embedding.weight"][caption]):
            alpha = plain.attention(decoder.attention, regions, h)
            attended = sum(a * region for a, region in zip(alpha, regions, strict=True))
            x = x.clamp(min=0) if settings else x
            gates = w["lstm.weight_ih"] @ x + w["lstm.bias_ih"] + w["lstm.weight_hh"] @ h + w["lstm.bias_hh"]
            i, f, o = (part.sigmoid() for part in gates[:12].chunk(3))
            context = w["context_to_candidates.weight"] @ attended + w["context_to_candidates.bias"]
            first, second = (gates[12:] + context).chunk(2)
            c = i * torch.maximum(first, second) + f * c
            h = o * c.tanh()
            attention = forced.outputs.attention[image, row, time]
            torch.testing.assert_close(attention[: len(regions)], alpha)
            assert attention[len(regions) :].sum() == 0
            torch.testing.assert_close(forced.logits[image, row, time], w["output.weight"] @ h + w["output.bias"])

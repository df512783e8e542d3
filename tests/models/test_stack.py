import pytest
import torch
from torch import Tensor

from showtell.decoding import StageView, greedy, teacher_forced
from showtell.models.stack import StackDecoder
from showtell.types import Features
from tests.models import plain
from tests.toys import SMALL, random_decoder, random_features

DOUBLE = torch.float64
VOCABULARY = 9
WORDS = torch.tensor([[[1, 5, 6], [1, 7, 4]], [[1, 4, 8], [1, 8, 8]]])  # (B, N, T)


def make(**settings: object) -> StackDecoder:
    config = {"name": "stack", **SMALL, **settings}
    return random_decoder(config, seed=0, std=0.5, feature_size=6, vocabulary_size=VOCABULARY)


def features() -> Features:
    return random_features(present=(3, 2))


def plainly(decoder: StackDecoder, regions: Tensor, words: list[int], is_stacked: bool) -> tuple[Tensor, Tensor]:
    """Equations 1 to 8 as they are written, for one caption of one image: logits (T, S, V) and attention (T, N, R)."""
    n_f = len(decoder.fine)
    cells = [decoder.coarse_lstm, *(stage.lstm for stage in decoder.fine)]
    h = [torch.zeros(decoder.config.hidden_size, dtype=DOUBLE)] * (n_f + 1)
    c = list(h)
    logits, attention_weights = [], []
    for word in words:
        y = decoder.embedding.weight[word]
        before = h[n_f]
        # Our cells have the parts of eq. 2 in the order [h^N; f(V); y], of eq. 4 as the paper has them.
        h[0], c[0] = plain.lstm(cells[0], torch.cat([before, regions.mean(0), y]), h[0], c[0])  # eq. 1, 2
        alpha = torch.zeros(len(regions), dtype=DOUBLE)  # a^0
        attention_weights.append([])
        for i in range(1, n_f + 1):
            stage = decoder.fine[i - 1]
            q = h[i - 1]
            if is_stacked and i > 1:
                last = decoder.fine[i - 2]
                q = q + sum(a * (last.value.weight @ v + last.value.bias) for a, v in zip(alpha, regions, strict=True))
            alpha = plain.attention(stage.attention, regions, q)  # eq. 6, 7
            values = [stage.value.weight @ v + stage.value.bias for v in regions]
            g = sum(a * value for a, value in zip(alpha, values, strict=True))  # eq. 5
            h[i], c[i] = plain.lstm(cells[i], torch.cat([g, h[i - 1], y]), h[i], c[i])  # eq. 3, 4
            attention_weights[-1].append(alpha)
        logits.append(torch.stack([one.weight @ h[i] + one.bias for i, one in enumerate(decoder.outputs)]))
    return torch.stack(logits), torch.stack([torch.stack(row) for row in attention_weights if n_f] or [alpha])


@pytest.mark.parametrize(
    ("attention", "fine", "projected"), [("stacked", 1, None), ("stacked", 3, 7), ("independent", 2, None)]
)
def test_it_is_the_equations_written_out(attention, fine, projected):
    """Logits of every stage, attention of every fine one, and the gradients of all weights and features."""
    decoder, image_features = make(attention=attention, fine_stages=fine, project_features=projected), features()
    vectors = image_features.vectors.clone().requires_grad_()
    forced = teacher_forced(decoder, Features(vectors, image_features.is_region), WORDS)
    assert torch.equal(forced.outputs.attention, forced.outputs.stages[-1].attention)
    assert forced.outputs.stages[0].attention is None
    logits = torch.stack([decoder.readout(forced.outputs, stage) for stage in range(decoder.stages)], 3)

    expected = torch.empty(2, 2, 3, fine + 1, VOCABULARY, dtype=DOUBLE)
    projected_features = Features(decoder.feature_projection(vectors), image_features.is_region)
    for image, row, regions, words in plain.rows(projected_features, WORDS):
        expected[image, row], expected_attention = plainly(decoder, regions, words, attention == "stacked")
        for stage in range(fine):
            weights = forced.outputs.stages[stage + 1].attention[image, row]
            torch.testing.assert_close(weights[:, : len(regions)], expected_attention[:, stage])
            assert not bool(weights[:, len(regions) :].any())
    torch.testing.assert_close(logits, expected)
    torch.testing.assert_close(forced.logits, expected[..., -1, :])

    weights = torch.randn(logits.shape, generator=torch.Generator().manual_seed(2), dtype=DOUBLE)
    values = [vectors, *decoder.parameters()]
    ours, theirs = (torch.autograd.grad((one * weights).sum(), values) for one in (logits, expected))
    for (name, _), one, other in zip([("vectors", None), *decoder.named_parameters()], ours, theirs, strict=True):
        torch.testing.assert_close(one, other, msg=lambda text, name=name: f"{name}: {text}")
        assert float(other.abs().sum()) > 0, name


def test_the_coarse_stage_alone_is_its_equation_without_attention():
    decoder, image_features = make(fine_stages=0), features()
    forced = teacher_forced(decoder, image_features, WORDS)
    assert decoder.stages == 1 and not decoder.capabilities and forced.outputs.attention is None
    for image, row, regions, words in plain.rows(image_features, WORDS):
        expected, _ = plainly(decoder, regions, words, is_stacked=True)
        torch.testing.assert_close(forced.logits[image, row], expected[:, 0])
    captions = greedy(decoder, image_features, 6, keep_outputs=True)
    assert torch.equal(captions.words, greedy(StageView(decoder, 0), image_features, 6).words)
    assert captions.attention is None

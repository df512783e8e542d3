"""Att2in against its equations."""

from __future__ import annotations

import pytest
import torch

from showtell.decoding import teacher_forced
from showtell.models.att2in import Att2InConfig, Att2InDecoder
from showtell.types import Features
from tests.models import plain
from tests.toys import random_decoder

SIZES = {"embedding_size": 5, "hidden_size": 4, "attention_size": 3}


@pytest.mark.parametrize("settings", [{}, {"project_features": 7, "embedding_relu": True}], ids=["att2in", "att2in2"])
def test_three_steps_are_the_equations_written_out(settings):
    config = Att2InConfig.model_validate({**SIZES, **settings})
    decoder: Att2InDecoder = random_decoder(config, seed=1, std=0.5, feature_size=6, vocabulary_size=9)
    generator = torch.Generator().manual_seed(2)
    vectors = torch.randn(2, 3, 6, generator=generator, dtype=torch.float64)
    present = [3, 2]
    is_region = torch.tensor([[True, True, True], [True, True, False]])
    words = torch.tensor([[[1, 5, 4], [1, 7, 7]], [[1, 4, 6], [1, 8, 5]]])
    forced = teacher_forced(decoder, Features(vectors, is_region), words)
    w = {name: value.detach() for name, value in decoder.state_dict().items()}
    for image in range(2):
        regions = vectors[image, : present[image]]
        if settings:
            projected = regions @ w["feature_projection.0.weight"].T + w["feature_projection.0.bias"]
            regions = projected.clamp(min=0)
        for row in range(2):
            h, c = torch.zeros(4, dtype=torch.float64), torch.zeros(4, dtype=torch.float64)
            for time in range(3):
                alpha = plain.attention(decoder.attention, regions, h)
                attended = sum(a * region for a, region in zip(alpha, regions, strict=True))
                x = w["embedding.weight"][words[image, row, time]]
                if settings:
                    x = x.clamp(min=0)
                gates = w["lstm.weight_ih"] @ x + w["lstm.bias_ih"] + w["lstm.weight_hh"] @ h + w["lstm.bias_hh"]
                i, f, o = (part.sigmoid() for part in gates[:12].chunk(3))
                context = w["context_to_candidates.weight"] @ attended + w["context_to_candidates.bias"]
                first, second = (gates[12:] + context).chunk(2)
                c = i * torch.maximum(first, second) + f * c
                h = o * c.tanh()
                attention = forced.outputs.attention[image, row, time]
                torch.testing.assert_close(attention[: present[image]], alpha)
                assert attention[present[image] :].sum() == 0
                torch.testing.assert_close(forced.logits[image, row, time], w["output.weight"] @ h + w["output.bias"])

from __future__ import annotations

import pytest
import torch

from showtell.decoding import Ensemble, beam, sample
from showtell.errors import UsageError
from showtell.models.sat import SatConfig, SatDecoder
from showtell.types import EnsembleFeatures, Features
from tests.toys import table_decoder


def test_probabilities_are_averaged():
    one, features = table_decoder(images=2, steps=2, size=6, seed=0)
    other, _ = table_decoder(images=2, steps=2, size=6, seed=1)
    both = Ensemble([one, other])
    output, _ = both.step(torch.ones(2, 1, dtype=torch.long), both.start(features))
    expected = (one.table[:, 0, 1].softmax(-1) + other.table[:, 0, 1].softmax(-1)) / 2
    torch.testing.assert_close(both.readout(output).exp().squeeze(1), expected)


def test_each_member_has_its_own_features_and_state():
    torch.manual_seed(0)
    sizes = {"embedding_size": 6, "attention_size": 4}
    first = SatDecoder(SatConfig(hidden_size=5, **sizes), feature_size=3, vocabulary_size=9).eval()
    second = SatDecoder(SatConfig(hidden_size=8, **sizes), feature_size=7, vocabulary_size=9).eval()
    features = [
        Features(torch.randn(3, 4, 3), torch.ones(3, 4, dtype=torch.bool)),
        Features(torch.randn(3, 6, 7), torch.ones(3, 6, dtype=torch.bool)),
    ]
    both = Ensemble([first, second])
    captions = beam(both, EnsembleFeatures.of(features), 5, 3, keep_outputs=True)
    assert captions.outputs.members[0].attention.shape[-1] == 4
    assert captions.outputs.members[1].attention.shape[-1] == 6
    for image in range(3):  # one by one
        alone = EnsembleFeatures.of([Features(one.vectors[[image]], one.is_region[[image]]) for one in features])
        single = beam(both, alone, 5, 3)
        torch.testing.assert_close(single.logprob[0], captions.logprob[image])
    drawn = sample(both, EnsembleFeatures.of(features), 5, samples=2)
    assert drawn.logprob.isfinite().all()


def test_features_for_another_number_of_members_are_refused():
    decoder, features = table_decoder(images=1, steps=2, size=6, seed=0)
    with pytest.raises(UsageError, match="An ensemble of 2 got the features of 3 encoders"):
        Ensemble([decoder, decoder]).start(EnsembleFeatures.of([features] * 3))
    with pytest.raises(UsageError, match="needs at least one member"):
        Ensemble([])

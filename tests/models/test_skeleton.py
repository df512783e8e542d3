"""The shapes of a model are known before it is built."""

import pytest
import torch

from showtell.checkpoint import skeleton
from showtell.models import MODELS, build_decoder


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_skeleton_has_the_shapes_of_the_model_and_draws_no_random_number(name):
    config, decoder = MODELS[name]
    small = config(**{key: 8 for key in config.model_fields if key.endswith("_size")})
    state = torch.get_rng_state()
    empty = skeleton(lambda: decoder(small, feature_size=6, vocabulary_size=11))
    assert empty is not None and torch.equal(state, torch.get_rng_state())
    whole = build_decoder(small, feature_size=6, vocabulary_size=11).state_dict()
    assert {key: value.shape for key, value in empty.state_dict().items()} == {k: v.shape for k, v in whole.items()}

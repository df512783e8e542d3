"""The memory that a model needs is known before it is built."""

from __future__ import annotations

import time

import pytest
import torch

from showtell.errors import UsageError
from showtell.models import MODELS, build_decoder
from showtell.models.skeleton import skeleton


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_model_that_no_memory_holds_is_refused_before_it_is_built(name):
    kind = MODELS[name][0]
    config = kind.model_validate({key: 65_536 for key in ("hidden_size", "embedding_size") if key in kind.model_fields})
    began = time.monotonic()
    with pytest.raises(UsageError, match=rf"model.name={name} would need [\d,]+ GB .* lower model\.\w+_size=65536\.$"):
        build_decoder(config, feature_size=65_536, vocabulary_size=10_000_000)
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("name", sorted(MODELS))
def test_a_skeleton_has_the_shapes_of_the_model_and_draws_no_random_number(name):
    config, decoder = MODELS[name]
    small = config(**{key: 8 for key in config.model_fields if key.endswith("_size")})
    state = torch.get_rng_state()
    empty = skeleton(lambda: decoder(small, feature_size=6, vocabulary_size=11))
    assert empty is not None and torch.equal(state, torch.get_rng_state())
    whole = build_decoder(small, feature_size=6, vocabulary_size=11).state_dict()
    assert {key: value.shape for key, value in empty.state_dict().items()} == {k: v.shape for k, v in whole.items()}

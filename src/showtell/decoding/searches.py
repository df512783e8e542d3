"""The searches of showtell, each with its settings from `DecodingConfig`; `decoding_config.py` names these settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from showtell.decoding.beam import beam
from showtell.decoding.rollout import Captions, deduplicate
from showtell.decoding.sampling import greedy, sample
from showtell.decoding.stages import StageView
from showtell.decoding_config import SAMPLING, SEARCHES, DecodingConfig
from showtell.models.contract import Decoder
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features


def _greedy(decoder: Decoder, features: Features, config: DecodingConfig, image_ids: Any, **options: Any) -> Captions:
    return greedy(decoder, features, config.max_length, **options)


def _beam(decoder: Decoder, features: Features, config: DecodingConfig, image_ids: Any, **options: Any) -> Captions:
    options |= {"num_return": config.num_return_sequences, "length_penalty": config.length_penalty or 0.0}
    return beam(decoder, features, config.max_length, config.num_beams, **options)


def _sample(decoder: Decoder, features: Features, config: DecodingConfig, **options: Any) -> Captions:
    settings = {name: getattr(config, name) for name in SAMPLING}
    samples = config.num_return_sequences
    return deduplicate(sample(decoder, features, config.max_length, samples=samples, **settings, **options))


# Of the searches of showtell by name; the keywords are those of `sample`.
_RUN: dict[str, Callable[..., Captions]] = {"greedy": _greedy, "beam": _beam, "sample": _sample}


def search(
    decoder: Decoder,
    features: Features,
    config: DecodingConfig,
    vocabulary: Vocabulary,
    *,
    image_ids: Sequence[str] | None = None,
    keep_outputs: bool = False,
) -> Captions:
    """The `num_return_sequences` best captions of each image, all different, by the search that the settings name.

    Samples depend on `image_ids`, B names; by default the images are counted. `keep_outputs` fills `Captions.outputs`.

    Raises:
        UsageError: a word of the prefix is not in the vocabulary, or the decoder has no such stage.
    """
    if config.stage is not None:
        decoder = StageView(decoder, config.stage)
    run = SEARCHES[config.kind].run or _RUN[config.kind]
    rules = config.rules(vocabulary)
    return run(decoder, features, config, rules=rules, image_ids=image_ids, keep_outputs=keep_outputs)

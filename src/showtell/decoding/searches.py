"""The searches by name: which settings each of them uses, and the function that runs it.

To add one, write `decoding/<name>.py`, and name it here with a function that takes its settings from `DecodingConfig`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from showtell.decoding.beam import beam
from showtell.decoding.rollout import Captions, deduplicate
from showtell.decoding.sampling import greedy, sample
from showtell.decoding.stages import StageView
from showtell.decoding_config import DecodingConfig
from showtell.models.contract import Decoder
from showtell.registry import Registry
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features


@dataclass(frozen=True)
class Search:
    """A search, and the settings that it uses beside those that all searches share."""

    settings: tuple[str, ...]
    # (decoder, features, config, *, rules, image_ids, keep_outputs) to captions; the keywords are those of `sample`.
    run: Callable[..., Captions]


_SAMPLING = ("temperature", "top_k", "top_p", "seed")  # also the names in `sample`


def _greedy(decoder: Decoder, features: Features, config: DecodingConfig, image_ids: Any, **options: Any) -> Captions:
    return greedy(decoder, features, config.max_length, **options)


def _beam(decoder: Decoder, features: Features, config: DecodingConfig, image_ids: Any, **options: Any) -> Captions:
    options |= {"num_return": config.num_return_sequences, "length_penalty": config.ranking}
    return beam(decoder, features, config.max_length, config.num_beams, **options)


def _sample(decoder: Decoder, features: Features, config: DecodingConfig, **options: Any) -> Captions:
    settings = {name: getattr(config, name) for name in _SAMPLING}
    samples = config.num_return_sequences
    return deduplicate(sample(decoder, features, config.max_length, samples=samples, **settings, **options))


SEARCHES: Registry[Search] = Registry(
    "showtell.searches",
    {
        "greedy": Search((), _greedy),
        "beam": Search(("num_beams", "length_normalisation", "length_penalty"), _beam),
        "sample": Search(_SAMPLING, _sample),
    },
    expects="a showtell.decoding.Search whose settings are fields of DecodingConfig",
    accepts=lambda _, entry: isinstance(entry, Search) and DecodingConfig.model_fields.keys() >= set(entry.settings),
)


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
    run = SEARCHES[config.kind].run
    return run(
        decoder, features, config, rules=config.rules(vocabulary), image_ids=image_ids, keep_outputs=keep_outputs
    )

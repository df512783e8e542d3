"""Decoding: every walk over time, for any decoder, batched."""

from __future__ import annotations

from collections.abc import Sequence

from showtell.decoding.beam import beam
from showtell.decoding.config import DecodingConfig
from showtell.decoding.ensemble import Ensemble
from showtell.decoding.ranking import LengthPenalty
from showtell.decoding.rollout import Captions, TeacherForcedOutput, different, teacher_forced
from showtell.decoding.rules import Rules
from showtell.decoding.sampling import greedy, sample
from showtell.decoding.scheduled import scheduled
from showtell.decoding.stages import AtStage
from showtell.models.contract import Decoder
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features

__all__ = [
    "AtStage",
    "Captions",
    "DecodingConfig",
    "Ensemble",
    "LengthPenalty",
    "Rules",
    "TeacherForcedOutput",
    "beam",
    "greedy",
    "sample",
    "scheduled",
    "search",
    "teacher_forced",
]  # fmt: skip


def search(
    decoder: Decoder,
    features: Features,
    config: DecodingConfig,
    vocabulary: Vocabulary,
    *,
    image_ids: Sequence[str] | None = None,
    keep_outputs: bool = False,
) -> Captions:
    """The `num_return_sequences` best captions by the search that the settings name, each of them different.

    Args:
        decoder: any decoder.
        features: of B images.
        config: what to search for and how.
        vocabulary: of the decoder.
        image_ids: B names that samples depend on; None counts the images.
        keep_outputs: whether `Captions.outputs` is wanted.

    Raises:
        UsageError: a required word is not in the vocabulary, or the decoder has no such stage.
    """
    rules = config.rules(vocabulary)
    if config.stage is not None:
        decoder = AtStage(decoder, config.stage)
    if config.kind == "greedy":
        return greedy(decoder, features, config.max_length, rules=rules, keep_outputs=keep_outputs)
    if config.kind == "sample":
        drawn = sample(
            decoder,
            features,
            config.max_length,
            samples=config.num_return_sequences,
            temperature=config.temperature,
            top_k=config.top_k,
            top_p=config.top_p,
            seed=config.seed,
            image_ids=image_ids,
            rules=rules,
            keep_outputs=keep_outputs,
        )
        return different(drawn)
    return beam(
        decoder,
        features,
        config.max_length,
        config.num_beams,
        num_return=config.num_return_sequences,
        groups=config.groups,
        diversity=config.diversity_penalty,
        length_penalty=config.ranking,
        rules=rules,
        keep_outputs=keep_outputs,
    )

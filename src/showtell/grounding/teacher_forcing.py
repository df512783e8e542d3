"""Captions along which a model is teacher-forced: one that a person gives, or those of a dataset's images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from showtell.captioners import Captioner, EncoderDecoderCaptioner
from showtell.captioners.teacher_forcing import pad_captions
from showtell.datasets.records import CaptionRecord
from showtell.decoding import DecodingConfig, StageView, search
from showtell.errors import UsageError, or_raise
from showtell.features.store import FeatureStore
from showtell.features.stored_images import photo_or_stored
from showtell.images.boxes import corners
from showtell.images.loading import prepare_batches
from showtell.models import Decoder
from showtell.text.tokenizer import tokenize
from showtell.types import EncodedBatch, Features


def settings_along(captioner: Captioner, caption: str, stage: int | None = None) -> DecodingConfig:
    """Decoding settings that lead a captioner along a caption: all words are given, so none is searched for.

    As in training, a word that the vocabulary lacks is the token of unknown words.

    Raises:
        UsageError: there is no word to follow, or the captioner has no words of its own.
    """
    if not isinstance(captioner, EncoderDecoderCaptioner):
        raise UsageError(f"{captioner.about.name} cannot follow a given caption; only the models of showtell can.")
    vocabulary = captioner.vocabulary
    words = vocabulary.decode(vocabulary.encode(vocabulary.split(caption))[1:-1])
    if not words:
        raise UsageError(f'The caption "{caption}" has no words to follow; give some, such as "a dog runs".')
    given = {"prefix": " ".join(words), "max_length": len(words), "stage": stage}
    return captioner.check(DecodingConfig.checked(given))


def encode_records(
    captioner: EncoderDecoderCaptioner,
    records: Sequence[CaptionRecord],
    batch_size: int,
    store: FeatureStore | None = None,
) -> Iterator[tuple[list[CaptionRecord], EncodedBatch]]:
    """The photos of the records, or their features in a store, batch by batch, encoded."""

    def prepare(record: CaptionRecord) -> Any:
        return captioner.prepare(photo_or_stored(record, store), corners(record.boxes))

    for pairs in prepare_batches(records, prepare, batch_size):
        photos = [or_raise(photo) for _, photo in pairs]
        yield [record for record, _ in pairs], captioner.encode_prepared(photos)


def captions_to_follow(
    captioner: EncoderDecoderCaptioner,
    batch: Sequence[CaptionRecord],
    features: Features,
    captions: str,
    settings: DecodingConfig,
) -> tuple[Decoder, list[list[list[str]]], Tensor]:
    """The captions along which a model is teacher-forced.

    Args:
        captioner: the model.
        batch: B images.
        features: of them.
        captions: "references", or "own" for the caption that the model generates.
        settings: how own captions are searched for, and at which stage.

    Returns:
        The decoder at that stage; the words of each caption of each image; their ids, (B, N, T + 1), begin first.
    """
    vocabulary = captioner.vocabulary
    decoder: Decoder = captioner.decoder if settings.stage is None else StageView(captioner.decoder, settings.stage)
    if captions == "references":
        words = [[tokenize(text) for text in record.captions] for record in batch]
        ids = pad_captions([[vocabulary.encode(caption) for caption in image] for image in words]).to(captioner.device)
    else:
        best = search(captioner.decoder, features, settings, vocabulary).words[:, :1]
        words = [[vocabulary.decode(caption.tolist()) for caption in image] for image in best]
        ids = torch.cat((best.new_full((*best.shape[:2], 1), vocabulary.begin), best), -1)
    return decoder, words, ids

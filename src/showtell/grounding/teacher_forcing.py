"""Images of a dataset in encoded batches, with captions along which a model is teacher-forced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from showtell.captioners import EncoderDecoderCaptioner
from showtell.captioners.teacher_forcing import pad_captions
from showtell.datasets.records import CaptionRecord
from showtell.decoding import DecodingConfig, StageView, search
from showtell.errors import or_raise
from showtell.features.store import FeatureStore
from showtell.features.stored_images import photo_or_stored
from showtell.images.boxes import corners
from showtell.images.loading import prepare_batches
from showtell.models import Decoder
from showtell.text.tokenizer import tokenize
from showtell.types import EncodedBatch, Features


def encode_records(
    captioner: EncoderDecoderCaptioner,
    records: Sequence[CaptionRecord],
    batch_size: int,
    store: FeatureStore | None = None,
) -> Iterator[tuple[list[CaptionRecord], EncodedBatch]]:
    """The photos of the records, or their features in a store, batch by batch, encoded.

    Raises:
        ImageError: a photo cannot be read.
        DataError: the store is of another encoder, or lacks an image.
    """

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

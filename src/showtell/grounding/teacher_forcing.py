"""Images of a dataset in encoded batches, with captions along which a model is teacher-forced."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from showtell.captioner import Captioner
from showtell.datasets.records import CaptionRecord
from showtell.decoding import DecodingConfig, StageView, search
from showtell.errors import ImageError, UsageError
from showtell.explanations.occlusion import EncodedBatch
from showtell.images.boxes import corners
from showtell.images.loading import prepare_batches, stack_photos
from showtell.models import Decoder
from showtell.text.tokenizer import tokenize
from showtell.text.vocabulary import Vocabulary
from showtell.types import Features

CAPTION_SOURCES = ("references", "own")


def encode_records(
    captioner: Captioner, records: Sequence[CaptionRecord], batch_size: int
) -> Iterator[tuple[list[CaptionRecord], EncodedBatch]]:
    """The photos of the records, batch by batch, encoded.

    Raises:
        ImageError: a photo cannot be read.
    """
    remaining = iter(records)
    for pairs in prepare_batches((record.path for record in records), captioner.encoder.preprocessing, batch_size):
        batch = [next(remaining) for _ in pairs]
        photos = []
        for _, photo in pairs:
            if isinstance(photo, ImageError):
                raise photo
            photos.append(photo)
        boxes = [corners(record.boxes) for record in batch] if captioner.encoder.takes_boxes else None
        prepared = stack_photos(photos, boxes)
        yield batch, EncodedBatch(prepared, captioner.encode(prepared))


def captions_to_follow(
    captioner: Captioner, batch: Sequence[CaptionRecord], features: Features, captions: str, settings: DecodingConfig
) -> tuple[Decoder, list[list[list[str]]], Tensor]:
    """The captions along which a model is teacher-forced.

    Args:
        captioner: the model.
        batch: B images.
        features: of these images.
        captions: "references", or "own" for the caption that the model generates.
        settings: how own captions are searched for, and at which stage.

    Returns:
        The decoder at that stage; the words of each caption of each image; their ids, (B, N, T + 1), begin first.

    Raises:
        UsageError: `captions` is neither.
    """
    if captions not in CAPTION_SOURCES:
        raise UsageError(f'There are no captions "{captions}"; use {" or ".join(CAPTION_SOURCES)}.')
    vocabulary = captioner.vocabulary
    decoder: Decoder = captioner.decoder if settings.stage is None else StageView(captioner.decoder, settings.stage)
    if captions == "references":
        words = [[tokenize(text) for text in record.captions] for record in batch]
        ids = _padded([[vocabulary.encode(caption) for caption in image] for image in words]).to(captioner.device)
    else:
        best = search(captioner.decoder, features, settings, vocabulary).words[:, :1]
        words = [[vocabulary.decode(caption.tolist()) for caption in image] for image in best]
        ids = torch.cat((best.new_full((*best.shape[:2], 1), vocabulary.begin), best), -1)
    return decoder, words, ids


def _padded(images: Sequence[Sequence[Sequence[int]]]) -> Tensor:
    """Ids of captions as (B, N, T + 1): short captions are padded, missing ones are padding alone."""
    most = max(1, *map(len, images))
    rows = [torch.tensor(ids) for image in images for ids in [*image, *[[Vocabulary.begin]] * (most - len(image))]]
    padded = pad_sequence(rows, batch_first=True, padding_value=Vocabulary.pad)
    return torch.unflatten(padded, 0, (len(images), most))

"""Two captioners without a language model, so that one can see what the language model adds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import torch
from torch.nn import functional as F

from showtell.captioners import EncoderDecoderCaptioner
from showtell.datasets.records import CaptionRecord
from showtell.models.attention import masked_mean

BATCH_SIZE = 128  # images that are encoded at once


def most_frequent(training: Sequence[CaptionRecord], records: Sequence[CaptionRecord]) -> dict[str, str]:
    """The caption that occurs most often in training, for every image."""
    counts = Counter(caption for record in training for caption in record.captions)
    best = counts.most_common(1)[0][0]
    return {record.image_id: best for record in records}


def nearest_neighbour(
    captioner: EncoderDecoderCaptioner,
    training: Sequence[CaptionRecord],
    records: Sequence[CaptionRecord],
    progress: Callable[[int], None],
) -> dict[str, str]:
    """The first caption of the training image whose mean feature vector has the highest cosine with the image's."""
    pooled = []
    for features in captioner.encode_photos((record.path for record in (*training, *records)), BATCH_SIZE):
        pooled.append(masked_mean(features.vectors, features.is_region))
        progress(len(features.vectors))
    vectors = F.normalize(torch.cat(pooled), dim=-1)  # (images, D) of unit length
    nearest = (vectors[len(training) :] @ vectors[: len(training)].T).argmax(-1).tolist()
    return {record.image_id: training[index].captions[0] for record, index in zip(records, nearest, strict=True)}

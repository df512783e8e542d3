"""Pictures of a few validation photos, where each word looked, for TensorBoard: the same photos at each validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from showtell.captioners import EncoderDecoderCaptioner
from showtell.datasets.records import CaptionRecord
from showtell.errors import ImageError
from showtell.explanations import explain_photos
from showtell.features.store import FeatureStore
from showtell.features.stored_images import photo_or_stored
from showtell.images.boxes import corners

DOTS = 60  # per inch: a row of nine words is 810 pixels wide


def add_pictures(
    writer: Any,
    captioner: EncoderDecoderCaptioner,
    records: Sequence[CaptionRecord],
    step: int,
    store: FeatureStore | None = None,
) -> None:
    """Write a figure of each photo, with its greedy caption as validation has it.

    A photo that cannot be opened has no picture.

    Args:
        writer: TensorBoard's `SummaryWriter`.
        captioner: makes the captions; its weights, mode and random numbers stay as they are.
        records: the photos.
        step: of the run.
        store: features of the photos, if the run reads some; they are captioned then.
    """
    title = captioner.about.name
    settings = captioner.settings(num_beams=1, num_return_sequences=1, search="greedy")
    boxes = [corners(record.boxes) for record in records] if captioner.encoder.takes_boxes else None
    photos = [photo_or_stored(record, store) for record in records]
    results = explain_photos({title: captioner}, photos, {title: settings}, boxes=boxes)
    for record, (_, explanation) in zip(records, results, strict=True):
        if not isinstance(explanation, ImageError):
            figure = explanation.figure()
            figure.set_dpi(DOTS)
            writer.add_figure(f"captions/{record.image_id}", figure, global_step=step)

"""Pictures of a few validation photos, where each word looked, for TensorBoard: the same photos at each validation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from showtell.captioners import EncoderDecoderCaptioner
from showtell.datasets.records import CaptionRecord
from showtell.errors import ImageError
from showtell.explanations import explain_photos
from showtell.explanations.explanation import model_name
from showtell.features.precomputed import Precomputed
from showtell.images.boxes import corners

DOTS = 60  # per inch: a row of nine words is 810 pixels wide


def add_pictures(writer: Any, captioner: EncoderDecoderCaptioner, records: Sequence[CaptionRecord], step: int) -> None:
    """Write a figure of each photo, with its greedy caption as validation has it.

    A photo that cannot be opened has no picture, and there is none where the features are of another program: what it
    would see in a photo is not known here.

    Args:
        writer: TensorBoard's `SummaryWriter`.
        captioner: makes the captions; its weights, mode and random numbers stay as they are.
        records: the photos.
        step: of the run.
    """
    if isinstance(captioner.encoder, Precomputed):
        return
    title = model_name(captioner)
    settings = captioner.settings(num_beams=1, num_return_sequences=1, search="greedy")
    boxes = [corners(record.boxes) for record in records] if captioner.encoder.takes_boxes else None
    results = explain_photos({title: captioner}, [record.path for record in records], {title: settings}, boxes=boxes)
    for record, (_, explanation) in zip(records, results, strict=True):
        if not isinstance(explanation, ImageError):
            figure = explanation.figure()
            figure.set_dpi(DOTS)
            writer.add_figure(f"captions/{record.image_id}", figure, global_step=step)

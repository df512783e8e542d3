"""Warnings: too few photos to learn from, and captions of a validation that are all the same or repeat themselves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from showtell.captions import Caption
from showtell.features import EncoderConfig
from showtell.scores import diagnose

SAME = 0.5  # share of images with one and the same caption
REPEATING = 0.25  # share of captions that run in circles
# Photos below which a run that starts afresh is warned. From scratch: measured on drawn scenes (docs/lab_notes.md).
# With a pretrained encoder: not measured; sentences are learned from their captions alone.
FEW_FROM_SCRATCH, FEW_PRETRAINED = 1000, 300

_INSTEAD = (
    "start from a checkpoint (training.start_from), {}or let a ready captioner write captions to correct and train on "
    "(showtell caption CAPTIONER PHOTOS --format corrections --out captions.csv)"
)


def few_photos(images: int, encoder: EncoderConfig) -> str | None:
    """What can be expected of a captioner that learned from few photos alone, and what to do instead.

    Args:
        images: it learned from.
        encoder: its settings.

    Returns:
        The rest of a sentence that begins with the photos; None where they are not few.
    """
    if encoder.trained and getattr(encoder, "weights", "random") == "random":
        if images < FEW_FROM_SCRATCH:
            return (
                "too few to learn from scratch (100 drawn shapes taught half of what 1,000 did, and photos are "
                "harder): expect frequent captions that do not fit; "
                + _INSTEAD.format("take a pretrained encoder (folder/sat_soft_pretrained), ")
            )
    elif images < FEW_PRETRAINED:
        return "few, even for a pretrained encoder: expect frequent captions; " + _INSTEAD.format("")
    return None


def warnings(captions: Mapping[str, Caption], rewarded: bool = False) -> list[str]:
    """What is wrong with the captions of a split, a sentence each; empty where nothing is.

    Args:
        captions: image id to caption.
        rewarded: the captioner learns from a reward, from which more training brings it no better captions.
    """
    sentences = []
    if len(captions) >= 4:
        texts = [caption.text for caption in captions.values()]
        share = diagnose(texts)["most_common"]
        if share >= SAME:
            sentences.append(
                f"{round(share * len(texts))} of {len(texts)} images have the same caption "
                f'("{statistics.mode(texts)}"): '
                + (
                    "the model does not look at the picture any more; lower the learning rate, or begin from weights "
                    "whose captions differ"
                    if rewarded
                    else "the model does not look at the picture yet; if it stays so, check that the images differ, "
                    "and lower the learning rate or train longer"
                )
            )
    circling = [caption.text for caption in captions.values() if runs_in_circles(caption)]
    if captions and len(circling) / len(captions) >= REPEATING:
        sentences.append(
            f'{len(circling)} of {len(captions)} captions repeat themselves without end (such as "{circling[0]}"): '
            + (
                "lower the learning rate, or begin from other weights"
                if rewarded
                else "train longer or lower the learning rate"
            )
        )
    return sentences


def runs_in_circles(caption: Caption) -> bool:
    """Whether a caption was cut off by the limit while it repeated its last words."""
    words = caption.text.split()
    if caption.finished:
        return False
    return any(
        len(words) >= 3 * period and words[-period:] == words[-2 * period : -period] == words[-3 * period : -2 * period]
        for period in range(1, len(words) // 3 + 1)
    )

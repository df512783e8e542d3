"""Warnings: too few photos to learn from, and captions of a validation that are all the same or repeat themselves."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from showtell.captions import Caption, ExplainedCaption
from showtell.features import EncoderConfig
from showtell.scores import diagnose

SAME = 0.5  # share of images with one and the same caption
REPEATING = 0.25  # share of captions that run in circles
# Photos below which a run that starts afresh is warned. From scratch: measured on drawn scenes (docs/lab_notes.md).
# With a pretrained encoder: not measured; sentences are learned from their captions alone.
FEW_FROM_SCRATCH, FEW_PRETRAINED = 1000, 300


def few_photos(images: int, encoder: EncoderConfig) -> str | None:
    """What to expect of a captioner that learned from few photos alone, and what to do instead.

    Returns:
        The rest of a sentence that begins with the photos; None where they are not few.
    """
    is_from_scratch = encoder.trained and getattr(encoder, "weights", "random") == "random"
    if images >= (FEW_FROM_SCRATCH if is_from_scratch else FEW_PRETRAINED):
        return None
    return (
        "too few to learn from scratch (100 drawn shapes taught half of what 1,000 did, and photos are harder): expect "
        "frequent captions that do not fit; take a pretrained encoder (folder/sat_soft_pretrained), "
        if is_from_scratch
        else "few, even for a pretrained encoder: expect frequent captions; "
    ) + (
        "start from a checkpoint (training.start_from), or let a ready captioner write captions to correct and train "
        "on (showtell caption CAPTIONER PHOTOS --format corrections --out captions.csv)"
    )


def warnings(captions: Mapping[str, Caption | ExplainedCaption], rewarded: bool = False) -> list[str]:
    """What is wrong with the captions of a split, a sentence each; empty where nothing is.

    Args:
        captions: image id to caption.
        rewarded: the captioner learns from a reward, from which more training brings it no better captions.
    """
    advice = "lower the learning rate, or begin from other weights"
    if not rewarded:
        advice = "train longer or lower the learning rate"
    sentences = []
    texts = [caption.text for caption in captions.values()]
    if len(texts) >= 4 and (share := diagnose(texts)["most_common"]) >= SAME:
        sentences.append(
            f'{round(share * len(texts))} of {len(texts)} images have the same caption ("{statistics.mode(texts)}"): '
            f"the model does not look at the picture; if it stays so, check that the images differ, and {advice}"
        )
    circling = [caption.text for caption in captions.values() if runs_in_circles(caption)]
    if texts and len(circling) / len(texts) >= REPEATING:
        count = f"{len(circling)} of {len(texts)} captions"
        sentences.append(f'{count} repeat themselves without end (such as "{circling[0]}"): {advice}')
    return sentences


def runs_in_circles(caption: Caption | ExplainedCaption) -> bool:
    """Whether a caption was cut off by the limit while it repeated its last words."""
    words = caption.text.split()
    periods = range(1, len(words) // 3 + 1)
    return not caption.finished and any(words[-period:] * 3 == words[-3 * period :] for period in periods)

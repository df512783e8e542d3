"""Warnings about the captions of a validation: the same one for many images, or words repeated without end."""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from showtell.captions import Caption
from showtell.scores import diagnose

SAME = 0.5  # share of images with one and the same caption
REPEATING = 0.25  # share of captions that run in circles


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

"""Warnings: too few photos to learn from, and captions of a validation that a reward made worse than its score says.

A reward can be won without better captions: by more words, by captions that never end, by one safe caption for all.
Under a reward the captions of each validation are compared with those of the starting weights.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping

from showtell.captions import Caption
from showtell.features import EncoderConfig
from showtell.scores import diagnose

# Photos below which a run that starts afresh is warned. From scratch: measured on drawn scenes (docs/lab_notes.md).
# With a pretrained encoder: not measured; sentences are learned from their captions alone.
FEW_FROM_SCRATCH, FEW_PRETRAINED = 1000, 300
MIN_CIDER = 0.05  # of weights that a reward can teach: below, rewards are too alike to tell anything apart
MAX_RATE_INCREASE, MIN_CAPTIONS = 0.05, 3  # of the share of bad captions, and of their number
MAX_LENGTH_RATIO = 1.3  # by which captions may be longer or shorter than those of the start
_HARMFUL_RATES = {  # rates of captions of which an increase is harm, with what it means
    "bad_endings": 'that end in a word like "a" or "with": the end of a caption has to be part of reward and gradient',
    "repeats": "that say words twice in a row: the reward counts words without their order; reward CIDEr-D",
    "cut_off": "that are cut off before they end: let the end be part of the reward, or raise decoding.max_length",
}


def few_photos(images: int, encoder: EncoderConfig) -> str | None:
    """The rest of a sentence that begins with the photos: what to expect of so few, and what to do; None for enough."""
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


def rates_of(captions: Mapping[str, Caption]) -> dict[str, float]:
    """The mean length of captions, and the shares with bad endings, repeats and no end."""
    rates = diagnose(caption.text for caption in captions.values())
    cut_off = statistics.fmean(not caption.finished for caption in captions.values())
    return {"words": rates["mean_length"], "cut_off": cut_off} | {key: rates[key] for key in ("bad_endings", "repeats")}


def harms(captions: Mapping[str, Caption], start: Mapping[str, float]) -> list[str]:
    """How a reward is won without better captions, a sentence each, by the rates of the start; none without these."""
    if not start:
        return []
    rates, sentences = rates_of(captions), []
    before, words = start["words"], rates["words"]
    if words > MAX_LENGTH_RATIO * before:
        sentences.append(
            f"the captions grew from {before:.1f} to {words:.1f} words: the reward is being gamed; reward CIDEr-D, and "
            "let the end count"
        )
    if words < before / MAX_LENGTH_RATIO:
        sentences.append(
            f"the captions shrank from {before:.1f} to {words:.1f} words: the reward is won by saying little; weigh it "
            "less"
        )
    for name, meaning in _HARMFUL_RATES.items():
        rise = rates[name] - start[name]
        if rise > MAX_RATE_INCREASE and round(rise * len(captions)) >= MIN_CAPTIONS:
            sentences.append(
                f"{start[name]:.0%} of the captions at the start, {rates[name]:.0%} now are captions {meaning}"
            )
    return sentences

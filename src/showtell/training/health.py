"""A warning: too few photos to learn from."""

from __future__ import annotations

from showtell.features import EncoderConfig

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

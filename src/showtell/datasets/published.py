"""The sizes of published splits, and warnings about datasets that differ from them or may be mistaken for them.

Karpathy's splits: A. Karpathy, L. Fei-Fei, Deep Visual-Semantic Alignments, CVPR 2015, caption_datasets.zip. His train
of COCO is train2014 and the 30,504 images of val2014 ("restval") that are neither in his val nor in his test.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from showtell.datasets.issues import counted

TRAIN2014 = 82_783


@dataclass(frozen=True)
class PublishedDataset:
    """A published dataset."""

    title: str
    splits: dict[str, int]  # images of Karpathy's splits
    whole: tuple[int, ...]  # images of all splits together, and of the release they were taken from


PUBLISHED = {
    "coco": PublishedDataset("COCO", {"train": 113_287, "val": 5_000, "test": 5_000}, (123_287,)),
    "flickr8k": PublishedDataset("Flickr8k", {"train": 6_000, "val": 1_000, "test": 1_000}, (8_000, 8_091, 8_092)),
    "flickr30k": PublishedDataset("Flickr30k", {"train": 29_000, "val": 1_014, "test": 1_000}, (31_014, 31_783)),
}


def compare_with_published(name: str, images: Mapping[str, int], restval: int = 0) -> list[str]:
    """Warnings about a dataset that is, or could be taken for, a published one.

    Args:
        name: of the dataset in its file, a key of `PUBLISHED` or anything else.
        images: number of images of each split.
        restval: number of images of train that are Karpathy's restval.
    """
    warnings = []
    published = PUBLISHED.get(name)
    wrong = [
        f"{split} has {counted(images.get(split, 0), 'image')}, not {expected:,}"
        for split, expected in (published.splits.items() if published else ())
        if images.get(split, 0) != expected
    ]
    if published and wrong:
        warnings.append(
            f"The file says that this is {published.title} in Karpathy's splits, but {'; '.join(wrong)}: scores are "
            "not comparable with published ones."
        )
    if images.get("train") == TRAIN2014 and not restval:
        rest = PUBLISHED["coco"].splits["train"] - TRAIN2014
        warnings.append(
            f"train has {TRAIN2014:,} images, which is COCO's train2014 alone: Karpathy's train has {rest:,} images "
            "of val2014 more (restval), so scores are not comparable with those of models that learned from his; "
            "dataset_coco.json has his splits (showtell data get coco)."
        )
    test = images.get("test", 0)
    for one in PUBLISHED.values():
        if test in one.whole:
            warnings.append(
                f"test has {test:,} images, which is all of {one.title}: Karpathy's test is {one.splits['test']:,} of "
                "them, and models learn from most of the others, so a score on all is not comparable and flatters who "
                "trained on them."
            )
    return warnings

"""What is known of an image beside its pixels: one record for `score`, `evaluate` and explanations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # scores alone reach neither datasets nor scenes
    from showtell.datasets.records import Box, CaptionDataset, CaptionRecord
    from showtell.scenes import Scene

# What a score may ask for.
Need = Literal["references", "images", "scenes", "objects", "document_frequency", "weights"]


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """One image: its references and, where they are known, its annotated objects, its scene and its file."""

    references: tuple[str, ...] = ()
    objects: frozenset[str] | None = None  # annotated categories; None where the image was not annotated
    scene: Scene | None = None  # of a drawn image
    path: Path | None = None
    categories: frozenset[str] = frozenset()  # that may be annotated in images of its dataset

    def lacks(self, need: Need) -> bool:
        """Whether the image does not have what a score needs of it."""
        known = {"references": "references", "images": "path", "scenes": "scene", "objects": "objects"}.get(need)
        return known is not None and getattr(self, known) in (None, ())  # the other needs are not of an image


def image_facts(dataset: CaptionDataset, records: Sequence[CaptionRecord] | None = None) -> dict[str, ImageFacts]:
    """What a dataset knows of its images, by image id.

    Args:
        dataset: in any form that `datasets/` reads; where it was drawn, its scenes are read as well.
        records: the images, such as those of a split; None: all of them.

    Raises:
        DataError: the scenes of the dataset are damaged.
    """
    if dataset.parts:
        wanted = dataset.records if records is None else records
        facts: dict[str, ImageFacts] = {}
        for name, root in dataset.parts.items():
            facts |= _facts_of(dataset, root, f"{name}/", [record for record in wanted if record.part == name])
        return {record.image_id: facts[record.image_id] for record in wanted}
    return _facts_of(dataset, dataset.root, "", dataset.records if records is None else records)


def _facts_of(
    dataset: CaptionDataset, root: Path, prefix: str, records: Sequence[CaptionRecord]
) -> dict[str, ImageFacts]:
    """What a dataset, or a part of it at a root whose ids have a prefix, knows of some of its images."""
    from showtell.scenes import read_scenes

    scenes = read_scenes(root) if root.is_dir() else None
    part = prefix.removesuffix("/")
    # the shapes of scenes are judged by truth, which knows their synonyms
    boxes = (box for record in dataset.records if record.part == part for box in record.boxes or ())
    categories = frozenset() if scenes is not None else _categories(boxes)
    return {
        record.image_id: ImageFacts(
            references=record.captions + ("",) * record.empty,
            objects=None if scenes is not None or record.boxes is None else _categories(record.boxes),
            scene=None if scenes is None else scenes.get(record.image_id.removeprefix(prefix)),
            path=record.path,
            categories=categories,
        )
        for record in records
    }


def _categories(boxes: Iterable[Box]) -> frozenset[str]:
    return frozenset(box.category for box in boxes)

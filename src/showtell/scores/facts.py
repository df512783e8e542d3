"""What is known of an image beside its pixels: one record for `score`, `evaluate` and explanations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:  # scores alone reach neither datasets nor scenes
    from showtell.datasets.records import Box, CaptionDataset
    from showtell.scenes import Scene

# What a score may ask for.
Need = Literal["references", "images", "scenes", "objects", "document_frequency", "clip"]


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


def image_facts(dataset: CaptionDataset) -> dict[str, ImageFacts]:
    """What is known of the images of a dataset, or of a split of one, by image id.

    Raises:
        DataError: it was drawn, and its scenes are damaged.
    """
    facts: dict[str, ImageFacts] = {}
    for part, root in (dataset.parts or {"": dataset.root}).items():
        facts |= _facts_of(dataset, part, root)
    return {record.image_id: facts[record.image_id] for record in dataset}


def _facts_of(dataset: CaptionDataset, part: str, root: Path) -> dict[str, ImageFacts]:
    """What is known of the images of a part of a dataset of several; of another the part has no name."""
    from showtell.scenes import read_scenes

    scenes = read_scenes(root) if root.is_dir() else None
    # the shapes of scenes are judged by truth, which knows their synonyms
    boxes = (box for record in dataset.whole or dataset if record.part == part for box in record.boxes or ())
    categories = frozenset() if scenes is not None else _categories(boxes)
    return {
        record.image_id: ImageFacts(
            references=record.captions + ("",) * record.empty,
            objects=None if scenes is not None or record.boxes is None else _categories(record.boxes),
            scene=None if scenes is None else scenes.get(record.image_id.removeprefix(f"{part}/")),
            path=record.path,
            categories=categories,
        )
        for record in dataset
        if record.part == part
    }


def _categories(boxes: Iterable[Box]) -> frozenset[str]:
    return frozenset(box.category for box in boxes)

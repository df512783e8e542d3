"""The annotations of a scenes dataset: COCO captions and instances for each split, and the scene of every image."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from showtell.errors import DataError
from showtell.files import read_json, write_json
from showtell.scenes.captions import SceneCaption
from showtell.scenes.outlines import area, box
from showtell.scenes.world import COLOURS, PATTERNS, SHAPES, SIZES, UNITS, Item, Scene

SPLITS = ("train", "val", "test", "test_compositional")


@dataclass(frozen=True, slots=True)
class SceneRecord:
    """One image of the dataset: its id, scene and captions."""

    image_id: int
    split: str
    scene: Scene
    captions: tuple[SceneCaption, ...]


def file_name(image_id: int) -> str:
    """File name of an image."""
    return f"{image_id:06d}.png"


def box_id(image_id: int, index: int) -> int:
    """Id in COCO instances of an item, by its index in the scene."""
    return image_id * 10 + index + 1


def write_annotations(folder: Path, records: list[SceneRecord], settings: dict[str, Any]) -> None:
    """Write the captions and instances of each split, and the scenes of all images, into a folder."""
    size = settings["size"]
    categories = [
        {"id": number, "name": shape, "supercategory": "shape"} for number, shape in enumerate(SHAPES, start=1)
    ]
    for split in SPLITS:
        members = [record for record in records if record.split == split]
        images = [
            {"id": record.image_id, "file_name": file_name(record.image_id), "width": size, "height": size}
            for record in members
        ]
        common = {"info": {"description": "showtell scenes", **settings}, "licenses": [], "images": images}
        captions = itertools.chain.from_iterable(map(_caption_annotations, members))
        instances = itertools.chain.from_iterable(_instance_annotations(record, size) for record in members)
        write_json(folder / f"captions_{split}.json", {**common, "annotations": list(captions)})
        write_json(
            folder / f"instances_{split}.json", {**common, "annotations": list(instances), "categories": categories}
        )
    scenes = {str(record.image_id): asdict(record.scene) for record in records}
    write_json(folder / "scenes.json", {**settings, "scenes": scenes})


def _caption_annotations(record: SceneRecord) -> Iterator[dict[str, Any]]:
    for number, caption in enumerate(record.captions, start=1):
        yield {
            "id": record.image_id * 10 + number,
            "image_id": record.image_id,
            "caption": caption.text,
            "grounding": [
                {
                    "first": grounding.first,
                    "end": grounding.end,
                    "boxes": [box_id(record.image_id, index) for index in grounding.boxes],
                }
                for grounding in caption.groundings
            ],
        }


def _instance_annotations(record: SceneRecord, size: int) -> Iterator[dict[str, Any]]:
    scale = size / UNITS
    for index, item in enumerate(record.scene.items):
        yield {
            "id": box_id(record.image_id, index),
            "image_id": record.image_id,
            "category_id": SHAPES.index(item.shape) + 1,
            "bbox": [round(edge * scale, 2) for edge in box(item)],
            "area": round(area(item) * scale**2, 2),
            "iscrowd": 0,
            "attributes": {"colour": item.colour, "size": item.size, "pattern": item.pattern},
        }


def read_scenes(folder: Path) -> dict[str, Scene] | None:
    """The scene of every image of a scenes dataset, by image id; None if the folder holds no such dataset.

    Raises:
        DataError: the file of scenes is damaged.
    """
    path = folder / "annotations" / "scenes.json"
    if not path.is_file():
        return None
    try:
        return {image_id: _parse_scene(entry) for image_id, entry in read_json(path)["scenes"].items()}
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise DataError(
            f"{path} does not hold the scenes of a dataset ({json.dumps(str(error))}); draw the dataset again."
        ) from error


def _parse_scene(entry: dict[str, Any]) -> Scene:
    items = tuple(Item(**item) for item in entry["items"])
    for item in items:
        known = (item.shape in SHAPES, item.colour in COLOURS, item.size in SIZES, item.pattern in PATTERNS)
        if not all(known) or not all(0 <= number <= UNITS for number in (item.x, item.y, item.extent)):
            raise ValueError(f"unknown item {item}")
    return Scene(entry["background"], items)

"""The annotations of a scenes dataset: COCO captions and instances for each split, and the scene of every image."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from showtell.datasets.records import Grounding
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
    categories = [{"id": id_, "name": shape, "supercategory": "shape"} for id_, shape in enumerate(SHAPES, start=1)]
    for split in SPLITS:
        members = [record for record in records if record.split == split]
        ids = [record.image_id for record in members]
        images = [{"id": id_, "file_name": file_name(id_), "width": size, "height": size} for id_ in ids]
        common = {"info": {"description": "showtell scenes", **settings}, "licenses": [], "images": images}
        captions = [entry for record in members for entry in _caption_entries(record)]
        instances = [entry for record in members for entry in _instance_entries(record, size / UNITS)]
        write_json(folder / f"captions_{split}.json", {**common, "annotations": captions})
        write_json(folder / f"instances_{split}.json", {**common, "annotations": instances, "categories": categories})
    scenes = {str(record.image_id): asdict(record.scene) for record in records}
    write_json(folder / "scenes.json", {**settings, "scenes": scenes})


def _caption_entries(record: SceneRecord) -> list[dict[str, Any]]:
    image = record.image_id

    def grounding(own: Grounding) -> dict[str, Any]:
        return {"first": own.first, "end": own.end, "boxes": [box_id(image, index) for index in own.boxes]}

    return [
        {
            "id": image * 10 + number,
            "image_id": image,
            "caption": caption.text,
            "grounding": list(map(grounding, caption.groundings)),
        }
        for number, caption in enumerate(record.captions, start=1)
    ]


def _instance_entries(record: SceneRecord, scale: float) -> list[dict[str, Any]]:
    return [
        {
            "id": box_id(record.image_id, index),
            "image_id": record.image_id,
            "category_id": SHAPES.index(item.shape) + 1,
            "bbox": [round(edge * scale, 2) for edge in box(item)],
            "area": round(area(item) * scale**2, 2),
            "iscrowd": 0,
            "attributes": {"colour": item.colour, "size": item.size, "pattern": item.pattern},
        }
        for index, item in enumerate(record.scene.items)
    ]


def read_scenes(folder: Path) -> dict[str, Scene] | None:
    """The scene of each image of a scenes dataset, by id; None if there is none; a DataError if its file is damaged."""
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

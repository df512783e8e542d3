"""The scenes dataset on disk, in COCO format, and the scenes read back from it.

    images/000001.png ...                                  numbers run on over the splits
    annotations/captions_{train,val,test,test_compositional}.json   COCO captions, with "grounding"
    annotations/instances_{...}.json                       COCO instances: categories are shapes
    annotations/scenes.json                                what every picture shows, and how all was drawn

Picture k of a split depends on (seed, split, k) and on nothing else. The pictures are written first and all
annotations appear at once, last, so a folder that was interrupted does not look complete; `unfinished.json`
marks it until then.
"""

from __future__ import annotations

import itertools
import json
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from typing import Any

from showtell.errors import DataError, UsageError
from showtell.files import read_json, recover_folder, write_folder, write_json
from showtell.processes import usable_cores
from showtell.scenes.language import LANGUAGE_VERSION, Caption, captions
from showtell.scenes.pictures import draw
from showtell.scenes.sampling import sample_scene
from showtell.scenes.world import SHAPES, UNITS, Item, Scene, area, box

SPLITS = ("train", "val", "test", "test_compositional")
SHARES = {"val": 0.04, "test": 0.06, "test_compositional": 0.06}  # the rest is train
CAPTIONS = 5  # of each image
CHUNK = 100  # images that a process draws at a time
ALONE = 400  # fewer images than this are drawn sooner than another process has started
SMALLEST = 48  # pixels; below, patterns cannot be seen
UNFINISHED = "unfinished.json"

_Chunk = tuple[Path, int, int, str, int, int, int]  # folder, seed, size, split, first k, first id, count


@dataclass(frozen=True, slots=True)
class Drawn:
    """One image of the dataset: its number, what it shows and what is said of it."""

    image_id: int
    split: str
    scene: Scene
    captions: tuple[Caption, ...]


def split_sizes(images: int) -> dict[str, int]:
    """How many images each split gets: of 5,000, 4,200, 200, 300 and 300; none is empty.

    Raises:
        UsageError: there are fewer images than splits.
    """
    if images < len(SPLITS):
        raise UsageError(f"{images} images are too few: scenes has {len(SPLITS)} splits of at least one image each.")
    sizes = {split: max(1, round(images * share)) for split, share in SHARES.items()}
    return {"train": images - sum(sizes.values()), **sizes}


def make(seed: int, split: str, k: int) -> tuple[Scene, tuple[Caption, ...]]:
    """Picture k of a split and its captions, from these three alone."""
    name = f"{seed}/{split}/{k}"
    scene = sample_scene(Random(f"{name}/scene"), compositional=split == "test_compositional")
    return scene, captions(Random(f"{name}/captions"), scene, CAPTIONS)


def file_name(image_id: int) -> str:
    """The name of an image's file."""
    return f"{image_id:06d}.png"


def box_id(image_id: int, place: int) -> int:
    """The id in COCO instances of the item at a place of a scene."""
    return image_id * 10 + place + 1


def _draw_chunk(chunk: _Chunk) -> list[Drawn]:
    folder, seed, size, split, first, first_id, count = chunk
    drawn = []
    for offset in range(count):
        scene, texts = make(seed, split, first + offset)
        image_id = first_id + offset
        draw(scene, size).save(folder / "images" / file_name(image_id), compress_level=6)
        drawn.append(Drawn(image_id, split, scene, texts))
    return drawn


def _chunks(folder: Path, images: int, seed: int, size: int) -> list[_Chunk]:
    chunks = []
    next_id = 1
    for split, count in split_sizes(images).items():
        for first in range(0, count, CHUNK):
            length = min(CHUNK, count - first)
            chunks.append((folder, seed, size, split, first, next_id, length))
            next_id += length
    return chunks


def draw_all(
    folder: Path, images: int, seed: int, size: int, processes: int, progress: Callable[[int], None] | None
) -> list[Drawn]:
    """Draw every picture into folder/images; the outcome does not depend on the number of processes."""
    chunks = _chunks(folder, images, seed, size)
    drawn: list[Drawn] = []

    def collect(parts: Iterator[list[Drawn]]) -> None:
        for part in parts:
            drawn.extend(part)
            if progress is not None:
                progress(len(part))

    if processes == 1:
        collect(map(_draw_chunk, chunks))
    else:
        # "spawn": a forked child of a process that has threads (torch has) may hang.
        context = multiprocessing.get_context("spawn")
        try:
            with ProcessPoolExecutor(processes, mp_context=context) as pool:
                collect(pool.map(_draw_chunk, chunks))
        except BrokenProcessPool as error:
            raise UsageError(
                "A process that draws scenes has died; a script that calls write_scenes must do so under "
                '`if __name__ == "__main__":`, and a machine must have the memory.'
            ) from error
    return drawn


def _caption_annotations(image: Drawn) -> Iterator[dict[str, Any]]:
    for number, caption in enumerate(image.captions, start=1):
        yield {
            "id": image.image_id * 10 + number,
            "image_id": image.image_id,
            "caption": caption.text,
            "grounding": [
                {
                    "first": span.first,
                    "end": span.end,
                    "boxes": [box_id(image.image_id, place) for place in span.boxes],
                }
                for span in caption.groundings
            ],
        }


def _instance_annotations(image: Drawn, size: int) -> Iterator[dict[str, Any]]:
    scale = size / UNITS
    for place, item in enumerate(image.scene.items):
        yield {
            "id": box_id(image.image_id, place),
            "image_id": image.image_id,
            "category_id": SHAPES.index(item.shape) + 1,
            "bbox": [round(edge * scale, 2) for edge in box(item)],
            "area": round(area(item) * scale**2, 2),
            "iscrowd": 0,
            "attributes": {"colour": item.colour, "size": item.size, "pattern": item.pattern},
        }


def write_annotations(folder: Path, drawn: list[Drawn], arguments: dict[str, Any]) -> None:
    """Write the captions and instances of each split, and what all pictures show, into a folder."""
    size = arguments["size"]
    info = {"description": "showtell scenes", **arguments}
    categories = [
        {"id": number, "name": shape, "supercategory": "shape"} for number, shape in enumerate(SHAPES, start=1)
    ]
    for split in SPLITS:
        part = [image for image in drawn if image.split == split]
        images = [
            {"id": image.image_id, "file_name": file_name(image.image_id), "width": size, "height": size}
            for image in part
        ]
        texts = itertools.chain.from_iterable(_caption_annotations(image) for image in part)
        boxes = itertools.chain.from_iterable(_instance_annotations(image, size) for image in part)
        write_json(
            folder / f"captions_{split}.json",
            {"info": info, "licenses": [], "images": images, "annotations": list(texts)},
        )
        write_json(
            folder / f"instances_{split}.json",
            {"info": info, "licenses": [], "images": images, "annotations": list(boxes), "categories": categories},
        )
    scenes = {str(image.image_id): asdict(image.scene) for image in drawn}
    write_json(folder / "scenes.json", {**arguments, "scenes": scenes})


def _is_complete(folder: Path, arguments: dict[str, Any]) -> bool:
    """Whether a folder holds exactly the dataset asked for.

    Raises:
        DataError: it holds something else.
    """
    recover_folder(folder / "annotations")
    facts = folder / "annotations" / "scenes.json"
    if facts.exists():
        found = read_json(facts)
        differences = [f"{name} {found.get(name)}" for name, value in arguments.items() if found.get(name) != value]
        if differences:
            raise DataError(
                f"{folder} already holds scenes drawn with other settings ({', '.join(differences)}); "
                "choose another folder, or delete this one first."
            )
        names = {path.name for path in (folder / "images").glob("*.png")}
        return all(file_name(int(image_id)) in names for image_id in found["scenes"])
    if (folder / UNFINISHED).exists() or not folder.exists():
        return False
    if not folder.is_dir():
        raise DataError(f"{folder} is a file; scenes are written to a folder: name a new or an empty one.")
    if any(folder.iterdir()):
        raise DataError(
            f"{folder} is not empty and holds no scenes dataset; nothing was written: name a new or an empty folder."
        )
    return False


def write_scenes(
    folder: Path,
    images: int = 5000,
    seed: int = 0,
    size: int = 96,
    progress: Callable[[int], None] | None = None,
) -> None:
    """Draw the dataset into a folder; one that is there already and complete is left as it is.

    From about 400 images on, one process per core draws; a script that calls this needs the usual
    `if __name__ == "__main__":`.

    Args:
        folder: new, empty, or what an earlier call with the same settings wrote or began to write.
        images: of all splits together, at least 4.
        seed: the same seed gives the same files, byte for byte.
        size: width and height of the pictures in pixels, at least 48.
        progress: called with the number of images drawn since the last call.

    Raises:
        UsageError: too few images, or too small ones; or a drawing process died.
        DataError: the folder holds something else, or cannot be written to.
    """
    split_sizes(images)
    if size < SMALLEST:
        raise UsageError(f"Scenes of {size} pixels are too small to see patterns in; {SMALLEST} is the least.")
    arguments = {"language": LANGUAGE_VERSION, "images": images, "seed": seed, "size": size}
    if _is_complete(folder, arguments):
        (folder / UNFINISHED).unlink(missing_ok=True)
        return
    try:
        write_json(folder / UNFINISHED, arguments)
        (folder / "images").mkdir(exist_ok=True)
        for path in (folder / "images").glob("[0-9]*.png"):  # of an interrupted run, perhaps a longer one
            path.unlink()
        processes = 1 if images < ALONE else usable_cores()
        drawn = draw_all(folder, images, seed, size, processes, progress)
        write_folder(folder / "annotations", lambda new: write_annotations(new, drawn, arguments))
        (folder / UNFINISHED).unlink()
    except OSError as error:
        raise DataError(f"Cannot write {folder}: {error.strerror or error}.") from error


def read_scenes(folder: Path) -> dict[str, Scene] | None:
    """What every picture of a scenes dataset shows, by image id; None when the folder holds no such dataset.

    Raises:
        DataError: the facts are damaged.
    """
    path = folder / "annotations" / "scenes.json"
    if not path.is_file():
        return None
    try:
        return {
            image_id: Scene(facts["background"], tuple(Item(**item) for item in facts["items"]))
            for image_id, facts in read_json(path)["scenes"].items()
        }
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{path} does not hold the facts of scenes ({json.dumps(str(error))}); draw the dataset again."
        ) from error

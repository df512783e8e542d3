"""The scenes dataset on disk, in COCO format (`docs/scenes.md` lists its files).

Image k of a split depends on (seed, split, k) and on nothing else. The images are written first and all annotations
appear at once, last, so an interrupted folder does not look complete; `unfinished.json` marks it until then. One
process writes at a time: it holds the folder's lock.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from showtell.cores import usable_cores
from showtell.datasets.image_files import UNFINISHED
from showtell.errors import DataError, UsageError
from showtell.files import read_json, recover_folder, write_folder, write_json
from showtell.processes import lock_folder, worker_pool
from showtell.scenes.annotations import SPLITS, SceneRecord, file_name, write_annotations
from showtell.scenes.captions import SceneCaption, write_captions
from showtell.scenes.lexicon import LANGUAGE_VERSION
from showtell.scenes.rendering import render
from showtell.scenes.sampling import sample_scene
from showtell.scenes.world import Scene

SHARES = {"val": 0.04, "test": 0.06, "test_compositional": 0.06}  # the rest is train
CAPTIONS = 5  # captions of each image
CHUNK = 100  # images per task of a worker process
MIN_FOR_WORKERS = 400  # fewer images are drawn sooner than a worker process has started
MAX_IMAGES = 999_999  # as many as six digits number
MIN_SIZE, MAX_SIZE = 48, 4096  # pixels; below, patterns cannot be seen


def split_sizes(images: int) -> dict[str, int]:
    """Number of images of each split: of 5,000, 4,200, 200, 300 and 300; none is empty.

    Raises:
        UsageError: there are fewer images than splits, or more than a dataset can have.
    """
    if images < len(SPLITS):
        raise UsageError(f"{images} images are too few: scenes has {len(SPLITS)} splits of at least one image each.")
    if images > MAX_IMAGES:
        raise UsageError(f"{images} images are too many: scenes has {MAX_IMAGES:,} at most.")
    sizes = {split: max(1, round(images * share)) for split, share in SHARES.items()}
    return {"train": images - sum(sizes.values()), **sizes}


def sample_image(seed: int, split: str, k: int) -> tuple[Scene, tuple[SceneCaption, ...]]:
    """Scene and captions of image k of a split, a function of these three alone."""
    name = f"{seed}/{split}/{k}"
    scene = sample_scene(Random(f"{name}/scene"), compositional=split == "test_compositional")
    return scene, write_captions(Random(f"{name}/captions"), scene, CAPTIONS)


def draw_all(
    folder: Path, images: int, seed: int, size: int, processes: int, progress: Callable[[int], None]
) -> list[SceneRecord]:
    """Draw every image into folder/images; the result does not depend on the number of processes."""
    numbered = enumerate(((split, k) for split, count in split_sizes(images).items() for k in range(count)), start=1)
    tasks, records = list(numbered), []
    draws = [partial(_draw, folder, seed, size, tasks[first : first + CHUNK]) for first in range(0, images, CHUNK)]

    def collect(part: list[SceneRecord]) -> None:
        records.extend(part)
        progress(len(part))

    if processes == 1:
        for draw in draws:
            collect(draw())
        return records
    try:
        with worker_pool(processes) as pool:
            # Not pool.map: after an interrupt it cancels what the pool itself reports as broken.
            for future in [pool.submit(draw) for draw in draws]:
                collect(future.result())
    except BrokenProcessPool as error:
        raise UsageError(
            "A process that draws scenes has died; a script that calls write_scenes must do so under "
            '`if __name__ == "__main__":`, and a machine must have the memory.'
        ) from error
    return records


def _draw(folder: Path, seed: int, size: int, tasks: list[tuple[int, tuple[str, int]]]) -> list[SceneRecord]:
    """Draw images, (id, (split, k))."""
    records = []
    for image_id, (split, k) in tasks:
        scene, captions = sample_image(seed, split, k)
        render(scene, size).save(folder / "images" / file_name(image_id), compress_level=6)
        records.append(SceneRecord(image_id, split, scene, captions))
    return records


def write_scenes(
    folder: Path, images: int = 5000, seed: int = 0, size: int = 96, progress: Callable[[int], None] = lambda done: None
) -> None:
    """Draw the dataset into a folder; a complete one is left as it is, an incomplete one is drawn again.

    From 400 images on, one process per core draws; a script that calls this needs the usual
    `if __name__ == "__main__":`.

    Args:
        folder: new, empty, or written by an earlier call with the same settings, finished or not.
        images: number of images in all splits, 4 to 999,999.
        seed: the same seed gives the same files, byte for byte.
        size: width and height of the images in pixels, 48 to 4,096.
        progress: called with the number of images drawn since the last call.

    Raises:
        UsageError: too few or too many images, or too small or large ones; or a drawing process died.
        DataError: the folder holds something else, another process is writing to it, or it cannot be written to.
    """
    split_sizes(images)
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise UsageError(f"Scenes of {size} pixels cannot be drawn; {MIN_SIZE} to {MAX_SIZE} are allowed.")
    settings = {"language": LANGUAGE_VERSION, "images": images, "seed": seed, "size": size}
    if _is_complete(folder, settings):
        return
    with lock_folder(folder, "drawing scenes into", "another folder"):
        recover_folder(folder / "annotations")
        if _is_complete(folder, settings):  # by the process that held the lock before
            return
        try:
            write_json(folder / UNFINISHED, settings)
            (folder / "images").mkdir(exist_ok=True)
            for path in (folder / "images").glob("[0-9]*.png"):  # of an interrupted run, perhaps a longer one
                path.unlink()
            processes = 1 if images < MIN_FOR_WORKERS else usable_cores()
            records = draw_all(folder, images, seed, size, processes, progress)
            write_folder(folder / "annotations", lambda new: write_annotations(new, records, settings))
            (folder / UNFINISHED).unlink()
        except OSError as error:
            raise DataError(f"Cannot write {folder}: {error.strerror or error}.") from error


def _is_complete(folder: Path, settings: dict[str, Any]) -> bool:
    """Whether all annotations and images are there; a DataError if there is anything but scenes of these settings."""
    if folder.is_file():
        raise DataError(f"{folder} is a file; scenes are written to a folder.")
    names = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if "annotations" not in names:
        if UNFINISHED not in names and not all(name.startswith(".") for name in names):
            raise DataError(f"{folder} is not empty and holds no scenes dataset; nothing was written.")
        return False
    try:
        written = read_json(folder / "annotations" / "scenes.json")
    except DataError as error:
        raise DataError(f"{error} Delete {folder}, or choose another folder.") from error
    other = [f"{name} {written.get(name)}" for name, value in settings.items() if written.get(name) != value]
    if other:
        raise DataError(
            f"{folder} already holds scenes drawn with other settings ({', '.join(other)}); choose another folder."
        )
    return UNFINISHED not in names and len(list((folder / "images").glob("[0-9]*.png"))) == settings["images"]

"""The scenes dataset on disk, in COCO format (`docs/scenes.md` lists its files).

Image k of a split depends on (seed, split, k) and on nothing else. One process at a time draws the dataset, into a
hidden folder beside its own, which gets its name when it is complete.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from showtell.cores import usable_cores
from showtell.errors import DataError, UsageError
from showtell.files import locked, read_json
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
    """Number of images of each split, none empty: of 5,000, 4,200, 200, 300 and 300."""
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
    counts = split_sizes(images).items()
    tasks = list(enumerate(((split, k) for split, count in counts for k in range(count)), start=1))
    draw, chunks = partial(_draw, folder, seed, size), [tasks[at : at + CHUNK] for at in range(0, images, CHUNK)]
    records: list[SceneRecord] = []
    pool = None
    if processes > 1:  # spawned: a forked child of a process that has threads (torch has) may hang
        pool = ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _follow_parent)
    try:
        for part in (pool.map if pool else map)(draw, chunks):
            records += part
            progress(len(part))
    finally:
        if pool is not None:
            pool.shutdown(cancel_futures=True)
    return records


def _follow_parent() -> None:
    """Leave Ctrl-C to the parent of this worker process, and end when the parent does, even if that is killed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)

    def watch() -> None:
        if (parent := multiprocessing.parent_process()) is not None:
            parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


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
    """Draw the dataset into a folder; one that is there is left as it is.

    From 400 images on, one process per core draws; a script that calls this needs the usual
    `if __name__ == "__main__":`.

    Args:
        folder: new, empty, or written by an earlier call with the same settings.
        images: number of images in all splits, 4 to 999,999.
        seed: the same seed gives the same files, byte for byte.
        size: width and height of the images in pixels, 48 to 4,096.
        progress: called with the number of images drawn since the last call.

    Raises:
        UsageError: too few or too many images, or too small or large ones; or a drawing process died.
        DataError: the folder holds something else, another process draws it, or it cannot be written to.
    """
    split_sizes(images)
    if not MIN_SIZE <= size <= MAX_SIZE:
        raise UsageError(f"Scenes of {size} pixels cannot be drawn; {MIN_SIZE} to {MAX_SIZE} are allowed.")
    settings = {"language": LANGUAGE_VERSION, "images": images, "seed": seed, "size": size}
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        _require_same(folder, settings)
        return
    new, lock = (folder.absolute().with_name(f".{folder.name}.{part}") for part in ("new", "lock"))
    try:
        new.parent.mkdir(parents=True, exist_ok=True)
        with locked(lock):
            shutil.rmtree(new, ignore_errors=True)  # of a process that was killed
            try:
                (new / "images").mkdir(parents=True)
                (new / "annotations").mkdir()
                processes = 1 if images < MIN_FOR_WORKERS else usable_cores()
                write_annotations(new / "annotations", draw_all(new, images, seed, size, processes, progress), settings)
                new.rename(folder)
            finally:
                shutil.rmtree(new, ignore_errors=True)
    except BlockingIOError as error:
        raise DataError(
            f"Another program is drawing scenes into {folder}; wait for it, or choose another folder."
        ) from error
    except BrokenProcessPool as error:
        raise UsageError(
            "A process that draws scenes has died; a script that calls write_scenes must do so under "
            '`if __name__ == "__main__":`, and a machine must have the memory.'
        ) from error
    except OSError as error:
        raise DataError(f"Cannot write {folder}: {error.strerror or error}.") from error


def _require_same(folder: Path, settings: dict[str, Any]) -> None:
    """Raise a DataError if a folder holds anything but scenes of these settings."""
    scenes = folder / "annotations" / "scenes.json"
    if not scenes.is_file():
        raise DataError(f"{folder} holds no scenes dataset and is not empty; nothing was written.")
    written = read_json(scenes)
    other = [f"{name} {written.get(name)}" for name, value in settings.items() if written.get(name) != value]
    if other:
        raise DataError(
            f"{folder} already holds scenes drawn with other settings ({', '.join(other)}); choose another folder."
        )

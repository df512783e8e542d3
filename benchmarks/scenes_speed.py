"""How fast scenes are drawn: images with captions on disk, against writing as many PNG files alone.

    python benchmarks/scenes_speed.py [--images 5000] [--json]

The bare pass encodes and writes pictures that are drawn already, in one process; `data scenes` uses one process
per core. A ratio of 3: placing the shapes, checking that no relation is a border case, drawing, five captions per image
and the annotations take, together, three times as long as the PNG files would alone.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from rows import show
from showtell.scenes import write_scenes
from showtell.scenes.dataset import sample_image
from showtell.scenes.rendering import render


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    pictures = [render(sample_image(0, "train", k)[0]) for k in range(min(arguments.images, 1000))]
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        write_scenes(Path(folder, "scenes"), images=arguments.images)
        drawn = time.perf_counter()
        for k in range(arguments.images):
            pictures[k % len(pictures)].save(Path(folder, f"{k}.png"))
        whole, bare = drawn - began, time.perf_counter() - drawn
    row = {
        "name": f"write_scenes_{arguments.images}",
        "value": whole,
        "unit": "seconds",
        "against": f"encoding and writing {arguments.images} PNG files alone, one process",
        "ratio": whole / bare,
    }
    show([row], arguments.json)


if __name__ == "__main__":
    main()

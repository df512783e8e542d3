"""How fast scenes are drawn: 5,000 images with captions on disk, against writing as many PNG files alone.

    python benchmarks/scenes_speed.py [--images 5000] [--json]

The bare pass encodes and writes the same pictures, already drawn, in one process; `showtell data scenes` uses one
process per core. A ratio of 3 means that placing the shapes, checking that no relation is a border case, drawing,
five captions per image and the annotations take, together, three times as long as the PNG files would alone.
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
from showtell.scenes.truth import judge

JUDGED = 1000  # images whose captions are judged


def seconds(images: int) -> dict[str, float]:
    """Seconds to write the dataset, to write its pictures alone, and to judge a caption."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        began = time.perf_counter()
        write_scenes(folder / "scenes", images=images)
        whole = time.perf_counter() - began

        scenes = [sample_image(0, "train", k) for k in range(min(images, JUDGED))]
        pictures = [render(scene) for scene, _ in scenes]
        began = time.perf_counter()
        for k in range(images):
            pictures[k % len(pictures)].save(folder / f"{k}.png")
        bare = time.perf_counter() - began

    began = time.perf_counter()
    for scene, captions in scenes:
        for caption in captions:
            judge(caption.text, scene)
    judging = (time.perf_counter() - began) / sum(len(captions) for _, captions in scenes)
    return {"whole": whole, "bare": bare, "judging": judging}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    took = seconds(arguments.images)
    against = f"encoding and writing {arguments.images} PNG files alone, one process"
    rows = [
        {
            "name": f"write_scenes_{arguments.images}",
            "value": took["whole"],
            "unit": "seconds",
            "against": against,
            "ratio": took["whole"] / took["bare"],
        },
        {
            "name": "judge_caption",
            "value": 1000 * took["judging"],
            "unit": "milliseconds",
            "against": "encoding and writing one PNG file",
            "ratio": took["judging"] / (took["bare"] / arguments.images),
        },
    ]
    show(rows, arguments.json)


if __name__ == "__main__":
    main()

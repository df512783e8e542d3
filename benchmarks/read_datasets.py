"""How fast a file of captions as large as COCO's is read and checked, against json.load of it alone.

    python benchmarks/read_datasets.py [--images 123287] [--json]

The file is synthetic, with as many captions as the real one and no images. Each measurement is a process of its own, so
that its greatest memory is its own too; a ratio of 2 means twice the seconds, or the megabytes, of a process that calls
json.load and nothing else.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path

from rows import show

IMAGES, CAPTIONS_EACH = 123_287, 5
_WORDS = [f"{'bcdfgklmnprst'[k % 13]}{'aeiou'[k % 5]}{'nrstlmdg'[k % 8]}{k}" for k in range(9_000)]
_WORK = {
    "bare": "import json; json.load(open(path, encoding='utf-8'))",
    "read": "from showtell.datasets import read_dataset; read_dataset(path)",
    "check": "from showtell.datasets import read_dataset; from showtell.datasets.check import check_dataset; "
    "check_dataset(read_dataset(path), open_images=False)",
}
_MEASURED = """
import resource, sys, time
path = sys.argv[1]
began = time.perf_counter()
{work}
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write_file(file: Path, images: int) -> None:
    """Write synthetic captions in COCO's form."""
    rng = random.Random(0)
    listed = [{"id": k, "file_name": f"{k:012}.jpg", "height": 480, "width": 640, "license": 3} for k in range(images)]
    annotations = [
        {"id": k, "image_id": k // CAPTIONS_EACH, "caption": " ".join(rng.choices(_WORDS, k=rng.randint(8, 14)))}
        for k in range(images * CAPTIONS_EACH)
    ]
    file.write_text(json.dumps({"images": listed, "annotations": annotations}), encoding="utf-8")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    took = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "captions_train.json")
        write_file(file, arguments.images)
        for name, work in _WORK.items():
            command = [sys.executable, "-c", _MEASURED.format(work=work), str(file)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            took[name] = [float(number) for number in printed.split()]
    rows = [
        {
            "name": f"{name}_coco_{arguments.images}_{unit}",
            "value": took[name][index],
            "unit": unit,
            "against": "json.load of the same file in a process alone",
            "ratio": took[name][index] / took["bare"][index],
        }
        for name in ("read", "check")
        for index, unit in enumerate(("seconds", "megabytes"))
    ]
    show(rows, arguments.json)


if __name__ == "__main__":
    main()

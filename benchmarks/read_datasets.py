"""How fast a file of captions as large as Karpathy's COCO split is read and checked, against json.load of it alone.

    python benchmarks/read_datasets.py [--images 123287] [--json]

The files are synthetic: as many images and captions (616,767 for all images) as the real ones, with the words of each
sentence listed beside its text in the one and COCO's many keys in the other. The images themselves are not there.
Each measurement is a process of its own, so that its greatest memory is its own too; a ratio of 2 means twice the
seconds, or the megabytes, of a process that calls json.load and nothing else.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import subprocess
import sys
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from rows import show

IMAGES, CAPTIONS = 123_287, 616_767
_WORDS = [f"{'bcdfgklmnprst'[k % 13]}{'aeiou'[k % 5]}{'nrstlmdg'[k % 8]}{k}" for k in range(9_000)]

# What a measured process does with a file, then the line that it prints: seconds and the most memory in use.
_BARE = "import json; json.load(open(path, encoding='utf-8'))"
_READ = "from showtell.datasets import read_dataset; read_dataset(path)"
_CHECK = (
    "from showtell.datasets import read_dataset; from showtell.datasets.check import check_dataset; "
    "check_dataset(read_dataset(path), open_images=False)"
)
_MEASURED = """
import resource, sys, time
path = sys.argv[1]
began = time.perf_counter()
{work}
print(time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def write_files(folder: Path, images: int, seed: int = 0) -> tuple[Path, Path]:
    """Write the same synthetic captions in Karpathy's form and in COCO's.

    Args:
        folder: to write into.
        images: how many; of all of COCO's there are as many captions as of the real ones.
        seed: of the words.

    Returns:
        The paths of dataset_coco.json and captions_train2014.json.
    """
    rng = random.Random(seed)
    captions = round(CAPTIONS * images / IMAGES)
    karpathy, listed, annotations = [], [], []
    sentence_id = 0
    for index in range(images):
        split = "test" if index % 25 == 0 else "val" if index % 25 == 1 else "restval" if index % 4 == 0 else "train"
        name = f"COCO_val2014_{index + 1:012}.jpg"
        sentences = []
        for _ in range(captions // images + (index < captions % images)):
            words = rng.choices(_WORDS, k=rng.randint(8, 14))
            text = f"{' '.join(words).capitalize()}."
            sentences.append({"tokens": words, "raw": text, "imgid": index, "sentid": sentence_id})
            annotations.append({"image_id": index + 1, "id": sentence_id, "caption": text})
            sentence_id += 1
        karpathy.append(
            {
                "filepath": "val2014",
                "sentids": [sentence["sentid"] for sentence in sentences],
                "filename": name,
                "imgid": index,
                "split": split,
                "sentences": sentences,
                "cocoid": index + 1,
            }
        )
        listed.append(
            {
                "license": 3,
                "file_name": name,
                "coco_url": f"http://images.cocodataset.org/val2014/{name}",
                "height": 480,
                "width": 640,
                "date_captured": "2013-11-14 11:18:45",
                "flickr_url": f"http://farm9.staticflickr.com/8186/{index:010}_8113778c16_z.jpg",
                "id": index + 1,
            }
        )
    files = folder / "dataset_coco.json", folder / "captions_train2014.json"
    files[0].write_text(json.dumps({"images": karpathy, "dataset": "coco"}), encoding="utf-8")
    files[1].write_text(json.dumps({"info": {}, "images": listed, "annotations": annotations}), encoding="utf-8")
    return files


def measured(work: str, path: Path) -> tuple[float, float]:
    """Seconds and megabytes that a process of its own takes for some work on a file."""
    command = [sys.executable, "-c", _MEASURED.format(work=work), str(path)]
    seconds, megabytes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return float(seconds), float(megabytes)


def rows(images: int) -> list[dict[str, object]]:
    """A row for the seconds and one for the megabytes of each kind of work on each form."""
    table: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        # Written by another process: on Linux a process begins with its parent's greatest memory as its own.
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            files = pool.submit(write_files, Path(folder), images).result()
        for form, path in zip(("karpathy", "coco"), files, strict=True):
            bare = measured(_BARE, path)
            for name, work in (("read", _READ), ("check", _CHECK)):
                took = measured(work, path)
                for value, base, unit in zip(took, bare, ("seconds", "megabytes"), strict=True):
                    table.append(
                        {
                            "name": f"{name}_{form}_{images}_{unit}",
                            "value": value,
                            "unit": unit,
                            "against": f"json.load of the same {path.stat().st_size / 1e6:.0f} MB in a process alone",
                            "ratio": value / base,
                        }
                    )
    return table


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=IMAGES)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    show(rows(arguments.images), arguments.json)


if __name__ == "__main__":
    main()

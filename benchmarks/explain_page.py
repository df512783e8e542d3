"""How large the page of explanations is and how long it takes to build, against the photos and against explaining them.

    python benchmarks/explain_page.py [--photos 50] [--models 1] [--repeats 3] [--json]

JPEGs of 640 x 480 with texture, quality 90; ResNet-101 of timm with random weights on pictures of 448 pixels, so that
attention is over 14 x 14 cells; Show, Attend and Tell with 512 everywhere, 9,488 words; five beams, captions of 20
words, which random weights do not end before. The page is to stay under 15 MB for 50 photos, and under 10 seconds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from caption_folder import make_captioner, seconds, write_photos
from rows import show
from showtell.explanations import Explanation, explain_photos
from showtell.reports.explanation_page import write_page

PIXELS = 448


def measure(folder: Path, photos: int, models: int, repeats: int) -> list[dict[str, Any]]:
    """Rows for the page of some photos."""
    paths = write_photos(folder, photos, 640, 480)
    captioners = {f"model {number}": make_captioner(PIXELS) for number in range(1, models + 1)}
    explanations: list[Explanation] = []

    def explain() -> None:
        explanations.extend(one for _, one in explain_photos(captioners, paths) if isinstance(one, Explanation))

    explaining = seconds(explain)
    page = folder / "report.html"
    building = statistics.median(seconds(lambda: write_page(page, explanations)) for _ in range(repeats))
    files = sum(path.stat().st_size for path in paths)
    sizes = {"photos": photos, "models": models, "words": len(explanations[0].models[0].caption.words)}
    return [
        {
            "name": "explain_page_build",
            "value": building,
            "unit": "seconds",
            "against": "explaining the photos: encoding, five beams, reading them again",
            "ratio": building / explaining,
            **sizes,
        },
        {
            "name": "explain_page_size",
            "value": page.stat().st_size / 1e6,
            "unit": "MB",
            "against": "the JPEG files of the photos",
            "ratio": page.stat().st_size / files,
            **sizes,
        },
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--photos", type=int, default=50)
    parser.add_argument("--models", type=int, default=1, help="put side by side")
    parser.add_argument("--repeats", type=int, default=3, help="the median counts")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        show(measure(Path(name), arguments.photos, arguments.models, arguments.repeats), arguments.json)


if __name__ == "__main__":
    main()

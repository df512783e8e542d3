"""The pictures of docs/serving.md: the live page in a real Chromium, on a desk and on a phone.

    PYTHONPATH=. python benchmarks/serve_pictures.py CHECKPOINT [--out docs/images] [--images 24]

CHECKPOINT was trained on scenes, such as that of `showtell quickstart`. Scenes that it has never seen are drawn, added
to the page and captioned; one caption is accepted, one is skipped, and a word of the least sure one is looked at.
"""

from __future__ import annotations

import argparse
import io
import tempfile
from pathlib import Path

from showtell import Captioner
from showtell.files import write_bytes
from showtell.scenes import write_scenes
from showtell.serving.batcher import LocalEngine
from showtell.serving.settings import ServeSettings

from PIL import Image
from tests.chromium import Chromium
from tests.serving.servers import running_server

SIDE = 384  # pixels of a scene, so that it is sharp in the picture
SEED = 2026
COLOURS = 128  # of a picture, which keeps it small
READY = "document.querySelector('.words button') && document.documentElement.dataset.ready == 'true'"


def take_pictures(checkpoint: str, folder: Path, out: Path, images: int) -> list[Path]:
    """Files with a picture each, in the order in which they are shown."""
    write_scenes(folder / "scenes", images=images, seed=SEED, size=SIDE)
    photos = sorted((folder / "scenes" / "images").iterdir())
    engine = LocalEngine({"scenes": Captioner.from_pretrained(checkpoint)}, ServeSettings())
    with running_server(engine) as server, Chromium(folder / "browser") as browser:
        browser.resize(1200, 780)
        browser.open(f"{server.url}/")
        browser.choose_files("#files", photos)
        browser.wait_for(f"document.querySelector('.shown').textContent.startsWith('{images} photos') && {READY}")
        browser.click(".list")
        browser.press("Home")
        browser.press("ArrowDown")
        for key, status in (("a", "accepted"), ("s", "skipped")):
            browser.press(key)
            browser.wait_for(f"document.querySelector('.shown').textContent.includes('1 {status}')")
        pictures = []
        for name, word, *window in (("serve.png", 5, 1200, 780, "light"), ("serve-phone.png", 6, 390, 780, "dark")):
            browser.resize(*window)
            browser.click(".list .row")
            browser.wait_for(READY)
            browser.click(f".words button:nth-child({word})")
            browser.ask("document.querySelector('.looking').scrollTop = 0")
            pictures.append(out / name)
            browser.screenshot(folder / name)
            with Image.open(folder / name) as picture:
                small = io.BytesIO()
                picture.convert("RGB").quantize(COLOURS).save(small, "PNG", optimize=True)
            write_bytes(pictures[-1], small.getvalue())
    return pictures


def main() -> None:
    """Take the pictures and name them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint")
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    parser.add_argument("--images", type=int, default=24)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for picture in take_pictures(arguments.checkpoint, Path(folder), arguments.out, arguments.images):
            print(picture)


if __name__ == "__main__":
    main()

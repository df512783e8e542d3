"""The pictures of the site: what commands print (docs/pictures.md and others), and the pages that they make.

    make pictures [ONLY=caption,explain]        or        PYTHONPATH=. python benchmarks/pictures.py [--only ...]

A picture pictures/NAME.svg below a block of bash is that block, run in a terminal (benchmarks/terminal.py); NAME.webp
is a page in Chromium, as `SCREENS` says, with NAME-dark.webp beside it for readers who prefer dark. What is named is
made; else what is missing, or shows other commands than its page.

Commands run in build/pictures in the order in which they are shown, so that each finds what those before it made. What
a terminal received is kept there: a second call runs what has changed alone. The first trains the quickstart's model.
"""

from __future__ import annotations

import argparse
import csv
import io
import platform
import re
import shlex
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path

import _threads  # noqa: F401  (first)
from showtell.captioners import Captioner
from showtell.captioners.hugging_face import TransformersCaptioner
from showtell.captioners.hugging_face_adapters import TransformersConfig, adapt, save_adapted
from showtell.files import read_json, write_bytes, write_folder, write_json, write_text
from showtell.quickstart.photos import PHOTOS
from showtell.scenes.dataset import sample_image
from showtell.scenes.rendering import render
from terminal import draw, record

from PIL import Image
from tests.captioners.tiny_transformers import build
from tests.chromium import Chromium
from tests.importing.makers import write_luo

ROOT = Path(__file__).resolve().parents[1]
DOCS, WORK = ROOT / "docs", ROOT / "build" / "pictures"
PAGES = ("pictures.md", "caption_my_photos.md", "correct_captions.md")
FOLDER = "pictures"  # of DOCS
# A block of bash with the picture below it.
BLOCK = re.compile(r"^```bash\n((?:(?!```).*\n)+)```\n\n!\[[^\]]*\]\(" + FOLDER + r"/([\w-]+)\.svg\)", re.MULTILINE)
SCREEN = re.compile(r"!\[[^\]]*\]\(" + FOLDER + r"/([\w-]+)\.webp\)")
WRITES = ("--out", "--corrections")  # options with a path that is written
COLOURS, QUALITY = 256, 75  # of a screenshot
PHONE = 600  # pixels; a narrower window is a phone's
DRAWN, SIDE, SEED = 300, 384, 2026  # of my-photos: how many, their pixels, and which
WAIT = 300  # seconds for a page that waits for a model


@dataclass(frozen=True)
class Block:
    """Commands that a page shows together, and the name of their picture."""

    name: str
    commands: tuple[str, ...]

    @property
    def text(self) -> str:
        """The commands as the page has them."""
        return "\n".join(self.commands)

    @property
    def picture(self) -> Path:
        """The picture's file."""
        return DOCS / FOLDER / f"{self.name}.svg"

    @property
    def recording(self) -> Path:
        """The file with what the terminal received."""
        return WORK / "recordings" / f"{self.name}.json"

    def is_shown(self) -> bool:
        """Whether the picture is there and shows these commands."""
        return self.picture.exists() and f"<desc>{escape(self.text)}</desc>" in self.picture.read_text(encoding="utf-8")

    def is_recorded(self) -> bool:
        """Whether these commands have run here."""
        return self.recording.exists() and read_json(self.recording)["commands"] == self.text


@dataclass(frozen=True)
class Screen:
    """A page as somebody sees it."""

    block: str  # name of the commands that make or serve the page
    page: str | None  # its file in WORK; None is the page that the block serves
    width: int  # of the window, in pixels; a narrow one is a phone's, and drawn with twice as many
    height: int
    steps: Callable[[Chromium], None] = lambda browser: None  # what is done before one looks


def read_blocks() -> list[Block]:
    """The blocks of all pages that have a picture, in their order."""
    return [
        Block(name, tuple(re.split(r"(?<!\\)\n", commands.rstrip("\n"))))
        for page in PAGES
        for commands, name in BLOCK.findall((DOCS / page).read_text(encoding="utf-8"))
    ]


def files_of(screen: str) -> dict[str, Path]:
    """The files of a screen by the colours that it is seen in."""
    return {scheme: DOCS / FOLDER / f"{screen}{suffix}.webp" for scheme, suffix in (("light", ""), ("dark", "-dark"))}


def is_taken(screen: str) -> bool:
    """Whether a screen is there, in light and dark."""
    return all(file.exists() for file in files_of(screen).values())


# --- running ---


def make(names: Sequence[str]) -> Iterator[Path]:
    """Make what is named, or what is missing where nothing is; the files of pictures."""
    blocks = read_blocks()
    known = [*(block.name for block in blocks), *SCREENS]
    if unknown := [name for name in names if name not in known]:
        raise SystemExit(f"There is no picture {unknown[0]}; there are {', '.join(known)}.")
    if names:
        shown = {block.name for block in blocks if block.name in names}
        screens = {name: screen for name, screen in SCREENS.items() if {name, screen.block} & {*names}}
    else:
        shown = {block.name for block in blocks if not block.is_shown()}
        screens = {name: screen for name, screen in SCREENS.items() if screen.block in shown or not is_taken(name)}
    needed = shown | {screen.block for screen in screens.values()}
    last = max((number for number, block in enumerate(blocks) if block.name in needed), default=-1)
    for block in blocks[: last + 1]:
        own = {name: screen for name, screen in screens.items() if screen.block == block.name}
        is_served = any(screen.page is None for screen in own.values())
        if is_served or block.name in names or not block.is_recorded():
            taken = _run(block, own if is_served else {})
        else:
            taken = []
        if block.name in shown:
            received: str = read_json(block.recording)["received"]
            write_text(block.picture, draw(received.encode(), block.text))
            yield block.picture
        yield from taken if is_served else _photograph(own, f"{WORK.as_uri()}/")


def _run(block: Block, served: Mapping[str, Screen]) -> list[Path]:
    """Run commands and keep what the terminal received; the files of screens that were taken of what they serve."""
    print(f"running {block.name}", flush=True)
    if block.name in SETUPS:
        SETUPS[block.name]()
    for option, value in pairwise(word for command in block.commands for word in shlex.split(command)):
        if option in WRITES:  # by an earlier run
            shutil.rmtree(WORK / value) if (WORK / value).is_dir() else (WORK / value).unlink(missing_ok=True)
    files: list[Path] = []

    def take(output: str) -> None:
        address = re.search(r"http://\S+", output)
        assert address, output
        files.extend(_photograph(served, address[0]))

    is_server = block.commands[-1].startswith("showtell serve")
    received = record(block.commands, WORK, take if is_server else None, STATUS.get(block.name, 0)).decode()
    release = platform.release()  # names the build of this machine's kernel
    received = received.replace(release, ".".join(release.split(".")[:2]))
    for private in (str(ROOT), str(Path.home()), socket.gethostname()):
        if private in received:
            raise SystemExit(f"{block.name} prints {private}, which does not belong into a picture:\n{received}")
    block.recording.parent.mkdir(exist_ok=True)
    write_json(block.recording, {"commands": block.text, "received": received})
    return files


def _photograph(screens: Mapping[str, Screen], address: str) -> Iterator[Path]:
    """Take pages below an address in light and dark; their files."""
    if not screens:
        return
    with tempfile.TemporaryDirectory() as folder, Chromium(Path(folder) / "browser") as browser:
        for name, screen in screens.items():
            for scheme, file in files_of(name).items():
                browser.resize(screen.width, screen.height, scheme)
                browser.call("Emulation.setScrollbarsHidden", hidden=True)
                if screen.width < PHONE:  # with as many dots as a phone has
                    size = {"width": screen.width, "height": screen.height, "deviceScaleFactor": 2, "mobile": True}
                    browser.call("Emulation.setDeviceMetricsOverride", **size)
                browser.open(f"{address}{screen.page or ''}")
                screen.steps(browser)
                browser.screenshot(Path(folder) / "screen.png")
                with Image.open(Path(folder) / "screen.png") as picture:
                    write_bytes(file, _compress(picture.convert("RGB")))
                yield file


def _compress(picture: Image.Image) -> bytes:
    """A small WebP: few colours without loss, or all with some where that takes less, as with maps of attention."""
    few = picture.quantize(COLOURS, dither=Image.Dither.NONE).convert("RGB")
    streams = [io.BytesIO(), io.BytesIO()]
    few.save(streams[0], "WEBP", lossless=True, quality=100)
    picture.save(streams[1], "WEBP", quality=QUALITY)
    return min((stream.getvalue() for stream in streams), key=len)


# --- what the commands are given ---


def draw_photos() -> None:
    """Draw what stands for somebody's photos: shapes in colours that the quickstart's model has not seen them in."""

    def fill(folder: Path) -> None:
        for number in range(DRAWN):
            scene, _ = sample_image(SEED, "test_compositional", number)
            render(scene, SIDE).save(folder / f"IMG_{number + 1:04}.png")

    if not (WORK / "my-photos").exists():
        write_folder(WORK / "my-photos", fill)


def gather_album() -> None:
    """A dataset as people have it: half a download, a photo twice, a caption without a photo, and a photo without."""
    draw_photos()
    album = WORK / "album"
    shutil.rmtree(album, ignore_errors=True)
    album.mkdir()
    rows = []
    for number in range(60):
        photo = WORK / "my-photos" / f"IMG_{number + 1:04}.png"
        shutil.copy(photo, album)
        rows += [(photo.name, caption.text) for caption in sample_image(SEED, "test_compositional", number)[1]]
    (album / "IMG_0007.png").write_bytes((album / "IMG_0007.png").read_bytes()[:900])
    shutil.copy(album / "IMG_0003.png", album / "copy of IMG_0003.png")
    rows += [("copy of IMG_0003.png", rows[10][1]), ("holiday.jpg", "a red circle"), ("IMG_0009.png", "")]
    rows = [row for row in rows if row[0] != "IMG_0020.png"]
    with (album / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([("image", "caption"), *rows])


def write_published() -> None:
    """Weights as ImageCaptioning.pytorch writes them, few and made-up."""
    write_luo(WORK / "log_att2in", "att2in2, use_bn 0")


def write_adapted() -> None:
    """A tiny BLIP with adapters that have learned nothing, where `showtell train` would put it."""
    draw_photos()
    for made in ("my-captioner", "tiny-blip", "runs/adapted"):
        shutil.rmtree(WORK / made, ignore_errors=True)
    build("blip", WORK / "tiny-blip")
    captioner = Captioner.from_pretrained(WORK / "tiny-blip", "cpu")
    assert isinstance(captioner, TransformersCaptioner)
    adapt(captioner, TransformersConfig())
    save_adapted(WORK / "runs/adapted/best", captioner, captioner.decoding.changed(max_length=8), {})
    settings = WORK / "runs/adapted/best/config.json"
    write_text(settings, settings.read_text(encoding="utf-8").replace(f"{WORK}/", ""))


# --- what is looked at ---


def look_at_a_word(browser: Chromium) -> None:
    """Choose the seventh word of a caption, and see its photo from the top."""
    browser.click(".words button:nth-child(7)")
    browser.ask("document.querySelector('article').scrollIntoView()")


def correct_on_the_page(browser: Chromium) -> None:
    """Add the photos of `small` to the live page, skip two, and look at a word of the surest one."""
    ready = "document.querySelector('.words button') && document.documentElement.dataset.ready == 'true'"
    if not browser.ask("sessionStorage.corrected"):  # the page remembers it for the screens that follow
        browser.choose_files("#files", list(PHOTOS))
        browser.wait_for(f"document.querySelector('.shown').textContent == '3 photos: 3 unchecked' && {ready}", WAIT)
        browser.click(".list")
        browser.press("Home")
        for skipped in (1, 2):
            browser.press("s")
            browser.wait_for(f"document.querySelector('.shown').textContent.includes('{skipped} skipped')", WAIT)
        browser.ask("sessionStorage.corrected = true")
    browser.wait_for("document.querySelector('.list .row')", WAIT)
    browser.click(".list .row:last-of-type")
    browser.wait_for(ready, WAIT)
    browser.click(".words button:nth-child(2)")
    browser.ask("document.querySelector('.looking').scrollTop = 0")


STATUS = {"data-check": 2}  # with which commands end that find something
# Before the commands of a picture.
SETUPS: dict[str, Callable[[], None]] = {
    "data-check": gather_album,
    "caption": draw_photos,
    "import": write_published,
    "export": write_adapted,
}
SCREENS: dict[str, Screen] = {
    "quickstart-report": Screen("quickstart", "showtell-quickstart/report.html", 1200, 900),
    "report-page": Screen("report", "report.html", 1200, 900),
    "explain-page": Screen("explain", "why.html", 1200, 680, look_at_a_word),
    "serve-page": Screen("serve", None, 1200, 780, correct_on_the_page),
    "serve-page-phone": Screen("serve", None, 390, 780, correct_on_the_page),
}


def main() -> None:
    """Make pictures and name them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="names of pictures, separated by commas, to be made again")
    names = [name for name in parser.parse_args().only.split(",") if name]
    if shutil.which("chromium") is None:
        raise SystemExit("chromium is not installed (Debian package chromium), which the pictures of pages need.")
    WORK.mkdir(parents=True, exist_ok=True)
    for file in make(names):
        print(file.relative_to(ROOT), f"{file.stat().st_size:,} bytes", flush=True)


if __name__ == "__main__":
    main()

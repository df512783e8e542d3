"""Numbers of the pages are those that benchmarks wrote; pictures are there, are small, and show the commands above."""

import csv
import re
from pathlib import Path

import pictures

ROOT = Path(__file__).resolve().parents[2]


def test_every_interval_on_a_page_was_written_by_a_benchmark():
    known = set()
    for file in (ROOT / "benchmarks" / "results").glob("*-differences.csv"):
        with file.open(encoding="utf-8", newline="") as opened:
            for one in csv.DictReader(opened):
                more = ", seeds too" if "low, seeds too" in one else ""  # of photos
                known.add(tuple(float(one[name]) for name in ("difference", f"low{more}", f"high{more}")))
    known |= {(-value, -high, -low) for value, low, high in known}  # of the other order of the two
    known |= {tuple(round(100 * value, 1) for value in one) for one in known}  # of photos
    interval = re.compile(r"([+-]?\d+\.\d(?:\d\d)?) \[([+-]?\d+\.\d(?:\d\d)?), ([+-]?\d+\.\d(?:\d\d)?)\]")
    papers = ("show_attend_tell", "neural_image_captioning", "bottom_up_top_down", "stack_captioning", "hacap")
    for page in ("results", "results_scenes", *papers):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        shown = [tuple(map(float, one)) for one in interval.findall(text)]
        assert len(shown) >= 3 and [one for one in shown if one not in known] == [], page


def test_the_head_of_a_recipe_for_two_cores_has_the_score_that_the_benchmark_wrote():
    with (ROOT / "benchmarks" / "results" / "photos-scores.csv").open(encoding="utf-8", newline="") as file:
        scores = [one["CIDEr-D"].split(" ± ") for one in csv.DictReader(file)]
    known = {" ± ".join(f"{100 * float(part):.1f}" for part in parts) for parts in scores}
    heads = sorted((ROOT / "src" / "showtell" / "recipes" / "flickr8k" / "small").glob("*.yaml"))
    for head in heads:
        text = " ".join(head.read_text(encoding="utf-8").partition("data:")[0].replace("#", " ").split())
        (score, *_) = re.findall(r"CIDEr-D (\d+\.\d(?: ± \d+\.\d)?)", text)
        assert score in known, head.name
    assert len(heads) == 15


def test_a_terminal_shows_the_commands_above_it_and_loads_nothing():
    for block in pictures.read_blocks():
        assert block.is_shown(), f"run: make pictures ONLY={block.name}"
        content = block.picture.read_text(encoding="utf-8")
        printed = re.sub(r"<[^>]+>", "", content)
        assert printed.count("\n$ ") == len(block.commands) and "Traceback" not in printed, block.name
        assert not re.search(r"<style|<script|<image|<use|href=|url\(|@import", content), block.name
        assert not re.search(r"(?<![\w.])/(home|root|tmp|Users)/", content), f"{block.name} names a machine"


def test_every_picture_is_shown_and_small():
    shown = {block.picture for block in pictures.read_blocks()}
    for page in pictures.PAGES:
        for name in re.findall(pictures.SCREEN, (pictures.DOCS / page).read_text(encoding="utf-8")):
            shown.update(pictures.files_of(name).values())
    assert {pictures.files_of(name)["light"] for name in pictures.SCREENS} <= shown, "a screen that no page shows"
    files = list((pictures.DOCS / pictures.FOLDER).iterdir())
    assert set(files) == shown
    assert max(file.stat().st_size for file in files) < 80_000
    assert sum(file.stat().st_size for file in files) < 1_500_000

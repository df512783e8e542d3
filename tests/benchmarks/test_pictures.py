"""The pictures of what commands print: every one is there, is small, and shows the commands that stand above it."""

import re

import pictures

FILES = sorted((pictures.DOCS / pictures.FOLDER).iterdir())
PAGES = {page: (pictures.DOCS / page).read_text(encoding="utf-8") for page in pictures.PAGES}


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
    for name in re.findall(pictures.SCREEN, "".join(PAGES.values())):
        shown.update(pictures.files_of(name).values())
    assert {pictures.files_of(name)["light"] for name in pictures.SCREENS} <= shown, "a screen that no page shows"
    assert set(FILES) == shown
    assert max(file.stat().st_size for file in FILES) < 80_000
    assert sum(file.stat().st_size for file in FILES) < 1_500_000

"""The pictures of what commands print: every one is there, is small, and shows the commands that stand above it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import pictures
import terminal
from showtell.cli.app import VERBS

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


def test_every_verb_has_a_section_with_its_terminal():
    shown = {block.name: block.commands for block in pictures.read_blocks()}
    assert set(re.findall(r"^## (.+)$", PAGES["pictures.md"], flags=re.MULTILINE)) == set(VERBS)
    for verb in VERBS:
        assert shown[verb.replace(" ", "-")][-1].startswith(f"showtell {verb}")


def test_every_picture_is_shown_and_small():
    shown = {block.picture for block in pictures.read_blocks()}
    for name in re.findall(pictures.SCREEN, "".join(PAGES.values())):
        shown.update(pictures.files_of(name).values())
    assert {pictures.files_of(name)["light"] for name in pictures.SCREENS} <= shown, "a screen that no page shows"
    assert set(FILES) == shown
    assert max(file.stat().st_size for file in FILES) < 80_000
    assert sum(file.stat().st_size for file in FILES) < 1_500_000


def test_colours_and_overwritten_lines_are_as_a_terminal_shows_them(tmp_path: Path):
    pytest.importorskip("pyte", reason="the terminal of make pictures: pip install '.[docs]'")
    received = terminal.record(
        [r"printf '\357\273\277half\r\033[1;31m<full>\033[0m\n'", "tput cols &&\\\n  printf '%s' end"], tmp_path
    )
    picture = terminal.draw(received, "two & more")
    assert "<desc>two &amp; more</desc>" in picture
    assert '<tspan fill="#ff7b72" font-weight="bold">&lt;full&gt;</tspan></text>' in picture and "half<" not in picture
    printed = re.sub(r"<[^>]+>", "", picture)
    assert "\n$ tput cols &amp;&amp;\\\n&gt;   printf '%s' end\n100\nend\n" in printed


def test_a_command_that_fails_is_shown(tmp_path: Path):
    with pytest.raises(SystemExit, match=r"^ls nowhere ended with status 2:\nls: .*nowhere"):
        terminal.record(["ls nowhere"], tmp_path)


def test_a_server_is_looked_at_and_then_interrupted(tmp_path: Path):
    script = "import time\nprint('http://x', 'Ctrl-C ends it.', flush=True)\ntime.sleep(60)"
    (tmp_path / "server.py").write_text(script, encoding="utf-8")
    seen: list[str] = []
    received = terminal.record(["python server.py 2> /dev/null"], tmp_path, seen.append)
    assert seen == ["http://x Ctrl-C ends it.\r\n"]
    assert received.endswith(b"^C")


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(SystemExit, match=r"^There is no picture captoin; there are quickstart, .*caption, "):
        list(pictures.make(["captoin"]))

"""The commands of the pages. tests/docs runs them all but those of not_run.toml, which says why."""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from markdown_it import MarkdownIt

REASONS = Path(__file__).with_name("not_run.toml")
SHELL = {"", "bash", "sh", "shell", "console"}
PROGRAM = re.compile(
    r"(showtell|python|make|pip|git|curl|torchrun|accelerate|ray|source|find|\S*scripts/\w+|\.venv/\S+) "
)
# A synopsis shows what can be given, as in [--limit N], a|b or SETTING=...: it is no command.
SYNOPSIS = re.compile(r"\[(?=--|[a-z]+ [a-z]+\])|\w\|\w|\.\.\.|\[KEY")


def commands_in(block: str) -> list[str]:
    """The commands of a block of code, each on one line, without comments."""
    lines = block.replace("\\\n", " ").splitlines()
    commands = [re.sub(r"\s+", " ", re.sub(r"(?:^|\s+)# .*", "", line)).strip() for line in lines]
    return [command for command in commands if PROGRAM.match(f"{command} ") and not SYNOPSIS.search(command)]


def commands_of(page: str) -> list[str]:
    """The commands of all blocks of a page in Markdown."""
    tokens = MarkdownIt().parse(page)
    blocks = [
        token.content for token in tokens if token.type in ("fence", "code_block") and token.info.strip() in SHELL
    ]
    return [command for block in blocks for command in commands_in(block)]


@dataclass(frozen=True)
class Reason:
    """Why the commands that match a pattern are not run."""

    pattern: re.Pattern[str]
    text: str


@cache
def reasons() -> list[Reason]:
    """Those of not_run.toml."""
    table = tomllib.loads(REASONS.read_text(encoding="utf-8"))["not_run"]
    return [Reason(re.compile(row["pattern"]), row["reason"]) for row in table]


def reason(command: str) -> Reason | None:
    """Why a command is not run, if it is not."""
    return next((one for one in reasons() if one.pattern.search(command)), None)

"""Links from the pages of the papers to the lines of code of their equations.

A link whose title names an equation leads to the line with that mark, a comment `# Xu et al. 2015, §4.2.1: beta_t`
at its end or on lines of their own above it (several marks are parted by semicolons):

    [sat.py](../src/showtell/models/sat.py "Xu et al. 2015, §4.2.1: beta_t")
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAPERS = ("HACap", "Anderson et al. 2018", "El Baz 2020", "Gu et al. 2018", "Xu et al. 2015", "Boustany and Sarfati")
PAPER = "|".join(map(re.escape, PAPERS))
MARK = re.compile(rf'(?:{PAPER}),? (?:§(?:[IVX]+|[\d.]*\d)|eq\. \d+|LeakGAN): [^;"\n]+')
COMMENT = re.compile(rf"# ({MARK.pattern}(?:; {MARK.pattern})*)$")
LINK = re.compile(rf'\[[^\[\]]*\]\(\.\./(src/showtell/[\w/]+\.py) "({MARK.pattern})"\)')


@cache
def marked_lines(root: Path = ROOT) -> Mapping[tuple[str, str], int]:
    """The lines of src that bear a mark: (file, mark) to the number of the line."""
    lines: dict[tuple[str, str], int] = {}
    for file in sorted((root / "src" / "showtell").rglob("*.py")):
        path = file.relative_to(root).as_posix()
        code = file.read_text(encoding="utf-8").splitlines()
        for number, line in enumerate(code, 1):
            if not (comment := COMMENT.search(line)):
                continue
            for mark in comment[1].split("; "):
                assert (path, mark) not in lines, f'{path} has the mark "{mark}" twice'
                following = enumerate(code[number - 1 :], number)
                lines[path, mark] = next(at for at, one in following if not one.lstrip().startswith("#"))
    return lines


def with_lines(text: str, root: Path = ROOT) -> str:
    """A page with its links to equations leading to their lines."""

    def link(match: re.Match[str]) -> str:
        path, mark = match.groups()
        line = marked_lines(root).get((path, mark))
        assert line, f'No line of {path} bears the comment "# {mark}", which a page links to'
        return f'[{Path(path).name}, line {line}](../{path}#L{line} "{mark}")'

    return LINK.sub(link, text)

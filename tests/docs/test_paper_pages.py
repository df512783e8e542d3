"""The pages of the papers: every equation has its line of code, and every line its equation."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest
from equation_lines import LINK, ROOT, marked_lines, with_lines

DOCS, SOURCE = ROOT / "docs", ROOT / "src" / "showtell"
PAGES = {file.name: file.read_text(encoding="utf-8") for file in sorted(DOCS.glob("*.md"))}
COUNTS = {"000": 7, "001": 11, "002": 15, "003": 22, "004": 10}  # equations that a paper displays, or numbers
WHERE = re.compile(r"§(?:[IVX]+|[\d.]*\d)|eq\. \d+|LeakGAN")


@cache
def rows(paper: str) -> list[list[str]]:
    """The list of docs/equations.md of a paper: number, section, equation and where."""
    (part,) = re.findall(rf"(?ms)^## papers/{paper}: .*?(?=^## |\Z)", PAGES["equations.md"])
    return [line.strip("| ").split(" | ") for line in re.findall(r"^\| (?:\d+|–) \|.*$", part, re.MULTILINE)]


def names_of(row: list[str]) -> set[str]:
    """What a mark or a head calls an equation: by its section, and by its number where the paper prints numbers."""
    return {row[1], f"eq. {row[0]}"}


def section(link: str) -> str:
    """The section of a page that a link leads to."""
    (page, anchor) = re.findall(r"\(([\w.]+)#([^)]+)\)", link)[0]
    parts = re.split(r"^#+ (.+)$", PAGES[page], flags=re.MULTILINE)
    slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in parts[1::2]]
    return dict(zip(slugs, parts[2::2], strict=True))[anchor]


def cited(head: str) -> set[tuple[str, str]]:
    """The equations that the formulas of a head cite: (paper, section or number)."""
    first, *_ = re.findall(r"papers/(\d{3})", head.split("\n\n")[0]) or [None]
    known = set()
    for line in head.split("Where this differs")[0].splitlines():
        for inner in re.findall(r"\(([^()]*)\)", line) if line.startswith("    ") else []:
            paper = (re.findall(r"papers/(\d{3})", inner) or [first])[0]
            if paper is None or not re.match(r"papers/|§\d|eq\. ", inner):
                continue
            known |= {(paper, one) for one in re.findall(r"§[\d.]*\d", inner)}
            for numbers in re.findall(r"eq\. ([\d, and-]*\d)", inner):
                for low, high in re.findall(r"(\d+)(?:-(\d+))?", numbers):
                    known |= {(paper, f"eq. {number}") for number in range(int(low), int(high or low) + 1)}
    return known


def test_a_link_follows_its_line_and_is_refused_without_it(tmp_path: Path):
    file = tmp_path / "src" / "showtell" / "a.py"
    file.parent.mkdir(parents=True)
    file.write_text("# papers/002 eq. 8: q_i; papers/003 §4.2: z_t\nx = 1\ny = 2  # papers/002 eq. 9: L\n")
    for mark, line in {"papers/002 eq. 8: q_i": 2, "papers/003 §4.2: z_t": 2, "papers/002 eq. 9: L": 3}.items():
        link = f'[a.py, line {line}](../src/showtell/a.py#L{line} "{mark}")'
        assert with_lines(f'[x](../src/showtell/a.py "{mark}")', tmp_path) == link
    with pytest.raises(AssertionError, match=r'No line of .*a\.py bears the comment "# papers/003 §9\.9: omega"'):
        with_lines('[x](../src/showtell/a.py "papers/003 §9.9: omega")', tmp_path)


def test_marks_and_links_are_the_same_and_of_an_equation_of_the_list():
    linked = {match for text in PAGES.values() for match in LINK.findall(text)}
    assert set(marked_lines()) == linked
    known = {(paper, name) for paper in COUNTS for row in rows(paper) for name in names_of(row)}
    assert [mark for _, mark in marked_lines() if (mark[7:10], WHERE.findall(mark)[0]) not in known] == []


def test_each_equation_of_a_paper_is_linked_to_a_line_or_says_why_not():
    wrong = []
    for paper, count in COUNTS.items():
        numbers = [row[0] for row in rows(paper) if row[0] != "–"]
        assert numbers == [str(number + 1) for number in range(count)]
        for row in rows(paper):
            if ".md#" in row[3] and row[3].startswith("["):
                marks = [mark for _, mark in LINK.findall(section(row[3])) if mark.startswith(f"papers/{paper} ")]
                is_told = bool(names_of(row) & {WHERE.findall(mark)[0] for mark in marks})
            else:
                is_told = len(row[3].split()) > 3  # the reason
            wrong += [] if is_told else [row]
    assert wrong == []


def test_each_equation_that_a_head_cites_is_in_the_list():
    files = [file for folder in ("models", "objectives") for file in sorted((SOURCE / folder).glob("*.py"))]
    heads = {file.stem: cited(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "") for file in files}
    wrong = [(file, paper, name) for file, equations in heads.items() for paper, name in equations
             if not any(name in names_of(row) for row in rows(paper))]  # fmt: skip
    assert wrong == []
    assert ("003", "§4.2.1") in heads["sat"] and ("004", "§1.3") in heads["nic"] and ("000", "§3.5") in heads["hacap"]
    assert {("002", f"eq. {number}") for number in range(1, 9)} <= heads["stack"]


@pytest.mark.shared
def test_papers_without_numbers_have_as_many_equations(shared_data: Path):
    for paper in ("000", "003", "004"):
        (file,) = (shared_data.parent / "papers").glob(f"{paper}_*.txt")
        assert COUNTS[paper] == len(re.findall(r"(?s)\$\$.*?\$\$", file.read_text(encoding="utf-8")))

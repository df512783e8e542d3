"""The pages of the papers: every equation has its line of code, and every line its equation."""

import re
from functools import cache
from pathlib import Path

import pytest
from equation_lines import LINK, PAPER, PAPERS, ROOT, marked_lines, with_lines

DOCS = ROOT / "docs"
PAGES = {file.name: file.read_text(encoding="utf-8") for file in sorted(DOCS.glob("*.md"))}
COUNTS = {  # equations that a paper displays, or numbers
    "HACap": 7, "Anderson et al. 2018": 11, "Gu et al. 2018": 15, "Xu et al. 2015": 22, "Boustany and Sarfati": 10
}  # fmt: skip
PAPER_OF_MARK = {name: name for name in PAPERS} | {"El Baz 2020": "Anderson et al. 2018"}  # one list for both
WHERE = re.compile(r"§(?:[IVX]+|[\d.]*\d)|eq\. \d+|LeakGAN")


@cache
def rows(paper: str) -> list[list[str]]:
    """The list of docs/papers.md of a paper: number, section, equation and where."""
    (part,) = re.findall(rf"(?ms)^### {re.escape(paper)}\b.*?(?=^##|\Z)", PAGES["papers.md"])
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


def papers_in(text: str) -> list[str]:
    """The papers that a text names, with or without their venue: "Xu et al., ICML 2015" is "Xu et al. 2015"."""
    text = re.sub(r"(et al\.), [A-Z]+ (20\d\d)", r"\1 \2", text)
    return [PAPER_OF_MARK[name] for name in re.findall(PAPER, text)]


def test_a_link_follows_its_line_and_is_refused_without_it(tmp_path: Path):
    file = tmp_path / "src" / "showtell" / "a.py"
    file.parent.mkdir(parents=True)
    first, second, third = "Gu et al. 2018, eq. 8: q_i", "Xu et al. 2015, §4.2: z_t", "HACap §5.4: b"
    fourth = "Gu et al. 2018, eq. 9: L"
    file.write_text(f"# {first}; {second}\n# {third}\nx = 1\ny = 2  # {fourth}\n")
    for mark, line in {first: 3, second: 3, third: 3, fourth: 4}.items():
        link = f'[a.py, line {line}](../src/showtell/a.py#L{line} "{mark}")'
        assert with_lines(f'[x](../src/showtell/a.py "{mark}")', tmp_path) == link
    with pytest.raises(AssertionError, match=r'No line of .*a\.py bears the comment "# HACap §9\.9: omega"'):
        with_lines('[x](../src/showtell/a.py "HACap §9.9: omega")', tmp_path)


def test_marks_and_links_are_the_same_and_of_an_equation_of_the_list():
    linked = {match for text in PAGES.values() for match in LINK.findall(text)}
    assert set(marked_lines()) == linked
    known = {(paper, name) for paper in COUNTS for row in rows(paper) for name in names_of(row)}
    assert [mark for _, mark in marked_lines() if (papers_in(mark)[0], WHERE.findall(mark)[0]) not in known] == []


def test_each_equation_of_a_paper_is_linked_to_a_line_or_says_why_not():
    wrong = []
    for paper, count in COUNTS.items():
        numbers = [row[0] for row in rows(paper) if row[0] != "–"]
        assert numbers == [str(number + 1) for number in range(count)]
        for row in rows(paper):
            if ".md#" in row[3] and row[3].startswith("["):
                marks = [mark for _, mark in LINK.findall(section(row[3])) if papers_in(mark)[0] == paper]
                is_told = bool(names_of(row) & {WHERE.findall(mark)[0] for mark in marks})
            else:
                is_told = len(row[3].split()) > 3  # the reason
            wrong += [] if is_told else [row]
    assert wrong == []

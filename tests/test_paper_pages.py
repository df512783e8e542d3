"""The pages of the papers: every equation has its line of code, and no number in them is out of date."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

import paper_pages
from paper_pages import LINK, ROOT, SOURCE, marked_lines, renewed
from plot_results import PAGES as RESULTS

DOCS = ROOT / "docs"
PAGES = {file.name: file.read_text(encoding="utf-8") for file in sorted(DOCS.glob("*.md"))}
COUNTS = {"000": 7, "001": 11, "002": 15, "003": 22, "004": 10}  # equations that a paper displays, or numbers
WHERE = re.compile(r"§(?:[IVX]+|[\d.]*\d)|eq\. \d+|LeakGAN")
HEADS = sorted(file for folder in ("models", "objectives") for file in (SOURCE / folder).glob("*.py"))


@cache
def rows(paper: str) -> list[list[str]]:
    """The list of docs/equations.md of a paper: number, section, equation and where."""
    (part,) = re.findall(rf"(?ms)^## papers/{paper}: .*?(?=^## |\Z)", PAGES["equations.md"])
    return [line.strip("| ").split(" | ") for line in re.findall(r"^\| (?:\d+|–) \|.*$", part, re.MULTILINE)]


def name_of(row: list[str]) -> set[str]:
    """What a mark or a head calls an equation: by its section, and by its number where the paper prints numbers."""
    return {row[1], f"eq. {row[0]}"}


def slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


def section(link: str) -> str:
    """The section of a page that a link leads to."""
    (page, anchor) = re.findall(r"\(([\w.]+)#([^)]+)\)", link)[0]
    parts = re.split(r"^#+ (.+)$", PAGES[page], flags=re.MULTILINE)
    return {slug(heading): text for heading, text in zip(parts[1::2], parts[2::2], strict=True)}[anchor]


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


@pytest.mark.parametrize("name", PAGES)
def test_lines_effects_differences_and_shapes_are_those_of_today(name: str):
    assert renewed(PAGES[name]) == PAGES[name], "run .venv/bin/python scripts/generate_docs --write"


def test_effects_are_those_of_the_tables():
    base, row = "**sat, soft attention**", "without the gate beta"
    text = (DOCS / "results_ablations.md").read_text(encoding="utf-8")
    cells = text[text.index(base) :].split(f"| {row} |")[1].splitlines()[1].strip("| ").split(" | ")
    assert cells[0] == "difference"
    cider, truth = (cell.split(", p ")[0] for cell in cells[1:3])
    assert f"`model.gate=false` ({row}): CIDEr-D {cider}, truth {truth}. " in paper_pages.effect("sat_soft_no_gate")
    assert paper_pages.effect("updown_penalty_12").startswith("**Measured.** `objective.doubly_stochastic=12` (penalty")
    assert "(no clear change)" in paper_pages.effect("sat_hard_no_entropy")
    assert "nic, GRU" in paper_pages.compared("nic_gru")
    both = "CIDEr-D -0.014 [-0.073, +0.043] (no clear change), on `test_compositional` -0.086 [-0.154, -0.016], truth"
    assert both in paper_pages.effect("sat_soft_penalty_0.33")
    assert "6 epochs, 2 seeds against 3. " in paper_pages.effect("sat_soft_no_gate")
    assert "6 + 2 epochs against 6, 3 seeds. " in paper_pages.effect("sat_soft_sc")
    with pytest.raises(SystemExit, match=r"ablations\.py has no row sat_soft_no_gaet"):
        paper_pages.effect("sat_soft_no_gaet")
    with pytest.raises(SystemExit, match=r"old_papers\.py has no row nic_lru"):
        paper_pages.compared("nic_lru")


def test_a_row_is_compared_in_each_table_that_has_it_and_either_way_round():
    assert "CIDEr-D -0.211 [-0.276, -0.145]" in (early := paper_pages.compared("updown"))
    assert "6 epochs, 3 seeds. " in early
    assert "less soft attention: CIDEr-D -0.024 [-0.096, +0.051]" in (late := paper_pages.compared("updown in rewards"))
    assert "12 epochs, 3 seeds. [All models](results_rewards.md)" in late
    turned = paper_pages.compared("hacap_worker less hacap in hacap")
    assert "less hacap, pre-trained: CIDEr-D +0.085 [+0.002, +0.159], " in turned
    assert "12 epochs, 1 seed against 2. " in turned
    with pytest.raises(SystemExit, match=r"No table of docs/ compares hacap_worker, .*, with updown, grid"):
        paper_pages.compared("hacap_worker less updown")
    with pytest.raises(SystemExit, match="'updown at rewards' is not of the form"):
        paper_pages.compared("updown at rewards")


@pytest.mark.parametrize("table", paper_pages.EPOCHS)
def test_epochs_are_those_that_the_page_of_a_table_says(table: str):
    how = PAGES[RESULTS.get(table, f"results_{table}") + ".md"].partition("## How it was measured")[2]
    first = re.findall(r"frozen-epochs (\d+)|(\d+) epochs", how)[0]
    assert str(paper_pages.EPOCHS[table]) in first


def test_a_difference_never_breaks_into_a_list_of_its_own():
    text = paper_pages.differences("objectives/self_critical.py")
    numbers = re.findall(r"^ *(\d+)[.)] ", text, flags=re.MULTILINE)
    assert numbers == [str(number + 1) for number in range(len(numbers))]


def test_each_marked_line_is_linked_by_a_page():
    linked = {match for text in PAGES.values() for match in LINK.findall(text)}
    assert set(marked_lines()) == linked


def test_a_link_follows_its_line_and_is_refused_without_it():
    (path, mark), line = next(item for item in marked_lines().items() if item[0][1] == "papers/003 §4.2.1: beta_t")
    assert "sigmoid" in (ROOT / path).read_text(encoding="utf-8").splitlines()[line - 1]
    assert renewed(f'[x](../{path}#L1 "{mark}")') == f'[sat.py, line {line}](../{path}#L{line} "{mark}")'
    with pytest.raises(SystemExit, match=r'No line of .*sat\.py bears the comment "# papers/003 §9\.9: omega"'):
        renewed('[x](../src/showtell/models/sat.py#L1 "papers/003 §9.9: omega")')


def test_a_mark_on_a_line_of_its_own_stands_for_the_next_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paper_pages, "ROOT", tmp_path)
    monkeypatch.setattr(paper_pages, "SOURCE", tmp_path)
    tmp_path.joinpath("a.py").write_text(
        "# papers/002 eq. 8: q_i; papers/003 §4.2: z_t\nx = 1\ny = 2  # papers/002 eq. 9: L\n"
    )
    marks = {
        ("a.py", "papers/002 eq. 8: q_i"): 2,
        ("a.py", "papers/003 §4.2: z_t"): 2,
        ("a.py", "papers/002 eq. 9: L"): 3,
    }
    assert marked_lines.__wrapped__() == marks


@pytest.mark.parametrize("paper", COUNTS)
def test_the_numbers_of_a_paper_are_complete(paper: str):
    numbers = [row[0] for row in rows(paper) if row[0] != "–"]
    assert numbers == [str(number + 1) for number in range(COUNTS[paper])]


@pytest.mark.parametrize("paper", COUNTS)
def test_each_equation_is_linked_to_a_line_or_says_why_not(paper: str):
    for row in rows(paper):
        if ".md#" in row[3] and row[3].startswith("["):
            marks = [mark for _, mark in LINK.findall(section(row[3])) if mark.startswith(f"papers/{paper} ")]
            assert name_of(row) & {WHERE.findall(mark)[0] for mark in marks}, row
        else:
            assert len(row[3].split()) > 3, f"{row}: the reason"


def test_each_mark_is_of_an_equation_of_the_list():
    known = {(paper, name) for paper in COUNTS for row in rows(paper) for name in name_of(row)}
    for path, mark in marked_lines():
        assert (mark[7:10], WHERE.findall(mark)[0]) in known, f"{path}: {mark}"


@pytest.mark.parametrize("file", HEADS, ids=lambda file: file.stem)
def test_each_equation_that_a_head_cites_is_in_the_list(file: Path):
    head = ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or ""
    for paper, name in cited(head):
        assert any(name in name_of(row) for row in rows(paper)), f"{file.name}: papers/{paper} {name}"


def test_what_the_heads_cite_is_found():
    heads = {file.stem: cited(ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "") for file in HEADS}
    assert ("003", "§4.2.1") in heads["sat"] and ("003", "§4.2.1") in heads["cross_entropy"]
    assert ("004", "§1.3") in heads["nic"]
    assert {("002", f"eq. {number}") for number in range(1, 9)} <= heads["stack"]
    assert {("002", f"eq. {number}") for number in range(11, 16)} <= heads["coarse_to_fine"]
    assert ("000", "§3.5") in heads["hacap"]


@pytest.mark.shared
@pytest.mark.parametrize("paper", ["000", "003", "004"])
def test_papers_without_numbers_have_as_many_equations(paper: str, shared_data: Path):
    (file,) = (shared_data.parent / "papers").glob(f"{paper}_*.txt")
    displayed = re.findall(r"(?s)\$\$.*?\$\$", file.read_text(encoding="utf-8"))
    assert COUNTS[paper] == len(displayed)

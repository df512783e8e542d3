"""Plots of results: they show what the tables of their pages say."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import plot_results

ROOT = Path(__file__).resolve().parents[2]
TABLE = """<!-- ablations: begin -->

|  | CIDEr-D, `test` | truth, `test` |
| --- | --- | --- |
| **base** | 1.5 ± 0.1 | 0.8 |
| without a part | 1.3 | 0.7 |
| difference | -0.200 [-0.300, -0.100], p 0.001 | +0.010 [-0.007, +0.021], p 0.281 |

<!-- ablations: end -->
"""


def test_the_rows_of_a_table_with_differences():
    (row,) = plot_results.rows_of(TABLE, "**base**")
    assert row.name == "without a part"
    assert row.intervals == {"CIDEr-D, `test`": (-0.2, -0.3, -0.1), "truth, `test`": (0.01, -0.007, 0.021)}


def test_every_plot_of_the_documents_says_what_its_table_says(capsys: pytest.CaptureFixture[str]):
    folders = ["--docs", str(ROOT / "docs" / "notes"), "--folder", str(ROOT / "docs" / "figures")]
    assert plot_results.main([*folders, "--check"]) == 0, capsys.readouterr().err


def test_a_plot_whose_table_has_changed_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    for page in (ROOT / "docs" / "notes").glob("results_*.md"):
        (tmp_path / page.name).write_text(page.read_text(encoding="utf-8"), encoding="utf-8")
    folders = ["--docs", str(tmp_path), "--folder", str(tmp_path)]
    assert plot_results.main(folders) == 0
    assert plot_results.main([*folders, "--check"]) == 0
    page = tmp_path / "results_hacap.md"
    _, minus, after = page.read_text(encoding="utf-8").partition(plot_results.MINUS)
    page.write_text(page.read_text(encoding="utf-8").replace(minus + after, minus + after.replace("[-0.", "[-1.")))
    assert plot_results.main([*folders, "--check"]) == 1
    assert capsys.readouterr().err.startswith(f"{tmp_path / 'results-hacap.svg'} is not what {page} says")


def test_a_page_without_its_table_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "results_ablations.md").write_text(TABLE, encoding="utf-8")
    assert plot_results.main(["--docs", str(tmp_path), "--folder", str(tmp_path)]) == 2
    assert "No table begins with '**sat, soft attention**'" in capsys.readouterr().err
    assert not list(tmp_path.glob("*.svg"))


def test_every_interval_on_a_page_stands_in_a_table_of_a_benchmark():
    tables = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "notes").glob("results_*.md"))
    interval = re.compile(r"([+-]\d\.\d{3}) \[([+-]\d\.\d{3}), ([+-]\d\.\d{3})\]")
    known = {tuple(map(float, found)) for found in interval.findall(tables)}
    known |= {(-value, -high, -low) for value, low, high in known}  # of the other order of the two
    for page in (
        "results",
        "show_attend_tell",
        "neural_image_captioning",
        "bottom_up_top_down",
        "stack_captioning",
        "hacap",
    ):
        shown = interval.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8"))
        assert len(shown) >= 8 and {tuple(map(float, one)) for one in shown} <= known, page

"""Numbers of results are those of the tables that benchmarks wrote."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_every_interval_on_a_page_stands_in_a_table_of_a_benchmark():
    tables = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs" / "notes").glob("results_*.md"))
    interval = re.compile(r"([+-]\d\.\d{3}) \[([+-]\d\.\d{3}), ([+-]\d\.\d{3})\]")
    known = {tuple(map(float, found)) for found in interval.findall(tables)}
    known |= {(-value, -high, -low) for value, low, high in known}  # of the other order of the two
    hundredth = re.compile(r"([+-]?\d+\.\d) \[([+-]?\d+\.\d), ([+-]?\d+\.\d)\]")  # of photos, times 100
    known |= {tuple(round(100 * value, 1) for value in one) for one in known}
    known |= {tuple(map(float, one)) for one in hundredth.findall(tables)}
    papers = ("show_attend_tell", "neural_image_captioning", "bottom_up_top_down", "stack_captioning", "hacap")
    for page in ("results", *papers):
        text = (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")
        shown = [*interval.findall(text), *hundredth.findall(text)]
        assert len(shown) >= 8 and {tuple(map(float, one)) for one in shown} <= known, page

"""Plots of the tables in docs/notes/results_*.md, with 95 % intervals, for those pages and docs/results.md.

    python benchmarks/plot_results.py [--docs docs/notes] [--folder docs/figures] [--check]

Every number is read from a table between its markers and kept in the file of the plot, so that --check names the plots
whose table has changed.
"""

from __future__ import annotations

import argparse
import io
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

from documents import markers_of, read_between
from showtell.errors import DataError, ShowtellError
from showtell.files import write_text

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

SPLITS = {"test": "#0072b2", "test_compositional": "#d55e00"}  # colours that the colour-blind tell apart
INTERVAL = re.compile(r"([+-]?[\d.]+) \[([+-]?[\d.]+), ([+-]?[\d.]+)\]")
WIDTH = 4.6  # inches; as wide as a phone, so that letters stay readable there


@dataclass(frozen=True)
class Row:
    """A row of a table: what it is, and the interval (value, low, high) of each column that has one."""

    name: str
    intervals: Mapping[str, tuple[float, float, float]]


@dataclass(frozen=True)
class Plot:
    """Where the rows of a plot stand, and what it says on top.

    Attributes:
        page: Page of docs/notes/ without suffix.
        table: Name of the markers around the tables.
        title: Title of the plot.
        head: First cell of the table's first row, such as "**sat, soft attention**", or the line above the table.
        columns: Table columns by panel title: a panel of the plot each, with a mark for each column.
    """

    page: str
    table: str
    title: str
    head: str
    columns: Mapping[str, Sequence[str]]


DIFFERENCES = {score: [f"{score}, `{split}`" for split in SPLITS] for score in ("CIDEr-D", "truth")}
MINUS = "Minus sat soft, with the 95 % interval and p:"
PLOTS = {
    "ablations-soft": ("ablations", "Soft attention: difference to its base", "**sat, soft attention**"),
    "ablations-hard": ("ablations", "Hard attention: difference to its base", "**sat, hard attention**"),
    "ablations-rewards": ("ablations", "Rewards: difference to self-critical", "**sat soft, then self-critical**"),
    "ablations-stages": ("ablations", "Stages: difference to three", "**stack, stacked attention**"),
    "ablations-hacap": ("ablations", "HACap: difference to all of it", "**hacap, pre-trained**"),
    "models": ("measured", "Difference to soft attention", MINUS),
    "classic": ("classic", "Difference to soft attention", MINUS),
    "rewards": ("rewards", "Difference to soft attention, cross-entropy", MINUS),
    "hacap": ("hacap", "Difference to soft attention", MINUS),
}
PAGES = {"measured": "results_models"}
POINTING = {"peak in the named object's box": ["pointing", "chance"], "minus the centre": ["over centre"]}


def page_of(table: str) -> str:
    """The page of docs/notes/, without suffix, that has a table."""
    return PAGES.get(table, f"results_{table}")


def plots() -> dict[str, Plot]:
    """All plots, by the name of their file."""
    every = {
        name: Plot(page_of(table), table, title, head, DIFFERENCES) for name, (table, title, head) in PLOTS.items()
    }
    title = "Does attention peak on the object that a word names?"
    every["attention"] = Plot(page_of("attention"), "attention", title, "", POINTING)
    return every


def rows_of(text: str, head: str) -> list[Row]:
    """The rows with intervals of the first table that begins with `head`, or that stands below it.

    A row "difference" gets the name of the row in front of it.

    Raises:
        DataError: there is no such table.
    """
    titles, *lines = cells_of(text, head)
    rows, last = [], ""
    for cells in lines:
        matches = {title: INTERVAL.match(cell) for title, cell in zip(titles, cells, strict=True)}
        intervals = {title: (float(m[1]), float(m[2]), float(m[3])) for title, m in matches.items() if m}
        name = last if cells[0] == "difference" else cells[0]
        if intervals:
            rows.append(Row(name.strip("*"), intervals))
        last = cells[0]
    return rows


def cells_of(text: str, head: str) -> list[list[str]]:
    """The titles and the lines of the first table that begins with `head`, or that stands below it.

    Raises:
        DataError: there is no such table.
    """
    blocks = [block.strip() for block in text.split("\n\n")]
    for before, block in zip(["", *blocks], blocks, strict=False):
        if not block.startswith("|"):
            continue
        titles, _, *lines = [[cell.strip() for cell in line.strip("|").split(" | ")] for line in block.splitlines()]
        if head in ("", before, lines[0][0]):
            return [titles, *lines]
    raise DataError(f"No table begins with {head!r}; see PLOTS in benchmarks/plot_results.py.")


def numbers(rows: Sequence[Row]) -> str:
    """What is drawn, in one line."""
    intervals = (f"{row.name}: {column} {values}" for row in rows for column, values in row.intervals.items())
    return re.sub(r"[^ -~]", "", "; ".join(intervals))


def draw(plot: Plot, rows: Sequence[Row]) -> str:
    """The plot as SVG: names above their lines, a panel for each score, a mark with its interval for each column."""
    step, top = 0.4, 0.75
    height = top + step * len(rows) + 0.35
    figure = Figure(figsize=(WIDTH, height), facecolor="white")
    panels = [
        title for title, columns in plot.columns.items() if any(c in row.intervals for row in rows for c in columns)
    ]
    room = 0.94 / len(panels)
    axes = [
        figure.add_axes((0.03 + at * room, 0.35 / height, room - 0.04, step * len(rows) / height))
        for at in range(len(panels))
    ]
    for axis, panel in zip(axes, panels, strict=True):
        _panel(axis, panel, plot.columns[panel], rows)
    over_lines = {"facecolor": "white", "edgecolor": "none", "pad": 0.8}
    for at, row in enumerate(rows):
        y = (0.35 + step * (len(rows) - at) - 0.14) / height
        figure.text(0.03, y, row.name, fontsize=8, va="center", ha="left", bbox=over_lines)
    figure.text(0.03, 1 - 0.16 / height, plot.title, fontsize=9.5, fontweight="bold", va="center")
    for at, (column, colour) in enumerate(zip(_legend(plot), SPLITS.values(), strict=False)):
        figure.text(0.03 + 0.24 * at, 1 - 0.4 / height, f"● {column}", fontsize=8, color=colour, va="center")
    buffer = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": plot.title, "font.family": "sans-serif"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Title": plot.title, "Description": numbers(rows)})
    return "\n".join(line.rstrip() for line in buffer.getvalue().splitlines()) + "\n"


def _legend(plot: Plot) -> list[str]:
    """What the marks stand for: the splits, or the columns themselves."""
    columns = next(iter(plot.columns.values()))
    return [column.partition("`")[2].strip("`") or column for column in columns]


def _panel(axis: Axes, title: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
    for at, row in enumerate(rows):
        for number, (column, colour) in enumerate(zip(columns, SPLITS.values(), strict=False)):
            if column in row.intervals:
                value, low, high = row.intervals[column]
                y = len(rows) - at - 0.68 - 0.17 * number
                axis.plot([low, high], [y, y], color=colour, linewidth=1.4, solid_capstyle="butt")
                axis.plot([value], [y], "o", color=colour, markersize=3.6)
    axis.axvline(0, color="#555555", linewidth=0.8, zorder=0)
    for line in range(1, len(rows)):
        axis.axhline(line, color="#dddddd", linewidth=0.5, zorder=0)
    axis.set(ylim=(0, len(rows)), yticks=[])
    axis.set_title(title, fontsize=8.5, pad=2)
    axis.tick_params(labelsize=7.5, length=2)
    axis.locator_params(axis="x", nbins=4)
    for side in ("left", "right", "top"):
        axis.spines[side].set_visible(False)


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw all plots, or check them; the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--docs", type=Path, default=Path("docs/notes"), help="the folder of the pages with the tables")
    parser.add_argument("--folder", type=Path, default=Path("docs/figures"), help="the folder of the plots")
    parser.add_argument("--check", action="store_true", help="write nothing; exit status 1 if a plot is out of date")
    given = parser.parse_args(arguments)
    stale = 0
    try:
        for name, plot in plots().items():
            page, file = given.docs / f"{plot.page}.md", given.folder / f"results-{name}.svg"
            rows = rows_of(read_between(page, markers_of(plot.table)), plot.head)
            if not given.check:
                write_text(file, draw(plot, rows))
            elif not file.is_file() or escape(numbers(rows)) not in file.read_text(encoding="utf-8"):
                print(f"{file} is not what {page} says; run benchmarks/plot_results.py.", file=sys.stderr)
                stale += 1
    except ShowtellError as error:
        print(f"plot_results.py: {error}", file=sys.stderr)
        return 2
    return min(stale, 1)


if __name__ == "__main__":
    sys.exit(main())

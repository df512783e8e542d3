"""The figures of docs/figures.md that are drawn from runs of ablations.py or old_papers.py.

    python benchmarks/figures.py --out runs/ablations [--only attention,stages,goals,failures] [--seed 0]
        [--folder docs/figures] [--docs docs/figures.md]

--out is what `ablations.py --out` (or `old_papers.py --out`) wrote: its pictures and its finished runs, which are only
read. Each figure shows pictures of the test split that a rule chooses from the captions in the run folders, the first
ones that it fits:

    attention  sat_soft above sat_hard, word by word (papers/003, Figures 2 and 3): captions of 6 to 8 words by both
    stages     every stage of stack with its attention (papers/002, Figure 3): the first stage's caption differs from
               the last one's, which has 6 to 8 words
    goals      the subgoals of hacap above its attention, segment by segment (papers/000, Figure 3): 6 to 8 words
    failures   sat_soft before and after self-critical training (papers/001, Figure 3): a statement of the caption
               before is false; what became of the captions of the whole split is written into --docs

Figures are small: 4.5 inches wide, at most 256 colours, on white, so that they can be read on a phone and in the dark.
"""

from __future__ import annotations

import argparse
import io
import sys
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from documents import markers_of, table, write_between
from goal_alignment import measure_alignment
from segments_figure import COLUMNS, PANEL, draw_segments
from showtell.captioners import Captioner
from showtell.captioners.explaining import grid_of
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.errors import DataError, ShowtellError
from showtell.explanations import Explanation, explain_photos
from showtell.files import read_json, write_bytes
from showtell.images.photo import to_photo
from showtell.reports.figure import RED, draw
from showtell.scenes import Scene, read_scenes
from showtell.scenes.truth import CaptionTruth, judge
from study import truth_by_kind

import torch
from matplotlib.figure import Figure
from PIL import Image

SPLIT = "test"
WORDS = range(6, 9)  # of a caption whose panels fit into two lines
PICTURES = 2  # of which attention is drawn, a file each
FAILURES = 8  # pictures in the figure of failures
COLOURS = 256
DOTS = 130  # per inch
PHOTO, LINE, LETTERS = 1.15, 0.17, 46  # of the figure of failures: inches of a photo and of a line, letters of a line
Captions = Mapping[str, str]  # of each image by its id


@dataclass(frozen=True)
class Runs:
    """The pictures and the finished runs of one seed."""

    out: Path
    seed: int = 0

    def captions(self, row: str, stage: int | None = None) -> Captions:
        """The captions of the split by a row, at a stage or at the last one.

        Raises:
            DataError: the row is not finished.
        """
        file = self.out / "runs" / row / str(self.seed) / f"{SPLIT}{'' if stage is None else f'.stage{stage}'}.json"
        if not file.exists():
            raise DataError(f"{file} does not exist; finish the row {row} with benchmarks/ablations.py first.")
        captions: Captions = read_json(file)
        return captions

    def captioner(self, row: str) -> Captioner:
        """The best checkpoint of a row."""
        return Captioner.from_pretrained(self.out / "runs" / row / str(self.seed) / "best", device="cpu")

    def records(self) -> tuple[CaptionRecord, ...]:
        """The pictures of the split."""
        return open_dataset(self.out / "scenes").split(SPLIT)

    def choose(self, fits: Callable[[str], bool], count: int) -> list[CaptionRecord]:
        """The first pictures whose id fits.

        Raises:
            DataError: none does.
        """
        chosen = [record for record in self.records() if fits(record.image_id)][:count]
        if not chosen:
            raise DataError(f"No picture of {SPLIT} in {self.out} fits the rule of this figure.")
        return chosen


def is_clear(caption: str) -> bool:
    """Whether a caption has as many words as a figure has room for."""
    return len(caption.split()) in WORDS


# --- the figures ---


def draw_attention(runs: Runs) -> list[Figure]:
    """Soft above hard attention."""
    soft, hard = runs.captions("sat_soft"), runs.captions("sat_hard")
    chosen = runs.choose(lambda image: is_clear(soft[image]) and is_clear(hard[image]), PICTURES)
    captioners = {"soft": runs.captioner("sat_soft"), "hard": runs.captioner("sat_hard")}
    return [_draw_narrow(explanation) for explanation in _explain(captioners, chosen)]


def draw_stages(runs: Runs) -> list[Figure]:
    """Each stage of the stack."""
    first, last = runs.captions("stack", 0), runs.captions("stack")
    chosen = runs.choose(lambda image: is_clear(last[image]) and first[image] != last[image], PICTURES)
    return [_draw_narrow(explanation) for explanation in _explain({"stack": runs.captioner("stack")}, chosen)]


def draw_goals(runs: Runs) -> list[Figure]:
    """Subgoals above attention."""
    captions, captioner = runs.captions("hacap"), runs.captioner("hacap")
    chosen = runs.choose(lambda image: is_clear(captions[image]), PICTURES)
    figures = []
    for record, series in zip(
        chosen, measure_alignment(captioner, chosen, source="own", permutations=1).captions, strict=True
    ):
        if series.goals is None or series.attention is None or series.boxes is None:
            raise DataError("The row hacap has no subgoals.")
        grid = grid_of(captioner.encoder, len(series.boxes))
        attention, goals = torch.from_numpy(series.attention), torch.from_numpy(series.goals)
        figures.append(draw_segments(to_photo(record.path).image, series.boxes, grid, series.words, attention, goals))
    return figures


def draw_failures(runs: Runs) -> list[Figure]:
    """Captions with a false statement, and what is said after self-critical training."""
    before, after, scenes = runs.captions("sat_soft"), runs.captions("sat_soft_sc"), _scenes(runs)
    chosen = runs.choose(lambda image: not judge(before[image], scenes[image]).whole, FAILURES)
    lines = {
        record.image_id: [*_judged("before", before, scenes, record), *_judged("after", after, scenes, record)]
        for record in chosen
    }
    heights = {image: max(PHOTO, LINE * len(texts)) + 0.1 for image, texts in lines.items()}
    width, height = COLUMNS * PANEL, sum(heights.values()) + 0.05
    figure, top = Figure(figsize=(width, height), facecolor="white"), height - 0.05
    for record in chosen:
        frame = (0.01, (top - PHOTO) / height, PHOTO / width, PHOTO / height)
        axes = figure.add_axes(frame, xticks=[], yticks=[])
        axes.spines[:].set_color("0.8")
        axes.imshow(to_photo(record.path).image)
        for number, (text, style) in enumerate(lines[record.image_id]):
            position = ((PHOTO + 0.15) / width, (top - LINE * number) / height)
            figure.text(*position, text, va="top", fontsize=8, parse_math=False, **style)
        top -= heights[record.image_id]
    return [figure]


def _judged(
    when: str, captions: Captions, scenes: Mapping[str, Scene], record: CaptionRecord
) -> Iterator[tuple[str, dict[str, str]]]:
    """The lines about a caption: what holds of it, its words, and what is false."""
    truth = judge(captions[record.image_id], scenes[record.image_id])
    yield f"{when}: {truth.held} of {len(truth.statements)} statements hold", {"weight": "bold"}
    for line in textwrap.wrap(captions[record.image_id], LETTERS):
        yield line, {}
    false = ", ".join(f"{one.kind}: {one.text}" for one in truth.statements if not one.holds)
    for line in textwrap.wrap(f"false: {false}" if false else "", LETTERS):
        yield line, {"color": RED}


def table_of_failures(runs: Runs) -> str:
    """How the captions of the whole split changed, in Markdown: those with a false statement, and those without."""
    before, after, scenes = runs.captions("sat_soft"), runs.captions("sat_soft_sc"), _scenes(runs)
    pairs = [(judge(before[image], scene), judge(after[image], scene)) for image, scene in scenes.items()]
    rows = []
    for says, is_right in (("a false statement", False), ("no false statement", True)):
        own = [(one, other) for one, other in pairs if one.whole == is_right]
        counts = [sum(fits(one, other) for one, other in own) for fits in CHANGES.values()]
        rows.append([says, str(len(own)), *map(str, counts)])
    changes = table(["the caption before had", "pictures", *CHANGES], rows)
    kinds = {when: truth_by_kind([captions], scenes) for when, captions in (("before", before), ("after", after))}
    rows = [
        [kind, *[cell for when in kinds.values() for cell in _count_and_share(when.get(kind), len(scenes))]]
        for kind in dict.fromkeys(kind for when in kinds.values() for kind in when)
    ]
    return f"{changes}\n\n" + table(["statements of", "before", "hold", "after", "hold"], rows)


def _count_and_share(truth: Mapping[str, float] | None, pictures: int) -> tuple[str, str]:
    """The number of statements of a kind, and the share of them that holds."""
    return ("0", "–") if truth is None else (f"{truth['said'] * pictures:.0f}", f"{truth['held']:.3f}")


CHANGES: dict[str, Callable[[CaptionTruth, CaptionTruth], bool]] = {
    "after: nothing false": lambda _, after: after.whole,
    "after: a larger share holds, not all": lambda before, after: before.share < after.share and not after.whole,
    "the same share": lambda before, after: before.share == after.share and not after.whole,
    "a smaller share": lambda before, after: after.share < before.share,
}


def _scenes(runs: Runs) -> dict[str, Scene]:
    """The scene of each picture of the split."""
    scenes = read_scenes(runs.out / "scenes")
    if scenes is None:
        raise DataError(f"{runs.out / 'scenes'} holds no drawn scenes.")
    return {record.image_id: scenes[record.image_id] for record in runs.records()}


def _explain(captioners: Mapping[str, Captioner], records: Sequence[CaptionRecord]) -> Iterator[Explanation]:
    for _, explanation in explain_photos(captioners, [record.path for record in records]):
        if not isinstance(explanation, Explanation):
            raise explanation
        yield explanation


def _draw_narrow(explanation: Explanation) -> Figure:
    """The figure of an explanation in the width of a phone, without gates."""
    models = tuple(
        replace(model, captions=tuple(replace(caption, word_values=()) for caption in model.captions))
        for model in explanation.models
    )
    return draw(replace(explanation, models=models), columns=COLUMNS, panel=PANEL)


# --- files ---


def save(figure: Figure, file: Path) -> None:
    """Write a figure into a small PNG file."""
    stream, small = io.BytesIO(), io.BytesIO()
    figure.savefig(stream, format="png", dpi=DOTS)
    palette = Image.open(stream).convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE)
    palette.save(small, "PNG", optimize=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(file, small.getvalue())


FIGURES: dict[str, Callable[[Runs], list[Figure]]] = {
    "attention": draw_attention,
    "stages": draw_stages,
    "goals": draw_goals,
    "failures": draw_failures,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw what is asked for; what lacks its runs is reported and skipped, with exit status 2."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--out", type=Path, required=True, help="what ablations.py --out wrote")
    parser.add_argument("--only", default=",".join(FIGURES), help="names of figures, separated by commas")
    parser.add_argument("--seed", type=int, default=0, help="of the runs")
    parser.add_argument("--folder", type=Path, default=Path("docs/figures"))
    parser.add_argument("--docs", type=Path, help="document to write the table of failures into, between its markers")
    given = parser.parse_args(arguments)
    names = given.only.split(",")
    if unknown := [name for name in names if name not in FIGURES]:
        parser.error(f"no such figure: {', '.join(unknown)}; there are {', '.join(FIGURES)}")
    runs, status = Runs(given.out, given.seed), 0
    for name in names:
        try:
            figures = FIGURES[name](runs)
            for number, figure in enumerate(figures, start=1):
                file = given.folder / (f"{name}-{number}.png" if len(figures) > 1 else f"{name}.png")
                save(figure, file)
                print(file)
            if name == "failures" and given.docs is not None:
                write_between(given.docs, table_of_failures(runs), markers_of("failures"))
        except ShowtellError as error:
            print(f"figures: {name}: {error}", file=sys.stderr)
            status = 2
    return status


if __name__ == "__main__":
    sys.exit(main())

"""Do gradients vanish through time and through stages? A figure and two tables for docs/vanishing_gradients.md.

    python benchmarks/gradient_norms.py --out runs/ablations --runs runs/gradient-norms [--rows nic_rnn,nic_gru]
        [--seeds 1] [--epochs 2] [--images 300] [--figure docs/figures/gradient-norms.png]
        [--docs docs/vanishing_gradients.md]

--out is what `ablations.py --out` (or `old_papers.py --out`) wrote: its pictures, frozen encoder, features and
finished runs, which are only read. A row of `ROWS` that is not finished there is trained for some epochs with each
seed, into RUNS/ROW/SEED; the same command resumes what was interrupted. Then the gradient of the loss is measured along
the first caption of each test picture, before and after training (`showtell.training.gradient_norms` has the formula):

 1. of the last word's loss at the state of each earlier step, as a share of the norm at the last step of the top layer
    or stage: what arrives from k steps later (papers/004 §2.1);
 2. of the whole loss at each layer or stage, mean over the steps: what arrives through those above (papers/002). A
    stack is measured with the losses that it is trained with: those of all stages (eq. 10), or of the last one alone.
"""

from __future__ import annotations

import statistics
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from documents import Lines, markers_of, publish, reader, table
from figures import save
from showtell.captioners import Captioner
from showtell.datasets import open_dataset
from showtell.datasets.records import CaptionRecord
from showtell.files import read_json, write_json
from showtell.grounding.teacher_forcing import captions_to_follow, encode_records
from showtell.models import Decoder, build_decoder
from showtell.text.vocabulary import Vocabulary
from showtell.training import train
from showtell.training.gradient_norms import by_steps_back, gradient_norms, last_words
from study import Bench, Row

import torch
from matplotlib.figure import Figure
from torch import Tensor

RATE = 0.003  # for all; none is tried
LAST_LOSS = "objective.earlier_stage_weight=0"
ROWS = (
    Row("nic_rnn", "plain RNN", "nic_ensae", changes=("model.cell=rnn",), rate=RATE),
    Row("nic_gru", "GRU", "nic_ensae", rate=RATE),
    Row("nic_lstm", "LSTM", "nic_lstm", rate=RATE),
    Row("nic_lstm3", "LSTM of 3 layers", "nic_lstm3", rate=RATE),
    Row("stack", "stack", "stack", rate=RATE),
    Row("stack_last_loss", "stack, loss of the last stage only", "stack", changes=(LAST_LOSS,), rate=RATE),
)
WHEN = {"start": "before training", "end": "after"}
SHOWN = (0, 1, 2, 4, 6, 8)  # steps back in the table
MAX_BACK = 9  # in the figure: nearly all captions are so long
COLOURS = {
    "nic_rnn": "#b3261e", "nic_gru": "#e8710a", "nic_lstm": "#1a73e8", "nic_lstm3": "#0b5d1e", "stack": "#6a1b9a",
    "stack_last_loss": "#8a6d3b",
}  # fmt: skip


def losses_of(row: Row) -> list[float] | None:
    """The weight of each stage's loss that a row is trained with; None: all 1."""
    return [0.0, 0.0, 1.0] if LAST_LOSS in row.changes else None


def initial_decoder(captioner: Captioner, seed: int) -> Decoder:
    """A decoder of the same settings as its weights are before training."""
    torch.manual_seed(seed)
    sizes = {"feature_size": captioner.encoder.feature_size, "vocabulary_size": len(captioner.vocabulary)}
    return build_decoder(captioner.decoder.config, **sizes)


def measure_decoder(
    decoder: Decoder, captioner: Captioner, records: Sequence[CaptionRecord], stage_weights: Sequence[float] | None
) -> dict[str, dict[str, list[float]]]:
    """For "last" and "whole" the profile of each vector of the state, by its name.

    Returns:
        last: the mean norm k steps before the last word, k = 0 first. whole: one number, the mean norm over all steps.
    """
    sums: dict[str, Tensor] = {}
    wholes: dict[str, list[Tensor]] = defaultdict(list)
    counts = torch.zeros(0)
    for batch, encoded in encode_records(captioner, [record.limited(1) for record in records], 100):
        _, _, words = captions_to_follow(captioner, batch, encoded.features, "references", captioner.decoding)
        targets = words[..., 1:]
        is_word = targets != Vocabulary.pad
        weights = {"stage_weights": stage_weights}
        last = gradient_norms(decoder, encoded.features, words, weights=last_words(targets), **weights)
        for name, norms in last.items():
            sums[name] = _add(
                sums.get(name, torch.zeros(0)), by_steps_back(norms, targets).nan_to_num() * _long(is_word)
            )
        counts = _add(counts, _long(is_word))
        for name, norms in gradient_norms(decoder, encoded.features, words, **weights).items():
            wholes[name].append(norms[is_word])
    return {
        "last": {name: (total / counts).tolist() for name, total in sums.items()},
        "whole": {name: [float(torch.cat(norms).mean())] for name, norms in wholes.items()},
    }


def _long(is_word: Tensor) -> Tensor:
    """The number of captions that are longer than k words: (T,)."""
    return is_word.flatten(0, -2).sum(0).float()


def _add(first: Tensor, second: Tensor) -> Tensor:
    """The sum of two profiles, the shorter one padded with zeros."""
    longest = max(len(first), len(second))
    return sum(torch.nn.functional.pad(one, (0, longest - len(one))) for one in (first, second))  # type: ignore[return-value]


def measure_run(checkpoint: Path, kept: Path, records: Sequence[CaptionRecord], row: Row, seed: int) -> dict[str, Any]:
    """The profiles of a run before and after training, kept in a file."""
    if not kept.exists():
        captioner = Captioner.from_pretrained(checkpoint, device="cpu")
        decoders = {"start": initial_decoder(captioner, seed), "end": captioner.decoder}
        measured = {
            when: measure_decoder(decoder, captioner, records, losses_of(row)) for when, decoder in decoders.items()
        }
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, measured)
    profiles: dict[str, Any] = read_json(kept)
    return profiles


def mean_over(runs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The mean of the same nested records of numbers."""
    if isinstance(runs[0], Mapping):
        return {key: mean_over([run[key] for run in runs]) for key in runs[0]}
    shortest = min(map(len, runs))
    return [statistics.mean(run[at] for run in runs) for at in range(shortest)]  # type: ignore[return-value]


# --- tables and figure ---


def vectors(line: Mapping[str, Any], kind: str = "hidden") -> list[str]:
    """The names of the vectors of a row's state, the lowest layer or first stage first."""
    return sorted(name for name in line["start"]["last"] if name.startswith(kind))


def shares(line: Mapping[str, Any], when: str, name: str) -> list[float]:
    """What arrives at a vector k steps earlier, as a share of what arrives at the last step of the top one."""
    last = line[when]["last"]
    at_top = last[vectors(line, name.partition(".")[0])[-1]][0]
    return [norm / at_top for norm in last[name]]


def levels(line: Mapping[str, Any]) -> dict[str, str]:
    """The vectors of a row that are shown: what each is called, by its name."""
    names = vectors(line)
    if len(names) > 1:
        kind, first = ("stage", 0) if line["name"].startswith("stack") else ("layer", 1)
        return {name: f"{line['says']}: {kind} {number}" for number, name in enumerate(names, first)}
    cells = dict.fromkeys(vectors(line, "cell"), f"{line['says']}: cell vector")
    return {names[0]: line["says"], **cells}


def tables(lines: Lines) -> str:
    """The tables in Markdown."""
    rows = [
        [called, says, *[f"{shares(line, when, name)[back]:.2g}" for back in SHOWN]]
        for line in lines
        for name, called in levels(line).items()
        for when, says in WHEN.items()
    ]
    through_time = table(["hidden vector of", "", *[f"{back} steps back" for back in SHOWN]], rows)
    rows = []
    for line in lines:
        if len(names := vectors(line)) == 1:
            continue
        for when, says in WHEN.items():
            norms = [line[when]["whole"][name][0] for name in names]
            rows.append([line["says"], says, *[f"{norm:.3f}" for norm in norms], f"{norms[0] / norms[-1]:.2g}"])
    through_stages = table(["", "", "lowest", "middle", "top", "lowest / top"], rows)
    return (
        "Of the loss of the last word, as a share of what arrives at the last step of the top layer or stage:\n\n"
        f"{through_time}\n\nOf the whole loss, mean over the steps:\n\n{through_stages}"
    )


def ratios(lines: Lines) -> list[dict[str, Any]]:
    """What `--json` prints: what is left of the gradient after 8 steps."""
    return [
        {
            "name": f"{line['name']}_{name}_{when}",
            "value": line[when]["last"][name][8],
            "unit": "norm of the gradient 8 steps before the last word",
            "against": "at the last step of the top",
            "ratio": shares(line, when, name)[8],
        }
        for line in lines
        for name in levels(line)
        for when in WHEN
    ]


def draw(lines: Lines) -> Figure:
    """Above: what arrives k steps earlier, by cell. Below: what arrives at each stage, by losses."""
    by_name = {line["name"]: line for line in lines}
    figure = Figure(figsize=(4.4, 7.2), facecolor="white", layout="constrained")
    grid = figure.subplots(3, 2, sharey="row")
    cells = [name for name in ("nic_rnn", "nic_gru", "nic_lstm", "nic_lstm3") if name in by_name]
    stacks = [name for name in ("stack", "stack_last_loss") if name in by_name]
    for column, (when, says) in enumerate(WHEN.items()):
        axes = grid[0, column]
        for name in cells:
            line = by_name[name]
            *_, top = vectors(line)
            axes.plot(shares(line, when, top)[: MAX_BACK + 1], color=COLOURS[name], linewidth=1.6, label=line["says"])
            for below in {"nic_lstm": ["cell.0"], "nic_lstm3": ["hidden.0"]}.get(name, []):
                label = "its cell vector" if name == "nic_lstm" else "its lowest layer"
                values = shares(line, when, below)[: MAX_BACK + 1]
                axes.plot(values, "--", color=COLOURS[name], linewidth=1.3, label=label)
        axes.set(yscale="log", xlabel="steps back")
        axes.set_title(says, fontsize=10)
        axes = grid[1, column]
        for name in stacks:
            line = by_name[name]
            for stage, style in zip(vectors(line), (":", "--", "-"), strict=True):
                axes.plot(shares(line, when, stage)[: MAX_BACK + 1], style, color=COLOURS[name], linewidth=1.5)
        axes.set(yscale="log", xlabel="steps back")
        axes = grid[2, column]
        for name in stacks:
            line = by_name[name]
            norms = [line[when]["whole"][stage][0] for stage in vectors(line)]
            label = "losses of all stages" if name == "stack" else "of the last stage only"
            axes.plot(range(len(norms)), norms, marker="o", color=COLOURS[name], linewidth=1.6, label=label)
        axes.set(xticks=[0, 1, 2], xlabel="stage", yscale="log")
    grid[0, 0].set_ylabel("last word's loss,\nshare of the top's")
    grid[1, 0].set_ylabel("the same in the stack")
    grid[2, 0].set_ylabel("whole loss, norm")
    for axes in grid.flat:
        axes.tick_params(labelsize=8)
        axes.spines[["top", "right"]].set_visible(False)
    figure.legend(*grid[0, 0].get_legend_handles_labels(), loc="outside upper center", ncols=2, fontsize=9)
    figure.legend(*grid[2, 0].get_legend_handles_labels(), loc="outside lower center", ncols=2, fontsize=9)
    return figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Train, measure, print, draw, and write the tables where they are wanted."""
    parser = reader(__doc__, images=300, rows=",".join(row.name for row in ROWS))
    parser.add_argument("--runs", type=Path, required=True, help="folder for the short runs")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--figure", type=Path)
    given = parser.parse_args(arguments)
    by_name = {row.name: row for row in ROWS}
    if unknown := [name for name in given.rows.split(",") if name not in by_name]:
        parser.error(f"no such row: {', '.join(unknown)}; there are {', '.join(by_name)}")

    def find() -> Lines:
        records = open_dataset(given.out / "scenes").limited(given.images).split("test")
        bench = Bench(given.out, frozen_epochs=given.epochs)
        lines = []
        for name in given.rows.split(","):
            row, profiles = by_name[name], []
            for seed in range(given.seeds):
                folder = given.runs / name / str(seed)
                finished = bench.folder(row, seed)
                if not (finished / "result.json").exists():
                    finished = folder
                    if train(bench.recipe(row, seed, row.rate), folder, resume=True, quiet=True).interrupted:
                        raise KeyboardInterrupt
                profiles.append(measure_run(finished / "best", folder / "gradient_norms.json", records, row, seed))
            print(f"{name}: {len(profiles)} runs", file=sys.stderr, flush=True)
            lines.append({"name": name, "says": row.says, **mean_over(profiles)})
        if given.figure is not None:
            save(draw(lines), given.figure)
        return lines

    return publish("gradient_norms", given, markers_of("gradient-norms"), find, tables, ratios)


if __name__ == "__main__":
    sys.exit(main())

"""The page of a run: its curves, its warnings, the score card of its best weights, captions with attention, its recipe.

    run = read_run(Path("runs/mine"))
    write_run_page(Path("report.html"), run, card, explanations)

A run is read as it lies on the disk, finished, interrupted or still running; whoever writes it is not disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from markupsafe import Markup

from showtell.captioner import Captioner
from showtell.checkpoint import SETTINGS
from showtell.datasets.records import CaptionDataset
from showtell.errors import DataError
from showtell.evaluation import evaluate
from showtell.explanations.explanation import Explanation
from showtell.features.store import FeatureStore
from showtell.files import write_text
from showtell.reports import curves
from showtell.reports.explanation_page import render
from showtell.reports.saved_run import check_run_recipe, read_run_log, read_run_state
from showtell.scores import Interval, ScoreReport, diagnose, image_facts, intervals

RECIPE, LOG = "recipe.yaml", "log.jsonl"
STATE = Path("last", "training", "state.json")
NO_TERM = ("step", "epoch", "learning_rate", "loss", "gradient_norm")  # of a line of the log; the rest are terms

_STYLE = """
dl.facts { display: grid; grid-template-columns: max-content 1fr; gap: .1rem 1rem; margin: .6rem 0; }
dl.facts dt { color: var(--soft-text); } dl.facts dd { margin: 0; overflow-wrap: anywhere; }
h2 { margin: 1.4rem 0 .3rem; }
article h2 { margin: 0; }
.cards { display: flex; flex-wrap: wrap; gap: 1rem 3rem; align-items: flex-start; }
.cards table { width: auto; }
.cards th[scope="row"] { font-weight: 400; }
pre { overflow-x: auto; padding: .8rem; border-radius: .4rem; background: var(--raised); font-size: .85rem; }
"""


@dataclass(frozen=True)
class Run:
    """What lies in a run folder."""

    folder: Path
    recipe: Mapping[str, Any]  # as resolved
    text: str  # of recipe.yaml
    log: tuple[Mapping[str, Any], ...]  # the lines of log.jsonl
    memory: Mapping[str, Any] = field(default_factory=dict)  # what last/ remembers between steps

    @property
    def title(self) -> str:
        """The folder's name; of one that is a number alone, such as those of seeds, the folder above with it."""
        folder = self.folder.resolve()
        return f"{folder.parent.name}/{folder.name}" if folder.name.isdecimal() else folder.name

    @property
    def checkpoint(self) -> Path | None:
        """best/, or last/ where there is none yet; None where nothing was saved yet."""
        there = (self.folder / name for name in ("best", "last"))
        return next((folder for folder in there if (folder / SETTINGS).is_file()), None)

    @property
    def validations(self) -> list[Mapping[str, Any]]:
        """The lines of the log that a validation wrote."""
        return [line for line in self.log if "validation" in line]

    @property
    def selection(self) -> str:
        """The validation score that decides what is best; runs of the first versions did not write it down."""
        return self.recipe["training"].get("selection_metric", "cider")

    @property
    def best(self) -> tuple[float, int] | None:
        """The validation score of best/ and its epoch: as last/ remembers them (the watchdog may have refused a higher
        score), or else the highest of the log."""
        if self.memory.get("best") is not None:
            return self.memory["best"], self.memory["best_epoch"]
        scores = [(line["validation"][self.selection], line["epoch"]) for line in self.validations]
        return max(scores, key=lambda pair: pair[0], default=None)

    @property
    def progress(self) -> str:
        """How far it has come, in words."""
        epochs = self.recipe["training"]["epochs"]
        step = self.log[-1]["step"] if self.log else 0
        done = self.validations[-1]["epoch"] if self.validations else 0
        if done == epochs or (self.recipe["data"]["validation_split"] is None and (self.folder / "best").is_dir()):
            return f"finished: {epochs} epochs, {step} steps"
        if self.memory.get("stopped"):
            return f"stopped early: {done} of {epochs} epochs, {step} steps"
        where = f"{step} steps, in epoch {self.log[-1]['epoch']} of {epochs}" if self.log else "no step is logged yet"
        return f"not finished: {where}; it is still running, or was interrupted and goes on with --resume"

    @property
    def warnings(self) -> list[str]:
        """What training warned of, each sentence once, with the epochs of it."""
        epochs: dict[str, list[int]] = {}
        for line in self.log:
            kind = line.get("reward_watchdog")
            watchdog = [f"reward watchdog {kind}: {line['sentence']}"] if kind else []
            for sentence in (*line.get("warnings", ()), *watchdog):
                epochs.setdefault(sentence, []).append(line["epoch"])
        return [f"{_epochs(found)}: {sentence}" for sentence, found in epochs.items()]


def read_run(folder: Path) -> Run:
    """Read a run folder, but for its weights.

    Raises:
        DataError: it is none, or one of its files is damaged.
    """
    missing = [name for name in (RECIPE, LOG) if not (folder / name).is_file()]
    if missing:
        is_run = all((folder.parent / name).is_file() for name in (RECIPE, LOG))
        hint = f"name the run itself: {folder.parent}" if is_run else "showtell train writes one"
        raise DataError(f"{folder} is no run folder: there is no {' and no '.join(missing)} in it; {hint}.")
    try:
        text = (folder / RECIPE).read_text(encoding="utf-8")
        recipe = yaml.safe_load(text)
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError, ValueError) as error:
        raise DataError(f"{folder / RECIPE} is damaged: {' '.join(str(error).split())}.") from error
    recipe = check_run_recipe(recipe, folder / RECIPE)
    state = read_run_state(folder / STATE) if (folder / STATE).is_file() else {}
    log = tuple(read_run_log(folder / LOG))
    return Run(folder, recipe, text, log, state.get("progress", {}))


def _epochs(numbers: Sequence[int]) -> str:
    """Epochs in words.

    >>> _epochs([3, 4, 4, 5, 9])
    'epochs 3 to 5, 9'
    """
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    told = ", ".join(f"{span[0]} to {span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
    return f"epoch{'s' if len(set(numbers)) > 1 else ''} {told}"


# --- the score card ---


@dataclass(frozen=True)
class Card:
    """The scores of a run's checkpoint on a split."""

    split: str
    search: str  # how captions were searched for, in words
    report: ScoreReport
    bounds: Mapping[str, Interval]
    rates: Mapping[str, float] = field(default_factory=dict)  # of `scores.diagnose`


def score_run(
    captioner: Captioner,
    dataset: CaptionDataset,
    split: str,
    *,
    store: FeatureStore | None = None,
    progress: Callable[[int], None] | None = None,
) -> Card:
    """Caption a split and score it, with the captioner's own decode settings.

    Args:
        captioner: the run's checkpoint.
        dataset: what it is scored on.
        split: of the dataset.
        store: features of the images, read instead of the photos.
        progress: called with the number of images done since the last call.

    Raises:
        DataError: there is no such split, or an image of it has no reference.
    """
    settings = captioner.settings(num_return_sequences=1)
    records = dataset.split(split)
    facts = image_facts(dataset, records)
    found = evaluate(captioner, records, settings, facts=facts, store=store, progress=progress)
    known = [text for record in dataset.records if record.split == "train" for text in record.captions]
    texts = [caption.text for caption in found.captions.values()]
    search = settings.kind if settings.num_beams == 1 else f"{settings.kind} of {settings.num_beams}"
    return Card(split, search, found.report, intervals(found.report), diagnose(texts, training=known or None))


# --- the page ---


def write_run_page(file: Path, run: Run, card: Card | None, explanations: Sequence[Explanation]) -> None:
    """Write one page of HTML, whole or not at all.

    Args:
        file: the page.
        run: from `read_run`.
        card: the scores, where they were asked for.
        explanations: of some photos by the run's checkpoint; possibly none.

    Raises:
        DataError: it cannot be written.
    """
    content = render(
        "run_page.html.j2",
        explanations,
        f"Run {run.title}",
        more_style=curves.STYLE + _STYLE,
        run=run,
        facts=_facts(run),
        charts=draw_curves(run),
        card=card,
        signatures=_signatures(card),
    )
    write_text(file, content)


def _facts(run: Run) -> dict[str, str]:
    """What the run is, in the order of the page."""
    recipe, training = run.recipe, run.recipe["training"]
    facts = {"state": run.progress}
    if run.best is not None:
        value, epoch = run.best
        facts["best"] = f"{run.selection} {value:.4f} in epoch {epoch}"
    model = recipe["model"]
    encoder = recipe["encoder"]
    rest = ", ".join(f"{key} {model[key]}" for key in ("attention", "cell", "hidden_size") if key in model)
    facts["model"] = f"{model['name']}{f' ({rest})' if rest else ''}"
    facts["encoder"] = f"{encoder['name']}, {'trained too' if encoder['trained'] else 'frozen'}"
    facts["objective"] = recipe["objective"]["name"]
    facts["data"] = str(recipe["data"]["path"])
    facts["training"] = (
        f"{training['optimizer']['name']}, learning rate {training['learning_rate']:g} ({training['schedule']}), "
        f"batches of {training['batch_size']} images, seed {training['seed']}"
    )
    if training.get("start_from"):
        facts["started from"] = training["start_from"]
    return facts


def draw_curves(run: Run) -> list[Markup]:
    """A chart for the loss, one for each validation score, one for each further term and for the learning rate."""
    steps = [line for line in run.log if "loss" in line]
    scores = list(dict.fromkeys(name for line in run.validations for name in line["validation"] if name != "loss"))
    alone = all(line.get("words") == line["loss"] for line in steps)  # cross-entropy: its term is the loss
    known = (*NO_TERM, "words") if alone else NO_TERM
    terms = list(dict.fromkeys(name for line in steps for name in line if name not in known))

    def trained(name: str) -> curves.Points:
        return [(line["step"], line[name]) for line in steps if name in line]

    def validated(name: str) -> curves.Points:
        return [(line["step"], line["validation"][name]) for line in run.validations if name in line["validation"]]

    if all("words" in line for line in steps):
        losses = [curves.chart("loss", {"training": trained("loss"), "validation": validated("loss")})]
    else:  # what a reward is turned into is no likelihood, and validation reports that
        losses = [
            curves.chart("loss of training, not a likelihood", {"": trained("loss")}),
            curves.chart("loss of validation, cross-entropy per word", {"": validated("loss")}),
        ]
    return [
        *losses,
        *(curves.chart(f"validation {name}", {"": validated(name)}) for name in scores),
        *(curves.chart(name.replace("_", " "), {"": trained(name)}) for name in terms),
        curves.chart("gradient norm, before it is clipped", {"": trained("gradient_norm")}),
        curves.chart("learning rate", {"": trained("learning_rate")}),
    ]


def _signatures(card: Card | None) -> dict[str, list[str]]:
    """How numbers were made: a signature and the numbers that share it."""
    found: dict[str, list[str]] = {}
    for name, signature in card.report.signatures.items() if card is not None else ():
        found.setdefault(signature, []).append(name)
    return found

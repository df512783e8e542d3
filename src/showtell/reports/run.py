"""A run folder, read for a report: recipe, log, progress, and the scores of its checkpoint.

A run is read as it is on disk, finished, interrupted or still running; a process that writes it is not disturbed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from showtell.captioners import Captioner
from showtell.checkpoint import SETTINGS
from showtell.datasets.records import CaptionDataset
from showtell.errors import DataError
from showtell.evaluation import evaluate
from showtell.explanations.explanation import display_name
from showtell.features.store import FeatureStore
from showtell.files import read_json, read_log
from showtell.scores import Interval, ScoreModels, ScoreReport, diagnose, image_facts, intervals
from showtell.scores.files import training_captions

RECIPE, LOG = "recipe.yaml", "log.jsonl"
STATE = Path("last", "training", "state.json")
Kind = type | tuple[type, ...]
NUMBER = (int, float)
# What a report needs of a recipe, a line of the log and the state: keys and the types of their values.
RECIPE_KEYS: dict[str, Kind] = {
    **dict.fromkeys(("model.name", "encoder.name", "objective.name", "data.path"), str),
    **dict.fromkeys(("training.optimizer.name", "training.schedule"), str),
    **dict.fromkeys(("training.epochs", "training.batch_size", "training.seed"), int),
    "data.validation_split": (str, type(None)),
    "training.learning_rate": NUMBER,
}
LOG_KEYS: dict[str, Kind] = {"step": int, "epoch": int}


@dataclass(frozen=True)
class Run:
    """The files of a run folder, but for weights."""

    folder: Path
    recipe: Mapping[str, Any]  # resolved
    text: str  # of recipe.yaml
    log: tuple[Mapping[str, Any], ...]  # the lines of log.jsonl
    saved: Mapping[str, Any] = field(default_factory=dict)  # progress in last/: best score and epoch, early stop

    @property
    def title(self) -> str:
        """The folder's name, behind the name of its parent if it is a number (a seed) or just "run"."""
        folder = self.folder.resolve()
        is_generic = folder.name.isdecimal() or folder.name == "run"
        return display_name(f"{folder.parent.name}/{folder.name}" if is_generic else folder.name)

    @property
    def checkpoint(self) -> Path | None:
        """best/, or else last/; None before the first checkpoint."""
        folders = (self.folder / name for name in ("best", "last"))
        return next((folder for folder in folders if (folder / SETTINGS).is_file()), None)

    @property
    def validations(self) -> list[Mapping[str, Any]]:
        """The lines of the log with a validation."""
        return [line for line in self.log if "validation" in line]

    @property
    def selection(self) -> str:
        """The validation score that selects the best checkpoint; runs of the first versions did not record it."""
        return str(self.recipe["training"].get("selection_metric", "cider"))

    @property
    def best(self) -> tuple[float, int] | None:
        """The validation score of best/ and its epoch: those of last/ (the watchdog may have refused a higher score),
        or else the highest in the log."""
        if self.saved.get("best") is not None:
            return self.saved["best"], self.saved["best_epoch"]
        scores = [
            (line["validation"][self.selection], line["epoch"])
            for line in self.validations
            if self.selection in line["validation"]
        ]
        return max(scores, key=lambda pair: pair[0], default=None)

    @property
    def progress(self) -> str:
        """A sentence on how far it has come."""
        epochs = self.recipe["training"]["epochs"]
        step = self.log[-1]["step"] if self.log else 0
        done = self.validations[-1]["epoch"] if self.validations else 0
        if done == epochs or (self.recipe["data"]["validation_split"] is None and (self.folder / "best").is_dir()):
            return f"finished: {epochs} epochs, {step} steps"
        if self.saved.get("stopped"):
            return f"stopped early: {done} of {epochs} epochs, {step} steps"
        where = f"{step} steps, in epoch {self.log[-1]['epoch']} of {epochs}" if self.log else "no step is logged yet"
        return f"not finished: {where}; it is still running, or was interrupted and can be resumed with --resume"

    @property
    def warnings(self) -> list[str]:
        """The warnings of training, each once, with its epochs."""
        epochs: dict[str, list[int]] = {}
        for line in self.log:
            kind = line.get("reward_watchdog")
            watchdog = [f"reward watchdog {kind}: {line.get('sentence', '')}"] if kind else []
            for sentence in (*line.get("warnings", ()), *watchdog):
                epochs.setdefault(sentence, []).append(line["epoch"])
        return [f"{_describe_epochs(numbers)}: {sentence}" for sentence, numbers in epochs.items()]


def read_run(folder: Path) -> Run:
    """Read a run folder, without its weights.

    Raises:
        DataError: it is no run folder, or one of its files is damaged.
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
    _require(recipe, RECIPE_KEYS, folder / RECIPE)
    return Run(folder, recipe, text, tuple(_read_log(folder / LOG)), _read_progress(folder / STATE))


def _read_log(path: Path) -> list[dict[str, Any]]:
    lines = read_log(path)
    for number, line in enumerate(lines, start=1):
        where = f"Line {number} of {path}"
        _require(line, LOG_KEYS, where)
        for key, kind in {"validation": dict, "warnings": list, "sentence": str}.items():
            if not isinstance(line.get(key, kind()), kind):
                raise DataError(f"{where} is damaged: its {key} is {_name(line[key])}; delete the line.")
        for name, value in line.get("validation", {}).items():
            if not isinstance(value, NUMBER):
                raise DataError(f"{where} is damaged: its validation {name} is {_name(value)}; delete the line.")
    return lines


def _read_progress(path: Path) -> Mapping[str, Any]:
    """The progress that the state of a run has; empty before the first checkpoint."""
    if not path.is_file():
        return {}
    state = read_json(path)
    progress = state.get("progress", {}) if isinstance(state, dict) else None
    if not isinstance(progress, dict):
        raise DataError(f"{path} is damaged: it has no progress; resume the run to write it again, or train again.")
    if progress.get("best") is not None:
        _require(progress, {"best": NUMBER, "best_epoch": int}, path)
    return progress


def _require(content: object, keys: Mapping[str, Kind], where: Path | str) -> None:
    """Check that a mapping has some dotted keys with values of some types.

    Raises:
        DataError: it is no mapping, or lacks one of them.
    """
    for key, kind in keys.items():
        value = content
        for part in key.split("."):
            if not isinstance(value, Mapping) or part not in value:
                raise DataError(f"{where} is damaged: it has no {key}.")
            value = value[part]
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise DataError(f"{where} is damaged: its {key} is {_name(value)}.")


def _name(value: object) -> str:
    """The kind of a JSON value.

    >>> _name([1])
    'a list'
    """
    names = {dict: "an object", list: "a list", str: "text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _describe_epochs(numbers: Sequence[int]) -> str:
    """Epochs as text.

    >>> _describe_epochs([3, 4, 4, 5, 9])
    'epochs 3 to 5, 9'
    """
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    text = ", ".join(f"{span[0]} to {span[-1]}" if len(span) > 1 else str(span[0]) for span in spans)
    return f"epoch{'s' if len(set(numbers)) > 1 else ''} {text}"


# --- the score card ---


@dataclass(frozen=True)
class ScoreCard:
    """The scores of a run's checkpoint on a split."""

    split: str
    search: str  # description of the search
    report: ScoreReport
    bounds: Mapping[str, Interval]
    rates: Mapping[str, float] = field(default_factory=dict)  # of `scores.diagnose`


def score_run(
    captioner: Captioner,
    dataset: CaptionDataset,
    split: str,
    *,
    score_models: ScoreModels | None = None,
    store: FeatureStore | None = None,
    progress: Callable[[int], None] | None = None,
) -> ScoreCard:
    """Caption a split and score it, with the captioner's own decoding settings.

    Args:
        captioner: the run's checkpoint.
        dataset: what it is scored on.
        split: of the dataset.
        score_models: those of learned scores.
        store: features of the images to read instead of the photos.
        progress: called with the number of images done since the last call.

    Raises:
        DataError: there is no such split, or an image of it has no reference.
    """
    settings = captioner.settings(num_return_sequences=1)
    records = dataset.split(split)
    facts = image_facts(dataset, records)
    evaluation = evaluate(
        captioner, records, settings, facts=facts, models=score_models, store=store, progress=progress
    )
    texts = [caption.text for caption in evaluation.captions.values()]
    search = settings.kind if settings.num_beams == 1 else f"{settings.kind} of {settings.num_beams}"
    report = evaluation.report
    return ScoreCard(split, search, report, intervals(report), diagnose(texts, training=training_captions(dataset)))

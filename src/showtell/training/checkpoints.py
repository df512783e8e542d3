"""What a run saves and restores: `last/` with everything that it needs to resume, and `best/`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from accelerate import Accelerator
from pydantic import TypeAdapter
from torch.optim import Optimizer

from showtell.captioners import EncoderDecoderCaptioner
from showtell.errors import DataError
from showtell.files import write_folder
from showtell.training.recipe_checks import make_recipe
from showtell.training.run_folder import RunFolder
from showtell.training.start import StartAverage
from showtell.training.state import Progress, load_state, save_state
from showtell.training.step import TrainingModel


@dataclass
class RunCheckpoints:
    """The checkpoints of one run; the first process writes them."""

    folder: RunFolder
    captioner: EncoderDecoderCaptioner  # with the weights that learn
    model: TrainingModel  # the same weights, and the objective's
    average: StartAverage  # of those of the start
    optimizer: Optimizer
    accelerator: Accelerator  # its processes, and the scaler of fp16
    data_fingerprint: str  # of the training data

    def save_last(self, progress: Progress) -> None:
        """Write `last/`: the weights and everything else that is needed to resume."""
        self.accelerator.wait_for_everyone()
        if not self.accelerator.is_main_process:
            return
        progress.log_bytes = self.folder.sync_log()
        if self.accelerator.scaler is not None:
            progress.scaler = self.accelerator.scaler.state_dict()
        extra = {"objective": self.model.objective.state_dict(), "start": self.average.start}
        recipe = self.folder.recipe.model_dump(mode="json")
        numbers = {"progress": asdict(progress), "data": self.data_fingerprint, "recipe": recipe}

        def fill(folder: Path) -> None:
            self.captioner.save_pretrained(folder)
            save_state(folder, self.optimizer, extra, numbers)

        write_folder(self.folder.last, fill)

    def save_best(self, record: Mapping[str, Any] | None) -> None:
        """Write `best/`: the weights that captioned the validation split, with a record of that validation."""
        if not self.accelerator.is_main_process:
            return
        best = copy.copy(self.captioner)
        if record is not None:
            best.origin = {**best.origin, "validation": record}
        write_folder(self.folder.best, best.save_pretrained)

    def restore(self) -> Progress:
        """Restore `last/`; a CheckpointError if it is damaged, another error if it began with other data or recipe."""
        folder = self.folder.last
        extra, numbers = load_state(folder, self.optimizer)
        self.folder.require_same(make_recipe(numbers["recipe"]))
        if numbers["data"] != self.data_fingerprint:
            raise DataError(
                f"The images or captions of data.path have changed since the run in {self.folder.path} began; restore "
                "them, or begin anew with another --out."
            )
        self.captioner.load_weights(folder)
        self.model.objective.load_state_dict(extra.get("objective", {}))
        self.average.load(extra.get("start", {}))
        progress = TypeAdapter(Progress).validate_python(numbers["progress"])
        if self.accelerator.scaler is not None and progress.scaler:
            self.accelerator.scaler.load_state_dict(progress.scaler)
        return progress

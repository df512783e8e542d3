"""What a run saves and restores: `last/` with everything that it needs to resume, and `best/`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, cast

from accelerate import Accelerator
from pydantic import TypeAdapter
from torch.optim import Optimizer

from showtell.captioners import EncoderDecoderCaptioner
from showtell.errors import DataError
from showtell.features import Encoder
from showtell.files import write_folder
from showtell.models import Decoder
from showtell.training.average import WeightAverage
from showtell.training.model import TrainingModel
from showtell.training.reward_watchdog import RewardWatchdog
from showtell.training.run_folder import RunFolder
from showtell.training.state import Progress, damage_refused, load_state, named, of_part, save_state


class RunCheckpoints:
    """The checkpoints of one run; the first process writes them.

    Args:
        folder: of the run.
        captioner: with the weights that learn.
        model: the same weights, and the objective's.
        optimizer: of the model.
        average: of the weights, if there is one.
        accelerator: its processes, and the scaler of fp16.
        data: path and fingerprint of the training data.
    """

    def __init__(
        self,
        folder: RunFolder,
        captioner: EncoderDecoderCaptioner,
        model: TrainingModel,
        optimizer: Optimizer,
        average: WeightAverage | None,
        accelerator: Accelerator,
        data: tuple[str, str],
    ) -> None:
        self._folder, self._captioner, self._model = folder, captioner, model
        self._optimizer, self._average, self._accelerator = optimizer, average, accelerator
        self._data_path, self._data_fingerprint = data
        self.averaged = copy.copy(captioner)  # with the averaged weights, if there are some
        if average is not None:
            self.averaged.encoder = cast(Encoder, average.modules["encoder"])
            self.averaged.decoder = cast("Decoder[Any, Any, Any]", average.modules["decoder"])

    def save_last(self, progress: Progress, watchdog: RewardWatchdog | None) -> None:
        """Write `last/`: the weights and everything else that is needed to resume."""
        self._accelerator.wait_for_everyone()
        if not self._accelerator.is_main_process:
            return
        progress.log_bytes = self._folder.keep_log()
        scaler = self._accelerator.scaler
        progress.scaler = scaler.state_dict() if scaler is not None else {}
        extra = named("objective", self._model.objective.state_dict())
        extra |= named("average", self._average.tensors if self._average is not None else {})
        numbers = {"progress": asdict(progress), "data": self._data_fingerprint}
        numbers |= {"reward_watchdog": watchdog.state_dict()} if watchdog is not None else {}

        def fill(folder: Path) -> None:
            self._captioner.save_pretrained(folder)
            save_state(folder / "training", self._optimizer, extra, numbers)

        write_folder(self._folder.last, fill)

    def save_best(self, record: Mapping[str, Any] | None) -> None:
        """Write `best/`: the weights that captioned the validation split, with a record of that validation."""
        if not self._accelerator.is_main_process:
            return
        best = copy.copy(self.averaged)
        if record is not None:
            best.origin = {**best.origin, "validation": record}
        write_folder(self._folder.best, best.save_pretrained)

    def restore(self, watchdog: RewardWatchdog | None) -> Progress:
        """Restore the state that `last/` has, the watchdog's too; gives the progress.

        Raises:
            CheckpointError: it is damaged.
            DataError: the run began with other data.
        """
        extra, numbers = load_state(self._folder.last / "training", self._optimizer)
        if numbers.get("data") != self._data_fingerprint:
            raise DataError(
                f"The images or captions of {self._data_path} have changed since the run in {self._folder.path} "
                "began; restore them, or begin anew with another --out."
            )
        self._load_weights(self._folder.last)
        with damage_refused(self._folder.last / "training"):
            self._model.objective.load_state_dict(of_part("objective", extra))
            progress = TypeAdapter(Progress).validate_python(numbers["progress"])
            if self._average is not None:
                self._average.load(of_part("average", extra), progress.step)
            if watchdog is not None:
                watchdog.load_state_dict(numbers["reward_watchdog"])
            if self._accelerator.scaler is not None and progress.scaler:
                self._accelerator.scaler.load_state_dict(progress.scaler)
        return progress

    def roll_back(self) -> None:
        """Load the weights of `best/` and reset the optimiser, whose averages are of gradients at other weights."""
        self._accelerator.wait_for_everyone()
        self._load_weights(self._folder.best)
        self._optimizer.state.clear()
        if self._average is not None:
            self._average.restart()

    def _load_weights(self, checkpoint: Path) -> None:
        saved = EncoderDecoderCaptioner.from_pretrained(checkpoint, device="cpu")
        self._model.encoder.load_state_dict(saved.encoder.state_dict())
        self._model.decoder.load_state_dict(saved.decoder.state_dict())

"""Opening a captioner: what a folder or a repository on the hub holds decides which kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch

from showtell.captioners.contract import Captioner, Source
from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner, average_members, open_checkpoint_folder
from showtell.errors import CheckpointError, DataError, UsageError, nearest
from showtell.features.precision import fastest_precision
from showtell.files import read_json
from showtell.hub import SETTINGS, commit_of, find_checkpoint

DTYPES = (
    "fp32",
    "bf16",
    "fp16",
    "auto",
)  # precisions of weights, for checkpoints of showtell of the encoder's products


def open_checkpoint(
    path_or_hub_id: str | Path, device: str | torch.device | None = None, dtype: str | None = None
) -> Captioner:
    """Open a checkpoint of showtell or a model of transformers; see `Captioner.from_pretrained`."""
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f'There is no precision "{dtype}"; {nearest(dtype, DTYPES)}.')
    folder = find_checkpoint(path_or_hub_id)
    source = Source(str(path_or_hub_id), folder, commit_of(folder))
    device = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if is_of_transformers(folder):
        from showtell.captioners.hugging_face_opening import open_transformers_folder

        if dtype == "auto":
            dtype = fastest_precision(("fp32", "bf16"), torch.device(device))
        return open_transformers_folder(source, device, dtype or "fp32")
    return open_checkpoint_folder(source, device, dtype)


def is_of_transformers(folder: Path) -> bool:
    """Whether a folder holds a model of transformers: its config.json names the type of a model, and no format of ours.

    A folder without a config.json, or with a damaged one, is left to who opens checkpoints of showtell.
    """
    try:
        settings = read_json(folder / SETTINGS)
    except DataError:
        return False
    return isinstance(settings, dict) and "format" not in settings and "model_type" in settings


def open_ensemble(
    paths_or_hub_ids: Sequence[str | Path], device: str | torch.device | None = None
) -> EncoderDecoderCaptioner:
    """Open several checkpoints as one captioner; see `Captioner.ensemble`."""
    if not paths_or_hub_ids:
        raise UsageError("An ensemble needs at least one checkpoint.")
    members: list[EncoderDecoderCaptioner] = []
    for one in paths_or_hub_ids:
        captioner = open_checkpoint(one, device)
        if not isinstance(captioner, EncoderDecoderCaptioner):
            raise CheckpointError(
                f"{one} is a captioner of {captioner.about.library}, and an ensemble averages checkpoints of showtell "
                "with one vocabulary; caption with each alone, or compare them (showtell explain --against)."
            )
        members.append(captioner)
    return average_members([str(one) for one in paths_or_hub_ids], members)

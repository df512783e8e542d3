"""Opening a captioner: what a folder or a repository on the hub holds decides which kind it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from showtell import checkpoint
from showtell.captioners.contract import Captioner, Source
from showtell.captioners.encoder_decoder import EncoderDecoderCaptioner
from showtell.errors import CheckpointError, DataError, UsageError, nearest
from showtell.files import read_json
from showtell.hub import ADAPTER, SERVER, SETTINGS, find_checkpoint
from showtell.types import precision_name

# Precisions of a model's weights; of a checkpoint of showtell, of its encoder's products.
DTYPES = ("fp32", "bf16", "fp16", "auto")
TRANSFORMERS = "transformers"  # name of encoder and model in recipes that start from one of theirs


def open_checkpoint(
    path_or_hub_id: str | Path, device: str | torch.device | None = None, dtype: str | torch.dtype | None = None
) -> Captioner:
    """Open a checkpoint of showtell or a model of transformers; see `Captioner.from_pretrained`."""
    dtype = precision_name(dtype)
    if dtype is not None and dtype not in DTYPES:
        raise UsageError(f'There is no precision "{dtype}"; {nearest(dtype, DTYPES)}.')
    if str(path_or_hub_id).startswith(SERVER):
        from showtell.captioners.openai_server import OpenAICaptioner

        return OpenAICaptioner(str(path_or_hub_id))
    source = _source_of(path_or_hub_id)
    device = _usable(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if not is_of_transformers(source.folder):
        return _open_folder(source, device, dtype)
    from showtell.captioners.hugging_face_adapters import open_adapted
    from showtell.captioners.hugging_face_opening import open_transformers_folder

    if dtype == "auto":
        dtype = fastest_precision(("fp32", "bf16"), device)
    return (open_adapted if _is_adapted(source.folder) else open_transformers_folder)(source, device, dtype)


def _usable(device: str | torch.device) -> torch.device:
    """A device of this machine; a UsageError if torch has none of that name here."""
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError) as error:  # of a name that torch does not know; it was built without
        raise UsageError(f"There is no device {device} on this machine; leave it out, or take cpu.") from error


def _source_of(path_or_hub_id: str | Path) -> Source:
    folder = find_checkpoint(path_or_hub_id)
    in_cache = folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    return Source(str(path_or_hub_id), folder, folder.name if in_cache else None)  # its name there is its commit


def is_of_transformers(folder: Path) -> bool:
    """Whether config.json is of a model of transformers, or there are adapters of one; not if it is damaged."""
    try:
        settings = read_json(folder / SETTINGS)
    except DataError:
        return False
    if not isinstance(settings, dict):
        return False
    return _is_adapted(folder) or ("model_type" in settings and "format" not in settings)


def _is_adapted(folder: Path) -> bool:
    return (folder / ADAPTER).is_file()


def recipe_sections(path_or_hub_id: str | Path) -> dict[str, dict[str, Any]]:
    """The sections `encoder`, `model` and `decoding` of a recipe that starts from a captioner, or a CheckpointError."""
    if str(path_or_hub_id).startswith(SERVER):
        raise CheckpointError(
            f"{path_or_hub_id} does not learn here: its server keeps its weights; start from a captioner that opens "
            "here, or let a small one learn from its captions (adapt/corrections)."
        )
    source = _source_of(path_or_hub_id)
    if is_of_transformers(source.folder) and not _is_adapted(source.folder):
        from showtell.captioners.hugging_face_opening import open_transformers_folder

        own = open_transformers_folder(source, "meta").decoding.model_dump(mode="json")
        return {"encoder": {"name": TRANSFORMERS}, "model": {"name": TRANSFORMERS}, "decoding": own}
    settings = checkpoint.read_settings(source.folder, checkpoint.CheckpointSettings)
    return {"encoder": settings.encoder, "model": settings.model, "decoding": settings.decoding}


def _open_folder(source: Source, device: torch.device, precision: str | None) -> EncoderDecoderCaptioner:
    """A checkpoint of showtell, with the precision of its encoder's products; None is that of its training."""
    opened = checkpoint.load_checkpoint(source.folder)
    fingerprints = dict(checkpoint.read_settings(source.folder, checkpoint.CheckpointSettings).fingerprints)
    encoder = opened.encoder
    if precision == "auto":
        precision = fastest_precision(encoder.precisions, device)
    if precision is not None and precision not in encoder.precisions:
        raise UsageError(
            f"{source.name} is a checkpoint of showtell whose encoder computes in {' or '.join(encoder.precisions)}; "
            f"leave {precision} out."
        )
    if precision is not None and precision != encoder.precision:
        encoder.compute_in(precision)
        fingerprints["encoder_precision"] = precision  # captions are not quite those of the checkpoint as trained
    return EncoderDecoderCaptioner(**vars(opened), source=replace(source, fingerprints=fingerprints)).to(device)


def fastest_precision(precisions: Sequence[str], device: torch.device) -> str:
    """bf16 if there is a choice and the device has units for it, on a CPU AMX (docs/lab_notes.md); else fp32."""
    if device.type == "cuda":
        is_fast = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        is_fast = device.type == "cpu" and torch.cpu._is_amx_tile_supported()
    return "bf16" if is_fast and "bf16" in precisions else "fp32"

"""`showtell doctor`: what is installed, what is missing, and why a score may be low."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import CHECKPOINT_HELP, AsJson, Dtype, FeatureStore
from showtell.cli.decoding_options import open_captioner

if TYPE_CHECKING:
    from showtell.doctor import Machine


def doctor(
    checkpoint: Annotated[
        str | None,
        typer.Argument(help=CHECKPOINT_HELP, show_default="none: only check the machine"),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(metavar="DATASET", help="Dataset to score the checkpoint on.", show_default="none"),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split of the dataset.", show_default="test, else val")] = None,
    sample: Annotated[int, typer.Option(help="Number of images to caption.", min=1)] = 32,
    dtype: Dtype = None,
    features: FeatureStore = None,
    as_json: AsJson = False,
) -> None:
    """Say what is installed and, given a checkpoint and a dataset, why a score may be low.

    Each cause is a sentence with what to do. Exits with 0 whatever it finds; 2 if something cannot be read at all.
    """
    from dataclasses import asdict

    from showtell.doctor import Diagnosis, diagnose_checkpoint, diagnose_scores, inspect_machine, split_to_score
    from showtell.errors import UsageError
    from showtell.progress import counting

    if checkpoint is None and (data is not None or split is not None):
        raise UsageError(
            "A dataset is diagnosed for a checkpoint: showtell doctor CHECKPOINT --data DATASET; a dataset "
            "alone is for showtell data check."
        )
    if split is not None and data is None:
        raise UsageError("--split goes with --data DATASET.")
    if features is not None and data is None:
        raise UsageError("--features goes with --data DATASET.")
    machine = inspect_machine()
    parts: dict[str, Diagnosis] = {}
    if checkpoint is not None:
        from showtell.datasets import read_dataset
        from showtell.features.store import FeatureStore as FeatureStoreReader

        captioner = open_captioner(checkpoint, dtype=dtype)
        parts["checkpoint"] = diagnose_checkpoint(captioner)
        if data is not None:
            dataset = read_dataset(data, with_photos=features is None)
            store = None if features is None else FeatureStoreReader(features)
            scored = split or split_to_score(dataset)
            with counting("captioning", min(sample, len(dataset.split(scored)))) as progress:
                parts["data"] = diagnose_scores(
                    captioner, dataset, scored, sample=sample, store=store, progress=progress
                )
    causes = [cause for part in parts.values() for cause in part.causes]
    if as_json:
        content: dict[str, Any] = {"machine": asdict(machine)}
        content |= {name: part.facts for name, part in parts.items()}
        typer.echo(json.dumps({**content, "causes": [asdict(cause) for cause in causes]}, ensure_ascii=False))
        return
    lines = _describe_machine(machine)
    for name, part in parts.items():
        lines += ["", name, *(f"  {key.replace('_', ' ')}: {_describe(value)}" for key, value in part.facts.items())]
    if parts:
        lines += ["", *(typer.style(f"cause: {cause.sentence}", fg="yellow") for cause in causes)]
        lines += [] if causes else ["Nothing was found that would keep scores low."]
    typer.echo("\n".join(lines))


def _describe_machine(machine: Machine) -> list[str]:
    """The machine as lines of text."""
    memory = f"{machine.memory_gigabytes:.1f} GB, {machine.free_gigabytes:.1f} GB of it free"
    lines = [
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        f"system:  {machine.system}",
        f"devices: {', '.join(machine.devices)}",
        f"cores:   {machine.cores}",
        f"memory:  {memory}",
        f"java:    {machine.java or 'none; only SPICE needs it'}",
    ]
    lines += [f"missing: {sentence}" for sentence in machine.missing.values()]
    return lines + [typer.style(f"problem: {sentence}", fg="red") for sentence in machine.problems]


def _describe(value: object) -> str:
    """A fact as text: the entries of an object with their names, those of objects within with dotted names.

    >>> _describe({"beams": 5, "validation": {"cider": 0.51234, "epoch": 3}})
    'beams 5, validation.cider 0.512, validation.epoch 3'
    """
    if isinstance(value, dict):
        entries = ((key, _describe(entry)) for key, entry in value.items() if not isinstance(entry, dict))
        nested = (
            f"{key}.{part}"
            for key, entry in value.items()
            if isinstance(entry, dict) and entry
            for part in _describe(entry).split(", ")
        )
        return ", ".join([*(f"{key} {text}" for key, text in entries), *nested]) or "none"
    if isinstance(value, list | tuple):
        return " ".join(map(_describe, value)) or "none"
    return f"{value:.3g}" if isinstance(value, float) else str(value)

"""`showtell doctor`: what is installed, what is missing, and why a score may be low."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from showtell.cli.arguments import CHECKPOINT_HELP, AsJson

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
    as_json: AsJson = False,
) -> None:
    """Say what is installed and, given a checkpoint and a dataset, why a score may be low.

    Each cause is a sentence with what to do. Exits with 0 whatever it finds; 2 if something cannot be read at all.
    """
    from dataclasses import asdict

    from showtell.doctor import Diagnosis, diagnose_checkpoint, diagnose_scores, look_at_machine, split_to_score
    from showtell.errors import UsageError
    from showtell.progress import counting

    if checkpoint is None and (data is not None or split is not None):
        raise UsageError(
            "A dataset is diagnosed for a checkpoint: showtell doctor CHECKPOINT --data DATASET; a dataset "
            "alone is for showtell data check."
        )
    if split is not None and data is None:
        raise UsageError("--split goes with --data DATASET.")
    machine = look_at_machine()
    parts: dict[str, Diagnosis] = {}
    if checkpoint is not None:
        from showtell.captioner import Captioner
        from showtell.datasets import read_dataset

        captioner = Captioner.from_pretrained(checkpoint)
        parts["checkpoint"] = diagnose_checkpoint(checkpoint, captioner)
        if data is not None:
            dataset = read_dataset(data)
            scored = split or split_to_score(dataset)
            with counting("captioning", min(sample, len(dataset.split(scored)))) as progress:
                parts["data"] = diagnose_scores(captioner, dataset, scored, sample=sample, progress=progress)
    causes = [cause for part in parts.values() for cause in part.causes]
    if as_json:
        found: dict[str, Any] = {"machine": asdict(machine)}
        found |= {name: part.facts for name, part in parts.items()}
        typer.echo(json.dumps({**found, "causes": [asdict(cause) for cause in causes]}, ensure_ascii=False))
        return
    lines = _in_words(machine)
    for name, part in parts.items():
        lines += ["", name, *_facts_in_words(part.facts)]
    if parts:
        lines += ["", *(f"cause: {cause.sentence}" for cause in causes)]
        lines += [] if causes else ["Nothing was found that would keep scores low."]
    typer.echo("\n".join(lines))


def _in_words(machine: Machine) -> list[str]:
    """The machine as people read it."""
    gigabytes = f"{machine.memory_gigabytes:.1f} GB, {machine.free_gigabytes:.1f} GB of it free"
    lines = [
        ", ".join(f"{name} {version}" for name, version in machine.versions.items()),
        f"system:  {machine.system}",
        f"devices: {', '.join(machine.devices)}",
        f"cores:   {machine.cores}",
        f"memory:  {gigabytes}",
        f"java:    {machine.java or 'none; only SPICE needs it'}",
    ]
    lines += [f"missing: {sentence}" for sentence in machine.missing.values()]
    return lines + [f"problem: {sentence}" for sentence in machine.problems]


def _facts_in_words(facts: dict[str, Any]) -> list[str]:
    lines = []
    for name, value in facts.items():
        pairs = value.items() if isinstance(value, dict) else [(None, value)]
        shown = ", ".join(f"{key} {_number(one)}" if key else _number(one) for key, one in pairs)
        lines.append(f"  {name.replace('_', ' ')}: {shown}")
    return lines


def _number(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)

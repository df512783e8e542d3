"""`showtell doctor`: what is installed, and what is missing for what."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import typer

from showtell.cli.arguments import AsJson

PACKAGES = ("torch", "torchvision", "timm", "transformers", "accelerate", "numpy", "pillow")


def doctor(as_json: AsJson = False) -> None:
    """Say what is installed, and what is missing for what."""
    import yaml

    machine = inspect_machine()
    typer.echo(json.dumps(machine) if as_json else yaml.safe_dump(machine, sort_keys=False, width=1000).rstrip())


def inspect_machine() -> dict[str, Any]:
    """Versions, devices and memory of this machine, and the packages that are missing or of another version."""
    import platform
    import shutil

    import psutil
    import torch

    from showtell import __version__
    from showtell.cores import usable_cores

    memory = psutil.virtual_memory()
    gpus = [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    gpus += ["Apple GPU (mps)"] * torch.backends.mps.is_available()
    return {
        "python": platform.python_version(),
        "showtell": __version__,
        **{name: version for name in PACKAGES if (version := _version(name))},
        "system": platform.platform(),
        "devices": [*gpus, f"CPU ({platform.machine()})"],
        "cores": usable_cores(),
        "memory": f"{memory.total / 2**30:.1f} GB, {memory.available / 2**30:.1f} GB of it free",
        "java": shutil.which("java") or "none; only SPICE needs it",
        "missing": _missing_packages(),
    }


def _version(name: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    with suppress(PackageNotFoundError):
        return version(name)
    return None


def _missing_packages() -> list[str]:
    """A sentence for each extra of the package, and for the package itself, whose requirements are not met."""
    import re
    from importlib.metadata import requires

    from packaging.requirements import Requirement

    lacking: dict[str, list[str]] = {}
    for requirement in map(Requirement, requires("showtell") or ()):
        extra = next(iter(re.findall(r'extra == "([^"]+)"', str(requirement.marker))), "showtell")
        is_here = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
        if is_here and not requirement.specifier.contains(_version(requirement.name) or "0", prereleases=True):
            lacking.setdefault(extra, []).append(f"{requirement.name}{requirement.specifier}")
    return [
        f"{extra} needs {', '.join(names)}: pip install {' '.join(map(json.dumps, names))}"
        for extra, names in lacking.items()
        if extra not in ("dev", "docs")
    ]

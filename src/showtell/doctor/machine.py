"""The machine: versions of packages, devices, memory, Java, and missing extras."""

from __future__ import annotations

import importlib.metadata
import platform
import shutil
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass

import psutil
import torch
from packaging.requirements import Requirement

from showtell import __version__
from showtell.cores import usable_cores

PACKAGES = ("torch", "torchvision", "timm", "accelerate", "numpy", "pillow")
EXTRAS = {  # what each is for; the packages are those of pyproject.toml
    "meteor": "METEOR, and SPICE beside Java",
    "heic": "photos of iPhones",
    "hub": "datasets of the Hugging Face hub",
    "hdf5": "features that other tools keep in HDF5",
    "ray": "very many images on many machines",
    "serve": "a page and an API for captioners",
    "sweep": "searches for the best values of recipe keys",
    "transformers": "captioners that others trained, such as BLIP",
}


@dataclass(frozen=True)
class Machine:
    """Versions, devices and memory of a machine."""

    versions: dict[str, str]  # Python, showtell and the packages that matter for numbers
    system: str
    devices: tuple[str, ...]  # GPUs by name, then the CPU
    cores: int  # that this process may use
    memory_gigabytes: float  # of the machine
    free_gigabytes: float  # of it, now
    java: str | None  # its version line; None where there is none
    missing: dict[str, str]  # extra: sentence with what it is for and how to install it
    problems: tuple[str, ...]  # packages that are missing or too old for showtell


def inspect_machine() -> Machine:
    """Inspect this machine. Imports nothing but torch, and starts Java once for its version."""
    memory = psutil.virtual_memory()
    requirements = [Requirement(line) for line in importlib.metadata.requires("showtell") or ()]
    return Machine(
        versions={
            "python": platform.python_version(),
            "showtell": __version__,
            **{name: _version(name) or "missing" for name in PACKAGES},
        },
        system=platform.platform(),
        devices=(*_gpus(), f"CPU ({platform.machine()})"),
        cores=usable_cores(),
        memory_gigabytes=memory.total / 2**30,
        free_gigabytes=memory.available / 2**30,
        java=_java(),
        missing=_missing_extras(requirements),
        problems=tuple(_too_old(requirements)),
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def _gpus() -> list[str]:
    if torch.cuda.is_available():
        return [torch.cuda.get_device_name(number) for number in range(torch.cuda.device_count())]
    return ["Apple GPU (mps)"] if torch.backends.mps.is_available() else []


def _java() -> str | None:
    program = shutil.which("java")
    if program is None:
        return None
    try:
        done = subprocess.run([program, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{program} does not start ({error})"
    output = (done.stderr or done.stdout).strip().splitlines()
    return output[0] if done.returncode == 0 and output else f"{program} stops with status {done.returncode}"


def _missing_extras(requirements: Iterable[Requirement]) -> dict[str, str]:
    """The extras with a package that is not installed, or not in a supported version."""
    requirements = list(requirements)
    missing = {}
    for extra, purpose in EXTRAS.items():
        packages = [
            one
            for one in requirements
            if one.marker and one.marker.evaluate({"extra": extra}) and not one.marker.evaluate({"extra": ""})
        ]
        lacking = [one.name for one in packages if not _is_met(one)]
        if lacking:
            missing[extra] = (
                f'{purpose}: {", ".join(lacking)} missing or of another version; pip install "showtell[{extra}]"'
            )
    return missing


def _is_met(requirement: Requirement) -> bool:
    version = _version(requirement.name)
    return version is not None and requirement.specifier.contains(version, prereleases=True)


def _too_old(requirements: Iterable[Requirement]) -> list[str]:
    """A sentence for each required package that is missing or not in a supported version."""
    return [
        f"showtell needs {one.name}{one.specifier}, and {_version(one.name) or 'none'} is installed; "
        f'pip install "{one.name}{one.specifier}".'
        for one in requirements
        if (one.marker is None or one.marker.evaluate({"extra": ""})) and not _is_met(one)
    ]

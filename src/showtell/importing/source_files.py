"""The files of a source: the weights, and beside them the words and options that belong to them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from showtell.errors import DataError, UsageError, WeightsError, notify, summarise
from showtell.features.weights import unnested
from showtell.hub import SETTINGS
from showtell.torch_weights import read_torch_file

_WEIGHTS = (".pth", ".pt", ".tar", ".bin", ".ckpt")  # what files of weights end in, where a folder is given
_NO_WEIGHTS = ("optimizer",)  # what others of them begin with
_LARGE = 100_000_000  # bytes, from which on reading is announced
_MAX_INFOS = 512 * 2**20  # bytes of a file of words and options


def find_weights(source: Path) -> Path:
    """The file of weights: the source itself, or the only one in a folder; of several the only one called best.

    Raises:
        UsageError: there is none, or several.
    """
    if not source.is_dir():
        if not source.exists():
            raise UsageError(f"There is no file or folder {source}; give the file of weights, or its folder.")
        return source
    files = [
        path
        for path in sorted(source.iterdir())
        if path.suffix.lower() in _WEIGHTS and path.is_file() and not path.name.lower().startswith(_NO_WEIGHTS)
    ]
    if not files and (source / SETTINGS).is_file():
        raise UsageError(f"{source} is a checkpoint already, or a model of transformers; caption with it as it is.")
    if not files:
        raise UsageError(f"The folder {source} has no file of weights ({', '.join(_WEIGHTS)}); give the file itself.")
    best = [path for path in files if _is_best(path)]
    return _only(best or files, f"The folder {source} has several files of weights", "give one of them as the source")


def find_beside(weights: Path, pattern: str, what: str, option: str) -> Path:
    """The file that belongs to weights, in their folder: of several the one whose name has most in common with theirs.

    Args:
        weights: the file.
        pattern: of names.
        what: it is, for messages.
        option: that names it.

    Raises:
        UsageError: there is none, or several that may be it.
    """
    files = sorted(path for path in weights.parent.glob(pattern) if path.is_file())
    if not files:
        raise UsageError(
            f"{weights} has no words: there is no {pattern} beside it, {what}; give it with {option} FILE."
        )
    common = [(_is_best(path) == _is_best(weights), len(_parts(path) & _parts(weights))) for path in files]
    files = [path for path, parts in zip(files, common, strict=True) if parts == max(common)]
    return _only(files, f"Several files beside {weights} may have its words", f"name one with {option} FILE")


def _is_best(path: Path) -> bool:
    return "best" in path.name.lower()


def _parts(path: Path) -> set[str]:
    """The parts of a file's name, without suffixes."""
    return set(re.split(r"[-_. ]+", path.name.lower().removesuffix(path.suffix.lower())))


def _only(files: Sequence[Path], problem: str, remedy: str) -> Path:
    if len(files) > 1:
        raise UsageError(f"{problem} ({summarise(path.name for path in files)}); {remedy}.")
    return files[0]


def read_weights_file(file: Path) -> dict[Any, object]:
    """The content of a file of weights: tensors by their names, or whatever else its dict holds.

    Raises:
        WeightsError: it is damaged, or holds something else.
    """
    if file.stat().st_size > _LARGE:
        notify(f"reading {file} ({file.stat().st_size / 1e6:,.0f} MB)")
    content = unnested(read_torch_file(file))
    if not content:
        raise WeightsError(f"{file} holds no weights by their names, so it is no checkpoint that can be imported.")
    return content


def read_infos_file(file: Path) -> Any:
    """The content of a pickle of words and options.

    Raises:
        DataError: it is missing, or too large to be one.
        WeightsError: it is damaged.
    """
    if file.is_file() and file.stat().st_size > _MAX_INFOS:
        raise DataError(f"{file} has {file.stat().st_size / 1e6:,.0f} MB, which no file of words and options needs.")
    return read_torch_file(file)


def sha256(file: Path) -> str:
    """The fingerprint of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()

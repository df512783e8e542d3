"""Hugging Face datasets: hf:NAME or hf:NAME:CONFIG on the hub, or hf:FOLDER with parquet files.

The first reading writes the images, undecoded and each once, and a file of JSON lines to the cache folder
(`SHOWTELL_CACHE`), completely or not at all; that folder is what is read, then and later, without asking the hub again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from showtell.datasets import jsonl
from showtell.datasets.entries import CAPTION, ID, IMAGE, Columns
from showtell.datasets.records import CaptionDataset
from showtell.datasets.splits import split_name
from showtell.errors import (
    DataError,
    MissingDependencyError,
    fetch_elsewhere,
    first_line,
    install_command,
    summarise,
)
from showtell.files import cache_folder, locked, read_bytes, recover_folder, write_folder
from showtell.progress import counting

EXAMPLE = "hf:NAME or hf:NAME:CONFIG of a dataset on the Hugging Face hub, or hf:FOLDER with parquet files"

PREFIX = "hf:"
_LINES = "captions.jsonl"
_REPOSITORY = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")
_TEXT_KEYS = ("raw", *CAPTION)  # of a sentence that is an object
_SUFFIXES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"GIF8": ".gif", b"RIFF": ".webp", b"BM": ".bmp"}


def recognises(path: Path) -> bool:
    """Whether this begins with hf:."""
    return str(path).startswith(PREFIX)


def read(path: Path) -> CaptionDataset:
    """Read a dataset of the hub, or a folder of parquet files, through the cache folder.

    Raises:
        MissingDependencyError: the package `datasets` is not installed.
        DataError: there is no such dataset, it cannot be loaded, or its columns are not understood.
    """
    name = str(path).removeprefix(PREFIX)
    folder = cache_folder() / "hub" / _key(name)
    if not (folder / _LINES).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with locked(
            folder.with_name(f".{folder.name}.lock"), wait=True
        ):  # a second process reads what the first one wrote
            recover_folder(folder)
            if not (folder / _LINES).is_file():
                splits = _load(name)
                write_folder(folder, lambda new: _copy(name, splits, new))
    return replace(jsonl.read(folder), root=path, format="hub")


def _key(name: str) -> str:
    """The name of a dataset's cache folder; that of a folder changes with its files."""
    readable = re.sub(r"[^\w.-]+", "--", name.strip("/."))[-60:]
    state = [str(Path(name).resolve()) if Path(name).is_dir() else name]
    for file in _parquet_files(Path(name)):
        state.append(f"{file.relative_to(name)} {file.stat().st_size} {file.stat().st_mtime_ns}")
    digest = hashlib.blake2b("\n".join(state).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{readable}-{digest}"


def _parquet_files(folder: Path) -> list[Path]:
    """Those in a folder and directly below it, as in a repository of the hub."""
    return sorted(file for pattern in ("*.parquet", "*/*.parquet") for file in folder.glob(pattern))


def _load(name: str) -> dict[str, Any]:
    """The splits of a dataset; raises as `read` does."""
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f"{PREFIX}{name} needs the package datasets, which is not installed: {install_command('hub')}"
        ) from error
    folder, (repository, _, config) = Path(name), name.partition(":")
    is_folder = bool(_parquet_files(folder))
    if not is_folder and (folder.exists() or not _REPOSITORY.fullmatch(repository)):
        raise DataError(
            f"{PREFIX}{name} is not a dataset: give the NAME or OWNER/NAME of one on the Hugging Face hub, or a folder "
            "with parquet files, such as to_parquet of the package datasets writes."
        )
    try:  # an unusable dataset raises anything that pyarrow, fsspec or the hub's client may
        if is_folder:
            return dict(datasets.load_dataset(name, streaming=True))
        return dict(datasets.load_dataset(repository, config or None))
    except Exception as error:
        if folder.exists():
            raise DataError(f"Cannot load {PREFIX}{name} ({first_line(error)}); save it anew.") from error
        raise DataError(
            f"Cannot load {PREFIX}{name} from the Hugging Face hub ({first_line(error)}); check the name."
            f"{fetch_elsewhere(repository, f'{PREFIX}FOLDER', 'dataset')}"
        ) from error


def _copy(name: str, splits: Mapping[str, Any], folder: Path) -> None:
    """Write the images of all splits and the JSON lines that name them.

    Raises:
        DataError: columns are missing, or rows cannot be read.
    """
    import datasets

    (folder / "images").mkdir()
    with (folder / _LINES).open("w", encoding="utf-8") as stream, counting(f"copying images of {name}", None) as done:
        for split, rows in splits.items():
            image, captions, ids = _columns(name, rows.features or {})
            try:  # as when loading, anything may be raised
                for row in rows.cast_column(image, datasets.Image(decode=False)).select_columns(
                    [image, *captions, *ids]
                ):
                    content = _content(row[image] or {}, name)
                    suffix = next((kind for mark, kind in _SUFFIXES.items() if content.startswith(mark)), ".jpg")
                    file = f"images/{hashlib.blake2b(content, digest_size=16).hexdigest()}{suffix}"
                    if not (folder / file).exists():
                        (folder / file).write_bytes(content)
                    entry: dict[str, Any] = {"image": file, "captions": _captions([row[name] for name in captions])}
                    if set(splits) != {"train"}:  # a dataset without splits is all train on the hub
                        entry["split"] = split_name(split)
                    if ids and row[ids[0]] is not None:
                        entry["id"] = str(row[ids[0]])
                    stream.write(json.dumps(entry) + "\n")
                    done(1)
            except (DataError, OSError):
                raise
            except Exception as error:
                raise DataError(f"{PREFIX}{name} is damaged: its rows cannot be read ({first_line(error)}).") from error


def _columns(name: str, features: Mapping[str, Any]) -> tuple[str, list[str], list[str]]:
    """The columns of images, captions and ids, by their types and then their names as in a table; of ids at most one.

    Raises:
        DataError: none or several match; the message lists them.
    """
    images = [column for column, feature in features.items() if type(feature).__name__ == "Image"]
    texts = [column for column, feature in features.items() if _is_caption(feature)]
    if len(images) > 1:
        images = [column for column in IMAGE if column in images]
    if len(texts) > 1:
        columns = Columns.of((IMAGE[0], *texts))
        texts = [texts[index - 1] for index in columns.captions] if columns else []
    for columns_of_kind, kind in ((images, f"{IMAGE[0]}, of the kind Image"), (texts, CAPTION[0])):
        if not columns_of_kind:
            raise DataError(
                f"{PREFIX}{name} does not say which of its columns ({summarise(features)}) holds what is needed: "
                f"rename one to {kind}."
            )
    ids = [column for column in ID if type(features.get(column)).__name__ == "Value" and column not in texts]
    return images[0], texts, ids[:1]


def _is_caption(feature: Any) -> bool:
    """Whether a column holds a text, texts, or objects with a text."""
    if isinstance(feature, list):
        return len(feature) == 1 and _is_caption(feature[0])
    if isinstance(feature, Mapping):
        return any(key in feature and _is_caption(feature[key]) for key in _TEXT_KEYS)
    inner = getattr(feature, "feature", None)
    return _is_caption(inner) if inner is not None else getattr(feature, "dtype", "") in ("string", "large_string")


def _captions(value: Any) -> list[str]:
    """The captions that a cell holds."""
    if isinstance(value, Mapping):
        value = next((value[key] for key in _TEXT_KEYS if key in value), None)
    if isinstance(value, list):
        return [text for item in value for text in _captions(item)]
    return [] if value is None else [str(value)]


def _content(cell: Mapping[str, Any], name: str) -> bytes:
    """The bytes of the image in a cell; a path must lie in the dataset's folder or the hub's cache."""
    import datasets

    if cell.get("bytes"):
        return bytes(cell["bytes"])
    if not cell.get("path"):
        raise DataError(f"{PREFIX}{name} has a row without an image; leave such rows out.")
    file = Path(cell["path"]).resolve()
    if not any(file.is_relative_to(Path(folder).resolve()) for folder in (name, datasets.config.HF_CACHE_HOME)):
        raise DataError(f"{PREFIX}{name} names an image outside the dataset, {file}; save it with the images embedded.")
    return read_bytes(file)

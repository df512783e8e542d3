"""Hugging Face datasets: hf:NAME or hf:NAME:CONFIG on the hub, or hf:FOLDER with a saved dataset or parquet files.

The first reading writes the images, undecoded and each once, and a file of JSON lines to the cache folder
(`SHOWTELL_CACHE`), completely or not at all; that folder is what is read, then and later, without asking the hub again.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from showtell.datasets import jsonl
from showtell.datasets.caption_rows import CAPTION, ID, IMAGE
from showtell.datasets.records import CaptionDataset
from showtell.datasets.splits import split_name
from showtell.errors import DataError, MissingDependencyError, first_line, summarise
from showtell.files import cache_folder, read_bytes, recover_folder, write_folder

EXAMPLE = "hf:NAME or hf:NAME:CONFIG of a dataset on the Hugging Face hub, or hf:FOLDER with a saved one"

PREFIX = "hf:"
_LINES = "captions.jsonl"
_REPOSITORY = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*")
_TEXT_KEYS = ("raw", *CAPTION)  # of a sentence that is an object
_SUFFIXES = {b"\xff\xd8\xff": ".jpg", b"\x89PNG": ".png", b"GIF8": ".gif", b"RIFF": ".webp", b"BM": ".bmp"}


def recognises(path: Path) -> bool:
    """Whether this begins with hf:."""
    return str(path).startswith(PREFIX)


def read(path: Path) -> CaptionDataset:
    """Read a dataset of the hub, or a saved one, through the cache folder.

    Raises:
        MissingDependencyError: the package `datasets` is not installed.
        DataError: there is no such dataset, it cannot be loaded, or its columns are not understood.
    """
    name = str(path).removeprefix(PREFIX)
    folder = cache_folder() / "hub" / _key(name)
    if not (folder / _LINES).is_file():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(folder.with_name(f".{folder.name}.lock")):  # a second process reads what the first one wrote
            _fill_cache(name, folder)
    dataset = jsonl.read(folder)
    return replace(dataset, root=path, format="hub")


def _fill_cache(name: str, folder: Path) -> None:
    """Write a dataset to its cache folder, unless that is there."""
    from showtell.progress import counting

    recover_folder(folder)
    if not (folder / _LINES).is_file():
        splits = _load(name)
        with counting(f"copying images of {name}", sum(filter(None, map(_length, splits.values()))) or None) as done:
            write_folder(folder, lambda new: _copy(name, splits, new, done))


def _key(name: str) -> str:
    """The name of a dataset's cache folder; that of a saved dataset changes with its files."""
    readable = re.sub(r"[^\w.-]+", "--", name.strip("/."))[-60:]
    state = [str(Path(name).resolve()) if Path(name).is_dir() else name]
    for file in _saved_files(Path(name)):
        status = file.stat()
        state.append(f"{file.relative_to(name)} {status.st_size} {status.st_mtime_ns}")
    digest = hashlib.blake2b("\n".join(state).encode("utf-8", "surrogatepass"), digest_size=6).hexdigest()
    return f"{readable}-{digest}"


def _saved_files(folder: Path) -> list[Path]:
    """What `save_to_disk` or a repository of parquet files has in a folder and those directly below it."""
    patterns = (f"{depth}*.{suffix}" for depth in ("", "*/") for suffix in ("arrow", "json", "parquet"))
    return sorted(file for pattern in patterns for file in folder.glob(pattern))


# --- loading ---


def _load(name: str) -> dict[str, Any]:
    """The splits of a dataset, images undecoded.

    Raises:
        MissingDependencyError, DataError: as for `read`.
    """
    try:
        import datasets
    except ImportError as error:
        raise MissingDependencyError(
            f'{PREFIX}{name} needs the package datasets, which is not installed: pip install "showtell[hub]"'
        ) from error
    folder, (repository, _, config) = Path(name), name.partition(":")
    is_saved = any((folder / file).is_file() for file in ("dataset_dict.json", "state.json"))
    has_parquet = any(file.suffix == ".parquet" for file in _saved_files(folder))
    if not (is_saved or has_parquet) and (folder.exists() or not _REPOSITORY.fullmatch(repository)):
        raise DataError(
            f"{PREFIX}{name} is no dataset: give the NAME or OWNER/NAME of one on the Hugging Face hub, or a folder "
            "with what save_to_disk of datasets wrote or with parquet files."
        )
    try:  # an unusable dataset raises anything that pyarrow, fsspec or the hub's client may
        if is_saved:
            return _saved(datasets.load_from_disk(name))
        if has_parquet:
            return dict(datasets.load_dataset(name, streaming=True))
        return dict(datasets.load_dataset(repository, config or None))
    except Exception as error:
        hint = (
            "save it anew"
            if folder.exists()
            else "check the name and the network; without one, HF_HUB_OFFLINE=1 uses what was loaded before"
        )
        raise DataError(f"Cannot load {PREFIX}{name} ({first_line(error)}); {hint}.") from error


def _saved(loaded: Any) -> dict[str, Any]:
    splits = dict(loaded) if isinstance(loaded, Mapping) else {"train": loaded}
    for rows in splits.values():
        rows.data.table.validate(full=True)  # else a damaged offset ends the process
    return splits


def _length(split: Any) -> int | None:
    """Rows of a split; None where they are only known at the end."""
    return len(split) if hasattr(split, "__len__") else None


# --- copying ---


def _copy(name: str, splits: Mapping[str, Any], folder: Path, done: Any) -> None:
    """Write the images of all splits and the JSON lines that name them."""
    if not splits:
        raise DataError(f"{PREFIX}{name} has no split.")
    (folder / "images").mkdir()
    has_splits = set(splits) != {"train"}  # a dataset without splits is all train on the hub
    with (folder / _LINES).open("w", encoding="utf-8") as stream:
        for split, rows in splits.items():
            columns = _columns(name, rows.features or {})
            for number, row in enumerate(_rows(name, rows, columns), start=1):
                where = f"{PREFIX}{name}, row {number} of split {split},"
                content = _content(row[columns.image], where, name)
                file = f"images/{hashlib.blake2b(content, digest_size=16).hexdigest()}{_suffix(content)}"
                if not (folder / file).exists():
                    (folder / file).write_bytes(content)
                entry = {"image": file, "captions": _captions(row[columns.caption], where)}
                if has_splits:
                    entry["split"] = split_name(split)
                if columns.id and row[columns.id] is not None:
                    entry["id"] = str(row[columns.id])
                stream.write(json.dumps(entry) + "\n")
                done(1)


@dataclass(frozen=True)
class _HubColumns:
    """The columns of a dataset, by what they hold."""

    image: str
    caption: str
    id: str | None


def _rows(name: str, rows: Any, columns: _HubColumns) -> Iterator[dict[str, Any]]:
    """The wanted columns of each row, images undecoded.

    Raises:
        DataError: pyarrow or datasets cannot read them.
    """
    import datasets

    wanted = [columns.image, columns.caption, *filter(None, [columns.id])]
    try:  # as when loading, anything may be raised
        undecoded = rows.cast_column(columns.image, datasets.Image(decode=False)).select_columns(wanted)
        for row in undecoded:
            yield {column: row[column] for column in wanted}
    except Exception as error:
        raise DataError(f"{PREFIX}{name} is damaged: its rows cannot be read ({type(error).__name__}).") from error


def _columns(name: str, features: Mapping[str, Any]) -> _HubColumns:
    """The columns of images, captions and ids, by their types and then their names.

    Raises:
        DataError: none or several match; the message lists them.
    """
    kinds = {column: type(feature).__name__ for column, feature in features.items()}
    image = _one_of(name, [column for column, kind in kinds.items() if kind == "Image"], IMAGE, "images", features)
    texts = [column for column, feature in features.items() if _is_caption(feature)]
    caption = _one_of(name, texts, ("sentences", "captions", *CAPTION), "captions", features)
    ids = [column for column in ID if column in features and kinds[column] == "Value" and column != caption]
    return _HubColumns(image, caption, next(iter(ids), None))


def _one_of(name: str, columns: list[str], wanted: Iterable[str], content: str, features: Mapping[str, Any]) -> str:
    """The column for some content: the only one of its type, else the first with one of the wanted names."""
    if len(columns) == 1:
        return columns[0]
    for word in wanted:
        for column in columns:
            if re.fullmatch(rf"{re.escape(word)}s?(_?0)?", column.lower()):
                return column
    candidates = f"it has {summarise(columns)}" if columns else f"its columns are {summarise(features) or 'unknown'}"
    raise DataError(
        f"{PREFIX}{name} does not say which column holds {content}: {candidates}; "
        f"rename one to {'image, of the kind Image' if content == 'images' else 'caption'}."
    )


def _is_caption(feature: Any) -> bool:
    """Whether a column holds a text, texts, or objects with a text."""
    if isinstance(feature, list):
        return len(feature) == 1 and _is_caption(feature[0])
    inner = getattr(feature, "feature", None)
    if inner is not None:
        return _is_caption(inner)
    if isinstance(feature, Mapping):
        return any(key in feature and _is_caption(feature[key]) for key in _TEXT_KEYS)
    return getattr(feature, "dtype", None) in ("string", "large_string")


def _captions(value: Any, where: str) -> list[str]:
    """The captions that a cell holds."""
    if value is None:
        return []
    if isinstance(value, str):
        return [value]
    if isinstance(value, Mapping):
        key = next((key for key in _TEXT_KEYS if key in value), None)
        return [] if key is None else _captions(value[key], where)
    if isinstance(value, list):
        return [text for item in value for text in _captions(item, where)]
    raise DataError(f"{where} has a caption that is no text but {type(value).__name__}.")


def _content(cell: Any, where: str, name: str) -> bytes:
    """The bytes of the image in a cell; a path must lie in the dataset's folder or the hub's cache."""
    import datasets

    cell = cell or {}
    if isinstance(cell.get("bytes"), bytes):
        return bytes(cell["bytes"])
    if not isinstance(cell.get("path"), str):
        raise DataError(f"{where} has no image; leave such rows out.")
    file = Path(cell["path"]).resolve()
    if not any(file.is_relative_to(Path(folder).resolve()) for folder in (name, datasets.config.HF_CACHE_HOME)):
        raise DataError(f"{where} names an image outside the dataset, {file}; save it with the images embedded.")
    return read_bytes(file)


def _suffix(content: bytes) -> str:
    """The suffix for the bytes of an image; .jpg where they are of another kind, which is found out on opening."""
    return next((suffix for mark, suffix in _SUFFIXES.items() if content.startswith(mark)), ".jpg")

"""Repositories of the Hugging Face hub as folders: from the local cache, else fetched; and what a folder still lacks.

Weights as safetensors and plain text are fetched; a pickle of weights, which can run code when it is opened, only for
those who read it as `torch_files` does.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from showtell.errors import CheckpointError, DataError, first_line, summarise
from showtell.features.weights import network_obstacle
from showtell.files import read_json

WEIGHTS, INDEX, SETTINGS = "model.safetensors", "model.safetensors.index.json", "config.json"
PICKLE = "pytorch_model.bin"
PROCESSORS = ("processor_config.json", "preprocessor_config.json")
TOKENIZERS = (  # each has all of a tokenizer
    ("tokenizer.json",), ("vocab.txt",), ("vocab.json", "merges.txt"), ("tokenizer.model",), ("spiece.model",),
    ("sentencepiece.bpe.model",), ("tekken.json",),
)  # fmt: skip
NEEDED = (
    f"{SETTINGS}, {WEIGHTS} (or {INDEX} and the files that it names) and, of a model of transformers, "
    f"{' or '.join(PROCESSORS)}, tokenizer.json and tokenizer_config.json"
)
# How transformers opens what is in a folder: without code of the repository, and without asking the hub.
LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
_FETCHED = ("*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "README.md")
_IGNORED = ("*/*", "consolidated*")  # other formats of the same weights


class _Loudness:
    """What transformers printed before the first of the blocks, in any thread, that silence it."""

    lock = threading.Lock()
    blocks = 0
    before: tuple[int, bool] = (0, True)


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block transformers prints neither progress bars nor advice."""
    from transformers.utils import logging as their_logging

    logging: Any = their_logging
    with _Loudness.lock:
        if not _Loudness.blocks:
            _Loudness.before = logging.get_verbosity(), logging.is_progress_bar_enabled()
            logging.set_verbosity_error()
            logging.disable_progress_bar()
        _Loudness.blocks += 1
    try:
        yield
    finally:
        with _Loudness.lock:
            _Loudness.blocks -= 1
            if not _Loudness.blocks:
                verbosity, shows_bars = _Loudness.before
                logging.set_verbosity(verbosity)
                if shows_bars:
                    logging.enable_progress_bar()


def repository_folder(repository: str, *, with_processor: bool = True, or_pickle: bool = False) -> Path:
    """The folder of a repository: a whole one in the local cache, else one that is fetched.

    Args:
        repository: owner/name, with @revision behind it where it is not the main one.
        with_processor: whether a model of transformers needs one to prepare photos.
        or_pickle: take a pickle of weights where there are no safetensors.

    Raises:
        CheckpointError: it is not in the cache, and the hub is out of reach or has none of that name.
    """
    from huggingface_hub import hf_hub_url, snapshot_download
    from huggingface_hub.constants import HF_HUB_CACHE, HF_HUB_OFFLINE
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    name, _, revision = repository.partition("@")
    patterns: dict[str, Any] = {"allow_patterns": [*_FETCHED], "ignore_patterns": [*_IGNORED]}
    missing = [NEEDED]
    try:
        cached = Path(snapshot_download(name, revision=revision or None, local_files_only=True, **patterns))
        missing = missing_files(cached, with_processor=with_processor, or_pickle=or_pickle)
        if not missing:
            return cached
    except LocalEntryNotFoundError:
        pass  # not in the cache: ask the hub
    except HFValidationError as error:
        raise CheckpointError(f"There is no folder {name}, and it is no name of a hub repository: {error}") from error
    obstacle = "HF_HUB_OFFLINE is set" if HF_HUB_OFFLINE else network_obstacle(hf_hub_url(name, SETTINGS))
    if obstacle:
        page = hf_hub_url(name, SETTINGS, revision=revision or None).rpartition("/")[0].replace("/resolve/", "/tree/")
        raise CheckpointError(
            f"There is no folder {repository}, it is not whole in the local cache of the hub, and it cannot be "
            f"fetched ({obstacle}): get {', '.join(missing)} from {page} on a machine with a network, put them into a "
            f"folder here and give that folder, or copy the cache folder models--{name.replace('/', '--')} into "
            f"{HF_HUB_CACHE}."
        )
    try:
        folder = Path(snapshot_download(name, revision=revision or None, **patterns))
        if or_pickle and _missing_weights(folder):
            snapshot_download(name, revision=revision or None, allow_patterns=[PICKLE])
        return folder
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(
            f"There is no folder {repository}, and the Hugging Face hub gave no repository of that name "
            f"({type(error).__name__}: {first_line(error)}); check the spelling, the revision, or whether you may "
            "read it (hf auth login)."
        ) from error


def commit_of(folder: Path) -> str | None:
    """The commit of a folder in the cache of the hub; None for any other folder."""
    return (
        folder.name if folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--") else None
    )


def missing_files(folder: Path, *, with_processor: bool = True, or_pickle: bool = False) -> list[str]:
    """The files that a folder lacks to be opened, for people; an empty list if it is whole.

    Args:
        folder: of a checkpoint or a model of transformers.
        with_processor: whether a model of transformers needs one to prepare photos.
        or_pickle: whether a pickle of weights will do.
    """
    missing = [] if or_pickle and (folder / PICKLE).is_file() else _missing_weights(folder)
    if not (folder / SETTINGS).is_file():
        return [SETTINGS, *missing]
    try:
        settings = read_json(folder / SETTINGS)
    except DataError:
        return missing  # whoever opens it says what is wrong
    if isinstance(settings, dict) and "model_type" in settings:
        if with_processor and not any((folder / name).is_file() for name in PROCESSORS):
            missing.append(" or ".join(PROCESSORS))
        if not any(all((folder / name).is_file() for name in names) for names in TOKENIZERS):
            missing.append("tokenizer.json (or another file of its tokenizer)")
    return missing


def _missing_weights(folder: Path) -> list[str]:
    if not (folder / INDEX).is_file():
        return [] if (folder / WEIGHTS).is_file() else [WEIGHTS]
    missing = [name for name in weight_files(folder) if not (folder / name).is_file()]
    return [f"{len(missing)} files of weights ({summarise(missing, 2)})"] if missing else []


def open_config(folder: Path) -> Any:
    """The settings of a model, as transformers has them.

    Raises:
        CheckpointError: transformers cannot read them.
    """
    import transformers

    try:
        return transformers.AutoConfig.from_pretrained(folder, **LOCAL)
    except Exception as error:  # a library that answers bad settings with whatever went wrong inside it
        raise CheckpointError(
            f"{folder / SETTINGS} cannot be read by transformers {transformers.__version__} "
            f"({type(error).__name__}: {first_line(error)})."
        ) from error


def named_kernel(settings: dict[str, Any]) -> str | None:
    """The repository whose code the settings of a model, or of a part of it, want for attention."""
    for part in (settings, *(value for value in settings.values() if isinstance(value, dict))):
        for name in ("attn_implementation", "_attn_implementation", "experts_implementation"):
            if "/" in str(part.get(name, "")):
                return str(part[name])
    return None


def weight_files(folder: Path) -> list[str]:
    """The names of the files of weights that a folder has or should have.

    Raises:
        CheckpointError: the index of the files is damaged.
    """
    if not (folder / INDEX).is_file():
        return [WEIGHTS]
    try:
        names = sorted(set(read_json(folder / INDEX)["weight_map"].values()))
    except (DataError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(
            f"{folder / INDEX} is damaged: it names no files of weights; get it once more."
        ) from error
    if not all(isinstance(name, str) and Path(name).name == name and name.endswith(".safetensors") for name in names):
        raise CheckpointError(f"{folder / INDEX} is damaged: it names files that are no safetensors beside it.")
    return names

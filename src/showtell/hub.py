"""Checkpoints and models as folders: on this machine, in the cache of the Hugging Face hub, else fetched from it."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from showtell.errors import CheckpointError, first_line, summarise
from showtell.files import read_json

WEIGHTS, INDEX, SETTINGS = "model.safetensors", "model.safetensors.index.json", "config.json"
PICKLE = "pytorch_model.bin"
PROCESSORS = ("processor_config.json", "preprocessor_config.json")
TOKENIZERS = (
    "tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
    "tekken.json",
)  # fmt: skip
# How transformers opens what is in a folder: without code of the repository, and without asking the hub.
LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
CONNECT_TIMEOUT = 0.8  # seconds that a host has to answer before it counts as out of reach
_PATTERNS: dict[str, Any] = {
    "allow_patterns": ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "README.md"],
    "ignore_patterns": ["*/*", "consolidated*"],  # other formats of the same weights
}


def find_checkpoint(path_or_id: str | Path) -> Path:
    """The folder of a checkpoint, named by its path or by owner/name or owner/name@revision on the hub.

    An existing folder wins, then the local cache of the hub, then the hub.

    Raises:
        CheckpointError: there is no such folder, and the hub gives none of that name.
    """
    folder, name = Path(path_or_id), str(path_or_id)
    if folder.is_dir():
        return folder
    if folder.exists():
        raise CheckpointError(f"{folder} is a file; a checkpoint is a folder with {WEIGHTS} and {SETTINGS}.")
    if name.partition("@")[0].count("/") != 1 or name.startswith((".", "/", "~")):
        raise CheckpointError(
            f"There is no checkpoint folder {name}; give a folder (a run's are RUN/best and RUN/last) or the name of a "
            "repository on the Hugging Face hub (owner/name or owner/name@revision)."
        )
    return repository_folder(name)


def repository_folder(repository: str, *, with_processor: bool = True, or_pickle: bool = False) -> Path:
    """The folder of a repository: a whole one in the local cache, else one that is fetched.

    Args:
        repository: owner/name, with @revision behind it where it is not the main one.
        with_processor: whether a model of transformers needs one to prepare photos.
        or_pickle: take a pickle of weights where there are no safetensors.

    Raises:
        CheckpointError: it is not in the cache, and the hub is out of reach or has none of that name.
    """
    from huggingface_hub import constants, hf_hub_url, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    name, _, revision = repository.partition("@")
    missing = "it is not in the local cache"
    try:
        cached = Path(snapshot_download(name, revision=revision or None, local_files_only=True, **_PATTERNS))
        if not (lacking := missing_files(cached, with_processor=with_processor, or_pickle=or_pickle)):
            return cached
        missing = f"the local cache lacks {', '.join(lacking)}"
    except LocalEntryNotFoundError:
        pass  # ask the hub
    except HFValidationError as error:
        raise CheckpointError(f"There is no folder {name}, and it is no name of a hub repository: {error}") from error
    obstacle = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else network_obstacle(hf_hub_url(name, SETTINGS))
    if obstacle:
        chosen = f" --revision {revision}" if revision else ""
        raise CheckpointError(
            f"There is no folder {repository}; as a repository of the Hugging Face hub {missing}, and it cannot be "
            f"fetched ({obstacle}). Where there is a network: hf download {name}{chosen} --local-dir FOLDER; then give "
            "that FOLDER."
        )
    try:
        folder = Path(snapshot_download(name, revision=revision or None, **_PATTERNS))
        if or_pickle and not list(folder.glob("*.safetensors")):
            snapshot_download(name, revision=revision or None, allow_patterns=[PICKLE])
        return folder
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        raise CheckpointError(
            f"There is no folder {repository}, and the Hugging Face hub gave no repository of that name "
            f"({type(error).__name__}: {first_line(error)}); check the spelling, the revision, or whether you may "
            "read it (hf auth login)."
        ) from error


def network_obstacle(address: str) -> str | None:
    """Why the host of an address cannot be reached, or None if it answers at all."""
    parts = urlsplit(address)
    request = urllib.request.Request(f"{parts.scheme}://{parts.netloc}/", method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=CONNECT_TIMEOUT).close()
    except urllib.error.HTTPError:
        pass  # it answered
    except OSError as error:
        return f"{parts.hostname}: {first_line(getattr(error, 'reason', error))}"
    return None


def commit_of(folder: Path) -> str | None:
    """The commit of a folder in the cache of the hub; None for any other folder."""
    in_cache = folder.parent.name == "snapshots" and folder.parent.parent.name.startswith("models--")
    return folder.name if in_cache else None


def missing_files(folder: Path, *, with_processor: bool = True, or_pickle: bool = False) -> list[str]:
    """The files that a checkpoint or a model of transformers lacks to be opened; an empty list if it is whole.

    Args:
        folder: with the files.
        with_processor: whether a model of transformers needs one to prepare photos.
        or_pickle: whether a pickle of weights will do.

    Raises:
        CheckpointError: the index of the files of weights is damaged.
        DataError: a JSON file is damaged.
    """
    weights = [] if or_pickle and (folder / PICKLE).is_file() else _weight_files(folder)
    absent = [name for name in weights if not (folder / name).is_file()]
    missing = [summarise(absent, 2)] if absent else []
    if not (folder / SETTINGS).is_file():
        return [SETTINGS, *missing]
    settings = read_json(folder / SETTINGS)
    if isinstance(settings, dict) and "model_type" in settings:
        if with_processor and not any((folder / name).is_file() for name in PROCESSORS):
            missing.append(" or ".join(PROCESSORS))
        if not any((folder / name).is_file() for name in TOKENIZERS):
            missing.append("tokenizer.json (or another file of its tokenizer)")
    return missing


def _weight_files(folder: Path) -> list[str]:
    """The names of the files of weights that a folder should have."""
    if not (folder / INDEX).is_file():
        return [WEIGHTS]
    index = read_json(folder / INDEX)
    weights = index.get("weight_map") if isinstance(index, dict) else None
    names = {str(name) for name in weights.values()} if isinstance(weights, dict) else {""}
    if not all(Path(name).name == name and name.endswith(".safetensors") for name in names):
        raise CheckpointError(
            f"{folder / INDEX} is damaged: it should name files of safetensors beside it; get it again."
        )
    return sorted(names)


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block transformers prints neither progress bars nor advice."""
    from transformers.utils import logging as their_logging

    logging: Any = their_logging
    verbosity, shows_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_bars:
            logging.enable_progress_bar()


def refuse_kernels(folder: Path) -> None:
    """Make sure that the settings of a model, and those of its parts, name no repository with code for attention.

    Raises:
        CheckpointError: they do.
    """
    settings = read_json(folder / SETTINGS)
    for part in (settings, *(value for value in settings.values() if isinstance(value, dict))):
        for name in ("attn_implementation", "_attn_implementation", "experts_implementation"):
            if "/" in str(part.get(name, "")):
                raise CheckpointError(
                    f"{folder / SETTINGS} names a repository with code for attention ({part[name]}), and code of "
                    f"others is never run here; remove {name} from it."
                )

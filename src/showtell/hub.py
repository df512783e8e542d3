"""Checkpoints and models as folders: on this machine, with showtell, in the cache of the Hugging Face hub, or there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from showtell.errors import CheckpointError, fetch_elsewhere, first_line, shorten, summarise
from showtell.files import read_json

WEIGHTS, INDEX, SETTINGS = "model.safetensors", "model.safetensors.index.json", "config.json"
PICKLE = "pytorch_model.bin"
SERVER = "openai:"  # what the name of a captioner on a server begins with
ADAPTER = "adapter_model.safetensors"  # of a checkpoint that stands on another
TOKENIZERS = (
    "tokenizer.json", "vocab.txt", "vocab.json", "tokenizer.model", "spiece.model", "sentencepiece.bpe.model",
    "tekken.json",
)  # fmt: skip
# How transformers opens what is in a folder: without code of the repository, and without asking the hub.
LOCAL: dict[str, Any] = {"trust_remote_code": False, "local_files_only": True}
IN_THE_BOX = {"small": Path(__file__).with_name("small")}  # checkpoints that come with showtell, by name
# Three photos that come with showtell, in the public domain: a man with a camera, a cat, a cup of coffee.
PHOTOS = tuple(sorted((IN_THE_BOX["small"] / "photos").glob("*.jpg")))
MAX_LAYERS = 1000  # of a model of transformers
TIMEOUT = 10  # seconds that the hub has to answer
_PATTERNS: dict[str, Any] = {
    "allow_patterns": ["*.safetensors", "*.json", "*.txt", "*.model", "*.jinja", "README.md"],
    "ignore_patterns": ["*/*", "consolidated*"],  # other formats of the same weights
}


def find_checkpoint(path_or_id: str | Path) -> Path:
    """The folder of a checkpoint: a path, `small`, or owner/name or owner/name@revision on the hub.

    An existing folder wins, then the captioner that comes with showtell, the local cache of the hub, and the hub.

    Raises:
        CheckpointError: there is no such folder, and the hub gives none of that name.
    """
    folder, name = Path(path_or_id), str(path_or_id)
    if os.path.isdir(folder):  # noqa: PTH112 (Path.is_dir fails for a name that is too long)
        return folder
    if os.path.exists(folder):  # noqa: PTH110
        raise CheckpointError(f"{folder} is a file; a checkpoint is a folder with {WEIGHTS} and {SETTINGS}.")
    if name in IN_THE_BOX:
        return IN_THE_BOX[name]
    if name.partition("@")[0].count("/") != 1 or name.startswith((".", "/", "~")):
        raise CheckpointError(
            f"There is no checkpoint folder {name}; give a folder (a run's are RUN/best and RUN/last), small for the "
            "captioner that comes with showtell, or a repository on the Hugging Face hub (owner/name or "
            "owner/name@revision)."
        )
    return repository_folder(name)


def repository_folder(repository: str, *, or_pickle: bool = False) -> Path:
    """The folder of a repository (owner/name or owner/name@revision): a whole one in the local cache, else fetched;
    with `or_pickle` weights in a pickle are fetched where there are no safetensors.

    Raises:
        CheckpointError: it is not in the cache, and the hub is out of reach or has none of that name.
    """
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError

    name, _, revision = repository.partition("@")
    state = "is not in the local cache"
    with suppress(LocalEntryNotFoundError, HFValidationError):
        cached = Path(snapshot_download(name, revision=revision or None, local_files_only=True, **_PATTERNS))
        if not (missing := missing_files(cached)):
            return cached
        state = f"lacks {', '.join(missing)} in the local cache"
    try:
        HfApi().model_info(name, revision=revision or None, timeout=TIMEOUT)  # a download would try for 46 seconds
        folder = Path(snapshot_download(name, revision=revision or None, **_PATTERNS))
        if or_pickle and not list(folder.glob("*.safetensors")):
            snapshot_download(name, revision=revision or None, allow_patterns=[PICKLE])
        return folder
    except Exception as error:  # of the hub, of the HTTP client that it happens to use, or of the system
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else f"{type(error).__name__}: {first_line(error)}"
        if isinstance(error, HfHubHTTPError | HFValidationError):  # it answered
            raise CheckpointError(
                f"There is no folder {repository}, and the Hugging Face hub gives no such repository ({reason}); check "
                "the spelling, the revision, and whether you may read it (hf auth login)."
            ) from error
        raise CheckpointError(
            f"{repository} is no folder here, {state}, and the Hugging Face hub cannot be reached ({reason})."
            f"{fetch_elsewhere(repository, 'FOLDER in its place')}"
        ) from error


def missing_files(folder: Path) -> list[str]:
    """The files that a folder lacks to be opened as a checkpoint or a model of transformers; empty if it is whole."""
    weights = [WEIGHTS]
    if (folder / INDEX).is_file():
        index = read_json(folder / INDEX)
        files = index.get("weight_map") if isinstance(index, dict) else None
        weights = sorted(set(map(str, files.values()))) if isinstance(files, dict) else [""]
        if not all(Path(name).name == name and name.endswith(".safetensors") for name in weights):
            raise CheckpointError(
                f"{folder / INDEX} is damaged: it should name files of safetensors beside it; get it again."
            )
    else:
        weights = [next((name for name in (PICKLE, ADAPTER) if (folder / name).is_file()), WEIGHTS)]
    absent = [name for name in weights if not (folder / name).is_file()]
    missing = [summarise(absent, 2)] if absent else []
    if not (folder / SETTINGS).is_file():
        return [SETTINGS, *missing]
    settings = read_json(folder / SETTINGS)
    is_of_transformers = isinstance(settings, dict) and "model_type" in settings
    if is_of_transformers and not any((folder / name).is_file() for name in TOKENIZERS):
        missing.append("tokenizer.json (or another file of its tokenizer)")
    return missing


@contextmanager
def quiet() -> Iterator[None]:
    """Inside the block transformers prints neither progress bars nor advice."""
    logging = import_module("transformers.utils.logging")
    verbosity, shows_bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if shows_bars:
            logging.enable_progress_bar()


def entries(content: Any) -> Iterator[tuple[str, Any]]:
    """Each value that stands in a JSON value, with its key; those of a list with the key of the list."""
    waiting = [("", content)]
    while waiting:
        name, value = waiting.pop()
        yield name, value
        if isinstance(value, dict):
            waiting.extend(value.items())
        elif isinstance(value, list):
            waiting.extend((name, item) for item in value)


def read_model_settings(folder: Path) -> dict[str, Any]:
    """The settings of a model of transformers. They may name no repository with code, and no more layers than a model
    has, which would be built before its weights are seen; else a `CheckpointError`."""
    file = folder / SETTINGS
    settings = read_json(file)
    if not isinstance(settings, dict) or not isinstance(settings.get("model_type"), str):
        raise CheckpointError(f"{file} is of no model of transformers: it names no model_type; get the files again.")
    for name, value in entries(settings):
        if name.endswith(("attn_implementation", "experts_implementation")) and "/" in str(value):
            raise CheckpointError(
                f"{file} names a repository with code for attention ({value}), and code of others is never run here; "
                f"remove {name} from it."
            )
        if re.search("layer|depth", name) and "size" not in name and isinstance(value, int) and value > MAX_LAYERS:
            raise CheckpointError(
                f"{file}: {name} is {shorten(str(value), 20)}; models have at most {MAX_LAYERS} layers here."
            )
    return settings

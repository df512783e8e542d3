"""Models of transformers that scores compare with: found, read and checked.

Weights come from safetensors, or from a pickle that is read without running it; code of a repository is never run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from showtell.errors import CheckpointError, MissingDependencyError, WeightsError, first_line, summarise
from showtell.features.weights import read_weights
from showtell.files import read_json
from showtell.hub import (
    INDEX,
    LOCAL,
    PICKLE,
    SETTINGS,
    WEIGHTS,
    commit_of,
    missing_files,
    named_kernel,
    quiet,
    repository_folder,
    weight_files,
)
from showtell.scores.model_settings import Reporting


@dataclass(frozen=True)
class ModelFolder:
    """Where a model is."""

    name: str  # as given, of a folder its last part
    folder: Path
    revision: str | None  # the commit in the cache of the hub
    settings: dict[str, Any]  # its config.json

    @property
    def model_type(self) -> str:
        """As transformers has it."""
        return str(self.settings.get("model_type"))


@dataclass(eq=False, kw_only=True)
class OpenedModel:
    """A model that scores compare with, and where it is from."""

    name: str
    revision: str | None
    fingerprint: str  # of its weights
    model: Any
    tokenizer: Any
    batch_size: int
    reporting: Reporting

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        device: torch.device = self.model.device
        return device

    @property
    def architecture(self) -> dict[str, Any]:
        """Its settings, whichever version of transformers wrote them."""
        settings: dict[str, Any] = self.model.config.to_diff_dict()
        settings.pop("transformers_version", None)
        return settings

    def signature_of(self, *parts: str) -> str:
        """What its vectors depend on, for people; with what depends on the kind of model."""
        import transformers

        revision = () if not self.revision else (f"revision:{self.revision}",)
        own = (f"model:{self.name}", *revision, f"weights:{self.fingerprint}")
        return "|".join((*own, *parts, "dtype:fp32", f"transformers:{transformers.__version__}"))


def find_model(name: str, *, with_processor: bool) -> ModelFolder:
    """The folder of a model.

    Args:
        name: a folder, or a repository on the hub.
        with_processor: whether it has to have a processor of photos.

    Raises:
        CheckpointError: there is none of that name, or it is incomplete.
        MissingDependencyError: transformers is not installed.
    """
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f'{name} is a model of transformers, which is not installed: pip install "showtell[transformers]".'
        ) from error
    path = Path(name)
    if path.is_dir():
        folder = path
    elif path.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name:
        what = "is a file" if path.exists() else "does not exist"
        raise CheckpointError(
            f'The model "{name}" {what}; give a folder with {SETTINGS} and {WEIGHTS}, or the name of a repository on '
            "the Hugging Face hub (owner/name or owner/name@revision)."
        )
    else:
        folder = repository_folder(name, with_processor=with_processor, or_pickle=True)
    missing = missing_files(folder, with_processor=with_processor, or_pickle=True)
    if missing:
        raise CheckpointError(f"The model {name} is incomplete: {folder} lacks {', '.join(missing)}; put it there.")
    settings = read_json(folder / SETTINGS)
    if not isinstance(settings, dict) or not isinstance(settings.get("model_type"), str):
        raise CheckpointError(
            f'{folder / SETTINGS} names no "model_type", so {name} is no model of transformers; save it with '
            "save_pretrained."
        )
    kernel = named_kernel(settings)
    if kernel:
        raise CheckpointError(
            f"{folder / SETTINGS} names a repository with code for attention ({kernel}), and code of others is never "
            "run here; remove attn_implementation from it."
        )
    return ModelFolder(path.resolve().name if folder == path else name, folder, commit_of(folder), settings)


def read_tensors(model: ModelFolder) -> tuple[dict[str, Tensor], str]:
    """The weights of a model by their names, and their fingerprint.

    Raises:
        CheckpointError: a file is damaged.
    """
    folder = model.folder
    has_safetensors = (folder / WEIGHTS).is_file() or (folder / INDEX).is_file()
    return read_weight_files([folder / name for name in (weight_files(folder) if has_safetensors else [PICKLE])])


def read_weight_files(files: list[Path]) -> tuple[dict[str, Tensor], str]:
    """The tensors of some files by their names, and the fingerprint of the files.

    Raises:
        CheckpointError: a file is missing or damaged, or made to do harm.
    """
    tensors: dict[str, Tensor] = {}
    digest = hashlib.sha256()
    try:
        for file in files:
            tensors |= read_weights(file)
            with file.open("rb") as stream:
                digest.update(hashlib.file_digest(stream, "sha256").digest())
    except WeightsError as error:
        raise CheckpointError(str(error)) from error
    return tensors, digest.hexdigest()[:12]


def open_tokenizer(model: ModelFolder) -> Any:
    """The tokenizer of a model.

    Raises:
        CheckpointError: its files are damaged.
    """
    return _open_part("AutoTokenizer", "tokenizer", model)


def open_image_processor(model: ModelFolder) -> Any:
    """What prepares photos for a model.

    Raises:
        CheckpointError: its files are damaged.
    """
    return _open_part("AutoImageProcessor", "image processor", model)


def check_tokens(model: ModelFolder, tokenizer: Any, tokens: int) -> None:
    """Make sure that a model has a vector for each token of its tokenizer.

    Raises:
        CheckpointError: it has not.
    """
    if len(tokenizer) > tokens:
        raise CheckpointError(
            f"The tokenizer of {model.name} has {len(tokenizer)} tokens and its model {tokens}: they are not of one "
            "repository; get both once more."
        )


def _open_part(kind: str, what: str, model: ModelFolder) -> Any:
    import transformers

    try:
        with quiet():
            return getattr(transformers, kind).from_pretrained(model.folder, **LOCAL)
    except Exception as error:  # a library that answers damaged files with whatever went wrong inside it
        raise CheckpointError(
            f"The {what} of {model.name} cannot be opened from {model.folder} "
            f"({type(error).__name__}: {first_line(error)}); get its files once more."
        ) from error


def build(model: ModelFolder, config: Any, tensors: Mapping[str, Tensor], source: str) -> torch.nn.Module:
    """A model in fp32 with the given weights, in eval mode.

    Args:
        model: where its settings are from.
        config: its settings.
        tensors: its weights; those of heads that it does not have are left out.
        source: what messages call the weights.

    Raises:
        CheckpointError: tensors are missing, or have other shapes than the settings say, or values that are no numbers.
    """
    import transformers

    library: Any = transformers
    model_class = library.AutoModel._model_mapping[type(config)]
    try:
        with quiet():
            built, report = model_class.from_pretrained(
                None, config=config, state_dict=dict(tensors), dtype=torch.float32, output_loading_info=True,
                ignore_mismatched_sizes=True,
            )  # fmt: skip
    except Exception as error:  # a library that answers bad settings with whatever went wrong inside it
        raise CheckpointError(
            f"{model.name} cannot be opened by transformers {transformers.__version__} ({type(error).__name__}: "
            f"{first_line(error)})."
        ) from error
    misshapen = sorted(
        f"{name} is {tuple(one)} and should be {tuple(other)}" for name, one, other in report["mismatched_keys"]
    )
    if misshapen:
        raise CheckpointError(
            f"The weights in {source} have other shapes than {model.folder / SETTINGS} says, so they are of another "
            f"model: {summarise(misshapen, 2)}."
        )
    missing = sorted(
        name for name in report["missing_keys"] if not name.startswith("pooler.")
    )  # which nothing here uses
    if missing:
        raise CheckpointError(
            f"The weights in {source} are not those of a {type(built).__name__}: {len(missing)} tensors are missing "
            f"({summarise(missing, 2)})."
        )
    for name, tensor in built.named_parameters():
        if not name.startswith("pooler.") and not bool(torch.isfinite(tensor).all()):
            raise CheckpointError(
                f"The weights in {source} cannot be used: {name} has values that are no finite numbers."
            )
    result: torch.nn.Module = built.eval().requires_grad_(False)
    return result


def digest_of(*parts: object) -> str:
    """A fingerprint of settings that JSON can hold."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, default=str).encode()).hexdigest()[:16]

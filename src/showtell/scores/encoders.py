"""Models of transformers that scores compare with: what CLIP and the encoders of texts have in common."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import torch

from showtell.errors import CheckpointError, MissingDependencyError, first_line, summarise
from showtell.files import read_json
from showtell.hub import (
    LOCAL,
    PICKLE,
    SETTINGS,
    commit_of,
    missing_files,
    named_kernel,
    quiet,
    repository_folder,
    weight_files,
)

# Called with what is done; gives a function that is called with the items done since the last call, and the total.
Reporting = Callable[[str], AbstractContextManager[Callable[[int, int | None], None]]]
UNUSED = ("pooler.",)  # weights that no score uses, and that some files lack


class Encoder:
    """A model in fp32 with its tokenizer, from a folder or the hub. Code of a repository is never run.

    Args:
        name: a folder, or a repository on the hub (owner/name or owner/name@revision).
        batch_size: photos or texts at once.
        device: where to compute; None: on a GPU if there is one.
        reporting: shows the progress of long work.
        auto_class: of transformers, which makes the model.

    Raises:
        CheckpointError: it is missing, incomplete, damaged, or of another kind.
        MissingDependencyError: transformers is not installed.
    """

    with_processor = False  # whether it has to have a processor of photos
    context: int | None  # tokens that it reads, special ones included; None: any number

    def __init__(
        self, name: str, batch_size: int, device: str | None, reporting: Reporting, auto_class: str = "AutoModel"
    ) -> None:
        self.folder = _model_folder(name, with_processor=self.with_processor)
        self.name = Path(name).resolve().name if Path(name).is_dir() else name
        self.revision = commit_of(self.folder)
        self.batch_size = batch_size
        self.reporting = reporting
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        settings = read_json(self.folder / SETTINGS)
        self.model_type = str(settings.get("model_type")) if isinstance(settings, dict) else ""
        self._check_settings(settings)
        self.tokenizer = self.open_part("AutoTokenizer")
        self.model, loaded = self.open_part(auto_class, dtype=torch.float32, output_loading_info=True)
        missing = sorted(key for key in loaded["missing_keys"] if not key.startswith(UNUSED))
        if missing:
            raise CheckpointError(
                f"The weights in {name} are not those of a whole {type(self.model).__name__}: {len(missing)} tensors "
                f"are missing ({summarise(missing, 2)})."
            )
        self.model = self.model.eval().requires_grad_(False).to(self.device)
        self.fingerprint = fingerprint_of(self._weight_files())

    def _check_settings(self, settings: Any) -> None:
        """Make sure that this is a model which the score is defined for."""
        if not self.model_type or self.model_type == "None":
            raise CheckpointError(
                f'{self.folder / SETTINGS} names no "model_type", so {self.name} is no model of transformers; save it '
                "with save_pretrained."
            )
        kernel = named_kernel(settings)
        if kernel:
            raise CheckpointError(
                f"{self.folder / SETTINGS} names a repository with code for attention ({kernel}), and code of others "
                "is never run here; remove attn_implementation from it."
            )

    def _weight_files(self) -> list[Path]:
        files = [self.folder / name for name in weight_files(self.folder)]
        return files if all(file.is_file() for file in files) else [self.folder / PICKLE]

    def open_part(self, auto_class: str, **options: Any) -> Any:
        """The model, tokenizer or image processor of the folder.

        Raises:
            CheckpointError: transformers cannot open it.
        """
        import transformers

        try:
            with quiet():
                return getattr(transformers, auto_class).from_pretrained(self.folder, **options, **LOCAL)
        except Exception as error:  # a library that answers damaged files with whatever went wrong inside it
            raise CheckpointError(
                f"{auto_class} of transformers {transformers.__version__} cannot open {self.name} from {self.folder} "
                f"({type(error).__name__}: {first_line(error)}); get its files once more."
            ) from error

    def signature_of(self, *parts: str) -> str:
        """What its vectors depend on, for people; with what depends on the kind of model."""
        import transformers

        revision = () if not self.revision else (f"revision:{self.revision}",)
        own = (f"model:{self.name}", *revision, f"weights:{self.fingerprint}")
        return "|".join((*own, *parts, "dtype:fp32", f"transformers:{transformers.__version__}"))

    def prepare(self, text: str) -> str:
        """A text as the tokenizer is given it."""
        raise NotImplementedError

    def token_ids(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text with the special ones around them; what is beyond the context is left out."""
        limits = {} if self.context is None else {"truncation": True, "max_length": self.context}
        ids: list[list[int]] = self.tokenizer(list(map(self.prepare, texts)), **limits)["input_ids"] if texts else []
        return ids

    def truncation_warning(self, title: str, texts: Sequence[str]) -> str | None:
        """A sentence where texts have more tokens than it reads."""
        if self.context is None:
            return None
        long = [text for text in map(self.prepare, texts) if len(text.encode()) > self.context // 2]
        with quiet():
            count = sum(len(ids) > self.context for ids in self.tokenizer(long)["input_ids"]) if long else 0
        if not count:
            return None
        return (
            f"{title}: {count} of {len(texts)} texts have more than the {self.context} tokens that {self.name} reads; "
            "what is behind them counted nothing."
        )


def _model_folder(name: str, *, with_processor: bool) -> Path:
    """The folder of a model, from the hub if it is none here."""
    try:
        import transformers  # noqa: F401
    except ImportError as error:
        raise MissingDependencyError(
            f'{name} is a model of transformers, which is not installed: pip install "showtell[transformers]".'
        ) from error
    folder = Path(name)
    if not folder.is_dir():
        if folder.exists() or name.startswith((".", "/", "~")) or name.count("/") > 1 or not name:
            what = "is a file" if folder.exists() else "does not exist"
            raise CheckpointError(
                f'The model "{name}" {what}; give a folder with {SETTINGS} and weights, or the name of a repository on '
                "the Hugging Face hub (owner/name or owner/name@revision)."
            )
        folder = repository_folder(name, with_processor=with_processor, or_pickle=True)
    missing = missing_files(folder, with_processor=with_processor, or_pickle=True)
    if missing:
        raise CheckpointError(f"The model {name} is incomplete: {folder} lacks {', '.join(missing)}; put it there.")
    return folder


def fingerprint_of(files: Sequence[Path]) -> str:
    """Of the content of files."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:12]

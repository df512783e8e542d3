"""A checkpoint: a folder with `model.safetensors`, and `config.json` with all else that captioning needs; no pickle."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypeVar

import torch
from pydantic import Field, TypeAdapter, ValidationError
from safetensors.torch import load_file, save
from torch import Tensor, nn
from torch.nn import init
from torch.overrides import TorchFunctionMode

from showtell import __version__
from showtell.config import describe_problem
from showtell.decoding import DecodingConfig
from showtell.errors import CheckpointError, DataError, RecipeError, first_line, nearest, summarise
from showtell.features import Encoder, build_encoder, encoder_config
from showtell.features.weights import part_of_checkpoint
from showtell.files import read_json, write_bytes, write_json
from showtell.hub import ADAPTER, SETTINGS, WEIGHTS
from showtell.models import MODELS, Decoder, build_decoder
from showtell.text.vocabulary import Vocabulary
from showtell.torch_weights import is_plain

FORMAT = 2  # increased when files change so that another showtell cannot read them

ModuleT = TypeVar("ModuleT", bound=nn.Module)
Fingerprint = Annotated[str, Field(pattern="^[0-9a-f]{12}$")]


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """What `config.json` holds, of a checkpoint with all its weights or of one that stands on another."""

    encoder: dict[str, Any]
    model: dict[str, Any]
    decoding: dict[str, Any]
    fingerprints: dict[str, Fingerprint]  # of the weights, and of the vocabulary if there is one
    about: dict[str, Any] = field(default_factory=dict)  # for people


@dataclass(frozen=True)
class VocabularySettings:
    """The words of a checkpoint."""

    words: tuple[str, ...]
    tokenizer: str
    fingerprint: Fingerprint


@dataclass(frozen=True, kw_only=True)
class WholeSettings(CheckpointSettings):
    """What `config.json` of a checkpoint with all its weights holds."""

    preprocessing: dict[str, Any]
    vocabulary: VocabularySettings


SettingsT = TypeVar("SettingsT", bound="CheckpointSettings")


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint."""

    encoder: Encoder  # with its weights, frozen ones too
    decoder: Decoder  # with its weights
    vocabulary: Vocabulary  # of the decoder
    decoding: DecodingConfig  # default decoding settings of `caption`
    origin: dict[str, Any] = field(default_factory=dict)  # of the weights, for people


def save_checkpoint(folder: Path, checkpoint: Checkpoint) -> None:
    """Write the two files into a folder, which is made if it does not exist."""
    encoder, decoder, vocabulary = checkpoint.encoder, checkpoint.decoder, checkpoint.vocabulary
    tensors = {
        f"{part}.{name}": tensor.detach().cpu().contiguous()
        for part, module in (("encoder", encoder), ("decoder", decoder))
        for name, tensor in module.state_dict().items()
    }
    weights = save(tensors, metadata={"format": "pt"})
    write_bytes(folder / WEIGHTS, weights)
    settings = {
        "format": FORMAT,
        "showtell": __version__,
        "encoder": encoder.config.model_dump(mode="json"),
        "preprocessing": encoder.preprocessing.model_dump(mode="json"),
        "model": decoder.config.model_dump(mode="json"),
        "decoding": checkpoint.decoding.model_dump(mode="json"),
        "about": checkpoint.origin,
        "fingerprints": {"weights": fingerprint_of(weights), "vocabulary": vocabulary.fingerprint},
        "vocabulary": vocabulary.to_json(),
    }
    write_json(folder / SETTINGS, settings, indent=1)


def fingerprint_of(weights: bytes) -> str:
    """The fingerprint of a file of weights."""
    return hashlib.sha256(weights).hexdigest()[:12]


def load_checkpoint(folder: Path) -> Checkpoint:
    """Read a checkpoint, its modules in eval mode; a CheckpointError if a file is missing, damaged or another's."""
    settings_file, weights_file = folder / SETTINGS, folder / WEIGHTS
    settings = read_settings(folder, WholeSettings)
    name = str(settings.model.get("name"))
    if name not in MODELS:
        raise CheckpointError(
            f'The checkpoint has a model "{name}" that is not known here; install the package that added it, or '
            f"{nearest(name, MODELS)}."
        )
    try:
        vocabulary = Vocabulary.from_json(vars(settings.vocabulary), settings_file)
        model = MODELS[name][0].model_validate(settings.model)
        encoder_settings = encoder_config(settings.encoder)
    except RecipeError as error:
        raise CheckpointError(f"The checkpoint cannot be opened here: {settings_file}: {error}") from error
    except ValidationError as error:
        raise CheckpointError(f"The checkpoint is damaged: {settings_file}: model.{describe_problem(error)}") from error
    decoding = decoding_of(settings, settings_file)
    tensors = read_weights(weights_file, settings.fingerprints.get("weights"))
    encoder = _build(lambda: build_encoder(encoder_settings, load_weights=False), tensors, "encoder", weights_file)
    if settings.preprocessing != encoder.preprocessing.model_dump(mode="json"):
        raise CheckpointError(
            f'"preprocessing" in {settings_file} is not what the encoder was trained with; it follows from the encoder '
            "and cannot be edited: fetch the file again."
        )
    sizes = {"feature_size": encoder.feature_size, "vocabulary_size": len(vocabulary)}
    decoder = _build(lambda: build_decoder(model, **sizes), tensors, "decoder", weights_file)
    return Checkpoint(encoder, decoder, vocabulary, decoding, settings.about)


def decoding_of(settings: CheckpointSettings, file: Path) -> DecodingConfig:
    """The decoding settings of a checkpoint; a CheckpointError, which names the file, if they are not valid here."""
    try:
        return DecodingConfig.model_validate(settings.decoding)
    except ValidationError as error:
        raise CheckpointError(f"The checkpoint is damaged: {file}: decoding.{describe_problem(error)}") from error


def read_settings(folder: Path, kind: type[SettingsT]) -> SettingsT:
    """What `config.json` holds; a CheckpointError if a file is missing, or a value is not what it should be."""
    file, stands_on_another = folder / SETTINGS, (folder / ADAPTER).is_file()
    for needed in (file, folder / (ADAPTER if stands_on_another else WEIGHTS)):
        if not needed.is_file():
            runs = [name for name in ("best", "last") if (folder / name / SETTINGS).is_file()]
            hint = f"; it looks like a run: use {folder / runs[0]}" if runs else ""
            raise CheckpointError(f"{folder} is no checkpoint: it has no {needed.name}{hint}.")
    try:
        settings = read_json(file)
    except DataError as error:
        raise CheckpointError(f"The checkpoint is damaged: {error}") from error
    if not isinstance(settings, dict) or "format" not in settings:
        raise CheckpointError(f'{file} is not of a showtell checkpoint: it has no key "format".')
    if settings["format"] != FORMAT:
        raise CheckpointError(
            f"{folder} was written by showtell {settings.get('showtell')} in format {settings['format']}, and this "
            f"showtell {__version__} reads format {FORMAT}; install the version that wrote it, or train again."
        )
    try:
        return TypeAdapter(kind).validate_python(settings)
    except ValidationError as error:
        raise CheckpointError(f"The checkpoint is damaged: {file}: {describe_problem(error)}") from error


def read_weights(file: Path, recorded: object) -> dict[str, Tensor]:
    """The tensors of a file, checked to have the recorded fingerprint and to be finite; else a `CheckpointError`."""
    try:
        fingerprint = fingerprint_of(file.read_bytes())
        tensors = load_file(file)
    except Exception as error:  # safetensors raises errors of several kinds about a damaged header
        raise CheckpointError(f"The checkpoint is damaged: {file} cannot be read ({error}).") from error
    if fingerprint != recorded:
        raise CheckpointError(
            f"The weights in {file} have fingerprint {fingerprint}, but {SETTINGS} beside them was written for "
            f"{recorded}: the two files are not of the same checkpoint."
        )
    for name, tensor in tensors.items():
        if not is_plain(tensor):
            raise CheckpointError(f"The weights in {file} cannot be used: {name} holds {_dtype(tensor)}.")
        if not bool(torch.isfinite(tensor).all()):
            kind = "NaN" if bool(tensor.isnan().any()) else "infinity"
            raise CheckpointError(
                f"The weights in {file} cannot be used: {name} contains {kind}; the training run that wrote them has "
                "diverged, use an earlier checkpoint."
            )
    return tensors


def _build(build: Callable[[], ModuleT], tensors: Mapping[str, Tensor], part: str, file: Path) -> ModuleT:
    """Encoder or decoder with its tensors, in eval mode."""
    given = part_of_checkpoint(tensors, part)
    try:
        with NoRandomNumbers():
            module = build()
    except RuntimeError as error:  # sizes that no memory has room for
        raise CheckpointError(
            f"The {part} that {SETTINGS} describes cannot be made here: {first_line(error)}."
        ) from error
    expected = module.state_dict()
    reasons = [f"missing tensor {part}.{name}" for name in expected if name not in given]
    reasons += [f"unexpected tensor {part}.{name}" for name in given if name not in expected]
    for name in given.keys() & expected.keys():
        ours, theirs = expected[name], given[name]
        if ours.shape != theirs.shape:
            sizes = f"{tuple(theirs.shape)} in the file and {tuple(ours.shape)} by {SETTINGS}"
            reasons.append(f"size mismatch for {part}.{name}, {sizes}")
        elif ours.is_floating_point() != theirs.is_floating_point():
            reasons.append(f"{part}.{name} holds {_dtype(theirs)} instead of {_dtype(ours)}")
    if reasons:
        raise CheckpointError(f"The weights in {file} do not fit the {part} of {SETTINGS}: {summarise(reasons, 3)}.")
    module.load_state_dict(given)
    return module.eval()


def _dtype(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


class NoRandomNumbers(TorchFunctionMode):
    """Leaves out random initial values, which weights replace."""

    FILLS = (Tensor.normal_, Tensor.uniform_, init.normal_, init.uniform_, init.kaiming_normal_, init.kaiming_uniform_)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        if func in self.FILLS:
            return args[0] if args else given["tensor"]
        return func(*args, **given)

"""Adapters of a captioner of transformers, and their checkpoint, which holds them and names the rest.

    config.json                the base by name, revision and fingerprint; search and origin
    adapter_model.safetensors  the weights that learned: megabytes
    adapter_config.json        as peft writes it: peft opens the folder on top of the base as well

An adapter (LoRA: Hu et al., 2021) adds alpha / rank B A to the matrix of a linear layer, with A (rank, inputs) drawn
at random and B (outputs, rank) 0, so that nothing changes before it learns.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from safetensors.torch import save
from torch import Tensor, nn

from showtell import __version__, checkpoint
from showtell.captioners.contract import Source
from showtell.captioners.hugging_face import Adapted, TransformersCaptioner
from showtell.captioners.hugging_face_opening import open_transformers_folder
from showtell.config import Config, Size
from showtell.decoding_config import DecodingConfig
from showtell.errors import CheckpointError, MissingDependencyError, RecipeError, UsageError, nearest, summarise
from showtell.files import write_bytes, write_folder, write_json
from showtell.hub import ADAPTER, SETTINGS, find_checkpoint, quiet
from showtell.models import Capability, DecoderConfig

_HEADS = {"cls", "lm_head"}  # parts that end in the vocabulary, which do not learn by default


class AdapterConfig(Config):
    """Low-rank adapters."""

    rank: Size = Field(8, description="Rank of each adapter.")
    alpha: Size = Field(16, description="Scale: what an adapter adds is multiplied by alpha / rank.")
    dropout: float = Field(0.05, ge=0, lt=1, description="Dropout of what an adapter reads, in training.")
    targets: tuple[str, ...] = Field(
        (),
        description="Linear layers with an adapter, each by the end of its name, such as [query, value] (default: all "
        "of the part that writes the text but its output layer).",
    )


class TransformersConfig(DecoderConfig):
    """The adapters of a captioner of transformers; `training.start_from` names the captioner."""

    provides: ClassVar[Mapping[Capability, Mapping[str, Any]]] = {Capability.PARALLEL: {}}

    name: Literal["transformers"] = "transformers"
    adapter: AdapterConfig = Field(AdapterConfig(), description="The adapters, which alone learn.")


@dataclass(frozen=True)
class BaseSettings:
    """The captioner that a checkpoint stands on."""

    name: str  # a folder, or owner/name on the hub
    weights: checkpoint.Fingerprint
    revision: str | None = None  # commit on the hub; None for a folder


@dataclass(frozen=True, kw_only=True)
class AdaptedSettings(checkpoint.CheckpointSettings):
    """What `config.json` of a checkpoint that stands on another holds."""

    base: BaseSettings
    model: TransformersConfig  # type: ignore[assignment]
    targets: tuple[str, ...]  # full names of the layers with adapters


def adapt(captioner: TransformersCaptioner, config: TransformersConfig, targets: Sequence[str] = ()) -> None:
    """Put fresh adapters into a captioner, which alone learn.

    Args:
        captioner: as it was opened.
        config: the adapters.
        targets: full names of the layers that get adapters; by default those of the settings.

    Raises:
        RecipeError: a target matches nothing.
        MissingDependencyError: peft is not installed.
    """
    base = replace(captioner.source, fingerprints={"weights": captioner.about.fingerprints["weights"]})
    targets = targets or _targets(captioner, config.adapter)
    _inject(captioner.model.requires_grad_(False), config.adapter, targets)
    captioner.adapted = Adapted(config, base, tuple(targets))


def _targets(captioner: TransformersCaptioner, config: AdapterConfig) -> list[str]:
    """The layers that get adapters."""
    layers = _layers(captioner)
    for ending in config.targets:
        if not any(f".{name}".endswith(f".{ending}") for name in layers):
            ends = {name.rpartition(".")[2] for name in layers if not name.rpartition(".")[2].isdigit()}
            raise RecipeError(
                f'model.adapter.targets: nothing in {captioner.name} is named "{ending}": {nearest(ending, ends)}.'
            )
    if config.targets:
        return [name for name in layers if any(f".{name}".endswith(f".{ending}") for ending in config.targets)]
    return [name for name in layers if re.match(captioner.family.text, name) and not _HEADS & {*name.split(".")}]


def _layers(captioner: TransformersCaptioner) -> list[str]:
    """The layers that adapters may stand beside."""
    from transformers.pytorch_utils import Conv1D

    return [name for name, module in captioner.model.named_modules() if isinstance(module, nn.Linear | Conv1D)]


def _inject(model: nn.Module, config: AdapterConfig, targets: Sequence[str]) -> None:
    """Put fresh adapters beside the layers of these names."""
    try:
        from peft import inject_adapter_in_model
    except ImportError as error:
        raise MissingDependencyError(
            'Adapters need peft, which is not installed: pip install "showtell[transformers]".'
        ) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the layers of GPT-2, whose matrices are the other way round
        inject_adapter_in_model(_lora(config, targets), model)


def _lora(config: AdapterConfig, targets: Sequence[str], base: str | None = None) -> Any:
    from peft import LoraConfig

    return LoraConfig(
        r=config.rank, lora_alpha=config.alpha, lora_dropout=config.dropout, target_modules=list(targets),
        base_model_name_or_path=base,
    )  # fmt: skip


def learned(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that learn, by name."""
    return {name: weight for name, weight in model.named_parameters() if weight.requires_grad}


def _name_in_file(name: str) -> str:
    """The name of a weight as peft has it in files."""
    return f"base_model.model.{name.replace('.default', '')}"


# --- the checkpoint ---


def save_adapted(
    folder: Path, captioner: TransformersCaptioner, decoding: DecodingConfig, origin: Mapping[str, Any]
) -> None:
    """Write what learned into a folder, which is made if it does not exist."""
    adapted = captioner.adapted
    assert adapted is not None
    tensors = {
        _name_in_file(name): weight.detach().cpu().contiguous() for name, weight in learned(captioner.model).items()
    }
    weights = save(tensors, metadata={"format": "pt"})
    write_bytes(folder / ADAPTER, weights)
    base = adapted.base
    name = base.name.partition("@")[0] if base.revision else str(base.folder.resolve())
    _lora(adapted.config.adapter, adapted.targets, name).save_pretrained(folder)
    settings = {
        "format": checkpoint.FORMAT,
        "showtell": __version__,
        "base": {"name": name, "revision": base.revision, **base.fingerprints},
        "encoder": {"name": "transformers"},
        "model": adapted.config.model_dump(mode="json"),
        "targets": adapted.targets,
        "decoding": decoding.model_dump(mode="json"),
        "about": dict(origin),
        "fingerprints": {"weights": checkpoint.fingerprint_of(weights)},
    }
    write_json(folder / SETTINGS, settings, indent=1)


def open_adapted(source: Source, device: str | torch.device, dtype: str | None = None) -> TransformersCaptioner:
    """Open what learned on top of its base; a CheckpointError if either is damaged or missing, or the base changed."""
    settings = checkpoint.read_settings(source.folder, AdaptedSettings)
    base, rank = settings.base, settings.model.adapter.rank
    tensors = checkpoint.read_weights(source.folder / ADAPTER, settings.fingerprints.get("weights"))
    try:
        folder = find_checkpoint(f"{base.name}@{base.revision}" if base.revision else base.name)
        captioner = open_transformers_folder(Source(base.name, folder, base.revision), device, dtype)
    except CheckpointError as error:
        sentence = f"{source.name} holds adapters alone, and their base cannot be opened: {error}"
        raise CheckpointError(sentence) from error
    weights = captioner.about.fingerprints["weights"]
    if weights != base.weights:
        raise CheckpointError(
            f"{source.name} was trained on top of {base.name} with the weights {base.weights}, and now these are "
            f"{weights}: put the old ones back, or train again from the new ones."
        )
    if unknown := sorted({*settings.targets} - {*_layers(captioner)}):
        raise CheckpointError(
            f"The checkpoint is damaged: {source.folder / SETTINGS}: targets: {base.name} has no layer "
            f"{summarise(unknown, 3)}."
        )
    if any(tensor.shape[:1] != (rank,) for name, tensor in tensors.items() if ".lora_A." in name):
        raise _misfit(source.folder)  # before memory for adapters of another rank is taken
    adapt(captioner, settings.model, settings.targets)
    assert captioner.adapted is not None
    captioner.adapted = replace(captioner.adapted, origin=settings.about)
    _take(captioner, tensors, source.folder)
    captioner.model.eval()
    captioner.decoding = captioner.check(checkpoint.decoding_of(settings, source.folder / SETTINGS))
    captioner.source = source
    vars(captioner).pop("_fingerprint")  # which was that of the base
    return captioner


def load_learned(captioner: TransformersCaptioner, folder: Path) -> None:
    """Take the weights of a checkpoint of the same base and settings."""
    recorded = checkpoint.read_settings(folder, AdaptedSettings).fingerprints.get("weights")
    _take(captioner, checkpoint.read_weights(folder / ADAPTER, recorded), folder)


@torch.no_grad()
def _take(captioner: TransformersCaptioner, tensors: Mapping[str, Tensor], folder: Path) -> None:
    weights = {_name_in_file(name): weight for name, weight in learned(captioner.model).items()}
    shapes, expected = ({name: value.shape for name, value in of.items()} for of in (tensors, weights))
    if shapes != expected:
        raise _misfit(folder)
    for name, weight in weights.items():
        weight.copy_(tensors[name])


def _misfit(folder: Path) -> CheckpointError:
    return CheckpointError(f"The weights in {folder / ADAPTER} do not fit what {SETTINGS} says; get both again.")


# --- without showtell ---


def export(captioner: TransformersCaptioner, folder: Path) -> None:
    """Write a captioner as a folder that transformers opens by itself, with its processor; adapters are merged.

    The captioner is not to be used afterwards.

    Raises:
        UsageError: the folder is not empty.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already; choose a new folder, or an empty one.")
    model, processor = captioner.model, captioner.processor
    for name in captioner.adapted.targets if captioner.adapted is not None else ():
        parent, _, child = name.rpartition(".")
        layer = model.get_submodule(name)
        layer.merge(safe_merge=True)
        setattr(model.get_submodule(parent), child, layer.get_base_layer())
    settings, generation = captioner.decoding, captioner.generator.part.generation_config
    generation.max_length, generation.max_new_tokens = None, settings.max_length + len(captioner.generator.begin)
    generation.num_beams, generation.no_repeat_ngram_size = settings.num_beams, settings.no_repeat_ngram_size

    def fill(into: Path) -> None:
        with quiet():
            for part in (model, *([processor.both] if processor.both else [processor.images, processor.tokenizer])):
                part.save_pretrained(into)

    write_folder(folder, fill)

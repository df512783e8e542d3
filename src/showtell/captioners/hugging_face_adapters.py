"""Adapters of a captioner of transformers, and their checkpoint, which holds them and names the rest.

    config.json                the base by name, revision and fingerprint; search and origin
    adapter_model.safetensors  the weights that learned: megabytes
    adapter_config.json        as peft writes it: peft opens the folder on top of the base as well

An adapter (LoRA: Hu et al., 2021) adds alpha / rank B A to the matrix of a linear layer, with A (rank, inputs) drawn
at random and B (outputs, rank) 0, so that nothing changes before it learns.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import torch
from pydantic import Field
from safetensors.torch import save
from torch import nn

from showtell import __version__, checkpoint
from showtell.captioners.contract import Source
from showtell.captioners.hugging_face import Adapted, TransformersCaptioner
from showtell.captioners.hugging_face_opening import open_transformers_folder
from showtell.config import Size
from showtell.decoding_config import DecodingConfig
from showtell.errors import CheckpointError, MissingDependencyError, UsageError
from showtell.files import write_bytes, write_folder, write_json
from showtell.hub import ADAPTER, SETTINGS, find_checkpoint, quiet
from showtell.models import Capability, DecoderConfig

_HEADS = {"cls", "lm_head"}  # parts that end in the vocabulary, which do not learn


class TransformersConfig(DecoderConfig):
    """The low-rank adapters of a captioner of transformers; `training.start_from` names the captioner."""

    provides: ClassVar[Mapping[Capability, Mapping[str, Any]]] = {Capability.PARALLEL: {}}

    name: Literal["transformers"] = "transformers"
    rank: Size = Field(8, description="Rank of each adapter.")
    alpha: Size = Field(16, description="Scale: what an adapter adds is multiplied by alpha / rank.")
    dropout: float = Field(0.05, ge=0, lt=1, description="Dropout of what an adapter reads, in training.")


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


def adapt(captioner: TransformersCaptioner, config: TransformersConfig) -> None:
    """Put fresh adapters, which alone learn, beside the linear layers of the text decoder, except its output layer."""
    try:
        from peft import LoraConfig, LoraModel
    except ImportError as error:
        raise MissingDependencyError(
            'Adapters need peft, which is not installed: pip install "showtell[transformers]".'
        ) from error
    from transformers.pytorch_utils import Conv1D

    base = replace(captioner.source, fingerprints={"weights": captioner.about.fingerprints["weights"]})
    layers = [name for name, module in captioner.model.named_modules() if isinstance(module, nn.Linear | Conv1D)]
    lora = LoraConfig(
        r=config.rank,
        lora_alpha=config.alpha,
        lora_dropout=config.dropout,
        target_modules=[name for name in layers if captioner.family.writes(name) and not _HEADS & {*name.split(".")}],
        base_model_name_or_path=_base_name(base),
        revision=base.revision,
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the layers of GPT-2, whose matrices are the other way round
        tuner = LoraModel(captioner.model.requires_grad_(False), lora, "default")  # changes the model itself
    captioner.adapted = Adapted(config, base, tuner)


def _base_name(base: Source) -> str:
    return base.name.partition("@")[0] if base.revision else str(base.folder.resolve())


def learned(model: nn.Module) -> dict[str, nn.Parameter]:
    """The weights that learn, by their names in files of peft."""
    named = ((name, weight) for name, weight in model.named_parameters() if weight.requires_grad)
    return {f"base_model.model.{name.replace('.default', '')}": weight for name, weight in named}


def save_adapted(
    folder: Path, captioner: TransformersCaptioner, decoding: DecodingConfig, origin: Mapping[str, Any]
) -> None:
    """Write what learned into a folder, which is made if it does not exist."""
    adapted = captioner.adapted
    assert adapted is not None
    tensors = {name: weight.detach().cpu().contiguous() for name, weight in learned(captioner.model).items()}
    weights = save(tensors, metadata={"format": "pt"})
    write_bytes(folder / ADAPTER, weights)
    adapted.tuner.peft_config["default"].save_pretrained(folder)
    settings = {
        "format": checkpoint.FORMAT,
        "showtell": __version__,
        "base": {"name": _base_name(adapted.base), "revision": adapted.base.revision, **adapted.base.fingerprints},
        "encoder": {"name": "transformers"},
        "model": adapted.config.model_dump(mode="json"),
        "decoding": decoding.model_dump(mode="json"),
        "about": dict(origin),
        "fingerprints": {"weights": checkpoint.fingerprint_of(weights)},
    }
    write_json(folder / SETTINGS, settings, indent=1)


def open_adapted(source: Source, device: str | torch.device, dtype: str | None = None) -> TransformersCaptioner:
    """Open what learned on top of its base; a CheckpointError if either is damaged or missing, or the base changed."""
    settings = checkpoint.read_settings(source.folder, AdaptedSettings)
    base = settings.base
    try:
        folder = find_checkpoint(f"{base.name}@{base.revision}" if base.revision else base.name)
        captioner = open_transformers_folder(Source(base.name, folder, base.revision), device, dtype)
    except CheckpointError as error:
        problem = f"{source.name} holds adapters alone, and their base cannot be opened: {error}"
        raise CheckpointError(problem) from error
    weights = captioner.about.fingerprints["weights"]
    if weights != base.weights:
        raise CheckpointError(
            f"{source.name} was trained on top of {base.name} with the weights {base.weights}, and now these are "
            f"{weights}: put the old ones back, or train again from the new ones."
        )
    adapt(captioner, settings.model)
    assert captioner.adapted is not None
    captioner.adapted = replace(captioner.adapted, origin=settings.about)
    load_learned(captioner, source.folder)
    captioner.model.eval()
    captioner.decoding = captioner.check(checkpoint.decoding_of(settings, source.folder / SETTINGS))
    captioner.source = source
    vars(captioner).pop("_fingerprint")  # which was that of the base
    return captioner


@torch.no_grad()
def load_learned(captioner: TransformersCaptioner, folder: Path) -> None:
    """Take the weights of a checkpoint of the same base and settings."""
    recorded = checkpoint.read_settings(folder, AdaptedSettings).fingerprints.get("weights")
    tensors, weights = checkpoint.read_weights(folder / ADAPTER, recorded), learned(captioner.model)
    shapes, expected = ({name: value.shape for name, value in of.items()} for of in (tensors, weights))
    if shapes != expected:
        raise CheckpointError(f"The weights in {folder / ADAPTER} do not fit what {SETTINGS} says; get both again.")
    for name, weight in weights.items():
        weight.copy_(tensors[name])


def export(captioner: TransformersCaptioner, folder: Path) -> None:
    """Write a folder that transformers opens by itself, adapters merged; the captioner is not to be used afterwards."""
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UsageError(f"{folder} exists already; choose a new folder, or an empty one.")
    model, processor = captioner.model, captioner.processor
    if captioner.adapted is not None:
        captioner.adapted.tuner.merge_and_unload(safe_merge=True)
    settings, generation = captioner.decoding, captioner.generator.part.generation_config
    generation.max_length, generation.max_new_tokens = None, settings.max_length + len(captioner.generator.begin)
    generation.num_beams, generation.no_repeat_ngram_size = settings.num_beams, settings.no_repeat_ngram_size

    def fill(into: Path) -> None:
        with quiet():
            for part in (model, *([processor.both] if processor.both else [processor.images, processor.tokenizer])):
                part.save_pretrained(into)

    write_folder(folder, fill)

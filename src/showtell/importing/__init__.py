"""Checkpoints of other projects as checkpoints of showtell; a file per project, and nothing of a file is run.

    imported = import_checkpoint("model-best.pth", infos="infos_fc-best.pkl")
    print(imported.describe())
    imported.save("checkpoints/newfc")

What a file is of is seen from what it holds, not from its name. docs/any_captioner.md has where they are.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from showtell.checkpoint import Checkpoint, save_checkpoint
from showtell.config import describe_problem
from showtell.decoding import DecodingConfig
from showtell.errors import CheckpointError, DataError, UsageError, WeightsError, printable, summarise
from showtell.features import Encoder
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.store import StoreInfo
from showtell.features.weights import unnested
from showtell.files import read_json, write_folder
from showtell.importing import image_captioning_pytorch as luo
from showtell.importing import show_attend_tell_tutorial as tutorial
from showtell.importing.source import Converted, SourceTensors, find_file
from showtell.models import MODELS, Decoder, build_decoder
from showtell.torch_weights import read_torch_file

__all__ = ["Imported", "import_checkpoint"]

_WEIGHTS = ("*.pth", "*.pt", "*.tar", "*.bin", "*.ckpt")
_INFOS = "the options (opt) and words (vocab) of a run"
_WORDMAP = "the ids of words"


@dataclass(frozen=True)
class Imported:
    """A checkpoint made of the files of another project, and what there is to say about it."""

    checkpoint: Checkpoint
    report: dict[str, Any]  # what was read, as JSON has it; the checkpoint keeps it, too

    def save(self, folder: Path | str) -> None:
        """Write the checkpoint, whole or not at all, in place of one that may be there."""
        write_folder(Path(folder), lambda inner: save_checkpoint(inner, self.checkpoint))

    def describe(self) -> str:
        """What was read, as text."""
        lines = []
        for key, value in self.report.items():
            entries = [f"{name}={own}" for name, own in value.items()] if isinstance(value, dict) else value
            lines += [f"{key}: {', '.join(entries) if isinstance(entries, list) else value}"] if entries else []
        return "\n".join(map(printable, lines))  # names and values are of a file that anybody may have made


def import_checkpoint(
    source: Path | str,
    *,
    infos: Path | str | None = None,
    wordmap: Path | str | None = None,
    encoder: Encoder | None = None,
    store: StoreInfo | None = None,
) -> Imported:
    """Read a checkpoint of another project. Nothing is written, and nothing of the files is run.

    Args:
        source: the file of weights, or its folder.
        infos: of ImageCaptioning.pytorch, the pickle with options and words; None looks beside the weights.
        wordmap: of a-PyTorch-Tutorial-to-Image-Captioning, the ids of words; None looks beside the weights.
        encoder: makes the features that the model was trained on, with its weights; None where there is none at hand.
        store: metadata of a store with such features, in place of an encoder.

    Raises:
        WeightsError: a file is damaged.
        CheckpointError: the weights are of a model that is not imported.
        DataError: the files do not belong together, or lack something.
        UsageError: a file is not found.
    """
    weights = Path(source)
    if not weights.exists():
        raise UsageError(f"There is no file or folder {source}; give the file of weights, or its folder.")
    if weights.is_dir():
        weights = find_file(weights, _WEIGHTS, "weights", "give the file itself")
    content = unnested(read_torch_file(weights))
    if not content:
        raise WeightsError(f"{weights} holds no weights by their names, so it is no checkpoint that can be imported.")
    if tutorial.is_checkpoint(content):
        if infos is not None:
            raise UsageError(f"The weights are of {tutorial.PROJECT.name}, which has no --infos; it has --wordmap.")
        project, tensors = tutorial.PROJECT, SourceTensors(tutorial.tensors_of(content), weights)
        words = Path(wordmap or find_file(weights.parent, ["*WORDMAP*.json"], _WORDMAP, "give it with --wordmap FILE"))
        converted = tutorial.convert(content, tensors, read_json(words), str(words))
    else:
        named = {str(name): value for name, value in content.items() if isinstance(value, Tensor)}
        tensors = SourceTensors(named, weights)
        if (architecture := luo.architecture_of(tensors)) is None:
            raise CheckpointError(_describe_unknown(weights, content))
        if wordmap is not None:
            raise UsageError(f"The weights are of {luo.PROJECT.name}, which has no --wordmap; it has --infos.")
        project, how = luo.PROJECT, "give it with --infos FILE"
        words = Path(infos or find_file(weights.parent, ["*infos*.pkl"], _INFOS, how))
        read = read_torch_file(words)
        if not luo.is_infos(read):
            raise DataError(f"{words} is no infos file of {luo.PROJECT.name}: it should be a pickle with {_INFOS}.")
        converted = luo.convert(tensors, architecture, read, str(words))
    decoder = _build(converted, tensors.file)
    used, notes = _choose_encoder(converted, tensors.file, encoder, store)
    decoding = DecodingConfig.checked(converted.decoding)
    report = {
        "model": converted.model, "project": project.name, "address": project.address, "licence": project.licence,
        "files": {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (weights, words)},
        "tensors": len(tensors.named), "weights": sum(tensor.numel() for tensor in tensors.named.values()),
        "options": converted.options.read, "words": converted.words.describe(),
        "features": converted.features_described, "decoding": converted.decoding,
        "notes": [*converted.notes, *notes],
    }  # fmt: skip
    about = {"licence": project.licence, "imported": report}
    return Imported(Checkpoint(used, decoder, converted.words.vocabulary, decoding, about), report)


def _describe_unknown(weights: Path, content: dict[Any, object]) -> str:
    """Why weights are not imported."""
    if luo.is_infos(content):
        return f"{weights} holds options and words; it is for --infos, and the source is the file of weights beside it."
    names = sorted(key for key in content if isinstance(key, str))
    return (
        f"{weights} is of no model that is imported (it has {summarise(names, 3) or 'nothing with a name'}); these are "
        f"{', '.join(luo.MODELS)} of {luo.PROJECT.name}, and {tutorial.PROJECT.name} (docs/any_captioner.md)."
    )


def _build(converted: Converted, file: str) -> Decoder:
    """The decoder with the tensors of the source."""
    try:
        config = MODELS[converted.config["name"]][0].model_validate(converted.config)
    except ValidationError as error:
        raise CheckpointError(f"The model in {file} cannot be built here: {describe_problem(error)}") from error
    words = len(converted.words.vocabulary)
    try:
        decoder = build_decoder(config, feature_size=converted.feature_size, vocabulary_size=words)
        decoder.load_state_dict(converted.state, strict=True)
    except RuntimeError as error:
        problems = [line.strip() for line in str(error).splitlines()]
        problems = problems[1:] or problems  # behind "Error(s) in loading state_dict"
        raise CheckpointError(
            f"The tensors in {file} contradict each other: {summarise(problems, 3).rstrip('.')}; the file is damaged, "
            f"or of another {converted.model} than is known here."
        ) from error
    return decoder.eval()


def _choose_encoder(
    converted: Converted, file: str, encoder: Encoder | None, store: StoreInfo | None
) -> tuple[Encoder, list[str]]:
    """The encoder, its own, the given one, or what stands for features on disk, and notes; or a UsageError."""
    given = encoder or store
    if converted.encoder is not None:
        if given is not None:
            raise UsageError(f"{file} brings its own encoder; leave --features-from out.")
        return converted.encoder.eval(), []
    if given is not None and given.feature_size != converted.feature_size:
        raise UsageError(
            f"The vectors of --features-from have {given.feature_size:,} numbers, and the model in {file} takes "
            f"{converted.feature_size:,}: {converted.features_described}."
        )
    if encoder is not None:
        name, wanted = encoder.config.model_dump()["name"], converted.encoder_options
        note = f"{name} makes the features; the model was trained on {wanted}, and of others captions are of nothing"
        return encoder.eval(), [note]
    if store is not None and store.encoder.get("name") != "precomputed":
        raise UsageError(
            f"The store of --features-from was made by {store.made_by}; give that encoder by its name, so that "
            "photos can be captioned too."
        )
    source = converted.features if store is None else str(store.encoder.get("source"))
    note = (
        f'it reads stores of features whose source is "{source}"; photos can be captioned after --features-from '
        f"{converted.encoder_options}"
    )
    return Precomputed(PrecomputedConfig(feature_size=converted.feature_size, source=source)).eval(), [note]

"""Checkpoints of other projects as checkpoints of showtell; a file per project, and nothing of a file is run.

    imported = import_checkpoint("model-best.pth", infos="infos_fc-best.pkl")
    print(imported.report.describe())
    imported.save("checkpoints/newfc")

What a file is of is seen from what it holds, not from its name. docs/published_checkpoints.md has where they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from torch import Tensor

from showtell.checkpoint import Checkpoint, save_checkpoint
from showtell.config import describe_problem
from showtell.decoding import DecodingConfig
from showtell.errors import CheckpointError, DataError, UsageError, summarise
from showtell.features import Encoder
from showtell.features.precomputed import Precomputed, PrecomputedConfig
from showtell.features.store import StoreInfo
from showtell.files import read_json, write_folder
from showtell.hub import SETTINGS
from showtell.importing import image_captioning_pytorch as luo
from showtell.importing import show_attend_tell_tutorial as tutorial
from showtell.importing import source_files
from showtell.importing.parts import Converted
from showtell.importing.report import ImportReport
from showtell.importing.source_tensors import SourceTensors
from showtell.models import MODELS, Decoder, build_decoder

__all__ = ["ImportReport", "Imported", "import_checkpoint", "require_replaceable"]

_INFOS = "the pickle with its options (opt) and words (vocab)"
_WORDMAP = "the JSON file with the ids of its words"


@dataclass(frozen=True)
class Imported:
    """A checkpoint made of the files of another project, and what there is to say about it."""

    checkpoint: Checkpoint
    report: ImportReport

    def save(self, folder: Path | str) -> None:
        """Write the checkpoint, whole or not at all, in place of one that may be there.

        Raises:
            DataError: it cannot be written.
        """
        write_folder(Path(folder), lambda inner: save_checkpoint(inner, self.checkpoint))


def require_replaceable(out: Path, overwrite: bool) -> None:
    """Make sure that a folder may be written to.

    Args:
        out: the folder.
        overwrite: whether a checkpoint that is there may be replaced.

    Raises:
        UsageError: there is something that would be lost.
    """
    if not out.is_dir() or not any(out.iterdir()):
        return
    try:
        settings = read_json(out / SETTINGS)
    except DataError:
        settings = None
    if not isinstance(settings, dict) or "format" not in settings:
        raise UsageError(f"The folder {out} is not empty and is no checkpoint; choose another name for --out.")
    if not overwrite:
        raise UsageError(f"There is a checkpoint in {out} already; --overwrite replaces it, or choose another --out.")


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
    weights = source_files.find_weights(Path(source))
    content = source_files.read_weights_file(weights)
    files = {"weights": weights}
    if tutorial.is_checkpoint(content):
        _refuse_option(infos, "--infos", tutorial.PROJECT.name, "--wordmap")
        files["words"] = Path(wordmap or source_files.find_beside(weights, "*WORDMAP*.json", _WORDMAP, "--wordmap"))
        words = read_json(files["words"])
        if not tutorial.is_wordmap(words):
            raise DataError(
                f"{files['words']} is no word map: it should hold an id for each word, {', '.join(tutorial.MARKS)} "
                "among them."
            )
        converted = tutorial.convert(content, words, weights, str(files["words"]))
    else:
        tensors = SourceTensors({name: value for name, value in content.items() if isinstance(value, Tensor)}, weights)
        architecture = luo.architecture_of(tensors)
        if architecture is None:
            raise CheckpointError(_unknown(weights, content))
        _refuse_option(wordmap, "--wordmap", luo.PROJECT.name, "--infos")
        files["infos"] = Path(infos or source_files.find_beside(weights, "*infos*.pkl", _INFOS, "--infos"))
        read = source_files.read_infos_file(files["infos"])
        if not luo.is_infos(read):
            raise DataError(f"{files['infos']} is no infos file of {luo.PROJECT.name}: it should be {_INFOS}.")
        converted = luo.convert(tensors, architecture, read, str(files["infos"]))
    decoder = _build(converted)
    used = _encoder_for(converted, encoder, store)
    decoding = DecodingConfig.checked(converted.parts.decoding)
    report = _report(converted, files, used, decoding)
    about = {
        "licence": converted.project.licence,
        "imported": {
            "project": converted.project.name, "address": converted.project.address, "model": report.model,
            "files": {path.name: report.fingerprints[kind] for kind, path in files.items()},
            "options": {one.name: one.value for one in report.options}, "scores": report.scores or {},
        },
    }  # fmt: skip
    return Imported(Checkpoint(used, decoder, converted.words.vocabulary, decoding, about), report)


def _refuse_option(given: object, option: str, project: str, other: str) -> None:
    if given is not None:
        raise UsageError(f"The weights are of {project}, which has no such file as {option} names; it has {other}.")


def _unknown(weights: Path, content: dict[Any, object]) -> str:
    """Why weights are not imported."""
    if luo.is_infos(content):
        return f"{weights} holds options and words; it is for --infos, and the source is the file of weights beside it."
    names = sorted(key for key in content if isinstance(key, str))
    return (
        f"{weights} is of no model that is imported (it has {summarise(names, 3) or 'nothing with a name'}); these are "
        f"{', '.join(luo.MODELS)} of {luo.PROJECT.name}, and {tutorial.PROJECT.name} (docs/published_checkpoints.md)."
    )


def _build(converted: Converted) -> Decoder:
    """The decoder with the tensors of the source.

    Raises:
        CheckpointError: sizes are out of range, or tensors contradict each other.
    """
    parts, file = converted.parts, converted.tensors.file
    try:
        config = MODELS[parts.config["name"]][0].model_validate(parts.config)
    except ValidationError as error:
        raise CheckpointError(f"The model in {file} cannot be built here: {describe_problem(error)}") from error
    decoder = build_decoder(config, feature_size=parts.feature_size, vocabulary_size=len(converted.words.vocabulary))
    try:
        decoder.load_state_dict(parts.tensors, strict=True)
    except RuntimeError as error:
        problems = [line.strip() for line in str(error).splitlines()[1:]]
        raise CheckpointError(
            f"The tensors in {file} contradict each other: {summarise(problems, 3).rstrip('.')}; the file is damaged, "
            f"or of another {parts.name} than is known here."
        ) from error
    return decoder.eval()


def _encoder_for(converted: Converted, encoder: Encoder | None, store: StoreInfo | None) -> Encoder:
    """The encoder of the checkpoint: the source's own, the given one, or what stands for features on disk.

    Raises:
        UsageError: the given one makes features of another size, or is one too many.
    """
    parts = converted.parts
    if parts.encoder is not None:
        if encoder is not None or store is not None:
            raise UsageError(f"{converted.tensors.file} brings its own encoder; leave --features-from out.")
        return parts.encoder.eval()
    size = encoder.feature_size if encoder is not None else store.feature_size if store is not None else None
    if size is not None and size != parts.feature_size:
        raise UsageError(
            f"The vectors of --features-from have {size:,} numbers, and the model in {converted.tensors.file} takes "
            f"{parts.feature_size:,}: {parts.features_described}."
        )
    if encoder is not None:
        return encoder.eval()
    name = parts.features
    if store is not None:
        if store.encoder.get("name") != "precomputed":
            raise UsageError(
                f"The store of --features-from was made by {store.made_by}; give that encoder by its name, so that "
                "photos can be captioned too."
            )
        name = str(store.encoder.get("source"))
    return Precomputed(PrecomputedConfig(feature_size=parts.feature_size, source=name)).eval()


def _report(converted: Converted, files: dict[str, Path], encoder: Encoder, decoding: DecodingConfig) -> ImportReport:
    parts, options = converted.parts, converted.options
    features, notes = parts.features_described, list(parts.notes)
    if isinstance(encoder, Precomputed):
        features += (
            f', read from stores of features whose source is "{encoder.config.source}"; photos can be captioned after '
            f"--features-from {parts.encoder_options}"
        )
    elif parts.encoder is None:
        name, *wanted = parts.encoder_options.split()
        given = encoder.config.model_dump(mode="json")
        features += f", made by the encoder {given['name']}"
        settings = dict(one.split("=") for one in wanted if not one.startswith("weights="))
        if given["name"] != name or any(str(given.get(key)) != value for key, value in settings.items()):
            notes.append(f"the model was trained on {parts.encoder_options}, so that captions may be of nothing")
        if given.get("weights") == "random":
            notes.append(f"{given['name']} has random weights, so that the captions are of nothing; give weights=FILE")
    return ImportReport(
        model=parts.name,
        project=converted.project.name,
        address=converted.project.address,
        licence=converted.project.licence,
        files={kind: str(path) for kind, path in files.items()},
        fingerprints={kind: source_files.sha256(path) for kind, path in files.items()},
        tensors=converted.tensors.groups(),
        options=tuple(options.read),
        words=converted.words.describe(),
        features=features,
        decoding=f"{decoding.kind}, " + ", ".join(f"{key}={value}" for key, value in parts.decoding.items()),
        contradictions=tuple(options.contradictions),
        notes=tuple(notes),
        scores=parts.scores or None,
    )

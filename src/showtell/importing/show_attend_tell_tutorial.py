"""Weights of sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning: `BEST_checkpoint_NAME.pth.tar` and `WORDMAP_NAME.json`.

Read at commit cc9c7e2. The first file holds whole pickled modules, `encoder` (a ResNet-101 of torchvision, cut behind
its last map, whose cells are pooled to 14 x 14) and `decoder`; the other one an id for each word. Nothing of the
modules is run: their tensors are read, and the few settings that are no tensors.

| there | here |
|---|---|
| `encoder.resnet.N`, the children of a ResNet without their names | an encoder of timm, whose names are torchvision's |
| `attention.{encoder_att,decoder_att,full_att}` with ReLU and biases | `attention`, `attention_activation: relu` |
| `f_beta`, a gate for each channel | `beta`, `gate_per: channel` |
| `init_h`, `init_c` without tanh | `init_hidden`, `init_cell`, `init_activation: none` |
| `fc` over the hidden vector | `output`, `readout: hidden` |
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from showtell.errors import CheckpointError, DataError, WeightsError
from showtell.features import Encoder, build_encoder
from showtell.features.timm_grid import TimmConfig
from showtell.features.weights import load_weights
from showtell.importing.parts import Converted, Parts, Project
from showtell.importing.report import Option
from showtell.importing.source_options import SourceOptions
from showtell.importing.source_tensors import SourceTensors
from showtell.importing.source_words import map_words
from showtell.torch_weights import StandIn, module_tensors

PROJECT = Project(
    "a-PyTorch-Tutorial-to-Image-Captioning",
    "https://github.com/sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning",
    "MIT",
)
MARKS = ("<start>", "<end>", "<pad>", "<unk>")
_IMAGE_SIZE = 256
_GRID = 14
_CHILDREN = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}  # of a ResNet
_RESNETS: dict[tuple[int, ...], str] = {  # blocks of each stage, and convolutions of a block
    (2, 2, 2, 2, 2): "resnet18", (3, 4, 6, 3, 2): "resnet34", (3, 4, 6, 3, 3): "resnet50",
    (3, 4, 23, 3, 3): "resnet101", (3, 8, 36, 3, 3): "resnet152",
}  # fmt: skip
_BEAMS, _MAX_LENGTH = 5, 50  # of its caption.py


def is_checkpoint(content: object) -> bool:
    """Whether this is the content of a checkpoint of the tutorial."""
    if not isinstance(content, dict) or not {"encoder", "decoder"} <= content.keys():
        return False
    decoder = _tensors_of(content["decoder"])
    return "attention.full_att.weight" in decoder and "decode_step.weight_ih" in decoder


def is_wordmap(content: object) -> bool:
    """Whether this is the content of a word map."""
    return isinstance(content, dict) and content.keys() >= set(MARKS)


def convert(content: Mapping[Any, object], wordmap: Mapping[str, object], path: Path, words_file: str) -> Converted:
    """A checkpoint of the tutorial as one of ours.

    Args:
        content: of the checkpoint.
        wordmap: ids of words.
        path: of the checkpoint.
        words_file: what messages call the word map.

    Raises:
        CheckpointError: a tensor is missing, has a shape that does not fit, or is one too many.
        DataError: the word map is of another model.
    """
    tensors = SourceTensors(
        {
            f"{part}.{name}": tensor
            for part in ("encoder", "decoder")
            for name, tensor in _tensors_of(content[part]).items()
        },
        path,
    )
    file = tensors.file
    options = SourceOptions(_settings(content["encoder"], content["decoder"]), file, "the modules")
    rows = tensors.words("decoder.embedding.weight", "decoder.fc")
    embedding = tensors.shape("decoder.embedding.weight")[1]
    attention, width = tensors.shape("decoder.attention.encoder_att.weight")
    hidden = tensors.shape("decoder.decode_step.weight_hh")[1]
    for name, value, origin in (
        ("vocab_size", rows, "decoder.embedding"), ("embed_dim", embedding, "decoder.embedding"),
        ("decoder_dim", hidden, "decoder.decode_step"), ("attention_dim", attention, "decoder.attention"),
        ("encoder_dim", width, "decoder.attention"),
    ):  # fmt: skip
        options.seen(name, value, origin)
    marks = {mark: _identifier(wordmap, mark, words_file) for mark in MARKS}
    words = map_words(
        _words(wordmap, words_file), rows=rows, source=words_file, weights=file,
        begin=marks["<start>"], end=marks["<end>"], pad=marks["<pad>"], unknown=marks["<unk>"],
    )  # fmt: skip
    parts = Parts(
        name="Show, Attend and Tell",
        config={
            "name": "sat", "embedding_size": embedding, "hidden_size": hidden, "attention_size": attention,
            "attention_activation": "relu", "init_activation": "none", "gate_per": "channel", "readout": "hidden",
            "dropout": options.share("dropout", 0.5),
        },
        feature_size=width,
        features="",
        features_described="",
        encoder_options="",
        tensors=_decoder(tensors),
        decoding={"num_beams": _BEAMS, "max_length": _MAX_LENGTH},
        scores=_scores(content),
        notes=["--num-beams 5 is the default, as in its caption.py"],
    )  # fmt: skip
    parts.tensors |= {
        "embedding.weight": words.embedding(tensors.take("decoder.embedding.weight", "embedding.weight")),
        "output.weight": words.output_weight(tensors.take("decoder.fc.weight", "output.weight")),
        "output.bias": words.output_bias(tensors.take("decoder.fc.bias", "output.bias")),
    }
    grid = options.whole("encoded_image_size", _GRID, at_least=1, at_most=256)
    parts.encoder = _encoder(tensors, grid, file)
    if parts.encoder.feature_size != width:
        raise CheckpointError(
            f"The encoder in {file} makes cells of {parts.encoder.feature_size} numbers and its decoder reads {width}: "
            "the two are not of one run."
        )
    name = parts.encoder.config.name.partition(".")[0]  # type: ignore[attr-defined]
    parts.features = name
    parts.features_described = (
        f"its own {name}, {grid} x {grid} cells of {width:,} numbers over the photo at {_IMAGE_SIZE} x {_IMAGE_SIZE}, "
        "frozen"
    )
    options.read.append(Option("image size", _IMAGE_SIZE, "the code of the project"))
    tensors.refuse_rest(f"a checkpoint of {PROJECT.name}")
    return Converted(PROJECT, parts, words, options, tensors)


def _tensors_of(module: object) -> dict[str, Tensor]:
    """The tensors of a module, or of a state dict in its place."""
    if isinstance(module, StandIn):
        return dict(module_tensors(module))
    if isinstance(module, dict):
        return {name: tensor for name, tensor in module.items() if isinstance(name, str) and isinstance(tensor, Tensor)}
    return {}


def _child(module: object, name: str) -> dict[Any, object]:
    """The attributes of a module within a module."""
    children = module.attributes.get("_modules") if isinstance(module, StandIn) else None
    if isinstance(children, StandIn):
        children = children.entries
    child = children.get(name) if isinstance(children, dict) else None
    return child.attributes if isinstance(child, StandIn) else {}


def _settings(encoder: object, decoder: object) -> dict[str, object]:
    """What the modules hold besides tensors: sizes and dropout."""
    own = decoder.attributes if isinstance(decoder, StandIn) else {}
    sizes = {name: own.get(name) for name in ("attention_dim", "embed_dim", "decoder_dim", "vocab_size", "encoder_dim")}
    grid = _child(encoder, "adaptive_pool").get("output_size")
    if isinstance(grid, tuple) and all(side == grid[0] for side in grid[1:]):
        grid = grid[0] if grid else None
    return {**sizes, "dropout": _child(decoder, "dropout").get("p"), "encoded_image_size": grid}


def _decoder(tensors: SourceTensors) -> dict[str, Tensor]:
    """All tensors of the decoder but those that have a row for each word."""
    theirs, ours = "decoder.attention", "attention"
    tensors.leave_out(f"{theirs}.full_att.bias", "it cancels in the softmax")
    return {
        f"{ours}.of_features.weight": tensors.take(f"{theirs}.encoder_att.weight", f"{ours}.of_features.weight"),
        f"{ours}.of_features.bias": tensors.take_sum(
            (f"{theirs}.encoder_att.bias", f"{theirs}.decoder_att.bias"), f"{ours}.of_features.bias"
        ),
        f"{ours}.of_query.weight": tensors.take(f"{theirs}.decoder_att.weight", f"{ours}.of_query.weight"),
        f"{ours}.score.weight": tensors.take(f"{theirs}.full_att.weight", f"{ours}.score.weight"),
        **tensors.module("decoder.decode_step", "lstm"),
        **tensors.module("decoder.f_beta", "beta"),
        **tensors.module("decoder.init_h", "init_hidden.0"),
        **tensors.module("decoder.init_c", "init_cell.0"),
    }


def _encoder(tensors: SourceTensors, grid: int, file: str) -> Encoder:
    """The encoder with its weights, frozen.

    Raises:
        CheckpointError: its tensors are not those of a ResNet of torchvision.
    """
    blocks = [tensors.count_layers(f"encoder.resnet.{stage}") for stage in range(4, 8)]
    convolutions = 3 if tensors.has("encoder.resnet.4.0.conv3.") else 2
    name = _RESNETS.get((*blocks, convolutions))
    if name is None:
        raise CheckpointError(
            f"The encoder in {file} is no ResNet of torchvision ({', '.join(_RESNETS.values())}): its stages have "
            f"{', '.join(map(str, blocks))} blocks; only those are imported."
        )
    config = TimmConfig(name=f"{name}.tv_in1k", image_size=_IMAGE_SIZE, grid=grid, resize="squash", trained=False)
    encoder = build_encoder(config, load_weights=False)
    read: dict[str, Tensor] = {}
    for number, child in _CHILDREN.items():
        read |= tensors.module(f"encoder.resnet.{number}", child, nested=True)
    backbone: torch.nn.Module = encoder.backbone  # type: ignore[assignment]
    try:
        load_weights(backbone, read, source=file, name=name)
    except WeightsError as error:
        raise CheckpointError(str(error)) from error
    return encoder


def _identifier(wordmap: Mapping[str, object], word: str, file: str) -> int:
    value = wordmap[word]
    if not isinstance(value, int) or isinstance(value, bool):
        raise DataError(f'The id of "{word}" in {file} should be a whole number.')
    return value


def _words(wordmap: Mapping[str, object], file: str) -> dict[int, str]:
    """Words by their ids."""
    words: dict[int, str] = {}
    for word in wordmap:
        index = _identifier(wordmap, word, file)
        if index in words:
            raise DataError(
                f'{file} has the id {index} for two words, "{words[index]}" and "{word}"; ids are distinct.'
            )
        words[index] = word
    return words


def _scores(content: Mapping[Any, object]) -> dict[str, float]:
    """BLEU-4 of its validation, with the words before given, as its training measures it."""
    value = content.get("bleu-4")
    if isinstance(value, int | float) and math.isfinite(value):
        return {"BLEU-4 (validation, teacher-forced)": float(value)}
    return {}

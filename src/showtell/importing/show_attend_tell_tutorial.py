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

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from showtell.errors import CheckpointError, DataError, WeightsError
from showtell.features import Encoder, build_encoder
from showtell.features.timm_grid import TimmConfig
from showtell.features.weights import load_weights
from showtell.importing.source import Converted, NameTable, Project, SourceOptions, SourceTensors, SourceWords
from showtell.torch_weights import StandIn, module_tensors

_NAME = "a-PyTorch-Tutorial-to-Image-Captioning"
PROJECT = Project(_NAME, f"https://github.com/sgrvinod/{_NAME}", "MIT")
_MARKS = {"begin": "<start>", "end": "<end>", "pad": "<pad>", "unknown": "<unk>"}
_IMAGE_SIZE = 256
_TABLE: NameTable = {  # the beginnings of names there and here
    "decoder.embedding": "embedding",
    "decoder.attention.full_att.bias": None,  # it cancels in the softmax
    "decoder.attention.full_att": "attention.score",
    "decoder.attention.decoder_att.bias": "attention.of_features.bias",
    "decoder.attention.decoder_att": "attention.of_query",
    "decoder.attention.encoder_att": "attention.of_features",
    "decoder.decode_step": "lstm",
    "decoder.f_beta": "beta",
    "decoder.init_h": "init_hidden.0",
    "decoder.init_c": "init_cell.0",
    "decoder.fc": "output",
    "encoder.resnet.0": "encoder.conv1",
    "encoder.resnet.1": "encoder.bn1",
    "encoder.resnet.4": "encoder.layer1",
    "encoder.resnet.5": "encoder.layer2",
    "encoder.resnet.6": "encoder.layer3",
    "encoder.resnet.7": "encoder.layer4",
}
_RESNETS: dict[tuple[int, ...], str] = {  # blocks of each stage, and convolutions of a block
    (2, 2, 2, 2, 2): "resnet18", (3, 4, 6, 3, 2): "resnet34", (3, 4, 6, 3, 3): "resnet50",
    (3, 4, 23, 3, 3): "resnet101", (3, 8, 36, 3, 3): "resnet152",
}  # fmt: skip


def is_checkpoint(content: Mapping[Any, object]) -> bool:
    """Whether this is the content of a checkpoint of the tutorial."""
    decoder = _tensors_of(content.get("decoder")) if "encoder" in content else {}
    return "attention.full_att.weight" in decoder and "decode_step.weight_ih" in decoder


def convert(content: Mapping[Any, object], tensors: SourceTensors, wordmap: object, words_file: str) -> Converted:
    """A checkpoint of the tutorial as one of ours; a CheckpointError or, of the ids in `wordmap`, a DataError."""
    encoder = content["encoder"]
    options = SourceOptions(encoder.attributes if isinstance(encoder, StandIn) else {}, tensors.file)
    rows = tensors.count_words("decoder.embedding", "decoder.fc")
    for layer in ("encoder_att", "decoder_att"):  # whose biases are added: neither may be missing
        tensors.shape(f"decoder.attention.{layer}.bias", 1)
    ids = _word_ids(wordmap, words_file)
    marks = {mark: ids[word] for mark, word in _MARKS.items()}
    words = SourceWords({index: word for word, index in ids.items()}, rows, marks, words_file, tensors.file)
    config = {
        "name": "sat", "embedding_size": tensors.shape("decoder.embedding.weight")[1],
        "hidden_size": tensors.shape("decoder.decode_step.weight_hh")[1],
        "attention_size": tensors.shape("decoder.attention.encoder_att.weight")[0], "attention_activation": "relu",
        "init_activation": "none", "gate_per": "channel", "readout": "hidden",
    }  # fmt: skip
    grid = options.whole("enc_image_size", 14, at_least=1, at_most=256)
    name = _resnet_name(tensors)
    state = tensors.rename(_TABLE, f"a checkpoint of {PROJECT.name}")
    layers = {key.removeprefix("encoder."): state.pop(key) for key in list(state) if key.startswith("encoder.")}
    backbone = _encoder(name, grid, layers, tensors.file)
    words.reorder(state)
    described = (
        f"its own {name}, {grid} x {grid} cells of {backbone.feature_size:,} numbers over the photo at {_IMAGE_SIZE} x "
        f"{_IMAGE_SIZE}, frozen"
    )
    return Converted(
        model="Show, Attend and Tell", config=config, feature_size=backbone.feature_size, features=name,
        features_described=described, encoder_options="", state=state, words=words, options=options,
        decoding={"num_beams": 5, "max_length": 50}, notes=["--num-beams 5 is the default, as in its caption.py"],
        encoder=backbone,
    )  # fmt: skip


def tensors_of(content: Mapping[Any, object]) -> dict[str, Tensor]:
    """The tensors of both modules, by names that begin with "encoder." or "decoder."."""
    parts = {part: _tensors_of(content[part]) for part in ("encoder", "decoder")}
    return {f"{part}.{name}": tensor for part, tensors in parts.items() for name, tensor in tensors.items()}


def _tensors_of(module: object) -> dict[str, Tensor]:
    if isinstance(module, StandIn):
        return module_tensors(module)
    return {name: x for name, x in module.items() if isinstance(x, Tensor)} if isinstance(module, dict) else {}


def _resnet_name(tensors: SourceTensors) -> str:
    blocks = [tensors.count_layers(f"encoder.resnet.{stage}") for stage in range(4, 8)]
    convolutions = 3 if tensors.has("encoder.resnet.4.0.conv3.") else 2
    if (name := _RESNETS.get((*blocks, convolutions))) is None:
        raise CheckpointError(
            f"The encoder in {tensors.file} is no ResNet of torchvision ({', '.join(_RESNETS.values())}): its stages "
            f"have {', '.join(map(str, blocks))} blocks; only those are imported."
        )
    return name


def _encoder(name: str, grid: int, weights: Mapping[str, Tensor], file: str) -> Encoder:
    """The encoder with its weights, frozen."""
    config = TimmConfig(name=f"{name}.tv_in1k", image_size=_IMAGE_SIZE, grid=grid, resize="squash", trained=False)
    encoder = build_encoder(config, load_weights=False)
    backbone: torch.nn.Module = encoder.backbone  # type: ignore[assignment]
    try:
        load_weights(backbone, weights, source=file, name=name)
    except WeightsError as error:
        raise CheckpointError(str(error)) from error
    return encoder


def _word_ids(wordmap: object, file: str) -> dict[str, int]:
    """The word map, if it is one; else a `DataError`."""
    ids = wordmap if isinstance(wordmap, dict) and wordmap.keys() >= set(_MARKS.values()) else {}
    if not ids or not all(type(index) is int for index in ids.values()) or len(set(ids.values())) < len(ids):
        marks = ", ".join(_MARKS.values())
        raise DataError(f"{file} is no word map: it should hold a number of its own for each word, {marks} among them.")
    return ids

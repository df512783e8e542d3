"""Weights of ruotianluo/ImageCaptioning.pytorch: `model-best.pth` and `infos_ID-best.pkl`.

Read at commit 4c48a33. `model-best.pth` is the state dict of a model; the infos are a pickle of protocol 2 with `opt`
(an argparse.Namespace) and `vocab` ({"1": word}). Id 0 is begin, end and padding at once unless `opt` has ids of its
own, and the word UNK stands for unknown ones.

| there | tensors that tell it | here |
|---|---|---|
| `newfc` | `_core.i2h` and `fc_embed` | `nic` with `cell: lstm_maxout, image: input` |
| `fc`, which is older | `core.i2h` and `img_embed` | the same |
| `att2in` | `core.a2c` without `att_embed` | `att2in` |
| `att2in2` | `core.a2c` and `att_embed` | `att2in` with a projection and ReLU |
| `updown`, `topdown` | `core.att_lstm` and `core.lang_lstm` | `updown` with `mean_projection: own` |
| `transformer` | `model.tgt_embed.0.lut` and `att_embed` | `transformer` with `norm: pre, layer_norm: unbiased` |

What one function of the source computes with two biases is computed with their sum here; the bias of `alpha_net` adds
the same number to all scores of a softmax and changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from showtell.errors import CheckpointError, DataError, shorten
from showtell.importing.source import Converted, NameTable, Project, SourceOptions, SourceTensors, SourceWords
from showtell.models.region_input import BOX_NUMBERS
from showtell.torch_weights import StandIn

PROJECT = Project("ImageCaptioning.pytorch", "https://github.com/ruotianluo/ImageCaptioning.pytorch", "MIT")
# What the features are called, as in the recipes coco/*_luo; a store of converted features with this source fits.
REGIONS = "bottom-up regions, 10 to 100"
POOLED = "ResNet-101 of the Caffe kind, mean"
_FEATURES = {  # what they are, and which encoder makes them
    REGIONS: ("bottom-up regions of Anderson et al. (10 to 100 of a photo)", "bottom_up weights=FILE"),
    POOLED: (
        "the mean over the map of a ResNet-101 of the Caffe kind, of the unresized photo",
        "resnet_caffe grid=1 weights=FILE",
    ),
}
_SIGNS = {  # beginnings of names that tell a model; the first whose are all there is it
    "transformer": ("model.tgt_embed.0.lut.weight", "att_embed.0.weight"),
    "updown": ("core.att_lstm.weight_ih", "core.lang_lstm.weight_ih"),
    "att2in2": ("core.a2c.weight", "att_embed."),
    "att2in": ("core.a2c.weight",),
    "newfc": ("_core.i2h.weight", "fc_embed.weight"),
    "fc": ("core.i2h.weight", "img_embed.weight"),
}
MODELS = tuple(_SIGNS)

# --- the names of tensors there and here ---

_BASE = ("embed", "fc_embed", "att_embed", "ctx2att", "logit")  # modules that every model of it once had
_ATTENTION = {
    "core.attention.alpha_net.bias": None,  # it cancels in the softmax
    "core.attention.alpha_net": "attention.score",
    "core.attention.h2att.bias": "attention.of_features.bias",  # w . tanh(W_a a + W_h h + b), b a sum of two there
    "core.attention.h2att": "attention.of_query",
    "ctx2att": "attention.of_features",
}
_SUBLAYERS = {"encoder": ("self_attention", "feed_forward"), "decoder": ("self_attention", "attention", "feed_forward")}
_LINEARS = ("query", "key", "value", "output")
_MODULES = {
    "self_attention": {f"self_attn.linears.{index}": name for index, name in enumerate(_LINEARS)},
    "attention": {f"src_attn.linears.{index}": name for index, name in enumerate(_LINEARS)},
    "feed_forward": {"feed_forward.w_1": "inner", "feed_forward.w_2": "outer"},
}


def _maxout(theirs: str, ours: str) -> NameTable:
    """The LSTM with maxout, whose rows are in our order."""
    return {
        f"{theirs}.{layer}.{kind}": f"{ours}.{kind}_{own}"
        for layer, own in (("i2h", "ih"), ("h2h", "hh"))
        for kind in ("weight", "bias")
    }


def _norm(theirs: str, ours: str) -> NameTable:
    return {f"{theirs}.a_2": f"{ours}.weight", f"{theirs}.b_2": f"{ours}.bias"}


def _transformer_table() -> NameTable:
    table: NameTable = {"model.tgt_embed.1.pe": None}  # computed by its formula
    for side, sublayers in _SUBLAYERS.items():
        theirs, ours = f"model.{side}.layers.*", f"{side}_layers.*"
        table |= _norm(f"model.{side}.norm", f"{side}_norm")
        for index, sublayer in enumerate(sublayers):
            table |= _norm(f"{theirs}.sublayer.{index}.norm", f"{ours}.{sublayer}_residual.norm")
            table |= {f"{theirs}.{name}": f"{ours}.{sublayer}.{own}" for name, own in _MODULES[sublayer].items()}
    return table


_TABLES: dict[str, NameTable] = {
    "newfc": {"fc_embed": "image_to_input", **_maxout("_core", "cells.0")},
    "fc": {"img_embed": "image_to_input", **_maxout("core", "cells.0")},
    "att2in": {**_ATTENTION, **_maxout("core", "lstm"), "core.a2c": "context_to_candidates"},
    "updown": {
        **_ATTENTION, "fc_embed.0": "mean_projection.0", "core.att_lstm": "attention_lstm",
        "core.lang_lstm": "language_lstm",
    },
    "transformer": _transformer_table(),
}  # fmt: skip
_TABLES["att2in2"] = _TABLES["att2in"]


def architecture_of(tensors: SourceTensors) -> str | None:
    """Which of the models the tensors are of; None where they are of none that is imported."""
    return next((name for name, signs in _SIGNS.items() if all(map(tensors.has, signs))), None)


def is_infos(content: object) -> bool:
    """Whether this is the content of an infos file."""
    return isinstance(content, dict) and "opt" in content and "vocab" in content


def convert(tensors: SourceTensors, architecture: str, infos: Mapping[Any, object], file: str) -> Converted:
    """A model of the project as one of ours; a CheckpointError or, of `infos` from the other file, a DataError."""
    options = SourceOptions(infos["opt"], file)
    attends, is_transformer = architecture not in ("newfc", "fc"), architecture == "transformer"
    embedding, output = "embed.0" if architecture in ("att2in2", "updown") else "embed", "logit"
    if is_transformer:
        embedding, output = "model.tgt_embed.0.lut", "model.generator.proj"
    words = _words(infos["vocab"], options, tensors.file, tensors.count_words(embedding, output))
    table = {embedding: "embedding", output: "output", **_TABLES[architecture]}
    if attends:
        config, width = _region_input(tensors, options, table)
    else:
        config = {"name": "nic", "cell": "lstm_maxout", "image": "input"}
        width = tensors.shape("fc_embed.weight" if architecture == "newfc" else "img_embed.weight")[1]
    if is_transformer:
        config = {key: value for key, value in config.items() if key != "project_features"}  # to its size, always
    config |= _transformer(tensors, options) if is_transformer else _recurrent(tensors, options, architecture, table)
    unused = [module for module in _BASE if not any(name.partition(".")[0] == module for name in table)]
    state = tensors.rename({**table, **dict.fromkeys(unused)}, f"{architecture} of {PROJECT.name}")
    words.reorder(state)
    notes, named = [], options.values.get("caption_model")
    if isinstance(named, str) and named.replace("topdown", "updown") != architecture:
        notes.append(f"{file} is of {shorten(named, 40)} and the tensors are not, so the words may be of another run")
    if architecture == "updown":
        _fit_mean_projection(state, config, width, tensors.file)
        regions = "normalised regions" if config["normalise_features"] else "regions"
        notes.append(
            f"fc_feats is the mean of the {regions}, as the project's loader makes it where fc features are not on disk"
        )
    length = 0 if architecture == "fc" else options.whole("max_length", 20, at_most=1000)
    length = length or options.whole("seq_length", 20, at_least=1, at_most=1000)  # of the longest training caption
    features = REGIONS if attends else POOLED
    described, encoder = _FEATURES[features]
    return Converted(
        model=architecture, config=config, feature_size=width, features=features,
        features_described=f"{described}, {width:,} numbers each", encoder_options=encoder, state=state, words=words,
        options=options, decoding={"max_length": length}, notes=notes,
    )  # fmt: skip


def _words(vocabulary: object, options: SourceOptions, weights: str, rows: int) -> SourceWords:
    """The vocabulary of the infos for the rows of the tensors."""
    if isinstance(vocabulary, StandIn):
        vocabulary = {**vocabulary.entries, **vocabulary.attributes}
    entries = list(vocabulary.items()) if isinstance(vocabulary, dict) else []
    if not entries or not all(str(key).isdecimal() and isinstance(word, str) for key, word in entries):
        raise DataError(
            f"The vocabulary (vocab) in {options.file} should be a dict of words by their ids, such as {{'1': 'dog'}}."
        )
    words = {int(str(key)): word for key, word in entries}
    names = {"begin": "bos_idx", "end": "eos_idx", "pad": "pad_idx"}
    marks = {mark: options.whole(name, 0, at_most=rows - 1) for mark, name in names.items()}
    unknown = next((index for index, word in words.items() if word == "UNK"), None)
    if unknown is not None or "unk_idx" in options.values:
        marks["unknown"] = options.whole("unk_idx", unknown or 0, at_most=rows - 1)
    return SourceWords(words, rows, marks, options.file, weights)


# --- settings, of which tensors show the sizes; parts whose names depend on them are added to the table ---


def _region_input(tensors: SourceTensors, options: SourceOptions, table: NameTable) -> tuple[dict[str, Any], int]:
    """Settings that all models that attend share, and the size of a region without its box."""
    before, after = (tensors.has(f"att_embed.{index}.running_mean") for index in (0, 4))
    config: dict[str, Any] = {"input_dropout": 0.0}
    if tensors.has("att_embed."):
        linear = "att_embed.1" if before else "att_embed.0"
        projected, width = tensors.shape(f"{linear}.weight")
        config = {"input_dropout": 0.5, "project_features": projected}
        table |= {linear: "feature_projection.0"}
        table |= {"att_embed.0": "region_input.norm_before"} if before else {}
        table |= {"att_embed.4": "region_input.norm_after"} if after else {}
    else:
        width = tensors.shape("ctx2att.weight")[1]
    boxes = "none"
    if options.whole("use_box", 0, at_most=1):
        boxes = "normalised" if options.whole("norm_box_feat", 0, at_most=1) else "appended"
        width -= BOX_NUMBERS
        if width < 1:
            raise DataError(f"{options.file} has use_box 1, and the regions in {tensors.file} have no room for a box.")
    config["normalise_features"] = bool(options.whole("norm_att_feat", 0, at_most=1))
    config["box_features"] = boxes
    config["feature_batch_norm"] = "before_and_after" if after else "before" if before else "none"
    return config, width


def _recurrent(tensors: SourceTensors, options: SourceOptions, architecture: str, table: NameTable) -> dict[str, Any]:
    embedding = "embed.0.weight" if "embed.0" in table else "embed.weight"
    core = {"newfc": "_core.h2h.weight", "updown": "core.att_lstm.weight_hh"}.get(architecture, "core.h2h.weight")
    config: dict[str, Any] = {"embedding_size": tensors.shape(embedding)[1], "hidden_size": tensors.shape(core)[1]}
    if architecture not in ("newfc", "fc"):
        config["attention_size"] = tensors.shape("ctx2att.weight")[0]
        for bias in ("ctx2att.bias", "core.attention.h2att.bias"):  # which are added: neither may be missing
            tensors.shape(bias, 1)
        config["embedding_relu"] = "embed.0" in table
    if architecture == "updown":
        config |= {"name": "updown", "mean_projection": "own", "attention_bias": True}
    elif architecture in ("att2in", "att2in2"):
        config["name"] = "att2in"
    return config


def _fit_mean_projection(state: dict[str, Tensor], config: dict[str, Any], width: int, file: str) -> None:
    """fc_embed, over the mean of the regions; zeros for the numbers of boxes, where that mean is without them."""
    weight = state["mean_projection.0.weight"]
    wanted = width + (0 if config["box_features"] == "none" else BOX_NUMBERS)
    if weight.shape[1] == width:
        state["mean_projection.0.weight"] = torch.cat([weight, weight.new_zeros(len(weight), wanted - width)], 1)
    elif weight.shape[1] != wanted:
        raise CheckpointError(
            f"{file} reads the whole photo as {weight.shape[1]} numbers (fc_embed) and its regions as {wanted} "
            "(att_embed), so it was trained on two kinds of features; imported are models whose fc_feats is the mean "
            "of the regions."
        )


def _transformer(tensors: SourceTensors, options: SourceOptions) -> dict[str, Any]:
    size = tensors.shape("model.tgt_embed.0.lut.weight")[1]
    inner = tensors.shape("model.decoder.layers.0.feed_forward.w_1.weight")[0]
    layers = {side: tensors.count_layers(f"model.{side}.layers") for side in _SUBLAYERS}
    return {
        "name": "transformer", "hidden_size": size, "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"], "heads": options.whole("num_att_heads", 8, at_least=1),
        "feed_forward_size": inner, "norm": "pre", "layer_norm": "unbiased",
    }  # fmt: skip

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

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from showtell.errors import CheckpointError, DataError, shorten
from showtell.importing.parts import Converted, Parts, Project
from showtell.importing.source_options import SourceOptions
from showtell.importing.source_tensors import SourceTensors
from showtell.importing.source_words import SourceWords, map_words
from showtell.models.region_input import BOX_NUMBERS
from showtell.torch_weights import StandIn

PROJECT = Project("ImageCaptioning.pytorch", "https://github.com/ruotianluo/ImageCaptioning.pytorch", "MIT")
UNKNOWN = "UNK"
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
_BASE = ("embed.", "fc_embed.", "att_embed.", "ctx2att.", "logit.")  # modules that every model of it once had


def architecture_of(tensors: SourceTensors) -> str | None:
    """Which of the models the tensors are of; None where they are of none that is imported."""
    if "model.tgt_embed.0.lut.weight" in tensors and "att_embed.0.weight" in tensors:
        return "transformer"
    if "core.att_lstm.weight_ih" in tensors and "core.lang_lstm.weight_ih" in tensors:
        return "updown"
    if "core.a2c.weight" in tensors:
        return "att2in2" if tensors.has("att_embed.") else "att2in"
    if "_core.i2h.weight" in tensors and "fc_embed.weight" in tensors:
        return "newfc"
    return "fc" if "core.i2h.weight" in tensors and "img_embed.weight" in tensors else None


def convert(tensors: SourceTensors, architecture: str, infos: Mapping[Any, object], file: str) -> Converted:
    """A model of the project as one of ours.

    Args:
        tensors: of the file of weights.
        architecture: from `architecture_of`.
        infos: the content of the other file.
        file: what messages call it.

    Raises:
        CheckpointError: a tensor is missing, has a shape that does not fit, or is one too many.
        DataError: the infos lack something, or are of another model.
    """
    options = SourceOptions.of(infos["opt"], file)
    named = options.text("caption_model")
    if named is not None and _ALIASES.get(named, named) != architecture:
        options.contradictions.append(
            f'{file} has caption_model "{shorten(named, 40)}", and the tensors are those of {architecture}'
        )
    kind = MODELS[architecture]
    words = _words(infos["vocab"], options, tensors, kind)
    parts = kind.convert(tensors, options)
    parts.tensors |= {
        "embedding.weight": words.embedding(tensors.take(kind.embedding, "embedding.weight")),
        "output.weight": words.output_weight(tensors.take(f"{kind.output}.weight", "output.weight")),
        "output.bias": words.output_bias(tensors.take(f"{kind.output}.bias", "output.bias")),
    }
    parts.scores |= _scores(infos)
    for unused in _BASE:
        tensors.leave_out(unused, f"{architecture} does not read it")
    tensors.refuse_rest(f"{architecture} of {PROJECT.name}")
    return Converted(PROJECT, parts, words, options, tensors)


def is_infos(content: object) -> bool:
    """Whether this is the content of an infos file."""
    return isinstance(content, dict) and "opt" in content and "vocab" in content


def _scores(infos: Mapping[Any, object]) -> dict[str, float]:
    """The score by which the run chose its best weights, on its validation images."""
    value = infos.get("best_val_score")
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return {}
    return {"best_val_score": number} if math.isfinite(number) else {}


def _words(
    vocabulary: object, options: SourceOptions, tensors: SourceTensors, architecture: _Architecture
) -> SourceWords:
    """The vocabulary of the infos for the rows of the tensors."""
    file, rows = options.file, tensors.words(architecture.embedding, architecture.output)
    if isinstance(vocabulary, StandIn):
        vocabulary = {**vocabulary.entries, **vocabulary.attributes}
    if not isinstance(vocabulary, dict) or not vocabulary:
        raise DataError(f"The vocabulary (vocab) in {file} should be a dict of ids and words.")
    words: dict[int, str] = {}
    for key, word in vocabulary.items():
        if not str(key).isdecimal() or not isinstance(word, str) or len(str(key)) > 9:
            raise DataError(
                f"The vocabulary (vocab) in {file} should have a word for each id, such as {{'1': 'dog'}}; it has an "
                "entry that is none."
            )
        if int(str(key)) in words:
            raise DataError(f"The vocabulary (vocab) in {file} has the id {int(str(key))} twice.")
        words[int(str(key))] = word
    options.seen("vocab_size", rows - 1, "the rows of the word embeddings")
    marks = {name: options.whole(f"{name}_idx", 0, at_most=rows - 1) for name in ("bos", "eos", "pad")}
    unknown = next((index for index, word in words.items() if word == UNKNOWN), None)
    if "unk_idx" in options:
        unknown = options.whole("unk_idx", 0, at_most=rows - 1)
    return map_words(
        words, rows=rows, begin=marks["bos"], end=marks["eos"], pad=marks["pad"], unknown=unknown, source=file,
        weights=tensors.file,
    )  # fmt: skip


def _max_length(options: SourceOptions) -> int:
    """The option max_length, or where it is 0 the length of the longest caption that the run was trained on."""
    return options.whole("max_length", 20, at_most=1000) or options.whole("seq_length", 20, at_least=1, at_most=1000)


# --- the input of the models that attend ---


def _region_input(tensors: SourceTensors, options: SourceOptions) -> tuple[Parts, int | None]:
    """What all models that attend share, without their name, and the size of the projection, if they have one."""
    norm = tensors.has("att_embed.0.running_mean")
    linear = "att_embed.1" if norm else "att_embed.0"
    projected = width = None
    read: dict[str, Tensor] = {}
    if tensors.has("att_embed."):
        projected, width = tensors.shape(f"{linear}.weight")
        read |= tensors.module(linear, "feature_projection.0")
    if norm:
        read |= tensors.batch_norm("att_embed.0", "region_input.norm_before")
    last = tensors.has("att_embed.4.running_mean")
    if last:
        read |= tensors.batch_norm("att_embed.4", "region_input.norm_after")
    if last and not norm:
        raise CheckpointError(
            f"{tensors.file} has batch norm behind its projection (att_embed.4) and none before it; use_bn "
            "is 0, 1 or 2: the file is damaged."
        )
    if width is not None:
        options.seen("use_bn", 2 if last else 1 if norm else 0, "att_embed")
    else:
        width = tensors.shape("ctx2att.weight")[1]
    options.seen("att_feat_size", width, "att_embed" if projected else "ctx2att")
    boxes = "none"
    if options.whole("use_box", 0, at_most=1):
        boxes = "normalised" if options.whole("norm_box_feat", 0, at_most=1) else "appended"
        width -= BOX_NUMBERS
        if width < 1:
            raise DataError(
                f"{options.file} has use_box 1, and the regions that {tensors.file} takes have "
                f"{width + BOX_NUMBERS} numbers, {BOX_NUMBERS} of which would be those of boxes; give two files that "
                "one run saved."
            )
    config = {
        "normalise_features": bool(options.whole("norm_att_feat", 0, at_most=1)),
        "box_features": boxes,
        "feature_batch_norm": "before_and_after" if last else "before" if norm else "none",
        "input_dropout": options.share("drop_prob_lm", 0.5),
    }
    return _parts("", config, width, REGIONS, read, _max_length(options)), projected


def _parts(name: str, config: dict[str, Any], width: int, features: str, read: dict[str, Tensor], length: int) -> Parts:
    what, encoder = _FEATURES[features]
    return Parts(
        name, config, width, features, f"{what}, {width:,} numbers each", encoder, read, {"max_length": length}
    )


def _attention(tensors: SourceTensors) -> dict[str, Tensor]:
    """w . tanh(W_a a + W_h h + b), whose b is the sum of two there."""
    core, ours = "core.attention", "attention"
    tensors.leave_out(f"{core}.alpha_net.bias", "it cancels in the softmax")
    return {
        f"{ours}.of_features.weight": tensors.take("ctx2att.weight", f"{ours}.of_features.weight"),
        f"{ours}.of_features.bias": tensors.take_sum(
            ("ctx2att.bias", f"{core}.h2att.bias"), f"{ours}.of_features.bias"
        ),
        f"{ours}.of_query.weight": tensors.take(f"{core}.h2att.weight", f"{ours}.of_query.weight"),
        f"{ours}.score.weight": tensors.take(f"{core}.alpha_net.weight", f"{ours}.score.weight"),
    }


def _sizes(tensors: SourceTensors, options: SourceOptions, embedding: str, hidden: str) -> tuple[int, int]:
    """Size of the embeddings and of the LSTM."""
    sizes = tensors.shape(embedding)[1], tensors.shape(hidden)[1]
    options.seen("input_encoding_size", sizes[0], embedding.removesuffix(".weight"))
    options.seen("rnn_size", sizes[1], hidden.removesuffix(".weight"))
    return sizes


def _maxout(tensors: SourceTensors, prefix: str, becomes: str) -> dict[str, Tensor]:
    """The LSTM with maxout, whose rows are in our order."""
    return {
        f"{becomes}.{kind}_{ours}": tensors.take(f"{prefix}.{theirs}.{kind}", f"{becomes}.{kind}_{ours}")
        for theirs, ours in (("i2h", "ih"), ("h2h", "hh"))
        for kind in ("weight", "bias")
    }


# --- the models ---


def _fc(tensors: SourceTensors, options: SourceOptions, *, name: str, core: str, image: str) -> Parts:
    embedding, hidden = _sizes(tensors, options, "embed.weight", f"{core}.h2h.weight")
    width = tensors.shape(f"{image}.weight")[1]
    options.seen("fc_feat_size", width, image)
    config = {
        "name": "nic", "cell": "lstm_maxout", "image": "input", "embedding_size": embedding, "hidden_size": hidden,
        "dropout": options.share("drop_prob_lm", 0.5),
    }  # fmt: skip
    read = {**tensors.module(image, "image_to_input"), **_maxout(tensors, core, "cells.0")}
    length = _max_length(options) if name == "newfc" else options.whole("seq_length", 20, at_least=1, at_most=1000)
    return _parts(name, config, width, POOLED, read, length)


def _newfc(tensors: SourceTensors, options: SourceOptions) -> Parts:
    return _fc(tensors, options, name="newfc", core="_core", image="fc_embed")


def _old_fc(tensors: SourceTensors, options: SourceOptions) -> Parts:
    return _fc(tensors, options, name="fc", core="core", image="img_embed")


def _att2in(tensors: SourceTensors, options: SourceOptions) -> Parts:
    parts, projected = _region_input(tensors, options)
    table = "embed.0.weight" if projected else "embed.weight"
    embedding, hidden = _sizes(tensors, options, table, "core.h2h.weight")
    attention = tensors.shape("ctx2att.weight")[0]
    options.seen("att_hid_size", attention, "ctx2att")
    parts.name = "att2in2" if projected else "att2in"
    parts.config |= {
        "name": "att2in", "embedding_size": embedding, "hidden_size": hidden, "attention_size": attention,
        "project_features": projected, "embedding_relu": projected is not None,
        "dropout": parts.config["input_dropout"],
    }  # fmt: skip
    if not projected:
        parts.config["input_dropout"] = 0.0
    parts.tensors |= {
        **_attention(tensors),
        **_maxout(tensors, "core", "lstm"),
        **tensors.module("core.a2c", "context_to_candidates"),
    }
    return parts


def _updown(tensors: SourceTensors, options: SourceOptions) -> Parts:
    parts, projected = _region_input(tensors, options)
    embedding, hidden = _sizes(tensors, options, "embed.0.weight", "core.att_lstm.weight_hh")
    attention = tensors.shape("ctx2att.weight")[0]
    options.seen("att_hid_size", attention, "ctx2att")
    parts.name = "updown"
    normalised = "normalised " if parts.config["normalise_features"] else ""
    parts.notes.append(
        f"fc_feats is the mean of the {normalised}regions, as the project's loader makes it where fc features are not "
        "on disk"
    )
    parts.config |= {
        "name": "updown", "embedding_size": embedding, "hidden_size": hidden, "attention_size": attention,
        "project_features": projected, "embedding_relu": True, "mean_projection": "own", "attention_bias": True,
        "dropout": parts.config["input_dropout"],
    }  # fmt: skip
    parts.tensors |= {
        **_mean_projection(tensors, options, parts),
        **_attention(tensors),
        **tensors.module("core.att_lstm", "attention_lstm"),
        **tensors.module("core.lang_lstm", "language_lstm"),
    }
    return parts


def _mean_projection(tensors: SourceTensors, options: SourceOptions, parts: Parts) -> dict[str, Tensor]:
    """fc_embed, over the mean of the regions; zeros for the numbers of boxes, where that mean is without them."""
    read = tensors.module("fc_embed.0", "mean_projection.0")
    wanted = parts.feature_size + (0 if parts.config["box_features"] == "none" else BOX_NUMBERS)
    width = tensors.shape("fc_embed.0.weight")[1]
    options.seen("fc_feat_size", width, "fc_embed")
    if width == wanted - BOX_NUMBERS == parts.feature_size:
        weight = read["mean_projection.0.weight"]
        read["mean_projection.0.weight"] = torch.cat([weight, weight.new_zeros(len(weight), BOX_NUMBERS)], 1)
    elif width != wanted:
        raise CheckpointError(
            f"{tensors.file} reads the whole photo as {width} numbers (fc_embed) and its regions as {wanted} "
            "(att_embed), so it was trained on two kinds of features; imported are models whose fc_feats is the mean "
            "of the regions."
        )
    return read


def _transformer(tensors: SourceTensors, options: SourceOptions) -> Parts:
    parts, projected = _region_input(tensors, options)
    size = tensors.shape("model.tgt_embed.0.lut.weight")[1]
    if projected != size:
        raise CheckpointError(
            f"{tensors.file} projects regions to {projected} numbers (att_embed) and its words have {size} "
            "(model.tgt_embed.0.lut): the file is damaged."
        )
    options.seen("d_model" if "d_model" in options else "input_encoding_size", size, "model.tgt_embed.0.lut")
    inner = tensors.shape("model.decoder.layers.0.feed_forward.w_1.weight")[0]
    options.seen("d_ff" if "d_ff" in options else "rnn_size", inner, "model.decoder.layers.0.feed_forward.w_1")
    layers = {}
    for side, option in (("encoder", "N_enc"), ("decoder", "N_dec")):
        layers[side] = tensors.count_layers(f"model.{side}.layers")
        options.seen(option if option in options else "num_layers", layers[side], f"model.{side}.layers")
    heads = options.whole("num_att_heads", 8, at_least=1)
    if size % heads:
        raise DataError(
            f"{options.file} has num_att_heads {heads}, which does not divide the {size} numbers of a vector in "
            f"{tensors.file}; give two files that one run saved."
        )
    parts.name = "transformer"
    parts.config |= {
        "name": "transformer", "hidden_size": size, "encoder_layers": layers["encoder"],
        "decoder_layers": layers["decoder"], "heads": heads, "feed_forward_size": inner, "norm": "pre",
        "layer_norm": "unbiased", "dropout": options.share("dropout", 0.1),
    }  # fmt: skip
    for side in ("encoder", "decoder"):
        for index in range(layers[side]):
            parts.tensors |= _layer(tensors, side, index)
        parts.tensors |= _layer_norm(tensors, f"model.{side}.norm", f"{side}_norm")
    tensors.leave_out("model.tgt_embed.1.pe", "computed by its formula")
    return parts


# The sublayers of a layer of each stack, in their order.
_SUBLAYERS = {
    "encoder": ("self_attention", "feed_forward"),
    "decoder": ("self_attention", "attention", "feed_forward"),
}


def _layer(tensors: SourceTensors, side: str, index: int) -> dict[str, Tensor]:
    prefix, becomes = f"model.{side}.layers.{index}", f"{side}_layers.{index}"
    read: dict[str, Tensor] = {}
    for number, sublayer in enumerate(_SUBLAYERS[side]):
        norm = f"{becomes}.{sublayer}_residual.norm"
        read |= _layer_norm(tensors, f"{prefix}.sublayer.{number}.norm", norm)
        if sublayer == "feed_forward":
            for theirs, ours in (("w_1", "inner"), ("w_2", "outer")):
                read |= tensors.module(f"{prefix}.feed_forward.{theirs}", f"{becomes}.feed_forward.{ours}")
        else:
            source = "self_attn" if sublayer == "self_attention" else "src_attn"
            for place, layer in enumerate(("query", "key", "value", "output")):
                read |= tensors.module(f"{prefix}.{source}.linears.{place}", f"{becomes}.{sublayer}.{layer}")
    return read


def _layer_norm(tensors: SourceTensors, prefix: str, becomes: str) -> dict[str, Tensor]:
    return {
        f"{becomes}.weight": tensors.take(f"{prefix}.a_2", f"{becomes}.weight"),
        f"{becomes}.bias": tensors.take(f"{prefix}.b_2", f"{becomes}.bias"),
    }


@dataclass(frozen=True)
class _Architecture:
    """How a model is converted."""

    convert: Callable[[SourceTensors, SourceOptions], Parts]
    embedding: str  # name of the tensor of word embeddings
    output: str  # name of the output layer


MODELS = {
    "newfc": _Architecture(_newfc, "embed.weight", "logit"),
    "fc": _Architecture(_old_fc, "embed.weight", "logit"),
    "att2in": _Architecture(_att2in, "embed.weight", "logit"),
    "att2in2": _Architecture(_att2in, "embed.0.weight", "logit"),
    "updown": _Architecture(_updown, "embed.0.weight", "logit"),
    "transformer": _Architecture(_transformer, "model.tgt_embed.0.lut.weight", "model.generator.proj"),
}
_ALIASES = {"topdown": "updown"}

"""Reference numbers for `showtell import`: the models of other projects, run by their own code on made-up weights.

    python benchmarks/published_parity.py CHECKOUT --out tests/importing/reference_luo.json

CHECKOUT is a clone of ruotianluo/ImageCaptioning.pytorch (read at 4c48a33) or of
sgrvinod/a-PyTorch-Tutorial-to-Image-Captioning (read at cc9c7e2). Nothing of either is here: the script imports the
checkout, puts numbers into its models that depend on the name and shape of each tensor alone, runs them in double
precision over made-up features, and writes what came out: names and shapes of the tensors, log-probabilities of given
captions and greedy captions. The tests write checkpoints with the same numbers and import them.
"""

from __future__ import annotations

import argparse
import json
import math
import pickle
import sys
import types
import zlib
from argparse import Namespace
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import _threads  # noqa: F401  (first)

import numpy as np
import torch
from torch import Tensor

WORDS = (
    "a", "the", "dog", "cat", "man", "woman", "red", "blue", "ball", "bench", "sits", "runs", "on", "with", "near",
    "of", "two", "UNK",
)  # fmt: skip
FEATURE_SIZE = 10
REGIONS = ((5, 3, 4), (2, 2), (1, 6, 6))  # of the images of each batch
CAPTIONS = ("a dog sits on the bench", "two", "a zebra runs near a red ball", "the man with the cat")

_RECURRENT = {
    "rnn_size": 6, "input_encoding_size": 7, "att_hid_size": 5, "num_layers": 1, "rnn_type": "lstm",
    "fc_feat_size": FEATURE_SIZE, "att_feat_size": FEATURE_SIZE, "drop_prob_lm": 0.5, "max_length": 9, "seq_length": 16,
}  # fmt: skip
_TRANSFORMER = {**_RECURRENT, "N_enc": 2, "N_dec": 2, "d_model": 8, "d_ff": 12, "num_att_heads": 2, "dropout": 0.1}
_BOXES = {"use_box": 1, "att_feat_size": FEATURE_SIZE + 5, "fc_feat_size": FEATURE_SIZE + 5}

# What is run of ImageCaptioning.pytorch: options of a checkpoint.
LUO: dict[str, dict[str, Any]] = {
    "newfc": {**_RECURRENT, "caption_model": "newfc"},
    "newfc, equal sizes, as old options name it": {
        **_RECURRENT, "caption_model": "newfc", "input_encoding_size": 6, "max_length": 0, "seq_length": 5,
    },
    "fc": {**_RECURRENT, "caption_model": "fc"},
    "att2in": {**_RECURRENT, "caption_model": "att2in"},
    "att2in, normalised features": {**_RECURRENT, "caption_model": "att2in", "norm_att_feat": 1},
    "transformer, N_enc is not N_dec": {
        **_TRANSFORMER, "caption_model": "transformer", "N_enc": 1, "N_dec": 3, "num_att_heads": 4, "max_length": 4,
    },
    "transformer, sizes of recurrent models": {
        **_RECURRENT, "caption_model": "transformer", "input_encoding_size": 8, "rnn_size": 12, "num_layers": 2,
    },
    "updown, own ids": {**_RECURRENT, "caption_model": "updown", "bos_idx": 18, "eos_idx": 5, "pad_idx": 0},
    "updown, boxes and a mean without them": {
        **_RECURRENT, **_BOXES, "caption_model": "updown", "fc_feat_size": FEATURE_SIZE,
    },
}  # fmt: skip
for _model, _sizes in {"att2in2": _RECURRENT, "updown": _RECURRENT, "transformer": _TRANSFORMER}.items():
    for _bn in (0, 1, 2):
        LUO[f"{_model}, use_bn {_bn}"] = {**_sizes, "caption_model": _model, "use_bn": _bn}
        LUO[f"{_model}, use_bn {_bn}, normalised features and boxes"] = {
            **_sizes, **_BOXES, "caption_model": _model, "use_bn": _bn, "norm_att_feat": 1, "norm_box_feat": _bn % 2,
        }  # fmt: skip
    LUO[f"{_model}, boxes"] = {**_sizes, **_BOXES, "caption_model": _model, "use_bn": 0}
    LUO[f"{_model}, normalised features"] = {**_sizes, "caption_model": _model, "use_bn": 1, "norm_att_feat": 1}

# What is run of the tutorial: sizes of its decoder, with cells of each side.
SGRVINOD: dict[str, dict[str, Any]] = {
    "soft attention": {"attention_dim": 5, "embed_dim": 7, "decoder_dim": 6, "cells": 3},
    "soft attention, equal sizes": {"attention_dim": 6, "embed_dim": 6, "decoder_dim": 6, "cells": 2},
}
CELL_SIZE = 512  # numbers of a cell: the tutorial's encoder is a ResNet, and this is the smallest one
MAX_LENGTH = 12  # of greedy captions of the tutorial


def numbers(name: str, shape: Sequence[int]) -> np.ndarray:
    """Numbers in [-1, 1) that depend on a name and an index alone: the finaliser of splitmix64."""
    count = math.prod(shape)
    with np.errstate(over="ignore"):
        x = np.arange(count, dtype=np.uint64) + np.uint64(zlib.crc32(name.encode())) * np.uint64(0x9E3779B97F4A7C15)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    return ((x >> np.uint64(11)).astype(np.float64) * 2.0**-52 - 1).reshape(tuple(shape))


def weights(case: str, shapes: dict[str, Sequence[int]]) -> dict[str, Tensor]:
    """Weights far from where a mistake would not show: no bias is 0, no norm is the identity."""
    return {name: torch.from_numpy(np.asarray(_weight(case, name, shape))) for name, shape in shapes.items()}


def _weight(case: str, name: str, shape: Sequence[int]) -> np.ndarray:
    if name.endswith("num_batches_tracked"):
        return np.asarray(7)
    if name.endswith(".pe"):
        position, column = np.arange(shape[1])[:, None], np.arange(shape[2])[None]
        angles = position / 10000 ** (column // 2 * 2 / shape[2])
        return np.where(column % 2, np.cos(angles), np.sin(angles))[None].astype(np.float32)
    drawn = numbers(f"{case} {name}", shape)
    if name.endswith("running_var"):
        return 1.2 + drawn
    if name.endswith("a_2") or (len(shape) == 1 and name.endswith("weight")):
        return 1 + 0.5 * drawn
    return (3 if name.startswith("model.") else 4) / math.sqrt(shape[-1]) * drawn if len(shape) > 1 else 0.8 * drawn


def batch(name: str, regions: Sequence[int]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Features (B, R, D), which of them are there (B, R), and their boxes (B, R, 4) in a photo of 80 x 60."""
    longest = max(regions)
    there = np.arange(longest)[None] < np.asarray(regions)[:, None]
    features = (numbers(f"{name} features", (len(regions), longest, FEATURE_SIZE)) + 0.4) * there[..., None]
    corner = (numbers(f"{name} corners", (len(regions), longest, 2)) + 1) * (20, 15)
    size = (numbers(f"{name} sizes", (len(regions), longest, 2)) + 1.2) * (18, 13)
    return features, there, np.concatenate([corner, corner + size], -1) * there[..., None]


def encode(caption: str, ids: dict[str, int], end: int) -> list[int]:
    """The ids of a caption's words, with the end."""
    return [*(ids.get(word, ids["UNK"]) for word in caption.split()), end]


# --- ImageCaptioning.pytorch ---


def _import_models(checkout: Path, name: str) -> Any:
    """A module of a checkout, with stand-ins for what it imports and does not need here."""
    six, moves = types.ModuleType("six"), types.ModuleType("six.moves")
    six.PY3, six.moves, moves.cPickle = True, moves, pickle  # type: ignore[attr-defined]
    if "six" not in sys.modules:
        sys.modules |= {"six": six, "six.moves": moves}
    sys.path.insert(0, str(checkout))
    return import_module(name)


def luo(checkout: Path) -> dict[str, Any]:
    """The cases of ImageCaptioning.pytorch."""
    models = _import_models(checkout, "captioning.models")
    return {name: _luo_case(models, name, options) for name, options in LUO.items()}


def vocabulary_of(options: dict[str, Any]) -> dict[str, str]:
    """The words of a checkpoint by their ids as text; ids that mark begin and end are no words."""
    marks = {options.get(key, 0) for key in ("bos_idx", "eos_idx", "pad_idx")}
    free = (index for index in range(len(WORDS) + len(marks)) if index not in marks)
    return {str(next(free)): word for word in WORDS}


def luo_inputs(options: dict[str, Any], features: np.ndarray, there: np.ndarray, boxes: np.ndarray) -> list[np.ndarray]:
    """What its loader makes of the arrays: fc_feats and att_feats, normalised, with boxes. Regions keep their order."""
    att = features.copy()
    raw_mean = _mean(att, there)
    if options.get("norm_att_feat"):
        att = att / np.maximum(np.linalg.norm(att, axis=-1, keepdims=True), 1e-12)
    if options.get("use_box"):
        x1, y1, x2, y2 = np.split(boxes / (80, 60, 80, 60), 4, -1)
        five = np.concatenate([x1, y1, x2, y2, (x2 - x1) * (y2 - y1)], -1)
        if options.get("norm_box_feat"):
            five = five / np.maximum(np.linalg.norm(five, axis=-1, keepdims=True), 1e-12)
        att = np.concatenate([att, five], -1)
    fc = _mean(att, there) if att.shape[-1] == options["fc_feat_size"] else raw_mean
    return [fc, att]


def _mean(vectors: np.ndarray, there: np.ndarray) -> np.ndarray:
    return (vectors * there[..., None]).sum(1) / there.sum(1, keepdims=True)


def _luo_case(models: Any, name: str, options: dict[str, Any]) -> dict[str, Any]:
    vocabulary = vocabulary_of(options)
    marks = {options.get(key, 0) for key in ("bos_idx", "eos_idx", "pad_idx")}
    size = len(vocabulary) + len(marks) - 1
    model = models.setup(Namespace(**options, vocab=vocabulary, vocab_size=size)).double().eval()
    shapes = {key: list(tensor.shape) for key, tensor in model.state_dict().items()}
    made = weights(name, shapes)
    for key, tensor in model.state_dict().items():
        if key.endswith(".pe"):
            assert torch.allclose(tensor[:, :99], made[key][:, :99].double(), atol=1e-5)
    model.load_state_dict(made)
    begin, end = options.get("bos_idx", 0), options.get("eos_idx", 0)
    ids = {word: int(index) for index, word in vocabulary.items()}
    targets = [encode(caption, ids, end) for caption in CAPTIONS]
    logprobs, greedy = [], []
    for regions in REGIONS:
        features, there, boxes = batch(name, regions)
        fc, att = map(torch.from_numpy, luo_inputs(options, features, there, boxes))
        masks = torch.from_numpy(there).double()
        words = torch.zeros(len(regions), len(targets), max(map(len, targets)) + 1, dtype=torch.long)
        for row, target in enumerate(targets):
            words[:, row, : len(target) + 1] = torch.tensor([begin, *target])
        with torch.no_grad():
            inputs = words[..., :-1].flatten(0, 1)
            given = model(fc, att, inputs, masks).view(len(regions), len(targets), -1, size + 1)
            if options["caption_model"] == "fc":  # whose own sampling stops with an error
                sampled = _luo_greedy(model, fc, att, options["seq_length"])
            else:
                sampled, _ = model(fc, att, masks, opt={"sample_method": "greedy", "beam_size": 1}, mode="sample")
        for image in range(len(regions)):
            logprobs.append([_picked(given[image, row], target) for row, target in enumerate(targets)])
            row = sampled[image].tolist()
            row = row[: row.index(end)] if end in row else row
            greedy.append(" ".join(vocabulary[str(index)] for index in row))
    return {"vocab_size": size, "tensors": shapes, "logprobs": logprobs, "greedy": greedy}


def _luo_greedy(model: Any, fc: Tensor, att: Tensor, length: int) -> Tensor:
    """Greedy captions of a model by its forward pass."""
    words = torch.zeros(len(fc), 1, dtype=torch.long)
    for _ in range(length):
        words = torch.cat([words, model(fc, att, words)[:, -1:].argmax(-1)], 1)
    return words[:, 1:]


def _picked(logprobs: Tensor, target: Sequence[int]) -> list[float]:
    return [round(float(logprobs[step, word]), 7) for step, word in enumerate(target)]


# --- the tutorial ---


def wordmap() -> dict[str, int]:
    """The words of the tutorial's checkpoint, as it writes them."""
    ids = {word: index for index, word in enumerate((word for word in WORDS if word != "UNK"), start=1)}
    for mark in ("<unk>", "<start>", "<end>"):
        ids[mark] = len(ids) + 1
    return {**ids, "<pad>": 0}


def cells(name: str, side: int, images: int = 2) -> np.ndarray:
    """The features of a grid, (B, side, side, D)."""
    return numbers(f"{name} features", (images, side, side, CELL_SIZE)) + 0.4


def sgrvinod(checkout: Path) -> dict[str, Any]:
    """The cases of the tutorial."""
    models = _import_models(checkout, "models")
    return {name: _sgrvinod_case(models, name, sizes) for name, sizes in SGRVINOD.items()}


def _sgrvinod_case(models: Any, name: str, sizes: dict[str, Any]) -> dict[str, Any]:
    ids = wordmap()
    sizes = dict(sizes)
    features = torch.from_numpy(cells(name, sizes.pop("cells")))
    models.device = torch.device("cpu")
    torch.set_default_dtype(torch.float64)
    decoder = models.DecoderWithAttention(**sizes, vocab_size=len(ids), encoder_dim=CELL_SIZE).eval()
    shapes = {key: list(tensor.shape) for key, tensor in decoder.state_dict().items()}
    decoder.load_state_dict(weights(name, shapes))

    @torch.no_grad()
    def predict(image: int, words: list[int]) -> Tensor:
        """Log-probabilities after each of the words."""
        captions, length = torch.tensor([[*words, 0]]), torch.tensor([[len(words) + 1]])
        result: Tensor = decoder(features[image : image + 1], captions, length)[0][0].log_softmax(-1)
        return result

    begin, end = ids["<start>"], ids["<end>"]
    targets = [encode(caption, {**ids, "UNK": ids["<unk>"]}, end) for caption in CAPTIONS]
    logprobs, greedy = [], []
    names = {index: word for word, index in ids.items()}
    for image in range(len(features)):
        logprobs.append([_picked(predict(image, [begin, *target[:-1]]), target) for target in targets])
        words = [begin]
        while len(words) <= MAX_LENGTH and (word := int(predict(image, words)[-1].argmax())) != end:
            words.append(word)
        greedy.append(" ".join(names[word] for word in words[1:]))
    return {"tensors": shapes, "logprobs": logprobs, "greedy": greedy}


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("checkout", type=Path)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args(arguments)
    cases = luo(options.checkout) if (options.checkout / "captioning").is_dir() else sgrvinod(options.checkout)
    lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    options.out.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
    print(f"{options.out}: {len(cases)} cases, {options.out.stat().st_size:,} bytes")


if __name__ == "__main__":
    main()

"""Reference numbers for CLIPScore: the authors' own code, run on made-up weights.

    python benchmarks/learned_scores_parity.py CLIPSCORE CLIP --out tests/scores/reference_clip.json

The arguments are clones of jmhessel/clipscore (read at 1036465) and openai/CLIP (d05afc4); their code needs ftfy.
Nothing of them is here: the script builds a tiny model whose weights depend on the name and shape of each tensor alone,
with a tokenizer of a few hundred tokens, runs the authors' functions from photos and texts to scores, and writes what
came out. The tests build the same model as a folder of transformers, and score the same photos and texts.
"""

from __future__ import annotations

import argparse
import gzip
import json
import sys
import tempfile
import types
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

WIDTH, LAYERS, PATCH, IMAGE, CONTEXT, SPACE = 64, 2, 32, 224, 77, 32  # of the tiny CLIP; heads have 64 numbers
SEED = "clip8"  # of weights
MERGES = (
    "t h", "th e</w>", "a n", "d o", "do g</w>", "c a", "ca t</w>", "r e", "re d</w>", "i n", "in g</w>", "p h", "ph o",
    "pho t", "phot o</w>", "d e", "de p", "dep i", "depi c", "depic t", "depict s</w>", "o n</w>", "b l", "bl u",
    "blu e</w>",
)  # fmt: skip
IDS = ("wide", "tall", "grey", "square", "long", "empty", "odd")
CAPTIONS = (
    "a red dog on the blue grass", "A cat, sleeping.", "the photo", "two dogs & one cat  running",
    " ".join(["a dog on the red photo"] * 30), "", "the dog’s “red” ball &amp; naïve café",
)  # fmt: skip
REFERENCES = (
    ("a dog on the grass", "the red dog runs", "a blue cat"), ("a cat is sleeping on the photo", "the cat"),
    ("a photo of the sea",), ("dogs and a cat", "the dog running", "two cats", "red"),
    ("a dog on a photo", " ".join(["the blue cat"] * 40)), ("a dog", "the cat on the photo"),
    ("the dog and a ball", ""),
)  # fmt: skip


# --- made-up weights, photos and tokenizers ---


def weight(name: str, shape: Sequence[int]) -> Tensor:
    """A tensor that depends on its name and shape alone, in values that half precision has."""
    numbers = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(tuple(shape))
    is_norm = "ln_" in name
    scale = 0.1 if len(shape) < 2 else 1.5 / np.prod(shape[1:]) ** 0.5
    values = numbers * scale + (1.0 if is_norm and name.endswith("weight") else 0.0)
    return torch.from_numpy(np.asarray(values, np.float16).astype(np.float32))


def openai_weights() -> dict[str, Tensor]:
    """The state dict of the tiny CLIP in the layout of OpenAI's code."""
    shapes: dict[str, tuple[int, ...]] = {
        "positional_embedding": (CONTEXT, WIDTH), "text_projection": (WIDTH, SPACE), "logit_scale": (),
        "token_embedding.weight": (len(clip_vocabulary()), WIDTH), "ln_final.weight": (WIDTH,),
        "ln_final.bias": (WIDTH,),
        "visual.class_embedding": (WIDTH,), "visual.positional_embedding": ((IMAGE // PATCH) ** 2 + 1, WIDTH),
        "visual.proj": (WIDTH, SPACE), "visual.conv1.weight": (WIDTH, 3, PATCH, PATCH),
    }  # fmt: skip
    for norm in ("visual.ln_pre", "visual.ln_post"):
        shapes |= {f"{norm}.weight": (WIDTH,), f"{norm}.bias": (WIDTH,)}
    for tower in ("transformer", "visual.transformer"):
        for layer in range(LAYERS):
            stem = f"{tower}.resblocks.{layer}"
            matrices = {
                "attn.in_proj_": (3 * WIDTH, WIDTH), "attn.out_proj.": (WIDTH, WIDTH), "mlp.c_fc.": (4 * WIDTH, WIDTH),
                "mlp.c_proj.": (WIDTH, 4 * WIDTH),
            }  # fmt: skip
            for name, shape in matrices.items():
                shapes |= {f"{stem}.{name}weight": shape, f"{stem}.{name}bias": shape[:1]}
            for norm in ("ln_1", "ln_2"):
                shapes |= {f"{stem}.{norm}.weight": (WIDTH,), f"{stem}.{norm}.bias": (WIDTH,)}
    return {name: weight(SEED + name, shape) for name, shape in shapes.items()}


def byte_letters() -> list[str]:
    """The 256 letters that stand for bytes in OpenAI's vocabularies, in their order there."""
    plain = [*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)]
    return [*map(chr, plain), *(chr(256 + number) for number in range(256 - len(plain)))]


def clip_vocabulary() -> list[str]:
    """The tokens of the tiny CLIP."""
    letters = byte_letters()
    merged = ["".join(merge.split()) for merge in MERGES]
    return [*letters, *(f"{letter}</w>" for letter in letters), *merged, "<|startoftext|>", "<|endoftext|>"]


def photos(folder: Path) -> list[Path]:
    """Photos of several shapes and modes as PNG files."""
    sizes = ((300, 231), (97, 411), (250, 227), (224, 224), (640, 225), (120, 90), (333, 500))
    paths = []
    for number, (name, size) in enumerate(zip(IDS, sizes, strict=True)):
        blocks = np.random.default_rng(number).integers(0, 256, (7, 9, 3), dtype=np.uint8)
        photo = Image.fromarray(blocks).resize(size, Image.Resampling.BILINEAR)
        paths.append(folder / f"{name}.png")
        (photo.convert("L") if name == "grey" else photo).save(paths[-1])
    return paths


def write_clip(folder: Path, tensors: dict[str, Tensor]) -> Path:
    """The tiny CLIP as a folder of transformers, with tensors by the names of these."""
    folder.mkdir(parents=True)
    vocabulary = {token: number for number, token in enumerate(clip_vocabulary())}
    ends = {"bos_token_id": len(vocabulary) - 2, "eos_token_id": len(vocabulary) - 1, "pad_token_id": 1}
    sizes = {
        "hidden_size": WIDTH, "intermediate_size": 4 * WIDTH, "num_hidden_layers": LAYERS,
        "num_attention_heads": WIDTH // 64,
    }  # fmt: skip
    config: dict[str, Any] = {
        "model_type": "clip", "architectures": ["CLIPModel"], "projection_dim": SPACE,
        "text_config": {
            "model_type": "clip_text_model", **sizes, "vocab_size": len(vocabulary), "projection_dim": SPACE,
            "max_position_embeddings": CONTEXT, **ends, "hidden_act": "quick_gelu",
        },
        "vision_config": {
            "model_type": "clip_vision_model", **sizes, "image_size": IMAGE, "patch_size": PATCH,
            "projection_dim": SPACE, "hidden_act": "quick_gelu",
        },
    }  # fmt: skip
    processor = {
        "image_processor_type": "CLIPImageProcessor", "do_resize": True, "size": {"shortest_edge": IMAGE},
        "do_center_crop": True, "crop_size": {"height": IMAGE, "width": IMAGE}, "resample": 3, "do_rescale": True,
        "do_normalize": True, "image_mean": [0.48145466, 0.4578275, 0.40821073],
        "image_std": [0.26862954, 0.26130258, 0.27577711], "do_convert_rgb": True,
    }  # fmt: skip
    tokenizer = {
        "tokenizer_class": "CLIPTokenizer", "bos_token": "<|startoftext|>", "eos_token": "<|endoftext|>",
        "unk_token": "<|endoftext|>", "pad_token": "<|endoftext|>", "model_max_length": CONTEXT,
    }  # fmt: skip
    contents = {
        "config.json": config, "preprocessor_config.json": processor, "tokenizer_config.json": tokenizer,
        "vocab.json": vocabulary,
    }  # fmt: skip
    for name, content in contents.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES, ""]), encoding="utf-8")
    from safetensors.torch import save_file

    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder


# --- the authors' code ---


def import_clipscore(clipscore: Path, clip: Path) -> tuple[Any, Any]:
    """The authors' module of CLIPScore, and OpenAI's of CLIP, which it needs."""
    import packaging.version
    import torchvision  # noqa: F401  (torch looks at what is installed before something stands in for it)

    resources = types.ModuleType("pkg_resources")  # which setuptools no longer has
    resources.packaging = packaging  # type: ignore[attr-defined]
    normalising = types.ModuleType("sklearn.preprocessing")
    normalising.normalize = None  # type: ignore[attr-defined]  # called with NumPy before 1.21 alone
    sklearn = types.ModuleType("sklearn")
    sklearn.preprocessing = normalising  # type: ignore[attr-defined]
    sys.modules |= {"pkg_resources": resources, "sklearn": sklearn, "sklearn.preprocessing": normalising}
    sys.path[:0] = [str(clipscore), str(clip)]

    import clip as openai_clip
    import clipscore as published

    return published, openai_clip


def run_clip(clipscore: Path, clip: Path) -> dict[str, Any]:
    """CLIPScore with and without references, of each image, by the authors' code."""
    published, openai_clip = import_clipscore(clipscore, clip)
    numbers: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as temporary:
        paths = [str(path) for path in photos(Path(temporary))]
        vocabulary = Path(temporary) / "bpe.txt.gz"
        with gzip.open(vocabulary, "wt", encoding="utf-8") as stream:
            stream.write("\n".join(['"version"', *MERGES]))
        openai_clip.clip._tokenizer = openai_clip.simple_tokenizer.SimpleTokenizer(str(vocabulary))

        model = openai_clip.model.build_model(openai_weights()).float().eval()
        _, per_image, features = published.get_clip_score(model, paths, list(CAPTIONS), "cpu")
        _, of_texts = published.get_refonlyclipscore(model, [list(texts) for texts in REFERENCES], features, "cpu")
        numbers["clip_score"], numbers["ref_clip_score"] = both(per_image, of_texts)
    return numbers


def both(of_photos: Iterable[float], of_texts: Iterable[float]) -> tuple[list[float], list[float]]:
    """The scores without references, and with them as the authors' scripts put the two together."""
    photos_, texts = np.array(list(of_photos), np.float64), np.array(list(of_texts), np.float64)
    return photos_.tolist(), (2 * photos_ * texts / (photos_ + texts)).tolist()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("paths", type=Path, nargs=2)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    numbers = run_clip(*arguments.paths)
    text = json.dumps(numbers, indent=1) + "\n"
    if arguments.out is None:
        print(text)
    else:
        arguments.out.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()

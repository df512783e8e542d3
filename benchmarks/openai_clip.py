"""Weights of OpenAI's CLIP, or of open_clip's, as a folder of transformers, for `--clip-model`.

    python benchmarks/openai_clip.py ViT-B-32.pt openai/clip-vit-base-patch32 clip

The second argument is the CLIP whose architecture, tokenizer and preprocessing the weights have: a folder of
transformers, or a repository on the Hub.
"""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Mapping
from pathlib import Path

from showtell.hub import repository_folder
from showtell.torch_weights import read_torch_file

from safetensors.torch import save_file
from torch import Tensor

_RENAMED = (  # in this order
    ("visual.transformer.resblocks.", "vision_model.encoder.layers."),
    ("visual.conv1.weight", "vision_model.embeddings.patch_embedding.weight"),
    ("visual.class_embedding", "vision_model.embeddings.class_embedding"),
    ("visual.positional_embedding", "vision_model.embeddings.position_embedding.weight"),
    ("visual.ln_pre.", "vision_model.pre_layrnorm."), ("visual.ln_post.", "vision_model.post_layernorm."),
    ("visual.proj", "visual_projection.weight"), ("transformer.resblocks.", "text_model.encoder.layers."),
    ("token_embedding.weight", "text_model.embeddings.token_embedding.weight"),
    ("positional_embedding", "text_model.embeddings.position_embedding.weight"),
    ("ln_final.", "text_model.final_layer_norm."), ("text_projection", "text_projection.weight"),
    (".attn.out_proj.", ".self_attn.out_proj."), (".mlp.c_fc.", ".mlp.fc1."), (".mlp.c_proj.", ".mlp.fc2."),
    (".ln_1.", ".layer_norm1."), (".ln_2.", ".layer_norm2."),
)  # fmt: skip


def from_openai(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of OpenAI's CLIP, or of open_clip's, under the names of transformers."""
    converted: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        tensor = tensor.float()
        if name in ("visual.proj", "text_projection"):  # which the code multiplies from the right
            tensor = tensor.T.contiguous()
        for old, new in _RENAMED:
            name = name.replace(old, new)
        layer, is_packed, kind = name.partition(".attn.in_proj_")
        if is_packed:
            for projection, part in zip("qkv", tensor.chunk(3), strict=True):
                converted[f"{layer}.self_attn.{projection}_proj.{kind}"] = part.clone()
        else:
            converted[name] = tensor
    return converted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weights", type=Path)
    parser.add_argument("base")
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    content = read_torch_file(arguments.weights)
    content = content.get("state_dict", content)
    converted = from_openai({name: tensor for name, tensor in content.items() if isinstance(tensor, Tensor)})
    base = Path(arguments.base) if Path(arguments.base).is_dir() else repository_folder(arguments.base)
    arguments.out.mkdir(parents=True)
    for file in (*base.glob("*.json"), *base.glob("*.txt")):
        shutil.copy(file, arguments.out)
    save_file(converted, arguments.out / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()

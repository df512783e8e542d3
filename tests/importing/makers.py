"""Files of other projects as their code writes them, with made-up weights."""

import json
import pickle
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

from published_parity import LUO, vocabulary_of, weights, wordmap
from showtell.files import write_json


@cache
def reference(project: str) -> dict[str, Any]:
    """What the project's own code gives, by benchmarks/published_parity.py."""
    return json.loads(Path(__file__).with_name(f"reference_{project}.json").read_text(encoding="utf-8"))


def luo_tensors(case: str) -> OrderedDict[str, Tensor]:
    """The state dict of a case, in single precision."""
    made = weights(case, reference("luo")[case]["tensors"])
    return OrderedDict((name, one.float() if one.is_floating_point() else one) for name, one in made.items())


def luo_infos(case: str, **changes: Any) -> dict[str, Any]:
    """The infos of a case, with other options."""
    options = {**LUO[case], "vocab_size": reference("luo")[case]["vocab_size"], **changes}
    return {"epoch": 2, "vocab": vocabulary_of(LUO[case]), "opt": Namespace(**options)}


def write_luo(folder: Path, case: str, tensors: Any = None, infos: Any = None, **save: Any) -> Path:
    """The two files of a run; gives the file of weights."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "model-best.pth"
    torch.save(luo_tensors(case) if tensors is None else tensors, file, **save)
    infos = luo_infos(case) if infos is None else infos
    (folder / "infos_run-best.pkl").write_bytes(pickle.dumps(infos, protocol=2))
    return file


class Encoder(nn.Module):
    def __init__(self, resnet: nn.Module, cells: int) -> None:
        super().__init__()
        self.enc_image_size = cells
        self.resnet = nn.Sequential(*list(resnet.children())[:-2])
        self.adaptive_pool = nn.AdaptiveAvgPool2d((cells, cells))


class DecoderWithAttention(nn.Module):
    """With a module for each part of the tensors' names."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        super().__init__()
        for name, tensor in tensors.items():
            module: nn.Module = self
            *parents, own = name.split(".")
            for parent in parents:
                if not hasattr(module, parent):
                    module.add_module(parent, nn.Module())
                module = module.get_submodule(parent)
            module.register_parameter(own, nn.Parameter(tensor.float()))


def resnet18() -> nn.Module:
    """A ResNet-18 of torchvision whose norms are not the identity."""
    torch.manual_seed(0)
    made = torchvision.models.resnet18(weights=None)
    for module in made.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.normal_(0, 0.1)
            module.running_var.uniform_(0.5, 1.5)
    return made


def write_tutorial(folder: Path, case: str, **save: Any) -> Path:
    """A checkpoint of the tutorial with a ResNet-18, in the format before torch 1.6, and its word map."""
    folder.mkdir(parents=True, exist_ok=True)
    made = DecoderWithAttention(weights(case, reference("sgrvinod")[case]["tensors"]))
    content = {
        "epoch": 3, "epochs_since_improvement": 0, "bleu-4": 0.2325, "encoder": Encoder(resnet18(), 14),
        "decoder": made, "encoder_optimizer": None, "decoder_optimizer": torch.optim.Adam(made.parameters()),
    }  # fmt: skip
    file = folder / "BEST_checkpoint_toy.pth.tar"
    torch.save(content, file, **{"_use_new_zipfile_serialization": False, **save})
    write_json(folder / "WORDMAP_toy.json", wordmap())
    return file

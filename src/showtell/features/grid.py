"""Grid features: one vector per cell of a convolutional map or per patch of a transformer.

Two encoders: `small_cnn`, ours, for small pictures, trained from scratch in minutes; and any backbone of timm by its
name (`resnet101`, `vgg19`, `vit_small_patch14_dinov2`, ...), at any of its stages, with its own preprocessing.
"""

from __future__ import annotations

import abc
import math
import re
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import timm
import timm.data
import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from showtell.config import Pixels, Size
from showtell.errors import RecipeError, WeightsError, nearest
from showtell.features.contract import Encoder, EncoderConfig
from showtell.features.weights import HUB_FILES, from_hub, from_url, read_weights
from showtell.features.weights import load_weights as fit_weights
from showtell.images.preprocessing import Preprocessing
from showtell.types import Features, PreparedBatch


class SmallCnnConfig(EncoderConfig):
    """A small convolutional encoder for small pictures."""

    name: Literal["small_cnn"] = "small_cnn"
    image_size: Pixels = Field(96, ge=16, description="Pixels of each side of the input.")
    widths: tuple[Size, ...] = Field(
        (32, 64, 128, 256),
        min_length=1,
        max_length=16,
        description="Channels of each stage; each stage halves the feature map.",
    )
    norm: Literal["batch", "none"] = Field(
        "batch", description="Normalisation after each convolution: batch norm, or none, which adds a bias instead."
    )
    stage: int = Field(
        -1, description="Stage that returns the feature map, counted from 0; -1 is the last, with one more convolution."
    )
    places: bool = Field(True, description="Add a learned position embedding to each grid cell.")
    weights: str = Field(
        "random",
        min_length=1,
        description="`random`, or a file of weights; those of a run's encoder are in RUN/best/model.safetensors.",
    )

    @model_validator(mode="after")
    def _has_the_stage(self) -> Self:
        stages = len(self.widths)
        if not -stages <= self.stage < stages:
            raise ValueError(
                f"stage={self.stage}: widths make {stages} maps, numbered 0 to {stages - 1} or, from the last, -1 to "
                f"-{stages}"
            )
        return self


Stage = int | str  # the number of a feature map, or the name of a module


class TimmConfig(EncoderConfig):
    """A backbone of timm."""

    name: str = Field(description="Name of the backbone in timm.")
    weights: str = Field(
        "pretrained",
        min_length=1,
        description="`pretrained`, `random`, or a file of weights (.safetensors, .pth, .pt, .bin).",
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
        "fp32", description="Precision of the backbone's matrix products; bf16 is faster on many processors."
    )
    frozen_batch_norm: bool = Field(False, description="Keep the batch norm statistics of trained stages fixed.")

    @field_validator("trained", mode="before")
    @classmethod
    def _in_words(cls, value: Any) -> Any:
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


class GridEncoder(Encoder, abc.ABC):
    """Images to one vector per grid cell, row by row."""

    stride: int  # pixels of the image between the cells of the map
    grid: int | None = None  # cells of each side to which the map is pooled; None: as it comes

    @abc.abstractmethod
    def maps(self, images: Tensor) -> Tensor:
        """Normalised images (B, 3, height, width) to feature maps (B, D, rows, columns)."""

    def grid_of(self, cells: int) -> tuple[int, int]:
        """(rows, columns) of so many cells: images are squares."""
        side = math.isqrt(cells)
        return (side, side)

    def forward(self, batch: PreparedBatch) -> Features:
        """Features with R = rows x columns, row by row from the upper left. Windows and boxes change nothing."""
        assert isinstance(batch.images, Tensor), "squares are of one size"
        pixels = self.preprocessing.normalise(batch.images).to(memory_format=torch.channels_last)
        if self.config.trained:
            maps = self.maps(pixels)
        else:
            with torch.no_grad():
                maps = self.maps(pixels)
        vectors = maps.flatten(2).transpose(1, 2).contiguous()
        return Features(vectors, vectors.new_ones(vectors.shape[:2], dtype=torch.bool))

    def rectangles(self, features: Features, windows: Tensor) -> Tensor:
        """The rectangle of each cell; what a convolution sees beyond its cell is not counted.

        Where the map is not a multiple of the grid to which it is pooled, cells overlap, as adaptive pooling has it.
        """
        first, last = self._edges(self.grid_of(features.vectors.shape[1])[0]).to(windows.device)
        rows, columns = torch.cartesian_prod(torch.arange(len(first)), torch.arange(len(first))).unbind(-1)
        shares = torch.stack((first[columns], first[rows], last[columns], last[rows]), -1)  # (R, 4) of the window
        corner, size = windows[:, :2].double(), (windows[:, 2:] - windows[:, :2]).double()
        return (corner.repeat(1, 2)[:, None] + size.repeat(1, 2)[:, None] * shares).float()

    def _edges(self, cells: int) -> Tensor:
        """Where the cells of a row begin and end, (2, cells), as shares of the image's side."""
        size = self.preprocessing.image_size
        side = cells if self.grid is None else math.ceil(size / self.stride)  # of the map, before pooling
        if side == math.ceil(size / self.stride):
            borders = (torch.arange(side + 1).double() * self.stride).clamp(max=size) / size
        else:  # of a backbone that does not pad its pictures, and whose cells lie closer together
            borders = torch.arange(side + 1).double() / side
        cell = torch.arange(cells)
        return torch.stack((borders[cell * side // cells], borders[-(-(cell + 1) * side // cells)]))


class SmallCnn(GridEncoder):
    """Halve the map and widen it, a few times: a 3x3 convolution with stride 2, batch norm, ReLU, and another 3x3.

    Norms within an image (group, layer) lose the colour of flat shapes: after 400 steps on scenes they had learned a
    third of what batch norm had (docs/lab_notes.md). Without any norm an image's features do not depend on its batch,
    and learning is a little slower. A learned vector for each place of the grid is added, because captions speak of
    places ("left of") and attention alone does not see them.
    """

    config: SmallCnnConfig

    def __init__(self, config: SmallCnnConfig, load_weights: bool = True) -> None:
        super().__init__()
        self.config = config
        last = len(config.widths) - 1
        stage = range(len(config.widths))[config.stage]
        widths = config.widths[: stage + 1]
        self.feature_size = widths[-1]
        self.preprocessing = Preprocessing(
            image_size=config.image_size,
            resize="squash",
            interpolation="bilinear",
            mean=(0.5, 0.5, 0.5),
            deviation=(0.25, 0.25, 0.25),
        )
        layers: list[nn.Module] = []
        before = 3
        for width, stride in [*((width, 2) for width in widths), *([(widths[-1], 1)] if stage == last else [])]:
            convolution = nn.Conv2d(before, width, 3, stride=stride, padding=1, bias=config.norm == "none")
            nn.init.kaiming_normal_(convolution.weight, nonlinearity="relu")
            norm = [nn.BatchNorm2d(width)] if config.norm == "batch" else []
            layers += [convolution, *norm, nn.ReLU(inplace=True)]
            before = width
        self.layers = nn.Sequential(*layers)
        self.stride = 2 ** len(widths)
        side = config.image_size
        for _ in widths:
            side = (side + 1) // 2
        self.places = nn.Parameter(0.02 * torch.randn(before, side, side)) if config.places else None
        if load_weights and config.weights != "random":
            self._load(Path(config.weights).expanduser())
        self.to(memory_format=torch.channels_last)

    def _load(self, file: Path) -> None:
        """Take the weights of an encoder of these widths, which may have later stages and places that this one lacks.

        Raises:
            WeightsError: the file cannot be read, or its weights are not of this encoder.
        """
        tensors = read_weights(file)
        of_a_checkpoint = {
            name.removeprefix("encoder."): tensor for name, tensor in tensors.items() if name.startswith("encoder.")
        }
        later = [f"layers.{layer}." for layer in range(len(self.layers), 3 * len(self.config.widths) + 3)]
        fit_weights(
            self, of_a_checkpoint or tensors, source=str(file), name="small_cnn with these settings",
            unused=[*later, *([] if self.config.places else ["places"])],
        )  # fmt: skip

    def maps(self, images: Tensor) -> Tensor:
        """(B, 3, S, S) to (B, D, S / 2**stages, S / 2**stages), rounded up; stages are those up to the chosen one."""
        maps = self.layers(images)
        return maps if self.places is None else maps + self.places


class TimmGrid(GridEncoder):
    """A backbone of timm, cut behind one of its stages; for the last stage of a transformer with its final norm.

    The maps are those of timm's `forward_intermediates`: class and register tokens are left out, tokens lie row by row.
    """

    config: TimmConfig

    def __init__(self, config: TimmConfig, load_weights: bool) -> None:
        super().__init__()
        self.config = config
        self.backbone: Any = _create(config)
        stages = self.backbone.feature_info
        self.stage = range(len(stages))[config.stage]
        self.with_norm = self.stage == len(stages) - 1
        known = set(self.backbone.state_dict())  # before the cut
        settings = timm.data.resolve_model_data_config(self.backbone)
        if load_weights and config.weights != "random":
            file = _weights_file(config, self.backbone.pretrained_cfg)
            tensors = _as_timm_names(read_weights(file), self.backbone, file)
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
        return Path(config.weights)
    if settings.get("hf_hub_id"):
        named = settings.get("hf_hub_filename")
        return from_hub(settings["hf_hub_id"], (named,) if named else HUB_FILES)
    if settings.get("url"):
        return from_url(settings["url"])
    raise RecipeError(
        f"timm has no pretrained weights of {config.name}: set encoder.weights to random or to a file, or take another "
        f"backbone (timm.list_pretrained())."
    )


def _as_timm_names(tensors: dict[str, Tensor], backbone: nn.Module, file: Path) -> dict[str, Tensor]:
    """Tensors as timm names them, from other authors' names, with position embeddings in the backbone's size."""
    for kind in type(backbone).__mro__:
        translate = getattr(sys.modules[kind.__module__], "checkpoint_filter_fn", None)  # timm's name for it
        if translate is not None:
            try:
                return translate(tensors, backbone)
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
    found: dict[str, float | None] = {}
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
        found |= dict.fromkeys(within, rate)
    return found


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
    last = [max(place for place, name in enumerate(names) if f"{name}.".startswith(f"{end}.")) for end in ends]
    first = last[stage - 1] + 1 if stage else 0
    return list(names[first:] if stage == len(ends) - 1 else names[first : last[stage] + 1])

"""The frozen records that travel between the stages, with a shape for each field.

Letters: B images, N rows of an image (captions, samples or beams), T words, R regions or grid cells,
D feature size, V vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Self, TypeVar

import torch
from torch import Tensor

RecordT = TypeVar("RecordT")


def map_tensors(record: RecordT, function: Callable[..., Tensor], *others: RecordT) -> RecordT:
    """Apply a function to every tensor of a record, nested records, tuples and dicts included; the rest stays.

    With further records of the same structure, the function gets the matching tensors of all of them.
    """
    if record is None or isinstance(record, str | int):
        return record
    if isinstance(record, Tensor):
        return function(record, *others)  # type: ignore[return-value]
    if isinstance(record, dict):
        return {name: map_tensors(x, function, *[o[name] for o in others]) for name, x in record.items()}  # type: ignore
    if isinstance(record, tuple):
        matching: Any = zip(record, *others, strict=True)
        return tuple(map_tensors(first, function, *rest) for first, *rest in matching)  # type: ignore[return-value]
    fields: dict[str, Any] = vars(record)
    return type(record)(**{n: map_tensors(x, function, *[getattr(o, n) for o in others]) for n, x in fields.items()})


def tensors_of(record: Any) -> list[Tensor]:
    """The tensors of a record, in the order of `map_tensors`."""
    tensors: list[Tensor] = []
    map_tensors(record, lambda x: tensors.append(x) or x)  # type: ignore[func-returns-value]
    return tensors


class TensorRecord:
    """A record whose `repr` gives shapes instead of numbers: `Features(vectors=float32 (2, 36, 512), ...)`."""

    def __repr__(self) -> str:
        fields = (f"{name}={_shape_of(value)}" for name, value in vars(self).items())
        return f"{type(self).__name__}({', '.join(fields)})"


def _shape_of(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_shape_of, value))})"
    return repr(value)


_PRECISIONS = {torch.float32: "fp32", torch.float16: "fp16", torch.bfloat16: "bf16"}


def precision_name(dtype: str | torch.dtype | None) -> str | None:
    """The name of a precision: "bf16" of torch.bfloat16; a name, or None, stays."""
    return _PRECISIONS.get(dtype, str(dtype)) if isinstance(dtype, torch.dtype) else dtype


def upcast_half(tensor: Tensor) -> Tensor:
    """Half precision, in which features are kept, as single precision, in which they are computed with."""
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def stack_over_time(records: Sequence[RecordT]) -> RecordT:
    """Stack the records of T steps, each (B, N, ...), into one (B, N, T, ...)."""
    return map_tensors(records[0], lambda *tensors: torch.stack(tensors, dim=2), *records[1:])


def unstack(record: RecordT) -> list[RecordT]:
    """The records of T steps, each (...), of one whose tensors are (T, ...)."""
    steps = [iter(step) for step in zip(*map(Tensor.unbind, tensors_of(record)), strict=True)]
    return [map_tensors(record, lambda _, step=step: next(step)) for step in steps]


@dataclass(frozen=True, repr=False)
class PreparedBatch(TensorRecord):
    """B photos as an encoder takes them."""

    images: Tensor | tuple[Tensor, ...]  # (B, 3, height, width) uint8, or B of (3, height, width), prepared
    windows: Tensor  # (B, 4) the part of each photo that its image shows: left, top, right, bottom in its pixels

    @classmethod
    def of(cls, images: Tensor | Sequence[Tensor], windows: Tensor | None = None) -> Self:
        """Prepared images; without windows each of them is the whole photo."""
        if windows is None:
            whole = [(0, 0, image.shape[-1], image.shape[-2]) for image in images]
            windows = torch.tensor(whole, dtype=torch.float32, device=images[0].device)
        return cls(images if isinstance(images, Tensor) else tuple(images), windows)

    def __len__(self) -> int:
        return len(self.windows)

    @property
    def sizes(self) -> list[tuple[int, int]]:
        """(height, width) of each image."""
        return [(image.shape[-2], image.shape[-1]) for image in self.images]

    def to(self, device: torch.device) -> Self:
        """The same batch on a device."""
        return map_tensors(self, lambda tensor: tensor.to(device))


@dataclass(frozen=True, repr=False)
class Regions(TensorRecord):
    """Boxes, scores, labels and attributes of a detector's regions."""

    boxes: Tensor  # (B, R, 4) left, top, right, bottom in pixels of the upright photo
    scores: Tensor | None = None  # (B, R) of the class that the detector is surest of, 0 to 1
    labels: Tensor | None = None  # (B, R) int64, which of the encoder's categories; -1 for none
    windows: Tensor | None = None  # (B, 4) the part of each photo that was seen, in its pixels; None: not known
    attributes: Tensor | None = None  # (B, R) int64, which of the encoder's attributes; -1 for none


@dataclass(frozen=True, repr=False)
class Features(TensorRecord):
    """The feature vectors of B images."""

    vectors: Tensor  # (B, R, D) one vector per region or grid cell
    is_region: Tensor  # (B, R) bool, True where there is a vector; the rest is padding
    regions: Regions | None = None  # None for a grid


@dataclass(frozen=True, repr=False)
class EncodedBatch(TensorRecord):
    """The features of B photos, with the photos where they were encoded here."""

    features: Features
    windows: Tensor  # (B, 4) the part of each photo that was seen, in pixels of the photo
    photos: PreparedBatch | None = None  # None: the features were read from a store
    names: tuple[str, ...] | None = None  # B image ids of the store
    categories: tuple[str, ...] = ()  # of the store, which the labels of its regions are indices into
    attributes: tuple[str, ...] = ()  # of the store, which the attributes of its regions are indices into


# Which words of a caption name an object: its nouns; every word of a phrase; and the words between two phrases too.
NamingWords = Literal["nouns", "phrases", "links"]


@dataclass(frozen=True, repr=False)
class Mentions(TensorRecord):
    """Which words of the captions of B images name which objects, M sets of at most K boxes for each image."""

    indices: Tensor  # (B, N, T) int64, which set of boxes each of `Batch.targets` names; -1: none
    boxes: Tensor  # (B, M, K, 4) corners in pixels of the upright photo; a smaller set repeats its first box
    windows: Tensor  # (B, 4) the part of each photo that its image shows, in pixels of the photo
    targets: Tensor | None = None  # (B, M, R) in [0, 1], how much of each region is the object; None: not located yet


@dataclass(frozen=True)
class Counts:
    """Numbers of words, captions and images in an optimiser step, by which the terms of an objective are divided."""

    words: Tensor  # () targets that are not padding
    captions: Tensor  # ()
    images: Tensor  # ()


@dataclass(frozen=True, repr=False)
class Batch(TensorRecord):
    """B images with N captions each."""

    image_ids: tuple[str, ...]  # B
    # (B, 3, height, width) uint8, or B of (3, height, width); None where the features were read from a store
    images: Tensor | tuple[Tensor, ...] | None
    words: Tensor  # (B, N, T + 1) int64: begin, the words, end, then pad
    is_caption: Tensor  # (B, N) bool, True where the image has this caption; the rest is padding
    features: Features | None = None  # in the precision of the store until they are moved to a device
    counts: Counts | None = None  # of all batches of its step, on all processes; None: it is the only one
    mentions: Mentions | None = None  # None where the objective needs none
    is_dummy: bool = False  # True: it repeats an image on a process that has none left in this step; it adds no loss

    @property
    def prepared(self) -> PreparedBatch:
        """The photos, for an encoder."""
        assert self.images is not None, "the features were read from a store"
        return PreparedBatch.of(self.images)

    @property
    def inputs(self) -> Tensor:
        """The words that a decoder is fed, (B, N, T)."""
        return self.words[..., :-1]

    @property
    def targets(self) -> Tensor:
        """The words that it is to predict, (B, N, T)."""
        return self.words[..., 1:]

    def to(self, device: torch.device) -> Batch:
        """The same batch on a device. Half-precision features become single after the transfer."""
        return map_tensors(self, lambda tensor: upcast_half(tensor.to(device, non_blocking=True)))

    def pin_memory(self) -> Batch:
        """The same batch in memory from which a GPU reads by itself; torch's DataLoader calls it."""
        return map_tensors(self, Tensor.pin_memory)


@dataclass(frozen=True, repr=False)
class Terms(TensorRecord):
    """The loss of an objective, with its named parts (detached, each a number)."""

    total: Tensor  # () to be minimised
    parts: dict[str, Tensor]

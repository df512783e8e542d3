"""Explanations: why a captioner said what it said, and how far to trust the picture."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from showtell.captioner import Captioner
from showtell.errors import ImageError
from showtell.explanations.explanation import (
    ExplainedBy,
    ExplainedCaption,
    ExplainedWord,
    Explanation,
    Strip,
    distinct,
    explain_features,
    explain_photos,
    title_of,
)
from showtell.images.photo import PhotoSource

__all__ = [
    "ExplainedBy",
    "ExplainedCaption",
    "ExplainedWord",
    "Explanation",
    "Strip",
    "explain",
    "explain_features",
    "explain_photos",
]

AnyCaptioner = Captioner | str | Path  # open, or the checkpoint or the name on the hub that it is opened from


@overload
def explain(
    captioner: AnyCaptioner | list[AnyCaptioner],
    photo: PhotoSource,
    *,
    occlusion: str | None = ...,
    batch_size: int = ...,
    **decoding: Any,
) -> Explanation: ...
@overload
def explain(
    captioner: AnyCaptioner | list[AnyCaptioner],
    photo: Iterable[PhotoSource],
    *,
    occlusion: str | None = ...,
    batch_size: int = ...,
    **decoding: Any,
) -> list[Explanation]: ...
def explain(
    captioner: AnyCaptioner | list[AnyCaptioner],
    photo: PhotoSource | Iterable[PhotoSource],
    *,
    occlusion: str | None = None,
    batch_size: int = 32,
    **decoding: Any,
) -> Explanation | list[Explanation]:
    """Why a captioner, or each of several, says what it says of a photo, or of each of many.

    >>> explain("runs/soft/best", "photo.jpg").figure().savefig("why.png")  # doctest: +SKIP
    >>> explain(["runs/soft/best", "runs/hard/best"], "photo.jpg").to_json()  # doctest: +SKIP

    Args:
        captioner: a captioner, a checkpoint, or a list of them to be put side by side.
        photo: in any form that `Captioner.caption` takes, or many of them.
        occlusion: hide each place in turn and see what every word loses: mean, remove or pixels; None: do not.
        batch_size: of many, how many are encoded at a time.
        decoding: fields of `DecodingConfig` in place of each checkpoint's. The best caption is explained.

    Raises:
        CheckpointError: there is no such checkpoint.
        ImageError: one of the photos is no image; `explain_photos` goes on without it.
        UsageError: an unknown decode setting, or a value out of range.
    """
    models = captioner if isinstance(captioner, list) else [captioner]
    opened = [one if isinstance(one, Captioner) else Captioner.from_pretrained(one) for one in models]
    captioners = dict(zip(distinct([title_of(one) for one in opened]), opened, strict=True))
    settings = {title: one.settings(**decoding) for title, one in captioners.items()}
    many = isinstance(photo, Iterable) and not isinstance(photo, PhotoSource)
    photos: list[Any] = list(photo) if many else [photo]  # type: ignore[arg-type]  # mypy loses sight of `many`
    found = []
    for _, one in explain_photos(captioners, photos, settings, occlusion=occlusion, batch_size=batch_size):
        if isinstance(one, ImageError):
            raise one
        found.append(one)
    return found if many else found[0]

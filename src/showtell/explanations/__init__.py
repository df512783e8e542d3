"""Explanations of captions: probabilities, runners-up, attention and occlusion."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, overload

from showtell.captioners import Captioner, PhotoToCaption
from showtell.captioners.contract import is_one_photo
from showtell.captions import ExplainedCaption, ExplainedWord, ModelExplanation, WordValues
from showtell.errors import or_raise
from showtell.explanations.explanation import Explanation, explain_photos, unique_titles

__all__ = [
    "ExplainedCaption",
    "ExplainedWord",
    "Explanation",
    "ModelExplanation",
    "WordValues",
    "explain",
    "explain_photos",
]

AnyCaptioner = Captioner | str | Path  # a captioner, a checkpoint folder, or a name on the Hugging Face Hub


@overload
def explain(
    captioner: AnyCaptioner | list[AnyCaptioner],
    photo: PhotoToCaption,
    *,
    occlusion: str | None = ...,
    batch_size: int = ...,
    **decoding: Any,
) -> Explanation: ...
@overload
def explain(
    captioner: AnyCaptioner | list[AnyCaptioner],
    photo: Iterable[PhotoToCaption],
    *,
    occlusion: str | None = ...,
    batch_size: int = ...,
    **decoding: Any,
) -> list[Explanation]: ...
def explain(
    captioner: AnyCaptioner | list[AnyCaptioner],
    photo: PhotoToCaption | Iterable[PhotoToCaption],
    *,
    occlusion: str | None = None,
    batch_size: int = 32,
    **decoding: Any,
) -> Explanation | list[Explanation]:
    """Explain the captions of one or several captioners for a photo, or for each of many photos.

    >>> explain("runs/soft/best", "photo.jpg").figure().savefig("why.png")  # doctest: +SKIP
    >>> explain(["runs/soft/best", "runs/hard/best"], "photo.jpg").to_json()  # doctest: +SKIP

    Args:
        captioner: a captioner, a checkpoint, or a list of them to compare.
        photo: in any form that `Captioner.caption` takes, or many of them.
        occlusion: how to hide each region in turn: mean, remove or pixels (default: no occlusion).
        batch_size: photos in a batch.
        decoding: fields of `DecodingConfig` that override each checkpoint's. The best caption is explained.

    Raises:
        CheckpointError: there is no such checkpoint.
        ImageError: a photo cannot be read; `explain_photos` continues without it.
        UsageError: an unknown decoding setting, or a value out of range.
    """
    models = captioner if isinstance(captioner, list) else [captioner]
    opened = [model if isinstance(model, Captioner) else Captioner.from_pretrained(model) for model in models]
    captioners = dict(zip(unique_titles([model.about.name for model in opened]), opened, strict=True))
    settings = {title: model.settings(**decoding) for title, model in captioners.items()}
    photos = [photo] if is_one_photo(photo) else list(photo)
    results = explain_photos(captioners, photos, settings, occlusion=occlusion, batch_size=batch_size)
    explanations = [or_raise(result) for _, result in results]
    return explanations[0] if is_one_photo(photo) else explanations

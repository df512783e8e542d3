"""An explanation as the page shows it: texts for the template, and bytes of maps for the script."""

from __future__ import annotations

import base64
import io
import math
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from showtell.captioners.occlusion import agreement
from showtell.captions import ExplainedCaption, ExplainedWord, ModelExplanation, WordValues
from showtell.explanations.explanation import Explanation
from showtell.explanations.geometry import attention_map
from showtell.explanations.segments import segments
from showtell.images.boxes import Floats, scale_boxes
from showtell.reports.base import data_url

SAMPLES = 160  # of a smoothed map along each side
NUM_NAMED_REGIONS = 3  # regions that are drawn with their names for each word
MAX_TINY = 200  # pixels of the longer side up to which a photo is shown with its pixels
JPEG_QUALITY = 80
_NINTHS = (
    *("upper left", "top", "upper right"),
    *("left", "middle", "right"),
    *("lower left", "bottom", "lower right"),
)
_MIN_PEAK = 2  # times the mean weight that the peak of attention must have for its location to be named
MIN_COLLAPSED_WORDS = 3  # of a caption whose words all look at one region, for its attention to have collapsed
MAX_DROP, MIN_DROP = 2.0, 0.05  # nats by occlusion at which a colour is full, and below which there is none


def view_photo(number: int, explanation: Explanation, name: str) -> dict[str, Any]:
    """What the template shows of a photo; `data` is for the script."""
    width, height = explanation.photo.size
    models = [_view_model(model, explanation.size) for model in explanation.models]
    return {
        "id": f"photo-{number}",
        "image": explanation.image,
        "name": name,
        "picture": _picture(explanation.photo),
        "width": width,
        "height": height,
        "is_tiny": max(width, height) <= MAX_TINY,
        "max_drop": MAX_DROP,
        "min_drop": MIN_DROP,
        "references": explanation.references,
        "models": models,
        "are_beside": len(models) > 1 and all(len(model["captions"]) == 1 for model in models),  # stages want the width
        "data": {
            "models": [
                {
                    **_regions(model, explanation.size),
                    "captions": [[word["data"] for word in caption["words"]] for caption in view["captions"]],
                }
                for model, view in zip(explanation.models, models, strict=True)
            ]
        },
    }


def _picture(photo: Image.Image) -> str:
    """A photo as a data URL: lossless for drawings, which are small and flat."""
    content = io.BytesIO()
    kind = "PNG" if max(photo.size) <= MAX_TINY else "JPEG"
    photo.save(content, kind, quality=JPEG_QUALITY)
    return data_url(content.getvalue(), kind.lower())


def _view_model(model: ModelExplanation, size: tuple[int, int]) -> dict[str, Any]:
    return {
        "title": model.model,
        "confidence": f"{model.caption.confidence:.0%}",
        "scores": model.scores,
        "hallucinated": list(dict.fromkeys(word.hallucinated for word in model.caption.words if word.hallucinated)),
        "captions": [_view_caption(model, caption, size) for caption in model.captions],
    }


def _view_caption(model: ModelExplanation, caption: ExplainedCaption, size: tuple[int, int]) -> dict[str, Any]:
    attention: Sequence[Tensor | None] = [None] * len(caption.words)
    locations: Sequence[str | None] = attention  # type: ignore[assignment]
    if caption.attention is not None:
        attention = list(caption.attention)
        if model.boxes is not None:
            locations = describe_locations(caption.attention, model, size)
    correlations = _rank_correlations(caption)
    return {
        "text": caption.text,
        "title": caption.title,
        "has_attention": caption.attention is not None and model.boxes is not None,
        "has_collapsed": has_collapsed(caption),
        "has_occlusion": model.boxes is not None and any(word.logprob_drop is not None for word in caption.words),
        "hint": _hint(model, caption, [value for value in correlations if value is not None]),
        "words": [
            {
                "word": word.word,
                "hallucinated": word.hallucinated,
                "label": _label(word, location),
                "data": _word_data(model, word, weights, location, correlation, _describe_values_at(caption, position)),
            }
            for position, (word, weights, location, correlation) in enumerate(
                zip(caption.words, attention, locations, correlations, strict=True)
            )
        ],
        "word_values": [_view_values(one, caption) for one in caption.word_values],
    }


def value_range(values: Tensor) -> tuple[float, float]:
    """The axis for some values: 0 to 1 for those within, such as gates, so that captions can be compared."""
    low, high = float(values.min()), float(values.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def _view_values(word_values: WordValues, caption: ExplainedCaption) -> dict[str, Any]:
    """Values at the words of a caption as lines, from 0 to 1 in height and one word wide for each word, and as text."""
    low, high = value_range(word_values.values)
    heights = 1 - (word_values.values - low) / ((high - low) or 1)
    return {
        "title": word_values.title,
        "low": f"{low:.2f}",
        "high": f"{high:.2f}",
        "lines": [
            " ".join(f"{position + 0.5},{y:.3f}" for position, y in enumerate(line)) for line in heights.T.tolist()
        ],
        "label": f"{word_values.title} at each word: {_describe_values(word_values, caption)}",
    }


def _describe_values(word_values: WordValues, caption: ExplainedCaption) -> str:
    """Values at the words of a caption: of one line all of them, of several the words at which they turn."""
    words = [word.word or "end" for word in caption.words]
    values = word_values.values
    if values.shape[1] == 1:
        return ", ".join(f"{word} {value:.2f}" for word, value in zip(words, values[:, 0].tolist(), strict=True))
    turning = [words[first] for first, _ in segments(values.double().numpy())[1:]]
    where = f"half of them or more turn at {', '.join(turning)}" if turning else "at no word do half of them turn"
    return f"{values.shape[1]} lines; {where}"


def _describe_values_at(caption: ExplainedCaption, position: int) -> list[str]:
    return [
        f"{one.title.capitalize()}: {', '.join(f'{value:.2f}' for value in one.values[position].tolist())}."
        for one in caption.word_values
    ]


def _rank_correlations(caption: ExplainedCaption) -> list[float | None]:
    """The rank correlation of attention and occlusion for each word; None if one is missing or constant."""
    drops = [word.logprob_drop for word in caption.words if word.logprob_drop is not None]
    if caption.attention is None or len(drops) < len(caption.words):
        return [None] * len(caption.words)
    correlations = agreement(caption.attention, torch.stack(drops)).tolist()
    return [None if math.isnan(value) else value for value in correlations]


def _hint(model: ModelExplanation, caption: ExplainedCaption, correlations: Sequence[float]) -> str:
    """The text below a caption until a word is selected."""
    if caption.attention is None:
        note = model.attention_note or "This model has no attention: it sees the photo as a whole."
        return f"{note} Choose a word to see the alternatives."
    if model.boxes is None:
        hint = (
            "The features came without boxes, so it is not known where in the photo the regions are: there are no "
            "maps. Choose a word to see the alternatives."
        )
    else:
        hint = f"Choose a word to see where the model looked. {model.attention_note or ''}".strip()
    if correlations:
        mean = statistics.mean(correlations)
        hint += f" Rank correlation of attention and occlusion: {mean:.2f} (Spearman, mean over the words)."
    return hint


def _label(word: ExplainedWord, location: str | None) -> str:
    """What a screen reader reads of a word."""
    parts = [f"{word.word or 'end of the caption'}, probability {_percent(word.probability)}"]
    if location is not None:
        parts.append(f"looks at {location}")
    if word.others:
        other, probability = word.others[0]
        parts.append(f"next most likely {other or 'the end'}, {_percent(probability)}")
    if word.hallucinated is not None:
        parts.append(f"hallucinated: the photo shows no {word.hallucinated}")
    return "; ".join(parts)


def _percent(share: float) -> str:
    return "less than 1 percent" if 0 < share < 0.01 else f"{100 * share:.0f} percent"


def describe_locations(weights: Tensor, model: ModelExplanation, size: tuple[int, int]) -> list[str]:
    """Where each word's attention peaks: in which ninth of the photo, with which weight, and at which region.

    Args:
        weights: (T, R), rows sum to one.
        model: whose regions they are; it is known where they are.
        size: (width, height) of the photo.

    Returns:
        T texts such as "the upper left (62% at row 1, column 2)".
    """
    assert model.boxes is not None
    boxes = scale_boxes(model.boxes, size, (3, 3))
    centres = ((boxes[:, :2] + boxes[:, 2:]) / 2).long().clamp(0, 2).tolist()  # (R, 2) column and row of a ninth
    texts = []
    for row in weights:
        peak = int(row.argmax())
        column, line = centres[peak]
        flat = is_flat(row)
        where = "no location in particular" if flat else f"the {_NINTHS[3 * line + column]}"
        texts.append(f"{where} ({'at most ' if flat else ''}{row[peak]:.0%} at {_region_name(model, peak)})")
    return texts


def is_flat(weights: Tensor) -> bool:
    """Whether the attention of a word, (R,), has no peak worth naming."""
    return bool(weights.max() * len(weights) < min(_MIN_PEAK, len(weights)))


def has_collapsed(caption: ExplainedCaption) -> bool:
    """Whether the attention of every word peaks at the same region."""
    if caption.attention is None or len(caption.words) < MIN_COLLAPSED_WORDS or caption.attention.shape[1] == 1:
        return False
    highest = caption.attention.max(1, keepdim=True).values
    is_peak = caption.attention == highest  # even weights have no peak of their own
    return bool((is_peak.sum(1) == 1).all() and (is_peak == is_peak[0]).all())


# --- for the script ---


def _regions(model: ModelExplanation, size: tuple[int, int]) -> dict[str, Any]:
    """The regions of a model: boxes as shares of the photo's sides, and how the cells of a grid spread."""
    if model.boxes is None:
        return {"grid": None, "boxes": []}
    return {
        "grid": None if model.grid is None else _grid_spread(model.boxes, model.grid, size),
        "boxes": ((1e4 * scale_boxes(model.boxes.double(), size, (1, 1))).round() / 1e4).tolist(),
    }


def _grid_spread(boxes: Tensor, grid: tuple[int, int], size: tuple[int, int]) -> dict[str, Any]:
    """How the columns and the rows of a grid spread over a smoothed map, two bytes for each of `SAMPLES` pixels.

    A map is the product of the two, so that it can be drawn from a few weights: they are the maps of the first row and
    of the first column of cells, in a picture one pixel high and in one a pixel wide.
    """
    rows, columns = grid
    cells = torch.eye(rows * columns)
    flat, narrow = (SAMPLES, 1), (1, SAMPLES)
    across = attention_map(cells[:columns], scale_boxes(boxes, size, flat), flat, grid=grid, style="smooth")
    down = attention_map(cells[::columns], scale_boxes(boxes, size, narrow), narrow, grid=grid, style="smooth")
    return {
        "rows": rows,
        "columns": columns,
        "samples": SAMPLES,
        "across": _shorts(across),
        "down": _shorts(down),
    }


def _word_data(
    model: ModelExplanation,
    word: ExplainedWord,
    weights: Tensor | None,
    location: str | None,
    correlation: float | None,
    values: Sequence[str],
) -> dict[str, Any]:
    named = _named_regions(model, weights)
    return {
        "word": word.word,
        "p": round(word.probability, 4),
        "others": [[other, round(probability, 4)] for other, probability in word.others],
        "sampledRegion": word.sampled_region,
        "hallucinated": word.hallucinated,
        "attention": None if weights is None or model.boxes is None else _bytes(weights),
        "isFlat": weights is not None and is_flat(weights),
        "named": named,
        "peak": None if weights is None or model.grid is None else int(weights.argmax()),
        "occlusion": None if word.logprob_drop is None or model.boxes is None else _signed_bytes(word.logprob_drop),
        "needed": None
        if word.logprob_drop is None or word.logprob_drop.max() < MIN_DROP
        else int(word.logprob_drop.argmax()),
        "sentences": [
            *_describe_attention(model, word, location, named),
            *_describe_occlusion(model, word, correlation),
            *values,
        ],
    }


def _named_regions(model: ModelExplanation, weights: Tensor | None) -> list[tuple[int, str, float]]:
    """Index, name and weight of the detected regions with the highest weights, in descending order; none of a grid."""
    if weights is None or model.grid is not None or (model.boxes is None and len(weights) == 1):
        return []
    top = weights.topk(min(NUM_NAMED_REGIONS, len(weights)))
    return [
        (region, _region_name(model, region), round(weight, 4))
        for weight, region in zip(top.values.tolist(), top.indices.tolist(), strict=True)
        if weight > 0
    ]


def _describe_attention(
    model: ModelExplanation, word: ExplainedWord, location: str | None, named: Sequence[tuple[int, str, float]]
) -> Iterator[str]:
    """Sentences about where the model looked at a word."""
    if location is not None:
        yield f"Looks at {location}."
    if named:
        yield f"Highest weights: {', '.join(f'{name} {weight:.0%}' for _, name, weight in named)}."
    if word.sampled_region is not None:
        yield f"Sampled region: {_region_name(model, word.sampled_region)}."


def _describe_occlusion(model: ModelExplanation, word: ExplainedWord, correlation: float | None) -> Iterator[str]:
    """Sentences about how a word's probability changes by occlusion."""
    if word.logprob_drop is None:
        return
    drop, region = word.logprob_drop.max(0)
    if drop >= MIN_DROP:
        without = word.probability * math.exp(-float(drop))
        name = _region_name(model, int(region))
        yield f"Without {name} its probability is {without:.1%} instead of {word.probability:.1%}."
    else:
        yield f"No single region lowers its log-probability by {MIN_DROP} or more when hidden."
    if correlation is not None:
        yield f"Rank correlation of attention and occlusion for this word: {correlation:.2f}."


def _region_name(model: ModelExplanation, region: int) -> str:
    if model.grid is not None:
        row, column = divmod(region, model.grid[1])
        return f"row {row + 1}, column {column + 1}"
    return (model.labels[region] if model.labels else "") or f"region {region + 1}"


def _bytes(values: Tensor) -> str:
    """Non-negative values as bytes, the highest of them 255, in base 64."""
    highest = values.max().clamp(min=torch.finfo(values.dtype).tiny)
    return _encode((values * (255 / highest)).round().to(torch.uint8).numpy())


def _shorts(values: Floats) -> str:
    """Non-negative values as numbers of two bytes, the highest of them 65,535, in base 64."""
    return _encode((values * (65_535 / values.max())).round().astype("<u2"))


def _signed_bytes(drops: Tensor) -> str:
    """Drops as signed bytes in base 64, those of `MAX_DROP` and more 127, those below `MIN_DROP` 0."""
    shown = drops.masked_fill(drops.abs() < MIN_DROP, 0)
    return _encode((shown * (127 / MAX_DROP)).round().clamp(-127, 127).to(torch.int8).numpy())


def _encode(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")

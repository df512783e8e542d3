"""An explanation as the page shows it: texts for the template, and bytes of maps for the script."""

from __future__ import annotations

import base64
import io
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy.typing as npt
import torch
from PIL import Image
from torch import Tensor

from showtell.captions import ExplainedCaption, ExplainedWord, Explanation, ModelExplanation, WordValues
from showtell.explanations.geometry import attention_map
from showtell.explanations.verdict import has_collapsed
from showtell.images.boxes import scale_boxes
from showtell.reports.base import data_url

SAMPLES = 160  # of a smoothed map along each side
NUM_NAMED_REGIONS = 3  # regions that are drawn with their names for each word
MAX_TINY = 200  # pixels of the longer side up to which a photo is shown with its pixels
JPEG_QUALITY = 80
NINTHS = ("upper left", "top", "upper right", "left", "middle", "right", "lower left", "bottom", "lower right")
LITTLE = 0.05  # attention to all regions below which a word hardly looks: a sentinel has the rest
EVEN = 0.85  # attention is nearly even if it has the entropy of even weights over this share of the regions
MAX_DROP, MIN_DROP = 2.0, 0.05  # nats of saliency at which a colour is full, and below which there is none


def view_photo(number: int, explanation: Explanation, name: str) -> dict[str, Any]:
    """What the template shows of a photo; `data` is for the script."""
    size = explanation.size
    width, height = explanation.photo.size
    models: list[dict[str, Any]] = [
        {
            "title": model.model,
            "confidence": short_percent(model.caption.confidence),
            "doubt": model.caption.doubt,
            "scores": model.scores,
            "hallucinated": list(dict.fromkeys(word.hallucinated for word in model.caption.words if word.hallucinated)),
            "captions": [_view_caption(model, caption, size) for caption in model.captions],
        }
        for model in explanation.models
    ]
    data = [
        {
            **_regions(model, size),
            "captions": [[word["data"] for word in caption["words"]] for caption in view["captions"]],
        }
        for model, view in zip(explanation.models, models, strict=True)
    ]
    return {
        "id": f"photo-{number}",
        "image": explanation.image,
        "name": name,
        "picture": picture(explanation.photo),
        "width": width,
        "height": height,
        "is_tiny": max(width, height) <= MAX_TINY,
        "references": explanation.references,
        "models": models,
        "are_beside": len(models) > 1 and all(len(model["captions"]) == 1 for model in models),  # stages want the width
        "data": {"models": data},
    }


def picture(photo: Image.Image) -> str:
    """A photo as a data URL, a small one without loss."""
    content, kind = io.BytesIO(), "PNG" if max(photo.size) <= MAX_TINY else "JPEG"
    photo.save(content, kind, quality=JPEG_QUALITY)
    return data_url(content.getvalue(), kind.lower())


def _view_caption(model: ModelExplanation, caption: ExplainedCaption, size: tuple[int, int]) -> dict[str, Any]:
    is_located = caption.attention is not None and model.boxes is not None
    words = []
    for index, word in enumerate(caption.words):
        weights = None if caption.attention is None else caption.attention[index]
        location = describe_location(weights, model, size) if weights is not None and is_located else None
        data = _word_data(model, word, weights)
        data["sentences"] = list(_sentences(model, word, location, data["named"]))
        at_word = (plot.values[index].tolist() for plot in caption.word_values)
        data["values"] = [", ".join(f"{value:.2f}" for value in values) for values in at_word]
        label = _label(word, location)
        words.append({"word": word.word, "hallucinated": word.hallucinated, "label": label, "data": data})
    return {
        "text": caption.text,
        "title": caption.title,
        "has_attention": is_located,
        "has_collapsed": has_collapsed(caption),
        "has_saliency": model.boxes is not None and any(word.saliency is not None for word in caption.words),
        "saliency": model.saliency or "",
        "hint": _hint(model, caption),
        "words": words,
        "word_values": [_view_values(plot, caption) for plot in caption.word_values],
    }


def value_range(values: Tensor) -> tuple[float, float]:
    """The axis for some values: 0 to 1 if they are within, such as gates, so that captions can be compared."""
    low, high = float(values.min()), float(values.max())
    return (0.0, 1.0) if low >= 0 and high <= 1 else (low, high)


def _view_values(word_values: WordValues, caption: ExplainedCaption) -> dict[str, Any]:
    """Values at the words of a caption as lines, from 0 to 1 in height and one word wide for each word, and as text."""
    values = word_values.values
    low, high = value_range(values)
    heights = 1 - (values - low) / ((high - low) or 1)
    text = f"{values.shape[1]} lines"
    if values.shape[1] == 1:
        pairs = zip(caption.words, values[:, 0].tolist(), strict=True)
        text = ", ".join(f"{word.word or 'end'} {value:.2f}" for word, value in pairs)
    return {
        "title": word_values.title,
        "low": f"{low:.2f}",
        "high": f"{high:.2f}",
        "lines": [" ".join(f"{index + 0.5},{y:.3f}" for index, y in enumerate(line)) for line in heights.T.tolist()],
        "label": f"{word_values.title} at each word: {text}",
    }


def _hint(model: ModelExplanation, caption: ExplainedCaption) -> str:
    """The text below a caption until a word is selected."""
    if caption.attention is not None and model.boxes is not None:
        return "Choose a word to see where the model looked."
    note = "This model has no attention over the photo."
    if caption.attention is not None:
        note = "The features came without boxes, so it is not known where the regions are, and there are no maps."
    return f"{note} Choose a word to see the alternatives."


def _label(word: ExplainedWord, location: str | None) -> str:
    """What a screen reader says for a word."""
    parts = [f"{word.word or 'end of the caption'}, probability {_percent(word.probability)}"]
    if location is not None:
        parts.append(f"looks at {location}")
    if word.others:
        other, probability = word.others[0]
        parts.append(f"next most likely {other or 'the end'}, {_percent(probability)}")
    if word.hallucinated is not None:
        parts.append(f"hallucinated: the photo shows no {word.hallucinated}")
    return "; ".join(parts)


def short_percent(share: float) -> str:
    """As the page's script writes it: 62%, 0%, but <1% of 0.004."""
    return "<1%" if 0 < share < 0.01 else f"{share:.0%}"


def _percent(share: float) -> str:
    return "less than 1 percent" if 0 < share < 0.01 else f"{100 * share:.0f} percent"


def describe_location(weights: Tensor, model: ModelExplanation, size: tuple[int, int]) -> str:
    """Where the attention of a word, (R,), peaks, such as "the upper left (62% at row 1, column 2)"."""
    assert model.boxes is not None
    peak = int(weights.argmax())
    left, top, right, bottom = scale_boxes(model.boxes[peak], size, (3, 3)).tolist()
    column, row = (min(max(int(centre), 0), 2) for centre in ((left + right) / 2, (top + bottom) / 2))
    where = "no location in particular" if is_flat(weights) else f"the {NINTHS[3 * row + column]}"
    return f"{where} ({describe_peak(weights)}, at {_region_name(model, peak)})"


def describe_peak(weights: Tensor) -> str:
    """The peak of a word's attention (R,) beside that of even attention; the sum if a sentinel has almost all."""
    total, even = float(weights.sum()), 1 / len(weights)
    if total < LITTLE:
        return f"hardly looks: {total:.0%} in all"
    kind = "nearly even:" if is_flat(weights) else "peak"
    return f"{kind} {weights.max():.0%}, even {even:.{1 if even < 0.1 else 0}%}"


def is_flat(weights: Tensor) -> bool:
    """Whether the attention of a word, (R,), has no peak worth naming."""
    total = weights.sum()
    is_even = (total > 0) & (torch.special.entr(weights / total.clamp(min=1e-12)).sum().exp() > EVEN * len(weights))
    return len(weights) > 1 and bool(is_even | (total < LITTLE))


def _sentences(
    model: ModelExplanation, word: ExplainedWord, location: str | None, named: Sequence[tuple[int, str, float]]
) -> Iterator[str]:
    """Where the model looked at a word, and which region the word needed."""
    if location is not None:
        yield f"Looks at {location}."
    if named:
        yield f"Highest weights: {', '.join(f'{name} {weight:.0%}' for _, name, weight in named)}."
    if word.sampled_region is not None:
        yield f"Sampled region: {_region_name(model, word.sampled_region)}."
    if word.saliency is not None:
        drop, region = word.saliency.max(0)
        without = f"{word.probability * math.exp(-float(drop)):.1%} instead of {word.probability:.1%}"
        if drop >= MIN_DROP:
            yield f"Without {_region_name(model, int(region))} its probability is {without}."
        else:
            yield "Hiding any one region hardly changes its probability."


def _region_name(model: ModelExplanation, region: int) -> str:
    if model.grid is not None:
        row, column = divmod(region, model.grid[1])
        return f"row {row + 1}, column {column + 1}"
    return (model.labels[region] if model.labels else "") or f"region {region + 1}"


def _regions(model: ModelExplanation, size: tuple[int, int]) -> dict[str, Any]:
    """Boxes as shares of the photo's sides; for a grid also how its columns and rows spread: a map is their product."""
    boxes = torch.zeros(0, 4) if model.boxes is None else scale_boxes(model.boxes.double(), size, (1, 1))
    shown = {"grid": None, "boxes": ((1e4 * boxes).round() / 1e4).tolist()}
    if model.grid is None or model.boxes is None:
        return shown
    rows, columns = model.grid
    cells = torch.eye(rows * columns)
    spread = {}
    for name, some, shape in (("across", cells[:columns], (SAMPLES, 1)), ("down", cells[::columns], (1, SAMPLES))):
        drawn = attention_map(some, scale_boxes(model.boxes, size, shape), shape, grid=model.grid, style="smooth")
        spread[name] = _encode((drawn * (65_535 / drawn.max())).round().astype("<u2"))
    return {**shown, "grid": {"rows": rows, "columns": columns, "samples": SAMPLES, **spread}}


def _word_data(model: ModelExplanation, word: ExplainedWord, weights: Tensor | None) -> dict[str, Any]:
    drop = word.saliency
    return {
        "word": word.word,
        "p": round(word.probability, 4),
        "others": [[other, round(probability, 4)] for other, probability in word.others],
        "sampledRegion": word.sampled_region,
        "hallucinated": word.hallucinated,
        "attention": None if weights is None or model.boxes is None else _bytes(weights),
        "isFlat": weights is not None and is_flat(weights),
        "peakText": None if weights is None else describe_peak(weights),
        "named": _named_regions(model, weights),
        "peak": None if weights is None or model.grid is None else int(weights.argmax()),
        "saliency": None if drop is None or model.boxes is None else _signed_bytes(drop),
        "needed": None if drop is None or drop.max() < MIN_DROP else int(drop.argmax()),
    }


def _named_regions(model: ModelExplanation, weights: Tensor | None) -> list[tuple[int, str, float]]:
    """Index, name and weight of the detected regions with the highest weights, in descending order."""
    if weights is None or model.grid is not None or (model.boxes is None and len(weights) == 1):
        return []
    top = weights.topk(min(NUM_NAMED_REGIONS, len(weights)))
    pairs = zip(top.indices.tolist(), top.values.tolist(), strict=True)
    return [(region, _region_name(model, region), round(weight, 4)) for region, weight in pairs if weight > 0]


def _bytes(values: Tensor) -> str:
    """Non-negative values as bytes, the highest of them 255, in base 64."""
    highest = values.max().clamp(min=torch.finfo(values.dtype).tiny)
    return _encode((values * (255 / highest)).round().to(torch.uint8).numpy())


def _signed_bytes(drops: Tensor) -> str:
    """Drops as signed bytes in base 64, those of `MAX_DROP` and more 127, those below `MIN_DROP` 0."""
    shown = drops.masked_fill(drops.abs() < MIN_DROP, 0)
    return _encode((shown * (127 / MAX_DROP)).round().clamp(-127, 127).to(torch.int8).numpy())


def _encode(values: npt.NDArray[Any]) -> str:
    return base64.b64encode(values.tobytes()).decode("ascii")

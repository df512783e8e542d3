"""Explanations as one HTML page that needs no network: words to choose, where each looked, and what else it thought of.

    write_page(Path("report.html"), explanations)
    fragment(explanation)                            # for a notebook: in a frame, so that several do not meet

The page carries the photos and the weights of attention, a byte each; its script draws the maps. A policy in its head
forbids all but its own style, its own script and pictures within it.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from markupsafe import Markup
from PIL import Image
from torch import Tensor

from showtell.explanations.explanation import ExplainedBy, ExplainedCaption, ExplainedWord, Explanation, Strip
from showtell.explanations.geometry import DEVIATION, attention_map, scaled
from showtell.explanations.occlusion import agreement
from showtell.explanations.segments import segments
from showtell.files import write_text
from showtell.reports.base import data_url, templates

SAMPLES = 160  # of a smoothed map along each side
NAMED_REGIONS = 3  # that are drawn with their names for each word
TINY = 200  # pixels of the longer side up to which a photo is shown as pixels
QUALITY = 80  # of photos as JPEG
MOST_CLUSTERS = 30
_NINTHS = (
    *("upper left", "top", "upper right"),
    *("left", "middle", "right"),
    *("lower left", "bottom", "lower right"),
)
_SOMEWHERE = 2 / 9  # of its attention: with less in each ninth of the photo, a word looks nowhere in particular


def write_page(file: Path, explanations: Sequence[Explanation], title: str = "Why it said that") -> None:
    """Write one page of HTML, whole or not at all. The photos with the lowest first score come first.

    Args:
        file: the page.
        explanations: one for each photo, each with the same models.
        title: of the page.

    Raises:
        DataError: it cannot be written.
    """
    write_text(file, page(explanations, title))


def page(explanations: Sequence[Explanation], title: str = "Why it said that") -> str:
    """The page that `write_page` writes."""
    return render("explanation_page.html.j2", explanations, title)


def fragment(explanation: Explanation) -> str:
    """HTML of one photo to be put into a document of others, such as a notebook.

    It is a frame, so that nothing of it meets the document or a second fragment; it makes itself as high as it needs.
    """
    content = html.escape(render("explanation_page.html.j2", [explanation], explanation.image, is_fragment=True))
    return (
        f'<iframe srcdoc="{content}" title="{html.escape(f"Explanation of {explanation.image}")}" width="100%" '
        'height="640" frameborder="0" allowfullscreen></iframe>'
    )


def render(
    template: str,
    explanations: Sequence[Explanation],
    title: str,
    *,
    is_fragment: bool = False,
    more_style: str = "",
    **values: Any,
) -> str:
    """A page of this package, in which explanations may stand among other things.

    Args:
        template: explanation_page.html.j2, or one that extends it.
        explanations: one for each photo, each with the same models; possibly none.
        title: of the page.
        is_fragment: leave out what only a page of its own needs.
        more_style: CSS behind that of all pages.
        values: what the template asks for beside that.
    """
    environment = templates()
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    style, script = _resource("explanation_page.css") + more_style, _resource("explanation_page.js")
    scores = list(dict.fromkeys(name for one in explanations for by in one.by for name in by.scores))
    ordered = sorted(explanations, key=lambda one: _first_score(one, scores))
    names = _names(ordered)
    photos = [_photo(number, *named) for number, named in enumerate(zip(ordered, names, strict=True), start=1)]
    return environment.get_template(template).render(
        values,
        title=title,
        photos=photos,
        models=list(dict.fromkeys(by.model for one in explanations for by in one.by)),
        scores=scores,
        sorted_by=scores[0] if scores else None,
        clusters=_clusters(photos),
        style=Markup(style),
        style_hash=_hash(style),
        script=Markup(script),
        script_hash=_hash(script),
        deviation=DEVIATION,
        named_regions=NAMED_REGIONS,
        is_fragment=is_fragment,
    )


def _resource(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    """What the page's policy knows its style or its script by."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def _first_score(explanation: Explanation, scores: Sequence[str]) -> float:
    """What photos are ordered by: the first score of the first model, and those without one last."""
    return explanation.by[0].scores.get(scores[0], float("inf")) if scores else 0.0


def _clusters(photos: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Captions that a model said of several photos, the most frequent first."""
    said = defaultdict(list)
    for photo in photos:
        for by in photo["by"]:
            said[by["model"], by["captions"][-1]["text"]].append(photo)
    repeated = [
        {"model": model, "text": text, "photos": of} for (model, text), of in said.items() if text and len(of) > 1
    ]
    return sorted(repeated, key=lambda cluster: -len(cluster["photos"]))[:MOST_CLUSTERS]


def _names(explanations: Sequence[Explanation]) -> list[str]:
    """What photos are called: their files without folders where no two have one name."""
    short = [Path(one.image).name or one.image for one in explanations]
    return short if len(set(short)) == len(short) else [one.image for one in explanations]


def _photo(number: int, explanation: Explanation, name: str) -> dict[str, Any]:
    """What the template wants of a photo; `data` is for the script."""
    width, height = explanation.photo.size
    said = [_by(by, explanation.size) for by in explanation.by]
    absent = dict.fromkeys(word.absent for by in explanation.by for word in by.caption.words if word.absent is not None)
    return {
        "id": f"photo-{number}",
        "image": explanation.image,
        "name": name,
        "picture": _picture(explanation.photo),
        "width": width,
        "height": height,
        "is_tiny": max(width, height) <= TINY,
        "is_tall": height > 1.2 * width,
        "absent": list(absent),
        "references": explanation.references,
        "by": said,
        "data": {
            "by": [
                {
                    **_places(by, explanation.size),
                    "captions": [[word["data"] for word in caption["words"]] for caption in view["captions"]],
                }
                for by, view in zip(explanation.by, said, strict=True)
            ]
        },
    }


def _picture(photo: Image.Image) -> str:
    """A photo within the page: drawings, which are small and flat, without loss."""
    content = io.BytesIO()
    form = "PNG" if max(photo.size) <= TINY else "JPEG"
    photo.save(content, form, quality=QUALITY)
    return data_url(content.getvalue(), form.lower())


def _by(by: ExplainedBy, size: tuple[int, int]) -> dict[str, Any]:
    return {
        "model": by.model,
        "scores": by.scores,
        "captions": [_caption(by, caption, size) for caption in by.captions],
    }


def _caption(by: ExplainedBy, caption: ExplainedCaption, size: tuple[int, int]) -> dict[str, Any]:
    attention: Sequence[Tensor | None] = [None] * len(caption.words)
    seen: Sequence[str | None] = attention  # type: ignore[assignment]
    if caption.attention is not None:
        attention, seen = list(caption.attention), whereabouts(caption.attention, by.boxes, size)
    alike = _rank_correlations(caption)
    return {
        "text": caption.text,
        "title": caption.title,
        "has_attention": caption.attention is not None,
        "has_occlusion": any(word.occlusion is not None for word in caption.words),
        "hint": _hint(caption, [value for value in alike if value is not None]),
        "words": [
            {
                "word": word.word,
                "absent": word.absent,
                "label": _label(word, where),
                "data": _word(by, word, weights, where, correlation, _on_strips(caption, place)),
            }
            for place, (word, weights, where, correlation) in enumerate(
                zip(caption.words, attention, seen, alike, strict=True)
            )
        ],
        "along": [_along(strip, caption) for strip in caption.strips],
    }


def _along(strip: Strip, caption: ExplainedCaption) -> dict[str, Any]:
    """Numbers along a caption as lines, from 0 to 1 in height and one word wide for each word, and in words."""
    low, high = float(strip.values.min()), float(strip.values.max())
    heights = 1 - (strip.values - low) / ((high - low) or 1)
    lines = [" ".join(f"{at + 0.5},{y:.3f}" for at, y in enumerate(line)) for line in heights.T.tolist()]
    return {
        "title": strip.title,
        "low": f"{low:.2f}",
        "high": f"{high:.2f}",
        "lines": lines,
        "said": f"{strip.title} along the caption: {_course(strip, caption)}",
    }


def _course(strip: Strip, caption: ExplainedCaption) -> str:
    """The course of numbers along a caption: of one line its values, of several where they turn."""
    words = [word.word or "end" for word in caption.words]
    if strip.values.shape[1] == 1:
        return ", ".join(f"{word} {value:.2f}" for word, value in zip(words, strip.values[:, 0].tolist(), strict=True))
    turning = [words[first] for first, _ in segments(strip.values.double().numpy())[1:]]
    where = f"half of them or more turn at {', '.join(turning)}" if turning else "at no word do half of them turn"
    return f"{strip.values.shape[1]} lines; {where}"


def _on_strips(caption: ExplainedCaption, place: int) -> list[str]:
    """What the page says of the numbers along a caption at one of its words."""
    return [
        f"{strip.title.capitalize()}: {', '.join(f'{value:.2f}' for value in strip.values[place].tolist())}."
        for strip in caption.strips
    ]


def _rank_correlations(caption: ExplainedCaption) -> list[float | None]:
    """How far attention and occlusion rank places alike, for each word; None where one lacks or is all alike."""
    falls = [word.occlusion for word in caption.words if word.occlusion is not None]
    if caption.attention is None or len(falls) < len(caption.words):
        return [None] * len(caption.words)
    found = agreement(caption.attention, torch.stack(falls)).tolist()
    return [None if math.isnan(value) else value for value in found]


def _hint(caption: ExplainedCaption, correlations: Sequence[float]) -> str:
    """What stands below a caption until a word is chosen."""
    if caption.attention is None:
        return "Here is no attention: the photo is seen as a whole. Choose a word to see what else was thought of."
    hint = "Choose a word to see where the model looked when it said it."
    if correlations:
        mean = statistics.mean(correlations)
        hint += f" Attention and occlusion rank the places alike by {mean:.2f} (Spearman, mean over the words)."
    return hint


def _label(word: ExplainedWord, where: str | None) -> str:
    """What a screen reader says of a word."""
    parts = [f"{word.word or 'end of the caption'}, probability {_percent(word.probability)}"]
    if where is not None:
        parts.append(f"looks at {where}")
    if word.others:
        other, probability = word.others[0]
        parts.append(f"next likeliest {other or 'the end'}, {_percent(probability)}")
    if word.absent is not None:
        parts.append(f"names a {word.absent}, which the photo does not show")
    return "; ".join(parts)


def _percent(share: float) -> str:
    return "less than 1 percent" if 0 < share < 0.01 else f"{100 * share:.0f} percent"


def whereabouts(weights: Tensor, boxes: Tensor, size: tuple[int, int]) -> list[str]:
    """Where in a photo the most of some weights lies, in words.

    Args:
        weights: (T, R), rows sum to one.
        boxes: (R, 4) left, top, right, bottom of each place in pixels of the photo.
        size: (width, height) of the photo.

    Returns:
        T of such as "the upper left (62%)", or "no place in particular".
    """
    ninths = attention_map(weights, scaled(boxes, size, (3, 3)), (3, 3)).reshape(len(weights), 9)
    return [
        f"the {_NINTHS[row.argmax()]} ({row.max():.0%})" if row.max() >= _SOMEWHERE else "no place in particular"
        for row in ninths
    ]


# --- for the script ---


def _places(by: ExplainedBy, size: tuple[int, int]) -> dict[str, Any]:
    """The places of a captioner: boxes as shares of the photo's sides, and how the cells of a grid spread."""
    return {
        "grid": None if by.grid is None else _spread(by.boxes, by.grid, size),
        "boxes": ((1e4 * scaled(by.boxes.double(), size, (1, 1))).round() / 1e4).tolist(),
    }


def _spread(boxes: Tensor, grid: tuple[int, int], size: tuple[int, int]) -> dict[str, Any]:
    """How the columns and the rows of a grid spread over a smoothed map, a byte for each of `SAMPLES` pixels.

    A map is the product of the two, so that it can be drawn from a few weights; they are the maps of the first row and
    of the first column of cells in a picture that is one pixel high and one that is one pixel wide.
    """
    rows, columns = grid
    cells = torch.eye(rows * columns)
    flat, narrow = (SAMPLES, 1), (1, SAMPLES)
    across = attention_map(cells[:columns], scaled(boxes, size, flat), flat, grid=grid, style="smooth")
    down = attention_map(cells[::columns], scaled(boxes, size, narrow), narrow, grid=grid, style="smooth")
    return {
        "rows": rows,
        "columns": columns,
        "samples": SAMPLES,
        "across": _bytes(torch.from_numpy(across)),
        "down": _bytes(torch.from_numpy(down)),
    }


def _word(
    by: ExplainedBy,
    word: ExplainedWord,
    weights: Tensor | None,
    where: str | None,
    correlation: float | None,
    along: Sequence[str],
) -> dict[str, Any]:
    named = _named_regions(by, weights)
    return {
        "word": word.word,
        "p": round(word.probability, 4),
        "others": [[other, round(probability, 4)] for other, probability in word.others],
        "place": word.place,
        "absent": word.absent,
        "attention": None if weights is None else _bytes(weights),
        "named": named,
        "occlusion": None if word.occlusion is None else _signed_bytes(word.occlusion),
        "sentences": [*_on_attention(by, word, where, named), *_on_occlusion(by, word, correlation), *along],
    }


def _named_regions(by: ExplainedBy, weights: Tensor | None) -> list[tuple[int, str, float]]:
    """The regions with the most weight, the heaviest first: which, its name and its weight; none of a grid."""
    if weights is None or by.grid is not None:
        return []
    values, places = (found.tolist() for found in weights.topk(min(NAMED_REGIONS, len(weights))))
    return [
        (place, _name(by, place), round(value, 4)) for value, place in zip(values, places, strict=True) if value > 0
    ]


def _on_attention(
    by: ExplainedBy, word: ExplainedWord, where: str | None, named: Sequence[tuple[int, str, float]]
) -> Iterator[str]:
    """What the page says of where a word looked."""
    if where is not None:
        yield f"Looks at {where}."
    if named:
        yield f"Most of all at: {', '.join(f'{name} {weight:.0%}' for _, name, weight in named)}."
    if word.place is not None:
        yield f"Sampled place: {_name(by, word.place)}."


def _on_occlusion(by: ExplainedBy, word: ExplainedWord, correlation: float | None) -> Iterator[str]:
    """What the page says of how a word fares without one of the places."""
    if word.occlusion is None:
        return
    fall, place = word.occlusion.max(0)
    if fall > 0:
        without = word.probability * math.exp(-float(fall))
        yield f"Without {_name(by, int(place))} its probability is {without:.1%} instead of {word.probability:.1%}."
    else:
        yield "It is no less likely without any one place."
    if correlation is not None:
        yield f"Rank correlation of attention and occlusion for this word: {correlation:.2f}."


def _name(by: ExplainedBy, place: int) -> str:
    """What a place is called."""
    if by.grid is not None:
        row, column = divmod(place, by.grid[1])
        return f"row {row + 1}, column {column + 1}"
    return (by.labels[place] if by.labels else "") or f"region {place + 1}"


def _bytes(values: Tensor) -> str:
    """Values from 0 as bytes, the highest of them 255, in base 64."""
    highest = values.max().clamp(min=torch.finfo(values.dtype).tiny)
    return _encoded((values * (255 / highest)).round().to(torch.uint8))


def _signed_bytes(values: Tensor) -> str:
    """Values as signed bytes, the farthest from 0 of them 127 or -127, in base 64."""
    farthest = values.abs().max().clamp(min=torch.finfo(values.dtype).tiny)
    return _encoded((values * (127 / farthest)).round().to(torch.int8))


def _encoded(values: Tensor) -> str:
    return base64.b64encode(values.contiguous().numpy().tobytes()).decode("ascii")

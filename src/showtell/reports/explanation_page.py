"""The page of explanations: words to choose, where the model looked at each, and the most likely alternatives.

It holds the photos and the weights of attention, a byte each; its script draws the maps.
"""

from __future__ import annotations

import html
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from showtell.captions import Explanation
from showtell.explanations.geometry import DEVIATION
from showtell.explanations.verdict import verdict_of_models
from showtell.files import write_text
from showtell.reports.base import render_page, resource
from showtell.reports.explanation_view import NUM_NAMED_REGIONS, view_photo

MAX_REPEATED = 30  # repeated captions that the page lists
TITLE = "Explanations of captions"


def write_page(file: Path, explanations: Sequence[Explanation]) -> None:
    """Write the page, whole or not at all."""
    write_text(file, page(explanations))


def page(explanations: Sequence[Explanation]) -> str:
    """The HTML of the page: explanations of photos, all by the same models, in their order."""
    return render_explanations("explanation_page.html.j2", explanations, TITLE)


def fragment(explanation: Explanation) -> str:
    """The HTML of one photo for a notebook: a frame, which keeps styles and scripts apart and adapts its height."""
    content = render_explanations("explanation_page.html.j2", [explanation], explanation.image, is_fragment=True)
    return (
        f'<iframe srcdoc="{html.escape(content)}" title="{html.escape(f"Explanation of {explanation.image}")}" '
        'width="100%" height="640" frameborder="0" allowfullscreen></iframe>'
    )


def render_explanations(
    template: str,
    explanations: Sequence[Explanation],
    title: str,
    *,
    is_fragment: bool = False,  # without what only a page of its own needs
    style: str = "",  # more CSS
    verdict: Sequence[str] | None = None,  # sentences; None: by the explanations
    **values: Any,  # for the template
) -> str:
    """A page with explanations, all of the same models, by explanation_page.html.j2 or a template that extends it."""
    scores = list(dict.fromkeys(name for photo in explanations for model in photo.models for name in model.scores))
    # file names without folders, unless two of them are equal
    short = [Path(photo.image).name or photo.image for photo in explanations]
    names = short if len(set(short)) == len(short) else [photo.image for photo in explanations]
    photos = [view_photo(number, *pair) for number, pair in enumerate(zip(explanations, names, strict=True), start=1)]
    return render_page(
        template,
        title,
        styles=[resource("explanation_card.css"), resource("explanation_page.css"), style],
        script=resource("explanation_card.js") + resource("explanation_page.js"),
        photos=photos,
        models=list(dict.fromkeys(model.model for photo in explanations for model in photo.models)),
        scores=scores,
        sorted_by=scores[0] if scores else None,
        repeated_captions=_repeated_captions(photos),
        verdict=verdict_of_models(explanations) if verdict is None else verdict,
        deviation=DEVIATION,
        named_regions=NUM_NAMED_REGIONS,
        doubted=sum(any(model["doubt"] for model in photo["models"]) for photo in photos),
        is_fragment=is_fragment,
        **values,
    )


def _repeated_captions(photos: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Captions that a model gives to several photos, the most frequent first."""
    photos_of = defaultdict(list)
    for photo in photos:
        for model in photo["models"]:
            photos_of[model["title"], model["captions"][-1]["text"]].append(photo)
    captions = [{"model": model, "text": text, "photos": of} for (model, text), of in photos_of.items() if text]
    repeated = [caption for caption in captions if len(caption["photos"]) > 1]
    return sorted(repeated, key=lambda caption: -len(caption["photos"]))[:MAX_REPEATED]

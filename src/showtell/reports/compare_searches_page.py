"""The page of compare-searches: one photo, and the captions of every search."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from showtell.compare_searches import SearchResult
from showtell.explanations.explanation import display_name, photo_to_show
from showtell.features.store import StoredImage
from showtell.files import write_text
from showtell.reports.base import data_url, render_page

_STYLE = """
img.photo { max-width: 100%; border-radius: .3rem; outline: 1px solid var(--line); margin: .6rem 0; }
td.caption { min-width: 14rem; overflow-wrap: anywhere; }
"""


def write_page(file: Path, photo: Path | StoredImage, checkpoint: str, results: Sequence[SearchResult]) -> None:
    """Write an HTML page with the photo and the results, whole or not at all.

    Args:
        file: the page.
        photo: that was captioned.
        checkpoint: that captioned it.
        results: from `compare_searches`.

    Raises:
        DataError: it cannot be written.
    """
    image, _ = photo_to_show(photo)
    content = io.BytesIO()
    image.save(content, "JPEG")
    page = render_page(
        "compare_searches_page.html.j2",
        "Searches compared",
        styles=[_STYLE],
        picture=data_url(content.getvalue(), "jpeg"),
        image=display_name(photo if isinstance(photo, StoredImage) else photo.name),
        checkpoint=display_name(checkpoint),
        results=results,
    )
    write_text(file, page)

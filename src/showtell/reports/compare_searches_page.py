"""The laboratory's page: one file with the photo and what each search said of it."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

from showtell.compare_searches import SearchResult
from showtell.files import write_text
from showtell.images.photo import PhotoSource, to_photo
from showtell.reports.base import data_url, templates


def write_page(file: Path, photo: PhotoSource, trials: Sequence[SearchResult]) -> None:
    """Write one page of HTML with the photo and the trials, whole or not at all.

    Args:
        file: the page.
        photo: the one that was captioned.
        trials: what `compare_searches` found.

    Raises:
        DataError: it cannot be written.
    """
    seen = to_photo(photo).image.convert("RGB")
    seen.thumbnail((640, 640))
    content = io.BytesIO()
    seen.save(content, "JPEG")
    template = templates().get_template("compare_searches_page.html.j2")
    write_text(file, template.render(picture=data_url(content.getvalue(), "jpeg"), trials=trials))

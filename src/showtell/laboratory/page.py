"""The laboratory's page: one file with the photo and what each search said of it."""

from __future__ import annotations

import base64
import io
from collections.abc import Sequence
from importlib import resources
from pathlib import Path

import jinja2

from showtell.files import write_text
from showtell.images.photo import PhotoSource, to_photo
from showtell.laboratory.searches import Trial


def write_page(file: Path, photo: PhotoSource, trials: Sequence[Trial]) -> None:
    """Write one page of HTML with the photo and the trials, whole or not at all.

    Args:
        file: the page.
        photo: the one that was captioned.
        trials: what `try_searches` found.

    Raises:
        DataError: it cannot be written.
    """
    seen = to_photo(photo).image.convert("RGB")
    seen.thumbnail((640, 640))
    content = io.BytesIO()
    seen.save(content, "JPEG")
    template = resources.files(__package__).joinpath("page.html.j2").read_text(encoding="utf-8")
    environment = jinja2.Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    picture = base64.b64encode(content.getvalue()).decode("ascii")
    write_text(file, environment.from_string(template).render(picture=picture, trials=trials))

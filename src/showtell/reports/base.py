"""What all pages of HTML share: templates that escape what is put into them, and pictures within the page."""

from __future__ import annotations

import base64

import jinja2


def templates() -> jinja2.Environment:
    """The templates of this package; lines with nothing but a statement leave nothing behind."""
    return jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, ""), autoescape=True, trim_blocks=True, lstrip_blocks=True
    )


def data_url(content: bytes, kind: str) -> str:
    """A picture as an address that holds it, so that the page needs no other file.

    >>> data_url(b"GIF89a", "gif")
    'data:image/gif;base64,R0lGODlh'

    Args:
        content: of the picture's file.
        kind: of picture: jpeg, png, ...
    """
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"

"""What all pages share: a template and stylesheet, a policy that forbids loading anything, and pictures in the page."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from showtell.errors import UsageError

SOFTWARE = "showtell explain"  # written into the PNG files of figures
MARKS = (b'content="showtell"', b'[{"image": ', b"[]", SOFTWARE.encode())  # of pages, explanations in JSON and figures


@cache
def templates() -> jinja2.Environment:
    """The templates of this package, which escape what is put into them."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__, ""),
        undefined=jinja2.StrictUndefined,
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    return environment


def render_page(
    template: str, title: str, *, styles: Sequence[str] = (), script: str = "", is_live: bool = False, **values: Any
) -> str:
    """A page in one file from a template that extends base.html.j2; it loads nothing, or (live) asks its own server."""
    style = "\n".join([resource("base.css"), *styles])
    policy = Markup(content_policy(style, script, is_live=is_live))
    page = templates().get_template(template)
    return page.render(values, title=title, policy=policy, style=Markup(style), script=Markup(script))


def content_policy(style: str, script: str = "", *, is_live: bool = False) -> str:
    """The Content-Security-Policy: one stylesheet, one script, pictures in the page; a live page may ask its server."""
    own = "connect-src 'self'; " if is_live else ""
    pictures = "'self' data: blob:" if is_live else "data:"
    allowed = f"script-src '{_hash(script)}'; " if script else ""
    return (
        f"default-src 'none'; {own}img-src {pictures}; style-src '{_hash(style)}'; {allowed}"
        "base-uri 'none'; form-action 'none'"
    )


def _hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode('ascii')}"


def refuse_foreign(file: Path, option: str) -> None:
    """Raise a UsageError if a file is there that is not a page, a figure or explanations that showtell wrote."""
    if file.is_file():
        with file.open("rb") as stream:
            opening = stream.read(4096)
        if opening and not any(mark in opening for mark in MARKS):
            raise UsageError(f"{option} would replace {file}, which showtell has not written; choose another name.")


def resource(name: str) -> str:
    """The text of a file of this package."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def data_url(content: bytes, kind: str) -> str:
    """The content of a picture's file as a URL."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode('ascii')}"

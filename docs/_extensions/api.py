"""The reference of the API in Sphinx: docstrings with fields behind them, links to the source, and links to entries.

`reference.py` makes the pages. In every page of the site the name of a class, or of a member of one, between backticks
becomes a link to its entry.
"""

from __future__ import annotations

import importlib
import inspect
import re
from pathlib import Path
from typing import Any

from docstrings import to_rest
from docutils import nodes
from pydantic import BaseModel
from reference import DIRECTIVE, ROOT, SOURCE, field_names, fields_of, named_bases, page
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

_CLASS_NAME = re.compile(r"(?:showtell\.(?:[a-z]\w*\.)*)?[A-Z]\w*[a-z]\w*(?:\.\w+)?")


def _docstring(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Make reStructuredText of a docstring, with the fields of a record behind it."""
    text = to_rest("\n".join(lines))
    if inspect.isclass(thing):
        text += "\n\n" + fields_of(thing)
    if what == "property":
        text = "\\\n" + text  # an escaped line break: napoleon takes what precedes a colon in the first line for a type
    lines[:] = [*text.splitlines(), ""]


def _signature(
    app: Sphinx, what: str, name: str, thing: Any, options: Any, signature: str | None, returns: str | None
) -> tuple[str, None] | None:
    """Leave out the arguments of a class that its fields list, or that come from a class of another package."""
    if signature is None or not inspect.isclass(thing):
        return None
    made_here = (getattr(thing.__init__, "__module__", None) or "").startswith("showtell")
    return None if made_here and not field_names(thing) else ("", None)


def _bases(app: Sphinx, name: str, thing: type, options: Any, bases: list[Any]) -> None:
    bases[:] = named_bases(bases)


def _skip(app: Sphinx, what: str, name: str, thing: Any, skip: bool, options: Any) -> bool | None:
    """Leave out what pydantic gives to every class of settings."""
    return True if hasattr(BaseModel, name) else None


def source_of(domain: str, info: dict[str, str]) -> str | None:
    """The line of the source of an entry, for sphinx.ext.linkcode."""
    if not info["module"]:  # a constant
        return None
    thing: Any = importlib.import_module(info["module"])
    for part in info["fullname"].split("."):
        thing = getattr(thing, part, None)
    thing = inspect.unwrap(getattr(thing, "fget", None) or getattr(thing, "func", None) or thing)  # of a property
    if not (inspect.isclass(thing) or inspect.isroutine(thing)):
        return None
    _, line = inspect.getsourcelines(thing)
    return f"repository:{Path(inspect.getfile(thing)).relative_to(ROOT).as_posix()}#L{line}"


# --- links from names between backticks ---


def _entries(app: Sphinx) -> dict[str, tuple[str, str]]:
    """Page and anchor of each entry by its path and by the ends of its path, where these mean one entry."""
    known: dict[str, set[tuple[str, str]]] = {}
    for path, one in app.env.domains.python_domain.objects.items():
        parts = path.split(".")
        if not one.aliased and one.objtype != "module":
            for start in range(len(parts)):
                known.setdefault(".".join(parts[start:]), set()).add((one.docname, one.node_id))
    return {name: next(iter(where)) for name, where in known.items() if len(where) == 1}


def _link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Link the names of classes and of their members between backticks to their entries."""
    if not hasattr(app, "api_entries"):
        app.api_entries = _entries(app)  # type: ignore[attr-defined]
    for literal in list(doctree.findall(nodes.literal)):
        name = literal.astext().removesuffix("()")
        if not _CLASS_NAME.fullmatch(name) or isinstance(literal.parent, nodes.reference | nodes.title):
            continue
        page, anchor = app.api_entries.get(name, ("", ""))  # type: ignore[attr-defined]
        if page:
            uri = (app.builder.get_relative_uri(docname, page) if page != docname else "") + f"#{anchor}"
            literal.replace_self(nodes.reference("", "", literal.deepcopy(), refuri=uri, internal=True))


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    def replace(match: re.Match[str]) -> str:
        for file in SOURCE.rglob("*.py"):
            app.env.note_dependency(str(file))
        return page(match[1])

    source[0] = DIRECTIVE.sub(replace, source[0])


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect the steps."""
    app.connect("source-read", _read, priority=400)  # before links to files are made
    app.connect("autodoc-process-docstring", _docstring, priority=400)  # before napoleon
    app.connect("autodoc-process-signature", _signature)
    app.connect("autodoc-process-bases", _bases)
    app.connect("autodoc-skip-member", _skip)
    app.connect("doctree-resolved", _link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

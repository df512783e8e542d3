"""Pages with the source and the notes of the project, line by line, and links to them.

`[a line](../src/showtell/models/sat.py#L120)`, which GitHub understands too, leads to that line of a page of the site;
so does the name of a file between backticks (`models/sat.py`). The name of a page, such as docs/recipes.md, becomes
a link with its title. Pages at the root of the repository, such as CONTRIBUTING.md, appear in the site under the name
of a page of docs/ that stands for them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from docutils import nodes
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import guess_lexer_for_filename
from sphinx.application import Sphinx
from sphinx.util.osutil import relative_uri
from sphinx.util.typing import ExtensionMetadata

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("src/showtell", "benchmarks", "scripts")
SUFFIXES = {".py", ".cpp", ".yaml", ".j2", ".csv"}
NOTES = ("docs/notes/*.md", "docs/lab_notes.md")  # kept in the repository, not pages of the site
ROOT_PAGES = {"contributing": "CONTRIBUTING.md", "changelog": "CHANGELOG.md"}
SCHEME = "repository:"
_PAGE = re.compile(r"\bdocs/(\w+)\.md\b")
_LINK = re.compile(r"\]\((?!https?:|mailto:|#)([^)#\s]+)(#[^)\s]*)?( \"[^\"]*\")?\)")


@cache
def files() -> dict[str, Path]:
    """The files that have a page, by path from the root."""
    every = (file for folder in FOLDERS for file in (ROOT / folder).rglob("*"))
    kept = (file for file in every if file.suffix in SUFFIXES or (file.parent.name == "scripts" and file.is_file()))
    notes = (file for pattern in NOTES for file in ROOT.glob(pattern))
    return {file.relative_to(ROOT).as_posix(): file for file in sorted([*kept, *notes])}


def page_of(name: str) -> str | None:
    """The page of a file that is named by its path from the root or from src/showtell."""
    paths = (name, f"src/showtell/{name}")
    return next((f"source/{path}" for path in paths if path in files()), None)


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Make links from Markdown to files outside of docs/ links of the scheme that `_resolve` knows."""
    folder = Path(docname).parent
    if docname in ROOT_PAGES:
        file = ROOT / ROOT_PAGES[docname]
        app.env.note_dependency(str(file))
        source[0], folder = file.read_text(encoding="utf-8"), Path("..")

    def rewrite(match: re.Match[str]) -> str:
        target, fragment = (ROOT / "docs" / folder / match[1]).resolve(), (match[2] or "") + (match[3] or "")
        if not target.is_relative_to(ROOT) or not target.exists():
            return match[0]
        path = target.relative_to(ROOT).as_posix()
        names = {file: name for name, file in ROOT_PAGES.items()} | {"README.md": "index"}
        if path in names:
            return f"]({relative_uri(docname, names[path])}.md{fragment})"
        if page_of(path):
            return f"]({SCHEME}{path}{fragment if target.suffix != '.md' else ''})"
        if docname in ROOT_PAGES and path.startswith("docs/"):
            return f"]({path.removeprefix('docs/')}{fragment})"
        return match[0]

    source[0] = _LINK.sub(rewrite, source[0])


def _resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Point links and file names between backticks to the pages of the source."""

    def uri(page: str, fragment: str = "") -> str:
        return app.builder.get_relative_uri(docname, page) + fragment

    for link in doctree.findall(nodes.reference):
        target = link.get("refuri", "")
        if target.startswith(SCHEME):
            path, _, line = target.removeprefix(SCHEME).partition("#")
            link["refuri"] = uri(page_of(path) or "", f"#{line}" if line else "")
            link["classes"] = ["source"]
    for name in list(doctree.findall(nodes.literal)):
        page = page_of(name.astext())
        if page and not isinstance(name.parent, nodes.reference | nodes.title):
            link = nodes.reference("", "", name.deepcopy(), refuri=uri(page), internal=True, classes=["source"])
            name.replace_self(link)
    for text in [one for one in doctree.findall(nodes.Text) if _PAGE.search(one)]:
        whole = text.parent if isinstance(text.parent, nodes.literal) and _PAGE.fullmatch(text) else text
        if isinstance(whole.parent, nodes.paragraph):
            whole.parent.replace(whole, list(_with_titles(app, text, uri)))


def _with_titles(app: Sphinx, text: str, uri: Callable[[str], str]) -> Iterator[nodes.Node]:
    """Yield the parts of a text, with links in place of the names of pages."""
    end = 0
    for match in _PAGE.finditer(text):
        if match[1] in app.env.titles:
            title = app.env.titles[match[1]].astext().partition(":")[0]
            yield nodes.Text(text[end : match.start()])
            yield nodes.reference("", title, refuri=uri(match[1]), internal=True)
            end = match.end()
    yield nodes.Text(text[end:])


def _pages(app: Sphinx) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield the pages of the source; each line can be linked to as #L12."""
    form: HtmlFormatter[str] = HtmlFormatter(linenos="inline", linespans="L", anchorlinenos=True, wrapcode=True)
    for path, file in files().items():
        text = file.read_text(encoding="utf-8")
        named = f"{path}{'.txt' if file.suffix == '.csv' else '' if file.suffix else '.sh'}"
        lexer = guess_lexer_for_filename(named, text, stripnl=False)
        body = highlight(text, lexer, form).replace('"L-', '"L').replace('"#L-', '"#L')
        content = f'<h1>{path}</h1>\n<div class="source-page">{body}</div>'
        yield f"source/{path}", {"title": path, "body": content}, "page.html"


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect the steps."""
    app.connect("source-read", _read)
    app.connect("doctree-resolved", _resolve)
    app.connect("html-collect-pages", _pages)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""After the build: every link inside the site has a target, and no page loads anything from outside of it."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.typing import ExtensionMetadata

log = logging.getLogger(__name__)
LOADED = {("img", "src"), ("script", "src"), ("link", "href"), ("iframe", "src"), ("source", "srcset")}


class _Page(HTMLParser):
    """The anchors of a page, its links, and what it loads."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.loads: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Keep what one tag says."""
        for name, value in attrs:
            if not value:
                continue
            if name in ("id", "name"):
                self.anchors.add(value)
            if (tag, name) in LOADED:
                self.loads.append(value)
            if (tag, name) in LOADED or (tag, name) == ("a", "href"):
                self.links.append(value)


def problems(folder: Path) -> list[str]:
    """What is wrong in a folder of HTML pages, a sentence each."""
    pages = {file.resolve(): _Page(file.read_text(encoding="utf-8")) for file in sorted(folder.rglob("*.html"))}
    sentences = []
    for file, page in pages.items():
        name = file.relative_to(folder.resolve()).as_posix()
        for link in page.loads:
            if urlsplit(link).netloc:
                sentences.append(f"{name} loads {link} from outside of the site")
        for link in dict.fromkeys(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (file.parent / unquote(parts.path)).resolve() if parts.path else file
            if not target.is_file():
                sentences.append(f"{name} links to {link}, which does not exist")
            elif parts.fragment and target in pages and unquote(parts.fragment) not in pages[target].anchors:
                sentences.append(f"{name} links to {link}, and that page has no such section")
    return sentences


def _check(app: Sphinx, exception: Exception | None) -> None:
    if exception is None and app.builder.name == "html":
        for sentence in problems(Path(app.outdir)):
            log.warning(sentence)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect the check to the end of the build."""
    app.connect("build-finished", _check)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

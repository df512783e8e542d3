"""Pictures that `make pictures` made: terminals as text in the page, and screenshots in the colours of the page.

A terminal (pictures/NAME.svg) is put into the page itself, where its text can be searched, copied and read aloud, and
where it scrolls by itself on a phone. A screenshot with a NAME-dark.webp beside it is replaced by that in the dark.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util.typing import ExtensionMetadata


class _Pictures(SphinxTransform):
    """Replaces pictures before Sphinx collects the files of images."""

    default_priority = 200

    def apply(self) -> None:
        """Replace the pictures of a page."""
        for image in list(self.document.findall(nodes.image)):
            file = Path(self.env.srcdir) / Path(self.env.docname).parent / image["uri"]
            dark = file.with_name(f"{file.stem}-dark{file.suffix}")
            if file.parent.name == "pictures" and file.suffix == ".svg" and file.exists():
                self.env.note_dependency(str(file))
                label = escape(image.get("alt", ""))
                content = file.read_text(encoding="utf-8")
                html = f'<div class="terminal" role="group" aria-label="{label}">{content}</div>'
                _put(image, [nodes.raw("", html, format="html")])
            elif dark.exists():
                twin = image.deepcopy()
                twin["uri"] = str(Path(image["uri"]).with_name(dark.name))
                image["classes"].append("only-light")
                twin["classes"].append("only-dark")
                _put(image, [image.deepcopy(), twin])


def _put(image: nodes.image, replacement: list[nodes.Node]) -> None:
    """Put something in place of a picture; of the paragraph, too, if that holds nothing else."""
    paragraph = image.parent
    target = paragraph if isinstance(paragraph, nodes.paragraph) and len(paragraph) == 1 else image
    target.replace_self(replacement)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the transform."""
    app.add_transform(_Pictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

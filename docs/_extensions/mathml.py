"""Equations as MathML: browsers draw it without a script, screen readers read it, and nothing is fetched."""

from __future__ import annotations

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator

# Where latex2mathml and TeX differ: space behind the name of a function, and around the sign of a distribution.
_FUNCTION = re.compile(r"(<mi>[a-z]{3,}</mi>)(?=<m(?:i|sub|sup|subsup|over)>)")
_DRAWN = "<mi>&#x0007E;</mi>"


def mathml(latex: str, display: str) -> str:
    """An equation in LaTeX as MathML."""
    text = _FUNCTION.sub(r'\1<mspace width="0.17em"/>', convert(latex, display=display))
    return text.replace(_DRAWN, "<mo>&#x0223C;</mo>")


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math-block">{mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

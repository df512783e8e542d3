"""Equations as MathML: browsers draw it without a script, screen readers read it, and nothing is fetched."""

from __future__ import annotations

import re

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata
from sphinx.writers.html5 import HTML5Translator

SPACE = '<mspace width="0.17em"></mspace>'  # what TeX puts around the name of a function
NAME = "<mi>(?:cos|exp|log|tanh)</mi>"
BEFORE = re.compile(rf"(</m[in]>|</msub>|&#x02207;</mo>)(?={NAME})")
BEHIND = re.compile(rf"(?<!<msub>)({NAME})(?=<m(?:i|n|sub|sup|subsup|over)>)")


def _mathml(latex: str, display: str) -> str:
    return BEHIND.sub(rf"\1{SPACE}", BEFORE.sub(rf"\1{SPACE}", convert(latex, display=display)))


def _inline(self: HTML5Translator, node: nodes.math) -> None:
    self.body.append(_mathml(node.astext(), "inline"))
    raise nodes.SkipNode


def _block(self: HTML5Translator, node: nodes.math_block) -> None:
    self.body.append(f'<div class="math-block" tabindex="0">{_mathml(node.astext(), "block")}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> ExtensionMetadata:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", inline_renderers=(_inline, None), block_renderers=(_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""The first use of each word of docs/glossary.md on a page leads to its entry, with the explanation as a tooltip."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata

GLOSSARY = Path(__file__).resolve().parents[1] / "glossary.md"
# Pages that are looked up rather than read.
REFERENCE = re.compile(r"glossary|recipe_keys|changelog|commands|api/.*")
OTHER_FORMS = {"cider": ["CIDEr-D"], "bleu": ["BLEU-4"], "self-critical": ["self-critical training", "SCST"]}
# Words with another meaning on some pages: tokens of a server, stages of a ResNet, the library transformers.
AMBIGUOUS = {"decoder", "override", "reference", "stage", "token", "transformer"}
TEXT = nodes.paragraph | nodes.list_item
NOT_INSIDE = (nodes.reference, nodes.literal, nodes.title, nodes.math, nodes.FixedTextElement, nodes.caption)


@cache
def entries() -> dict[str, tuple[str, str]]:
    """Anchor and explanation of each word, in lower case."""
    words = {}
    for word, text in re.findall(r"^### (.+)\n((?:.+\n)+)", GLOSSARY.read_text(encoding="utf-8"), flags=re.MULTILINE):
        anchor = re.sub(r"[^\w -]", "", word.lower()).replace(" ", "-")
        explanation = re.sub(r"[`*]", "", " ".join(text.split()))
        if word.lower() in AMBIGUOUS:
            continue
        for form in (word, *OTHER_FORMS.get(word.lower(), [])):
            words[form.lower()] = (anchor, explanation)
    return words


@cache
def pattern() -> re.Pattern[str]:
    """Any word of the glossary, singular or plural; the longest first."""
    forms = "|".join(re.escape(word) for word in sorted(entries(), key=len, reverse=True))
    return re.compile(rf"(?<![\w/.-])({forms})(s?)(?![\w/-])", flags=re.IGNORECASE)


def _link(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    if REFERENCE.fullmatch(docname) or app.builder.format != "html":
        return
    page = app.builder.get_relative_uri(docname, "glossary")
    seen: set[str] = set()
    for text in [node for node in doctree.findall(nodes.Text) if _is_prose(node)]:
        parts: list[nodes.Node] = []
        end = 0
        for match in pattern().finditer(text):
            anchor, explanation = entries()[match[1].lower()]
            if anchor in seen:
                continue
            seen.add(anchor)
            link = nodes.reference("", match[0], refuri=f"{page}#{anchor}", reftitle=explanation, internal=True)
            link["classes"] = ["term"]
            parts += [nodes.Text(text[end : match.start()]), link]
            end = match.end()
        if parts:
            text.parent.replace(text, [*parts, nodes.Text(text[end:])])


def _is_prose(node: nodes.Node) -> bool:
    """Whether a text stands in a paragraph or a list, and not in a heading, a link, code or a table."""
    prose, parent = False, node.parent
    while parent is not None:
        if isinstance(parent, (*NOT_INSIDE, nodes.table)):
            return False
        prose = prose or isinstance(parent, TEXT)
        parent = parent.parent
    return prose


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect the step."""
    app.add_config_value("glossary", GLOSSARY.read_text(encoding="utf-8"), "html")  # pages depend on it
    app.connect("doctree-resolved", _link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

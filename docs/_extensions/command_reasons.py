"""Below a block of commands that the tests do not run, the site says why."""

from __future__ import annotations

from docutils import nodes
from page_commands import REASONS, SHELL, commands_in, reason
from sphinx.application import Sphinx
from sphinx.util.typing import ExtensionMetadata


def _annotate(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    for block in list(doctree.findall(nodes.literal_block)):
        if block.get("language", "") not in SHELL | {"default", "none"}:
            continue
        commands = commands_in(block.astext())
        skipped = {command: why for command in commands if (why := reason(command)) and not why.quiet}
        if skipped:
            which = "" if len(skipped) == len(set(commands)) else f" ({', '.join(map(_short, skipped))})"
            texts = dict.fromkeys(why.text for why in skipped.values())
            note = nodes.paragraph("", f"Not run by the tests{which}: {'; '.join(texts)}.", classes=["not-run"])
            block.parent.insert(block.parent.index(block) + 1, note)


def _short(command: str) -> str:
    """The beginning of a command, enough to tell it from its neighbours."""
    return " ".join(command.split()[:3]) + " ..."


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect the step."""
    app.add_config_value("command_reasons", REASONS.read_text(encoding="utf-8"), "html")  # pages depend on it
    app.connect("doctree-resolved", _annotate)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

"""What is made of the source while the site is built.

Every command and every key of a recipe have pages of their own, which git ignores. In the other pages

    ```{made} scores
    ```

becomes a table of `TABLES`, and links to equations lead to their lines (`equation_lines.py`). In a clone

    .venv/bin/python docs/_extensions/made_pages.py scores

prints it, or with the name of such a page that page.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from commands_page import commands_page
from equation_lines import ROOT, with_lines
from results_tables import photos_table, scenes_table
from settings_tables import decoding_table, error_table, recipe_keys_page, score_table, serving_table
from tree import tree

if TYPE_CHECKING:
    from sphinx.application import Sphinx
    from sphinx.config import Config
    from sphinx.util.typing import ExtensionMetadata

PAGES = {"commands": commands_page, "recipe_keys": recipe_keys_page}
TABLES = {
    "decoding": decoding_table,
    "scores": score_table,
    "serving": serving_table,
    "errors": error_table,
    "tree": tree,
    "photos": photos_table,
    "scenes": scenes_table,
}
DIRECTIVE = re.compile(r"^```\{made\} (\w+)\n(?:.*\n)?```$", re.MULTILINE)


def _write(app: Sphinx, config: Config) -> None:
    """Write the pages; one that has not changed is left alone, so that it is not read again."""
    for name, make in PAGES.items():
        file, text = Path(app.srcdir) / f"{name}.md", make()
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def _read(app: Sphinx, docname: str, source: list[str]) -> None:
    text = with_lines(DIRECTIVE.sub(lambda match: TABLES[match[1]](), source[0]))
    if text != source[0]:
        for file in (ROOT / "src" / "showtell").rglob("*.py"):
            app.env.note_dependency(str(file))
    source[0] = text


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect the steps."""
    app.connect("config-inited", _write)
    app.connect("source-read", _read, priority=400)  # before links to files are made
    return {"parallel_read_safe": True, "parallel_write_safe": True}


if __name__ == "__main__":
    sys.stdout.write((PAGES | TABLES)[sys.argv[1]]() + "\n")

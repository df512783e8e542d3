"""How Sphinx builds the site of these pages: `make docs`, or `sphinx-build -W docs build/docs`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

import api
import reference

import showtell

project = "showtell"
author = copyright = "The showtell authors"
version = release = showtell.__version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.linkcode",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "mathml",  # this and the following: docs/_extensions
    "made_pages",
    "repository_links",
    "real_pictures",
    "api",
]
exclude_patterns = ["_extensions", "notes", "lab_notes.md"]  # notes are linked as files of the repository

html_theme = "furo"
html_title = "showtell"
html_math_renderer = "mathml"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_js_files = ["site.js"]
html_copy_source = False
html_show_sphinx = False
templates_path: list[str] = []
html_search_scorer = str(Path(__file__).parent / "_extensions" / "search_scorer.js")
smartquotes_action = "qe"  # quotes and ellipses; two hyphens are the beginning of an option

# Markdown as GitHub reads it, so that the pages can be read there as well.
myst_enable_extensions = ["dollarmath", "colon_fence", "deflist", "attrs_inline"]
myst_heading_anchors = 4
myst_url_schemes = ["http", "https", "mailto", "repository"]

# A notebook is executed when its code has changed since the last build, in a folder of its own.
nb_execution_mode = "cache"
nb_execution_in_temp = True
# Several notebooks share the cores; tqdm, which others import, misses a package for bars, of which none is drawn.
os.environ |= {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "10000", "PYTHONWARNINGS": "ignore:IProgress not found"}
nb_execution_cache_path = str(Path(__file__).parents[1] / "build" / "notebooks")
nb_execution_timeout = 600
nb_execution_raise_on_error = True
nb_merge_streams = True

# Docstrings are Google's style with `code` between single backticks.
default_role = "code"
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autodoc_type_aliases = reference.type_aliases()
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
toc_object_entries_show_parents = "hide"
linkcode_resolve = api.source_of
napoleon_google_docstring = True
napoleon_numpy_docstring = False

copybutton_exclude = ".linenos, .gp, .go"

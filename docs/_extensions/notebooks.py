"""Notebooks: executed before the pages are read, kept in a cache by their code, and offered with what they printed.

myst-nb would execute them one after the other, each in the folder of its page. Here the first one has the machine for
itself, and the others are executed in pairs that share its cores. They work in one new folder, so that the pictures
which the first one draws are there for all, and no result depends on an earlier build. myst-nb then finds all of them
in its cache.

A notebook is executed again when one of its code cells has changed. It is not when showtell has changed: for that,
remove build/notebooks. `sphinx-build -D nb_execution_mode=off` executes none and offers none.
"""

from __future__ import annotations

import os
import re
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import nbformat
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from myst_nb.core.read import read_myst_markdown_notebook
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging
from sphinx.util.typing import ExtensionMetadata

from showtell.cores import usable_cores

FOLDER = "notebooks"  # in docs/, and in the site
AT_ONCE = 2
PAGE = re.compile(r"\[([^\]]+)\]\(\.\./(\w+)\.md\)")  # a link to a page of docs/
log = logging.getLogger(__name__)


def read(file: Path) -> NotebookNode:
    """A notebook without outputs from its Markdown, as Jupyter has it."""
    notebook = read_myst_markdown_notebook(file.read_text(encoding="utf-8"), path=str(file))
    notebook.metadata = {"kernelspec": notebook.metadata["kernelspec"]}
    return notebook


def execute(notebook: NotebookNode, folder: Path, *, threads: int, timeout: float) -> float:
    """Execute a notebook in place; the seconds that it took.

    Args:
        notebook: of `read`.
        folder: where it runs.
        threads: of torch.
        timeout: seconds for a cell.

    Raises:
        CellExecutionError: a cell fails.
        CellTimeoutError: a cell takes longer.
    """
    began = time.perf_counter()
    client = NotebookClient(
        notebook,
        timeout=timeout,
        startup_timeout=timeout,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        extra_arguments=["--log-level=ERROR"],  # kernels warn that programs of this machine could read what they send
    )
    # tqdm, which others of our packages import, misses a package for its bars in notebooks; none is drawn here.
    environment = {
        "OMP_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "PASSIVE",  # two at once, as the command line waits (docs/scaling.md)
        "GOMP_SPINCOUNT": "10000",
        "PYTHONWARNINGS": "ignore:IProgress not found",
    }
    client.execute(env=os.environ | environment)
    return time.perf_counter() - began


def _fill_cache(app: Sphinx) -> None:
    """Execute what the cache lacks, and put the notebooks with their outputs beside their pages."""
    config = app.env.mystnb_config  # type: ignore[attr-defined]
    if config.execution_mode == "off":
        return
    cache = get_cache(config.execution_cache_path)
    notebooks = {file: read(file) for file in sorted((Path(app.srcdir) / FOLDER).glob("*.md"))}
    missing = [file for file, notebook in notebooks.items() if not _is_cached(cache, notebook)]
    if missing:
        log.info("executing %d notebooks, a minute or two each; they are cached", len(missing))
    done, cores = 0, usable_cores()
    build = Path(config.execution_cache_path).parent
    with tempfile.TemporaryDirectory(dir=build, prefix="notebook-runs-") as name, ThreadPoolExecutor(AT_ONCE) as pool:
        for files, threads in ((missing[:1], cores), (missing[:0:-1], max(1, cores // AT_ONCE))):  # the longest first
            runs = {
                pool.submit(
                    execute, notebooks[file], Path(name), threads=threads, timeout=config.execution_timeout
                ): file
                for file in files
            }
            for run in as_completed(runs):
                file = runs[run]
                try:
                    seconds = run.result()
                except (CellExecutionError, CellTimeoutError) as error:
                    raise ExtensionError(f"{file} fails: {error}") from error
                done += 1
                log.info("notebook %d of %d: %s, %.0f s", done, len(missing), file.stem, seconds)
                bundle = CacheBundleIn(notebooks[file], str(file), data={"execution_seconds": seconds})
                cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    for file in notebooks:
        _, executed = cache.merge_match_into_notebook(read(file))
        for cell in executed.cells:
            if cell.cell_type == "markdown":  # a notebook that was downloaded has no pages beside it
                cell.source = PAGE.sub(r"\1 (`docs/\2.md`)", cell.source)
        nbformat.validate(executed)
        target = Path(app.outdir) / FOLDER / f"{file.stem}.ipynb"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(nbformat.writes(executed), encoding="utf-8")


def _is_cached(cache: Any, notebook: NotebookNode) -> bool:
    try:
        cache.match_cache_notebook(notebook)
    except KeyError:
        return False
    return True


def _offer(app: Sphinx, pagename: str, templatename: str, context: dict[str, Any], doctree: Any) -> None:
    """Put the link to the notebook below the title of its page."""
    folder, _, name = pagename.rpartition("/")
    if folder == FOLDER and app.config.nb_execution_mode != "off":
        link = f'<a download href="{name}.ipynb">Download this notebook</a> with its pictures, for Jupyter.'
        context["body"] = context["body"].replace("</h1>", f"</h1>\n<p>{link}</p>", 1)


def setup(app: Sphinx) -> ExtensionMetadata:
    """Connect the steps."""
    app.connect("builder-inited", _fill_cache, priority=900)  # behind myst-nb, which reads its settings there
    app.connect("html-page-context", _offer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}

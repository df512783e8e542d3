# Two commands work on a machine that has only git, make and Python 3.11+:
#   make quickstart   draws scenes, trains a captioner, scores it and writes report.html
#   make test         the whole test suite but for the slow checks (make test-slow)
# make docs builds the site of docs/ in build/site, whose notebooks are executed once and then cached; make check is
# scripts/check: format, lint, types and tests, what continuous integration runs.
# Each sets up .venv first, if pyproject.toml changed since the last time.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
READY_DOCS := $(VENV)/.ready-docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check
# uv takes half of pip's time; pip does it where uv is not to be had, or does not get through to the index. Bytecode is
# compiled at once, as pip does: a program on a full disk leaves half of it, which no other can import.
UV := UV_SYSTEM_CERTS=1 $(BIN)/uv pip install --quiet --compile-bytecode --python $(BIN)/python

.PHONY: quickstart test test-slow check docs notebooks pictures dist clean

$(READY): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "showtell needs Python 3.11 or newer; run: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 2; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	{ $(PIP) uv && $(UV) -e '.[dev]'; } || $(PIP) -e '.[dev]'
	touch $@

$(READY_DOCS): $(READY)
	$(UV) -e '.[dev,docs]' || $(PIP) -e '.[dev,docs]'
	touch $@

quickstart: $(READY)
	$(BIN)/showtell quickstart

# A process for each core, up to four: each takes up to 2.5 GB.
test: $(READY)
	$(BIN)/python -m pytest -n logical --maxprocesses 4 --dist worksteal

test-slow: $(READY_DOCS)
	$(BIN)/python -m pytest -m slow --timeout 3600

# Warnings are errors: of a docstring, of a link that leads nowhere, of a notebook that fails.
docs: $(READY_DOCS)
	$(BIN)/sphinx-build --jobs auto --fail-on-warning --keep-going docs build/site
	@echo "open build/site/index.html"

# The notebooks of docs/notebooks, executed, in build/ipynb: .venv/bin/jupyter lab build/ipynb opens them. A cell writes to
# build/ipynb/runs; a second run finds what the first trained. ONLY=show_attend_tell executes that one.
notebooks: $(READY)
	$(UV) -e '.[dev,notebooks]' || $(PIP) -e '.[dev,notebooks]'
	mkdir -p build/ipynb
	for file in docs/notebooks/$(or $(ONLY),*).md; do \
		$(BIN)/jupytext --quiet --to ipynb --execute --run-path build/ipynb \
			--output build/ipynb/$$(basename $$file .md).ipynb $$file || exit 1; \
	done

# What commands print, for the documentation: needs Chromium, and the first time a few minutes to train the quickstart's
# model. ONLY=caption,explain makes these again.
pictures: $(READY_DOCS)
	PYTHONPATH=. $(BIN)/python benchmarks/pictures.py --only "$(ONLY)"

# A wheel and an sdist; CONTRIBUTING.md has what else a release takes.
dist: $(READY)
	rm -rf dist
	$(BIN)/python -m hatchling build -t sdist -t wheel
	@ls dist

check:
	scripts/check

clean:
	rm -rf $(VENV) build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis

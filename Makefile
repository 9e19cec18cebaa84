# make book        build the site, serve it on localhost and open it     (BOOK_SERVE=0: only build)
# make test        run every test and every notebook, with coverage
# make lab         open the notebooks in JupyterLab
# make notebooks   run every notebook from top to bottom and store its outputs
# make pdf         print the whole book to _build/book.pdf (needs a Chromium)
# make lint        check style and spelling; make format mends what it can
#
# Each one first makes the virtual environment .venv and installs requirements.txt there.
# On Windows, or to use an environment of your own, take the plain commands in README.md.

VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
# The first Python on the path that is new enough; name another with: make book PYTHON=/path/to/python
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11 python; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)
BOOK_SERVE ?= 1
BOOK_PORT ?= 8000

.PHONY: book html pdf test lab notebooks lint format clean help
.DEFAULT_GOAL := help

help:
	@sed -n '1,/^$$/s/^# \{0,1\}//p' Makefile

book: html
ifneq ($(BOOK_SERVE),0)
	$(BIN)/python book/serve.py _build/html --port $(BOOK_PORT)
endif

html: $(STAMP)
	$(BIN)/jupyter-book build . --warningiserror --keep-going --nitpick

pdf: $(STAMP)
	$(BIN)/jupyter-book build . --builder singlehtml
	$(BIN)/python book/print_pdf.py _build/singlehtml _build/book.pdf

test: $(STAMP)
	$(BIN)/python -m pytest --nbval --cov -n auto

lab: $(STAMP)
	$(BIN)/jupyter lab --notebook-dir=notebooks

notebooks: $(STAMP)
	$(BIN)/python notebooks/run.py

lint: $(STAMP)
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/codespell

format: $(STAMP)
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

# The stamp is written last, so an interrupted install is taken up again.
$(STAMP): requirements.txt pyproject.toml
	@if [ -z "$(PYTHON)" ]; then \
		echo "No Python 3.11 or newer found. Install one, or name it: make PYTHON=/path/to/python" >&2; exit 1; fi
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Python 3.11 or newer is needed; this is " + sys.version.split()[0])'
	@echo "Making $(VENV) and installing requirements.txt there: a few minutes, once."
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --progress-bar on --disable-pip-version-check -r requirements.txt
	@touch $(STAMP)

clean:
	rm -rf _build .pytest_cache .hypothesis .ruff_cache .coverage

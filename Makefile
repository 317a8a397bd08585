# `make demo` and `make test` need Python 3.11+ with venv and a C++ compiler; they set up .venv.

SYSTEM_PYTHON ?= python3
VENV := .venv
PYTHON ?= $(VENV)/bin/python
PIP := $(VENV)/bin/python -m pip --disable-pip-version-check

# A Python given on the command line or in the environment is used as it is, without .venv.
ifeq ($(origin PYTHON),file)
GPU_CHECK_NEEDS := $(VENV)/.stamp-test
endif

# The shipped case has 128^3 points; with fewer it needs a larger viscosity.
DEMO := --set grid.points=64 --set equation.viscosity=0.005 --set title="Taylor-Green vortex, Re = 200"

# The tests of Hypothesis that `make test-all` draws: others at each commit, the same for one commit.
SEED ?= $(shell git rev-list --count HEAD 2>/dev/null || echo 0)

.PHONY: help demo quick test test-rest test-all lint docs format gpu-check gpu-bench bench clean

help:
	@echo "make demo       simulate the Taylor-Green vortex and draw pictures, in a minute"
	@echo "make quick      run the tests that take less than 0.3 s each, in two minutes"
	@echo "make test       run the tests of every feature, also on three MPI ranks, in eight minutes"
	@echo "make test-all   run all tests, on 1 to 6 ranks and two nodes, in twenty minutes"
	@echo "make lint       check style, formatting, types and the documentation site"
	@echo "make docs       build the documentation site: build/docs/index.html"
	@echo "make gpu-check  run everything that needs a GPU (PYTHON=... to choose the interpreter)"
	@echo "make gpu-bench  measure all headline figures on GPUs (RECORD=FILE to keep, AGAINST=FILE to compare)"
	@echo "make bench      time a step of a direct numerical simulation"

$(VENV)/bin/python:
	@$(SYSTEM_PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Slipstream needs Python 3.11 or newer: make SYSTEM_PYTHON=/path/to/python3 ..."; exit 1; }
	$(SYSTEM_PYTHON) -m venv $(VENV)

$(VENV)/.stamp-core: pyproject.toml | $(VENV)/bin/python
	@echo "Installing Slipstream into $(VENV), which takes a minute or two, once ..."
	$(PIP) install --quiet --editable .
	@touch $@

$(VENV)/.stamp-test: pyproject.toml | $(VENV)/bin/python
	@echo "Installing what the tests need into $(VENV), which takes some minutes, once ..."
	$(PIP) install --quiet --editable '.[mpi,test]'
	@touch $@ $(VENV)/.stamp-core

$(VENV)/.stamp-docs: pyproject.toml | $(VENV)/.stamp-core
	@echo "Installing what the documentation site needs into $(VENV) ..."
	$(PIP) install --quiet --editable '.[docs]'
	@touch $@

demo: $(VENV)/.stamp-core
	@echo "Large vortices stretch, and break down into small ones: the Taylor-Green vortex,"
	@echo "simulated on 64^3 points and then drawn, in less than a minute on two cores."
	@$(VENV)/bin/slipstream run taylor-green --out runs/demo --overwrite $(DEMO)
	@echo "Open runs/demo/report.html in a browser. To go on:"
	@echo "    source $(VENV)/bin/activate"
	@echo "    slipstream cases"

# Tests start many processes: where Python was told to keep no bytecode, each compiles all it imports.
PYTEST := PYTHONDONTWRITEBYTECODE= $(VENV)/bin/python -m pytest -q -n auto --maxprocesses 8 --dist worksteal

quick: $(VENV)/.stamp-test
	$(PYTEST) --tier quick

test: $(VENV)/.stamp-test
	$(PYTEST) --tier test

# What `make test` leaves out, and new examples of Hypothesis.
test-rest: $(VENV)/.stamp-test
	$(PYTEST) --tier beyond-test --hypothesis-profile random --hypothesis-seed $(SEED)

test-all: test
	$(MAKE) test-rest

lint: $(VENV)/.stamp-test docs
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy

# Warnings are errors. The site reads from disk, without a network.
docs: $(VENV)/.stamp-docs
	$(VENV)/bin/python -m sphinx --quiet --nitpicky --fail-on-warning --keep-going -j auto docs build/docs
	$(VENV)/bin/python tools/check_site.py build/docs

format: $(VENV)/.stamp-test
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

gpu-check: $(GPU_CHECK_NEEDS)
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) tools/gpu_check.py

gpu-bench: $(GPU_CHECK_NEEDS)
	PYTHONPATH=src$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m bench headlines --device cuda \
	  $(if $(RECORD),--json $(RECORD)) $(if $(AGAINST),--against $(AGAINST))

bench: $(VENV)/.stamp-core
	$(VENV)/bin/python -m bench dns

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build dist docs/generated

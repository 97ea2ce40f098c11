# make demo        compile a real model, run it, compare it with ONNX Runtime
# make test        all tests, of long lists of cases those that tell most; CASES=all runs every case
# make quick       lint, and the tests that tell most about what was changed, in three minutes
# make lint        ruff and mypy
# make boards      the models on five boards under emulation, compared with ONNX Runtime (an hour)
# make node-tests  the ONNX node tests and ONNX's backend tests; writes their tables into SUPPORT.md
# make torch-tests torch.compile's backend, in an environment of its own (PyTorch is large; TORCH='torch==...' says which)
# make bench       the benchmarks beside ONNX Runtime
# make docs        the site, into site/: no warnings, every link checked
# make wheels      the wheels of the compiler and of the runtime (NumPy alone), into dist/
# make clean       remove what the targets above made
#
# Needs Python 3.10 or newer and a C compiler. Everything else is installed into .venv by pip.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help demo test quick lint types node-tests torch-tests bench boards docs wheels clean

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "Halotile needs Python 3.10 or newer; set PYTHON=..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,verify]'
	@touch $@

demo: $(STAMP)
	$(BIN)/python -m halotile.benchmarks.demo

# Tests start hundreds of processes: without bytecode each would compile all modules again, 1.3 seconds' work.
test quick: export PYTHONDONTWRITEBYTECODE =

test: $(STAMP)
	@.ci/debian.sh
	$(if $(CASES),HALOTILE_CASES=$(CASES) )$(BIN)/python -m pytest tests -n 2 --dist worksteal -rs

quick: export HALOTILE_CACHE ?= $(CURDIR)/.cache/halotile
quick: lint
	$(BIN)/python tests/support/quick.py -n 2 --dist worksteal

lint: $(STAMP)
	$(BIN)/ruff check .
	$(MAKE) --no-print-directory types

types: $(STAMP)
	$(BIN)/mypy compiler passes schedules targets benchmarks errors.py __init__.py

node-tests: $(STAMP)
	$(BIN)/python -m halotile.benchmarks.node_tests --table SUPPORT.md
	$(BIN)/python -m halotile.benchmarks.backend_tests --table SUPPORT.md

boards: $(STAMP)
	@.ci/debian.sh
	$(BIN)/python -m halotile.benchmarks.boards
	HALOTILE_FRESH=1 $(BIN)/python -m pytest tests/boards/test_fresh.py -rs

torch-tests: $(STAMP)
	test -d $(VENV)-torch || $(PYTHON) -m venv $(VENV)-torch
	$(VENV)-torch/bin/python -m pip install --quiet --disable-pip-version-check -e '.[dev,verify,torch]' $(TORCH)
	$(VENV)-torch/bin/python -m pytest tests/torch -rs

bench: $(STAMP)
	$(BIN)/halotile bench

docs: export NO_MKDOCS_2_WARNING = 1
docs: $(STAMP)
	$(BIN)/python -m mkdocs build --strict

wheels: $(STAMP)
	$(BIN)/python wheels/build.py dist

clean:
	rm -rf $(VENV) $(VENV)-torch .cache out build dist site *.egg-info
	find . -name __pycache__ -prune -exec rm -rf {} +

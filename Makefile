# Everything lives in a virtual environment of its own. Override with: make VENV=/some/where PYTHON=python3.12 test
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BENCH  := $(VENV)-bench
DATA   := $(VENV)-bench-data
TRAIN  := $(VENV)-bench-train
# Upstream Marin is measured where this runs. UPSTREAM_PYTHON=none leaves it out.
UPSTREAM_PYTHON ?= python3.12

# Only the tests of make test-all need torch: one release, and its build for CPUs, where that is found (far smaller).
TORCH       ?= torch==2.13.0
TORCH_INDEX ?= https://download.pytorch.org/whl/cpu

CHAOS_SECONDS ?= 1800
CHAOS_SEED    ?= $(shell date +%s)

.PHONY: demo test test-all chaos check bench bench-data bench-train clean

demo: $(VENV)/.demo
	$(BIN)/python examples/01_first_pipeline.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not heavy" $(PYTEST_ARGS)

test-all: $(VENV)/.torch
	$(BIN)/python -m pytest -n 2 $(PYTEST_ARGS)

# The chaos of make test, for longer and with another seed each time; a failure prints the seed.
chaos: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/chaos --chaos-seconds $(CHAOS_SECONDS) --chaos-seed $(CHAOS_SEED) $(PYTEST_ARGS)

check: $(VENV)/.dev
	$(BIN)/ruff format --check src tests examples benchmarks
	$(BIN)/ruff check src tests examples benchmarks
	$(BIN)/basedpyright
	$(BIN)/lint-imports

# The tools that we compare with get an environment of their own. BENCH_ARGS="--only cached --rounds 9": see --help.
bench: $(BENCH)/.ready $(BENCH)-upstream/.tried
	$(BENCH)/bin/python -m benchmarks --write $(BENCH_ARGS)

$(BENCH)/.ready: benchmarks/requirements.txt pyproject.toml
	@$(MAKE) --no-print-directory VENV=$(BENCH) $(BENCH)/bin/pip
	@$(BENCH)/bin/python -m pip install --quiet -e . -r benchmarks/requirements.txt
	@touch $@

# Likewise of the data side, with its corpus: about 600 MB beside the environment. BENCH_ARGS="--only reading": see --help.
bench-data: $(DATA)/.ready $(BENCH)-upstream/.tried
	$(DATA)/bin/python -m benchmarks.data --write $(BENCH_ARGS)

$(DATA)/.ready: benchmarks/requirements-data.txt pyproject.toml
	@$(MAKE) --no-print-directory VENV=$(DATA) $(DATA)/bin/pip
	@$(DATA)/bin/python -m pip install --quiet -e '.[data]' -r benchmarks/requirements-data.txt
	@touch $@

# Likewise of training: 1.7 GB for the peers on torch, and 0.7 GB for ours on the Python that upstream runs on, if there is
# one, since JAX has no newest release for older ones. BENCH_ARGS="--only nano-fp32 --rounds 3 --steps 12": see --help.
bench-train: $(TRAIN)/.ready $(TRAIN)-marin/.ready $(BENCH)-upstream/.tried
	$(TRAIN)/bin/python -m benchmarks.train --write $(BENCH_ARGS)

$(TRAIN)/.ready: benchmarks/requirements-train.txt pyproject.toml
	@echo "Installing what training is measured beside into $(TRAIN): about 1.7 GB, some minutes."
	@$(MAKE) --no-print-directory VENV=$(TRAIN) $(TRAIN)/bin/pip
	@$(TRAIN)/bin/python -m pip install --quiet --extra-index-url $(TORCH_INDEX) -e '.[data,train]' $(TORCH) -r benchmarks/requirements-train.txt
	@$(TRAIN)/bin/python -m pip install --quiet --no-deps 'litgpt>=0.5.13'
	@touch $@

$(TRAIN)-marin/.ready: pyproject.toml
	@python=$$($(UPSTREAM_PYTHON) -c 'import sys; print(sys.executable)' 2> /dev/null) || python=$(PYTHON); \
	$(MAKE) --no-print-directory VENV=$(TRAIN)-marin PYTHON=$$python $(TRAIN)-marin/bin/pip
	@$(TRAIN)-marin/bin/python -m pip install --quiet -e '.[data,train]'
	@touch $@

$(BENCH)-upstream/.tried: benchmarks/install_upstream.sh
	@benchmarks/install_upstream.sh $(abspath $(BENCH)-upstream) $(UPSTREAM_PYTHON)
	@touch $@

# Debian's python3 may come without ensurepip: then virtualenv, kept beside the environment, makes it.
$(BIN)/pip:
	@$(PYTHON) -m venv $(VENV) 2>/dev/null \
	|| { rm -rf $(VENV) && $(PYTHON) -m pip install --quiet --target $(VENV)-bootstrap virtualenv \
	     && PYTHONPATH=$(VENV)-bootstrap $(PYTHON) -m virtualenv --quiet $(VENV); }

$(VENV)/.demo: pyproject.toml | $(BIN)/pip
	@echo "Installing Marin with its data and training parts into $(VENV): about 800 MB, a few minutes the first time."
	@$(BIN)/python -m pip install --quiet -e '.[data,train]'
	@touch $@

$(VENV)/.dev: pyproject.toml | $(BIN)/pip
	@echo "Installing Marin and all that its tests need into $(VENV): about 1 GB, a few minutes the first time."
	@$(BIN)/python -m pip install --quiet -e '.[dev]'
	@touch $@ $(VENV)/.demo

$(VENV)/.torch: pyproject.toml | $(VENV)/.dev
	@$(BIN)/python -m pip install --quiet --extra-index-url $(TORCH_INDEX) -e '.[torch,wandb]' $(TORCH)
	@touch $@

clean:
	rm -rf $(VENV) $(VENV)-bootstrap $(BENCH) $(BENCH)-bootstrap $(BENCH)-upstream $(DATA) $(DATA)-bootstrap $(DATA)-input $(TRAIN) $(TRAIN)-bootstrap $(TRAIN)-marin $(TRAIN)-marin-bootstrap $(TRAIN)-input build src/*.egg-info .pytest_cache .ruff_cache .hypothesis

# Everything lives in a virtual environment of its own. Override with: make VENV=/some/where PYTHON=python3.12 test
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
BENCH  := $(VENV)-bench
# Upstream Marin is measured where this runs. UPSTREAM_PYTHON=none leaves it out.
UPSTREAM_PYTHON ?= python3.12

CHAOS_SECONDS ?= 1800
CHAOS_SEED    ?= $(shell date +%s)

.PHONY: demo test test-all chaos check bench clean

demo: $(VENV)/.demo
	$(BIN)/python examples/01_first_pipeline.py

test: $(VENV)/.dev
	$(BIN)/python -m pytest -n 2 -m "not heavy" $(PYTEST_ARGS)

test-all: $(VENV)/.dev
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

clean:
	rm -rf $(VENV) $(VENV)-bootstrap $(BENCH) $(BENCH)-bootstrap $(BENCH)-upstream build src/*.egg-info .pytest_cache .ruff_cache .hypothesis

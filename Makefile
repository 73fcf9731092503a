# Each target does its own set-up, so any of them is the first command on a fresh machine.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export UV_PYTHON_DOWNLOADS = never

# More than the cores of a small machine: tests wait for processes about half of the time.
TEST_PROCESSES ?= 3

.PHONY: setup demo test check lint types contracts docs lock clean

setup: $(VENV)/.installed

# The lock is complete, so nothing is resolved, and nothing is built with tools that it does not name:
# a new release of anything changes nothing here.
$(VENV)/.installed: requirements/dev.txt pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-deps --only-binary=:all: --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m pip check
	touch $@

demo: setup
	$(BIN)/tangram demo

test: setup
	$(BIN)/python -m pytest -m "not alone" --numprocesses=$(TEST_PROCESSES) --dist=worksteal
	$(BIN)/python -m pytest -m alone

check: lint types contracts test

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: setup
	$(BIN)/mypy

contracts: setup
	$(BIN)/lint-imports

docs: setup
	$(BIN)/python -m tangram_workers.cli.reference docs/reference

lock:
	uv pip compile --universal --generate-hashes --all-extras --group dev --python-version 3.11 \
		--custom-compile-command "make lock" pyproject.toml -o requirements/dev.txt

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis

# Every target does its own set-up; python3, pip, git and make are all that a machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CORE := $(VENV)/.core
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

# Two workers, a file of tests at a time, in the order of tests/conftest.py.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: install demo test test-browser check test-deploy chaos bench clean

install: $(STAMP)

$(CORE): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) .
	touch $(CORE)

$(STAMP): $(CORE)
	$(PIP) ".[dev]"
	touch $(STAMP)

demo: $(CORE)
	$(BIN)/fedawe demo

test: $(STAMP)
	$(BIN)/python -m pytest $(WORKERS)

# Only the tests that need a browser; without one they fail here, while `make test` skips them.
test-browser: $(STAMP)
	$(BIN)/python -m pytest $(WORKERS) -m browser --require-browser

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# With TLS, authenticated nodes and Flower's own client processes: several minutes.
test-deploy: $(STAMP)
	$(BIN)/python -m pytest $(WORKERS) tests/test_flower_deploy.py tests/deploy_tls.py

# Random faults over 200 rounds of a real federation: about half an hour; 200 devices for 20 minutes.
chaos: $(STAMP)
	$(BIN)/python benchmarks/chaos.py
	$(BIN)/python benchmarks/devices.py

# AGAINST=FOLDER compares with the package of another checkout too.
bench: $(STAMP)
	$(PIP) ".[dev,bench]"
	$(BIN)/python benchmarks/engine.py $(if $(AGAINST),--against $(AGAINST))
	$(BIN)/python benchmarks/audit.py

clean:
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

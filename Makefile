# Every target does its own set-up; python3, pip, git and make are all that a machine needs.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
CORE := $(VENV)/.core
DOCS := $(VENV)/.docs
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable

# Compiled modules are kept: most of the time in which a process starts would be spent on compiling them again.
unexport PYTHONDONTWRITEBYTECODE

# Two workers, a file of tests at a time, in the order of tests/conftest.py.
WORKERS := -n 2 --dist loadfile --no-loadscope-reorder

.PHONY: install demo docs notebooks test test-long test-browser test-lowest check release test-deploy chaos chaos-sim fuzz bench clean

install: $(STAMP)

$(CORE): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(PIP) .
	touch $(CORE)

$(STAMP): $(CORE)
	$(PIP) ".[dev]"
	touch $(STAMP)

$(DOCS): $(CORE)
	$(PIP) ".[docs]"
	touch $(DOCS)

demo: $(CORE)
	$(BIN)/fedawe demo

test: $(STAMP)
	$(BIN)/python -m pytest $(WORKERS) -m "not long"

# What takes longest: a Ray cluster that loses a node, a federation whose servers are killed, trackers after a kill.
test-long: $(STAMP)
	$(BIN)/python -m pytest $(WORKERS) -m "long and not browser" tests/test_*.py tests/deploy_federations.py

# Only the tests that need a browser; without one they fail here, while `make test` skips them.
test-browser: $(STAMP)
	$(BIN)/python -m pytest $(WORKERS) -m browser --require-browser

# The site, in build/site: open build/site/index.html, with or without a network. Warnings and broken links are errors.
docs: $(DOCS)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet
	@echo "open build/site/index.html"

# A part of the tests with the oldest versions of the dependencies that are allowed.
test-lowest:
	$(PYTHON) .ci/lowest.py

# Wheel and source distribution in dist: built, checked (the README must render) and listed.
release: $(STAMP)
	rm -rf dist
	$(BIN)/python -m build --no-isolation
	$(BIN)/python -m twine check --strict dist/*
	$(BIN)/python -m zipfile --list dist/*.whl
	$(BIN)/python -m tarfile --list dist/*.tar.gz

check: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# The tutorials of docs/tutorials as notebooks in build/notebooks.
notebooks: $(STAMP)
	$(BIN)/python examples/notebooks.py docs/tutorials build/notebooks

# With TLS, authenticated nodes and Flower's own client processes: several minutes.
test-deploy: $(STAMP)
	$(BIN)/python -m pytest $(WORKERS) tests/test_flower_deploy.py tests/deploy_federations.py

# Random faults over 200 rounds of a real federation: about half an hour; 200 devices for 20 minutes.
chaos: $(STAMP)
	$(BIN)/python benchmarks/chaos.py
	$(BIN)/python benchmarks/devices.py

# Kills, full disks, read-only folders and flipped bits in simulated runs; no bit may differ: about half an hour.
chaos-sim: $(STAMP)
	$(BIN)/python benchmarks/chaos_sim.py

# Damaged and hostile inputs for every reader, for so many seconds; SEED=1 makes other inputs.
SECONDS ?= 600
SEED ?= 0
fuzz: $(STAMP)
	$(BIN)/python tests/fuzz/campaign.py --seconds $(SECONDS) --seed $(SEED)

# AGAINST=FOLDER compares with the package of another checkout too.
bench: $(STAMP)
	$(PIP) ".[dev,bench]"
	$(BIN)/python benchmarks/engine.py $(if $(AGAINST),--against $(AGAINST))
	$(BIN)/python benchmarks/audit.py

clean:
	rm -rf $(VENV) .venv-lowest .mypy_cache .pytest_cache .ruff_cache .hypothesis build dist

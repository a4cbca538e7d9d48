# Everything a checkout can do. `make` lists the targets; PYTHON=python3.12 chooses another Python.

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
RUN := $(VENV)/bin/python
PYTEST := $(RUN) -m pytest -n auto --dist worksteal
LOCK = $(RUN) -m uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--custom-compile-command "make relock" $(UPGRADE)

# Else every process that a test starts would compile the service anew.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo build build-postgresql test test-processes everyday torture bench lint format relock demo-records clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## build, then serve the demo on http://127.0.0.1:8080 with its data in ./cx-data
	$(PYTHON) dist/cx-service.pyz serve --demo --data cx-data

build: $(VENV)/installed ## make dist/cx-service.pyz, the whole service in one file, if it is not up to date
	@$(RUN) .ci/build.py --if-stale

build-postgresql: $(VENV)/installed ## make dist/cx-service-postgresql.pyz, which can use PostgreSQL too
	@$(RUN) .ci/build.py --if-stale --postgresql

test: lint build build-postgresql ## run every check, and every test on SQLite and then on PostgreSQL
	$(PYTEST)
	$(PYTEST) --postgresql

test-processes: build ## run the tests that start the program, to see that a variable such as PYTHONUNBUFFERED changes nothing
	$(PYTEST) -m processes

everyday: $(VENV)/installed ## run the tests that take no patience
	$(PYTEST) -m "not slow"

torture: build ## put the service through crashes, full disks, wrong clocks, load and hostile input; takes an hour
	$(RUN) -m tests.torture $(PARTS)

bench: build $(BENCH)/installed ## measure the service beside its peers, with wrk and strace; takes a quarter of an hour, with ROWS=--quick a minute
	$(RUN) -m tests.bench $(ROWS)

lint: $(VENV)/installed ## check style and types
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy

format: $(VENV)/installed ## put the code into its one format
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

relock: $(VENV)/installed ## write the lock files anew from setup.cfg and the requirements; UPGRADE=-U raises versions
	@mkdir -p static templates
	$(LOCK) setup.cfg -o requirements.lock
	$(LOCK) setup.cfg --extra postgresql -c requirements.lock -o requirements-postgresql.lock
	$(LOCK) setup.cfg --extra postgresql requirements-dev.in -c requirements-postgresql.lock -o requirements-dev.lock
	$(LOCK) tests/bench/requirements.in -o requirements-bench.lock

demo-records: $(VENV)/installed ## write the demo's records anew from service/demo/make.py and story.toml
	$(RUN) -m service.demo.make --demo service/demo/records.jsonl

clean: ## delete all that was made here, except ./cx-data
	rm -rf $(VENV) $(BENCH) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# Anew whenever the lock changes, so that nothing stays behind that the lock no longer names.
$(VENV)/installed: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info < (3, 14))' || { \
		echo "cx-service needs CPython 3.11, 3.12 or 3.13 as '$(PYTHON)', or name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python cannot make a virtual environment; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; }
	@echo "Installing the libraries and tools of requirements-dev.lock into $(VENV); this takes about a minute ..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-dev.lock
	@touch $@

# The peers of the bench, apart from all that the service is made or tested with.
$(BENCH)/installed: requirements-bench.lock
	rm -rf $(BENCH)
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-bench.lock
	@touch $@

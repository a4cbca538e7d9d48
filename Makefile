# `make` lists the targets. PYTHON=python3.12 selects another version of Python.

PYTHON ?= python3
VENV := .venv
BENCH := .venv-bench
RUN := $(VENV)/bin/python
PYTEST := $(RUN) -m pytest -n auto --dist worksteal
LOCK = $(RUN) -m uv pip compile --quiet --universal --generate-hashes --python-version 3.11 \
	--custom-compile-command "make relock" $(UPGRADE)

# Otherwise every process that a test starts would compile the service again.
unexport PYTHONDONTWRITEBYTECODE

.DEFAULT_GOAL := help
.PHONY: help demo build build-postgresql release test test-all everyday torture mutation bench lint format relock translations demo-records screenshots clean

help: ## list these targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## build, then serve the demo on http://127.0.0.1:8080 with its data in ./cx-data
	$(PYTHON) dist/cx-service.pyz serve --demo --data cx-data

build: $(VENV)/installed ## build dist/cx-service.pyz, the executable, if it is not up to date
	@$(RUN) .ci/build.py --if-stale

build-postgresql: $(VENV)/installed ## build dist/cx-service-postgresql.pyz, which supports PostgreSQL too
	@$(RUN) .ci/build.py --if-stale --postgresql

release: $(VENV)/installed ## build the executables for all hosts in dist/release, and try those for this one; needs Python 3.11, 3.12 and 3.13
	$(RUN) .ci/release.py $(OPTIONS)

test: lint build ## run every check, and all tests on SQLite but those that take long
	$(PYTEST) -m "not extended"

test-all: lint build build-postgresql ## run every check, and every test on SQLite and then on PostgreSQL
	$(PYTEST)
	PYTHONUNBUFFERED=1 $(PYTEST) --postgresql # a variable that changes nothing

everyday: $(VENV)/installed ## run one case of each fast test
	$(PYTEST) -m "not slow and not extended" --one-case

torture: build ## test crashes, full disks, wrong clocks, load and hostile input; takes an hour
	$(RUN) -m tests.torture $(PARTS)

mutation: $(VENV)/installed ## put small faults into the service, and see whether tests find them; takes hours, with MODULES=service/escape.py minutes
	$(RUN) -m tests.mutation $(MODULES)

bench: build $(BENCH)/installed ## compare the service with other servers; needs wrk and strace; takes 15 minutes, with ROWS=--quick one minute; ROWS=small measures a small host; AGAINST=FILE compares with another executable
	$(RUN) -m tests.bench $(ROWS) $(if $(AGAINST),--against $(AGAINST))

lint: $(VENV)/installed ## check style, types and spelling
	$(RUN) -m ruff check
	$(RUN) -m ruff format --check
	$(RUN) -m mypy
	$(RUN) -m codespell_lib

format: $(VENV)/installed ## format the code
	$(RUN) -m ruff check --fix
	$(RUN) -m ruff format

relock: $(VENV)/installed ## update the lock files from setup.cfg and the requirements; UPGRADE=-U upgrades all versions
	@mkdir -p static templates
	$(LOCK) setup.cfg -o requirements.lock
	$(LOCK) setup.cfg --extra postgresql --extra web-push -c requirements.lock -o requirements-postgresql.lock
	$(LOCK) setup.cfg --extra postgresql --extra web-push requirements-dev.in -c requirements-postgresql.lock -o requirements-dev.lock
	$(LOCK) tests/bench/requirements.in -o requirements-bench.lock

translations: $(VENV)/installed ## collect the texts of the pages into service/translation/*.po, for translators
	$(RUN) .ci/translations.py

demo-records: $(VENV)/installed ## generate service/demo/records.jsonl from make.py and story.toml
	$(RUN) -m service.demo.make --demo service/demo/records.jsonl

screenshots: $(VENV)/installed ## take the screenshots of the README
	$(RUN) .ci/screenshots.py

clean: ## delete all generated files, except ./cx-data
	rm -rf $(VENV) $(BENCH) build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache
	find . -name __pycache__ -prune -exec rm -rf {} +

# Created again when the lock file changes, so that no removed package stays.
$(VENV)/installed: requirements-dev.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.implementation.name != "cpython" or not (3, 11) <= sys.version_info < (3, 14))' || { \
		echo "cx-service needs CPython 3.11, 3.12 or 3.13, but '$(PYTHON)' is not; use another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
		echo "This Python cannot create virtual environments; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
		exit 1; }
	@echo "Installing the libraries and tools of requirements-dev.lock into $(VENV); this takes about a minute ..."
	@rm -rf $(VENV)
	@$(PYTHON) -m venv $(VENV)
	@$(RUN) -m pip install -qq --disable-pip-version-check --no-deps --require-hashes -r requirements-dev.lock
	@touch $@

# The servers that the benchmark compares, separate from the environment of the service.
$(BENCH)/installed: requirements-bench.lock
	rm -rf $(BENCH)
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install -qq --disable-pip-version-check --require-hashes -r requirements-bench.lock
	@touch $@

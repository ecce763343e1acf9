# Everything runs in .venv, which the first command makes. `make help` lists the commands.
#
#   PYTHON=...     the interpreter for .venv (default: the first on PATH that is 3.11 or newer)
#   DATABASE_URL=  a PostgreSQL of yours; without it the embedded one in .leasequeue/pg

.DEFAULT_GOAL := help
.PHONY: help test test-all test-browser demo serve docs lint format bench soak soak-sabotage test-upgrade lake-demo messages release clean

export PYTHON
# Where this is set, each of the suite's processes would compile every module anew: a third of the whole time.
unexport PYTHONDONTWRITEBYTECODE
PY := .venv/bin/python
PORT ?= 8000
EVENTS ?= 1000000
ARGS ?=
# Much of the suite's time is waiting for processes: four at once, each with a server of its own. On a server that
# DATABASE_URL names they would wait for each other's transactions: there one by one.
PARALLEL ?= $(if $(DATABASE_URL),0,4)
PYTEST = $(PY) -m pytest --numprocesses $(PARALLEL) --dist loadfile

help:  ## list the commands
	@echo "make test    the quick tests, and a slow one of each kind    (ARGS='tests/unit -k url' for pytest; PARALLEL=0 one by one)"
	@echo "make test-all  all tests                         (the same options)"
	@echo "make test-browser  the admin in Chromium, by keyboard   (BROWSER_IMAGES=docs/images takes the pictures anew)"
	@echo "make demo    real work on real files            (DEMO_PATH=directory, DEMO_EXIT=1 ends by itself)"
	@echo "make serve   the demo's admin and HTTP doors    (PORT=8000)"
	@echo "make bench   the benchmark                      (ARGS='--help' lists its options)"
	@echo "make soak    work under faults, and the verdict (ARGS='--minutes 5 --seed 7'; --help)"
	@echo "make soak-sabotage  faults in a copy of our code, each of which the soak has to catch   (ARGS='cancel' for some)"
	@echo "make test-upgrade  from the previous release and back, under load   (ARGS='--rate 100 --seconds 10')"
	@echo "make lake-demo  a week of made-up events through Spark, and the report   (EVENTS=1000000)"
	@echo "make release  check all, build and tag: VERSION=0.1.0 (scripts/release --rehearse 0.1.0 tries it)"
	@echo "make messages  bring the translations up to date and compile them"
	@echo "make docs    the documentation as a site, build/docs/index.html; what is wrong in it ends the build"
	@echo "make lint    ruff, import-linter, mypy, pyright and bandit"
	@echo "make format  let ruff format and sort"
	@echo "make clean   stop the demo's PostgreSQL; delete its data, .venv, builds and caches"

# A second run is instant: the stamps are as old as the last installation, and only a change to pyproject.toml outdates them.
.venv/.installed-test: pyproject.toml scripts/make-venv
	@scripts/make-venv .venv test
	@touch $@

.venv/.installed-dev: pyproject.toml scripts/make-venv
	@scripts/make-venv .venv dev
	@touch $@ .venv/.installed-test

test: .venv/.installed-test
	@$(PYTEST) -m 'not slow or sample' $(ARGS)

test-all: .venv/.installed-test
	@$(PYTEST) $(ARGS)

.venv/.installed-browser: .venv/.installed-test
	@scripts/make-venv .venv browser
	@touch $@

# Needs Chromium and its driver as well: apt install chromium chromium-driver
test-browser: .venv/.installed-browser
	@BROWSER_TESTS=1 $(PY) -m pytest tests/browser $(ARGS)

demo: .venv/.installed-test
	@scripts/with-devdb $(PY) manage.py demo $(ARGS)

serve: .venv/.installed-test
	@scripts/with-devdb sh -c '$(PY) manage.py migrate --verbosity 0 && exec $(PY) manage.py serve $(PORT)'

messages: .venv/.installed-test
	@$(PY) -m tests.messages

bench: .venv/.installed-test
	@scripts/with-devdb sh -c '$(PY) manage.py migrate --verbosity 0 && exec $(PY) manage.py leasequeue_bench $(ARGS)'

.venv/.installed-docs: .venv/.installed-test
	@scripts/make-venv .venv test,docs
	@touch $@

docs: .venv/.installed-docs
	@NO_MKDOCS_2_WARNING=1 $(PY) -m mkdocs build --strict
	@echo "build/docs/index.html"

soak: .venv/.installed-test
	@$(PY) -m tests.soak $(ARGS)

soak-sabotage: .venv/.installed-test
	@$(PY) -m tests.soak.sabotage $(ARGS)

test-upgrade: .venv/.installed-test
	@$(PY) -m tests.upgrade $(ARGS)

.venv/.installed-spark: .venv/.installed-test
	@scripts/make-venv .venv test,spark,delta
	@touch $@

lake-demo: .venv/.installed-spark
	@scripts/with-devdb sh -c '$(PY) manage.py migrate --verbosity 0 && $(PY) manage.py leasequeue_bench --events $(EVENTS) \
		&& $(PY) manage.py leasequeue_lake run --lake .leasequeue/lake \
		&& $(PY) manage.py leasequeue_lake report --lake .leasequeue/lake --output .leasequeue/lake-report --open'

lint: .venv/.installed-dev
	@$(PY) -m ruff check .
	@$(PY) -m ruff format --check .
	@PYTHONPATH=. .venv/bin/lint-imports --no-cache
	@$(PY) -m mypy
	@$(PY) scripts/check-types
	@$(PY) -m bandit --quiet --configfile pyproject.toml --recursive django_leasequeue

format: .venv/.installed-dev
	@$(PY) -m ruff check --fix .
	@$(PY) -m ruff format .

release:
	@scripts/release $(VERSION)

clean:
	@if [ -x $(PY) ]; then $(PY) manage.py leasequeue_devdb stop || true; fi
	rm -rf .venv .venv-* .leasequeue build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

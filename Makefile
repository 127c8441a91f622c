# One command per chore; CI calls the same ones. `make` alone lists them.

PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.stamp
SYSTEM := $(VENV)/.system
BENCH  := .venv-bench
BENCH_STAMP := $(BENCH)/.stamp
PEERS  := .venv-peers
PEERS_STAMP := $(PEERS)/.stamp
PROGRAMS := .venv-programs
PROGRAMS_STAMP := $(PROGRAMS)/.stamp
# More than cores: tests of processes, hosts and servers wait for a third of their time.
WORKERS ?= 3
PYRIGHT := 1.1.414
DOCS := .venv-docs
DOCS_STAMP := $(DOCS)/.stamp
# Tests start thousands of processes. Where PYTHONDONTWRITEBYTECODE is set, each would compile all that it imports.
COMPILED := $(BIN)/python -m compileall -q tuner trainables hydra_plugins tests examples
# Where the surrogate of LCBench is (benchmarks/lcbench.py says where it comes from), and where searches on it are kept;
# those of bench-search-all are committed, in benchmarks/kept.
DATA ?= ../shared/data/lcbench
SEARCHED := benchmarks/results/search
# Which part of the soak, and the file that keeps a line for each of its tests that ended.
SLICE ?= 1/1
RESULTS ?= docs/evidence/soak.jsonl
# The newest of what `make web` makes.
VENDORED := tuner/ui/static/vendor/preact.js
PYRIGHT_STAMP := $(VENV)/pyright/.$(PYRIGHT)
# Where pytest writes its results, as JUnit XML.
JUNIT ?= build/tests.xml
# Of the examples that property tests draw in `make test-wide`.
SEED ?= $(shell date +%s)
# Run the tests with these markers.
define PYTEST
@$(COMPILED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --durations=30 --junitxml="$(JUNIT)" -m "$(1)" $(ARGS)
endef

# $(call missing,WHAT,EFFECT): print what could not be installed and what follows from that. With CI=true it is an error.
missing = { echo "$(1) could not be installed: $(2)"; test "$$CI" != true; }
# $(call install,TEST,PACKAGES,EFFECT): install packages of Debian if the shell command TEST fails, as root where apt-get is.
install = @{ $(1); } >/dev/null 2>&1 || test "$$(id -u)" != 0 || ! command -v apt-get >/dev/null || \
  { echo "installing $(2)" && apt-get update -qq && \
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(2) >/dev/null; } || \
  $(call missing,$(2),$(3))
NPM = $(call install,command -v npm,nodejs npm,$(1))
NPM_INSTALL := npm install --loglevel=error --no-audit --no-fund
CHROMIUM = $(call install,command -v chromium,chromium,$(1))
# Build the page, of which $(1) is missing without npm.
WEB = @$(MAKE) --no-print-directory web || $(call missing,the libraries of the page,$(1))

.DEFAULT_GOAL := help
.PHONY: help setup run web check test test-wide test-peers soak gpu bench bench-search bench-search-all bench-search-objectives programs lint types format docs clean

help:
	@echo "make run     tune a CNN on the UCI digits; killed or finished, running it again continues it"
	@echo "make setup   install all that lint, tests and docs need"
	@echo "make web     the page of tuner ui: our modules and the libraries that npm fetches"
	@echo "make check   lint, and the tests that start no process (5 minutes): before each commit"
	@echo "make test    these tests, and of those that start processes one of each kind (10 minutes)"
	@echo "make test-wide   all others: servers, hosts, disks, browsers, clusters (half an hour); installs what they need, as root"
	@echo "make test-peers   the tests of trackers and searchers whose packages do not install beside the others"
	@echo "make soak    the fault tests at their full size (hours); SLICE=3/20 the third of 20 parts; again: what has not passed yet"
	@echo "make gpu     the tests that need a GPU, where torch sees one"
	@echo "make bench   speed beside Ray Tune, Syne Tune and optuna-dashboard, in one table"
	@echo "make bench-search DATA=DIR   how soon searches find good configurations, beside Syne Tune and Optuna (half an hour)"
	@echo "make bench-search-all DATA=DIR   the same with all data sets, 30 seeds, 4 and 16 workers; kept, and goes on where it was (days)"
	@echo "make bench-search-objectives DATA=DIR   the same for two objectives"
	@echo "make programs  programs that others wrote for Ray Tune, fetched, run, killed and resumed (an hour; an environment of its own)"
	@echo "make lint    ruff, mypy --strict, the floors of the house, pyright where npm is"
	@echo "make types   pyright, strict, on the script of a user"
	@echo "make format  let ruff rewrite the files"
	@echo "make docs    the documentation site, in build/docs; checks links and the examples in docstrings, asks its search, looks at it on 400 px"
	@echo "make clean   remove environments, caches and build products (never results)"

# The stamp is newer than what it was made from exactly when the environment is complete.
$(STAMP): setup.cfg pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; say which: make PYTHON=python3.11")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	@touch $(STAMP)

$(BENCH_STAMP): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(BENCH)
	$(BENCH)/bin/python -m pip install --quiet -c constraints.txt -e '.[bench,torch]'
	@touch $(BENCH_STAMP)

$(PEERS_STAMP): setup.cfg pyproject.toml constraints-peers.txt
	$(PYTHON) -m venv $(PEERS)
	$(PEERS)/bin/python -m pip install --quiet -c constraints-peers.txt -e '.[peers]'
	@touch $(PEERS_STAMP)

# An environment of its own: Sphinx wants a newer docutils than awscli does.
$(DOCS_STAMP): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --quiet -c constraints.txt -e '.[docs]'
	@touch $(DOCS_STAMP)

# What programs of others import, beside what the tests do.
$(PROGRAMS_STAMP): setup.cfg pyproject.toml constraints.txt
	$(PYTHON) -m venv $(PROGRAMS)
	$(PROGRAMS)/bin/python -m pip install --quiet -c constraints.txt -e '.[dev]' click filelock 'jsonargparse[signatures]' \
	  tensorflow torchvision wandb
	@touch $(PROGRAMS_STAMP)

# What the tests need beside Python packages. Tests of what could not be installed are skipped, with the reason.
$(SYSTEM): $(STAMP)
	$(call install,command -v mkfs.xfs,xfsprogs,tests of filesystems with reflinks are skipped)
	$(call install,command -v rsync && command -v ip && test -x /usr/sbin/sshd,rsync openssh-server openssh-client iproute2,tests of several hosts are skipped)
	$(call install,command -v initdb || ls /usr/lib/postgresql/*/bin/initdb,postgresql,tests of a database server are skipped)
	$(call install,command -v gcc && command -v mkfs.ext4,gcc libc6-dev e2fsprogs,tests of bad clocks and power cuts are skipped)
	$(call install,command -v slurmctld && command -v slurmd && command -v sbatch && command -v munged,slurmctld slurmd slurm-client munge,tests of Slurm are skipped)
	$(call install,command -v zsh && command -v fish,zsh fish,tests of completion in these shells are skipped)
	$(call NPM,tests of Azure and of the page are skipped)
	@echo "installing azurite"; $(NPM_INSTALL) --prefix $(VENV)/node azurite@3.35.0 >/dev/null || $(call missing,azurite,tests of Azure are skipped)
	$(call CHROMIUM,tests of plots as images and of the report in a browser are skipped)
	@touch $(SYSTEM)

$(PYRIGHT_STAMP): $(STAMP)
	$(call NPM,pyright is not run)
	$(NPM_INSTALL) --prefix $(VENV)/pyright pyright@$(PYRIGHT) >/dev/null
	@touch $@

# All that the steps of CI need.
setup: $(STAMP) $(SYSTEM) $(DOCS_STAMP) $(PYRIGHT_STAMP)
	$(call WEB,tests of tuner ui are skipped)

run: $(STAMP)
	$(BIN)/python examples/digits_asha.py

web: $(VENDORED)

# With the directories of src: a file that was renamed or removed has left the time in its directory alone.
$(VENDORED): web/package-lock.json web/build.mjs $(shell find web/src)
	$(call NPM,the page cannot be built)
	@test web/node_modules/.package-lock.json -nt web/package-lock.json || \
	  { echo "installing the libraries of the page" && npm ci --loglevel=error --no-audit --no-fund --prefix web >/dev/null; }
	@node web/build.mjs

check: lint
	$(call PYTEST,in_process)

test: $(STAMP)
	$(call PYTEST,in_process or kind)

# Property tests run in both: with the same examples there, with others in each run here.
test-wide: $(STAMP) $(SYSTEM)
	$(call WEB,tests of tuner ui are skipped)
	$(call PYTEST,wide or (in_process and hypothesis)) --hypothesis-profile random --hypothesis-seed $(or $(SEED),0)

test-peers: $(PEERS_STAMP)
	$(PEERS)/bin/python -m pytest -m peers tests/tuner/search tests/tuner/tracking tests/trainables/tracking $(ARGS)
	$(PEERS)/bin/python -m pytest tests/tuner/search/test_bayesopt.py  # nevergrad has an older one than .venv

soak: $(STAMP) $(SYSTEM)
	@$(COMPILED)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m soak --timeout 14400 --hypothesis-profile random \
	  -p tests.soak.slices --soak-slice $(SLICE) --soak-results $(RESULTS) $(ARGS)

gpu: $(STAMP)
	$(BIN)/python -m pytest -n 0 -m gpu --timeout 300 tests/gpu $(ARGS)

bench: $(BENCH_STAMP)
	$(call WEB,its rows are empty)
	$(call CHROMIUM,the rows of the page are empty)
	$(BENCH)/bin/python benchmarks/run.py $(ARGS)

bench-search: $(BENCH_STAMP)
	$(BENCH)/bin/python benchmarks/search.py --data $(DATA) --datasets first --seeds 5 --slow-seeds 1 --slow-datasets 6 --peers --json $(SEARCHED)/few.jsonl $(ARGS)

bench-search-all: $(BENCH_STAMP)
	$(BENCH)/bin/python benchmarks/search.py --data $(DATA) --seeds 30 --workers 4,16 --peers --json benchmarks/kept/search.jsonl $(ARGS)

bench-search-objectives: $(BENCH_STAMP)
	$(BENCH)/bin/python benchmarks/search_objectives.py --data $(DATA) --peers --json $(SEARCHED)/objectives.jsonl $(ARGS)

programs: $(PROGRAMS_STAMP)
	$(PROGRAMS)/bin/python docs/real_programs.py --folder $(PROGRAMS)/run $(ARGS)
	$(PROGRAMS)/bin/python -m pytest -n 0 -m soak --timeout 600 tests/trainables/command/test_programs_of_others.py

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/mypy --strict tests/scripts/strict_user.py
	$(BIN)/python -m pytest -q -p no:xdist tests/test_floors.py
	$(call NPM,pyright is not run)
	@if command -v npm >/dev/null; then $(MAKE) --no-print-directory types; else echo "npm is missing: pyright is not run"; fi

# What a user's script is told about our types, of which `make lint` asks mypy and, where npm is, this.
types: $(PYRIGHT_STAMP)
	$(VENV)/pyright/node_modules/.bin/pyright --pythonpath $(BIN)/python tests/scripts/strict_user.py

format: $(STAMP)
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(SYSTEM) $(STAMP) $(DOCS_STAMP)
	$(BIN)/python docs/rows.py
	$(BIN)/python docs/check.py
	$(DOCS)/bin/python -m sphinx -q -W --keep-going -d build/doctrees docs build/docs
	$(BIN)/python docs/ask.py
	$(BIN)/python docs/narrow.py
	@echo "build/docs/index.html"

clean:
	rm -rf $(VENV) $(BENCH) $(PEERS) $(PROGRAMS) $(DOCS) web/node_modules tuner/ui/static tuner/ui/report.html build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

# make demo         set up, then run five real kernels on whatever device is there
# make test         what CI runs: lint, types, layers, a fixed set of tests (no GPU needed)
# make test-full    the same with all tests, more random examples, and the mutants
# make mutants      known mistakes in a copy of the compiler: does a test of `make test` notice?
# make test-device  tests/device, on a machine with a GPU; what the PTX machine can run (DEVICE=ptx)
# make fuzz         random programs on every backend (COUNT=1000 SEED=0 DEVICE=cpu|cuda|ptx JOBS=2)
# make fuzz-score   how soon random programs notice forty known compiler bugs
# make soak         mixed calls for an hour: flat memory, flat latency, no leaks (MINUTES=60 DEVICE=cpu OUT=file)
# make sanitize     kernels of every structure beside borders, by tools or the PTX machine (DEVICE=cuda|ptx)
# make faults       processes killed at every step, disks full, clocks jumping: the table of faults
# make check        lint, types and layers only
# make format       rewrite files the way `make check` wants them
# make golden       accept the present output as the expected output, then read the diff
# make docs         write generated pages, then build the site in build/site/html
# make generated    rewrite generated pages and pictures of docs/ only
# make ops          try every torch function on every backend; write docs/ops.md
# make torch-table  use a kernel through every feature of torch; write docs/torch.md
# make versions     oldest and newest Python, torch and Triton: tests of the sdist, README commands
# make release      a wheel with the same bytes each time, and sbom.json, into dist
# make scoreboard   all operators against all rivals, in parts: PART=540 seconds, then again
# make clean        remove everything made by the above
#
# `make <target> PYTHON=python3` uses that interpreter as it is: nothing is created or installed.

VENV := .venv
JOBS ?= 2
BOOTSTRAP_PYTHON ?= python3

ifeq ($(origin PYTHON),command line)
  READY_RUN :=
  READY_DEV :=
  READY_DOCS :=
else
  PYTHON := $(VENV)/bin/python
  READY_RUN := $(VENV)/.installed
  READY_DEV := $(VENV)/.installed-dev
  READY_DOCS := $(VENV)/.installed-docs
endif

# For interpreters the package is not installed in.
export PYTHONPATH := $(CURDIR)/src$(if $(PYTHONPATH),:$(PYTHONPATH))

# Tests start hundreds of processes: compiled modules are kept, not made anew in each.
unexport PYTHONDONTWRITEBYTECODE

PIP_INSTALL := $(VENV)/bin/python -m pip install --quiet -c constraints.txt
# Types are looked up where the interpreter finds its modules, be it ours or another.
PYRIGHT = $(PYTHON) -m pyright --pythonpath "$$(command -v $(PYTHON))"
SOURCES := src tests tools $(wildcard examples) $(wildcard benchmarks)

.PHONY: demo test test-full mutants test-device check lint types layers format golden docs generated ops torch-table versions release clean fuzz fuzz-score scoreboard soak sanitize faults

demo: $(READY_RUN)
	$(PYTHON) examples/demo.py

# Types take one core for most of a minute: they are checked while the tests begin. What pyright
# says is shown when it is done, and again at the end if it found something.
test: lint layers
	@found=$$(mktemp); trap 'rm -f "$$found"' EXIT; \
	{ $(PYRIGHT) >"$$found" 2>&1; code=$$?; cat "$$found"; exit $$code; } & types=$$!; \
	echo "$(PYTHON) -m pytest -n $(JOBS) --dist worksteal"; \
	$(PYTHON) -m pytest -n $(JOBS) --dist worksteal; tests=$$?; \
	wait $$types || { cat "$$found"; exit 1; }; \
	exit $$tests

test-full: check
	$(PYTHON) -m pytest -n $(JOBS) --dist worksteal --full
	$(PYTHON) -m tools.mutants --jobs $(JOBS)

mutants: $(READY_DEV)
	$(PYTHON) -m tools.mutants --jobs $(JOBS)

# A device machine brings its own torch, whose warnings are not ours to mend.
test-device: $(READY_DEV)
	DEVICE_OF_TESTS=$(DEVICE) $(PYTHON) -m pytest tests/device -W default \
	  $(if $(filter ptx,$(DEVICE)),-n $(JOBS) -rs)

COUNT ?= 1000
SEED ?= 0
DEVICE ?= cpu

fuzz: $(READY_DEV)
	$(PYTHON) -m tools.fuzz --count $(COUNT) --seed $(SEED) --device $(DEVICE) --jobs $(JOBS)

# Goes on where the last part ended; with DEVICE=cpu on the CPU, else on a GPU if there is one.
PART ?= 540
scoreboard: $(READY_DEV)
	$(PYTHON) -m tilesmith bench --scoreboard --part-seconds $(PART) \
	  $(if $(findstring file,$(origin DEVICE)),,--device $(DEVICE)) $(FLAGS)

fuzz-score: $(READY_DEV)
	$(PYTHON) -m tools.fuzz_score --jobs $(JOBS) --log fuzz-failures/score.jsonl

MINUTES ?= 60

soak: $(READY_DEV)
	$(PYTHON) -m tools.soak --minutes $(MINUTES) --device $(DEVICE) $(if $(OUT),--out $(OUT))

# On a GPU, in so many seconds; with DEVICE=cpu native code beside borders, with DEVICE=ptx the code
# for a GPU without one, and its races.
SANITIZE_SECONDS ?= 190

sanitize: $(READY_DEV)
	$(PYTHON) -m tools.sanitize --seconds $(SANITIZE_SECONDS) --jobs $(JOBS) \
	  --device $(if $(findstring file,$(origin DEVICE)),cuda,$(DEVICE))

# Into build/faults; some minutes. ONLY="files writers" runs these groups.
FAULT_SECONDS ?= 1500

faults: $(READY_DEV)
	$(PYTHON) -m tools.faults --seconds $(FAULT_SECONDS) $(if $(ONLY),--only $(ONLY))

check: lint types layers

lint: $(READY_DEV)
	$(PYTHON) -m ruff check $(SOURCES)
	$(PYTHON) -m ruff format --check $(SOURCES)

types: $(READY_DEV)
	$(PYRIGHT)

layers: $(READY_DEV)
	$(PYTHON) -c "from importlinter.cli import lint_imports_command as main; main()"

format: $(READY_DEV)
	$(PYTHON) -m ruff check --fix $(SOURCES)
	$(PYTHON) -m ruff format $(SOURCES)

golden: $(READY_DEV)
	$(PYTHON) -m pytest -n $(JOBS) --update-golden
	git diff --stat -- tests/golden

generated: $(READY_DEV)
	$(PYTHON) -m tools.generate

# Into build/site/html; opens from a disk, search included.
docs: generated $(READY_DOCS)
	$(PYTHON) -m tools.site

ops: $(READY_DEV)
	$(PYTHON) -m tools.op_table

torch-table: $(READY_DEV)
	$(PYTHON) -m tools.torch_table

versions: $(READY_DEV)
	$(PYTHON) -m tools.versions --jobs $(JOBS)

release: $(READY_DEV)
	$(PYTHON) -m tools.release

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .ruff_cache .hypothesis \
	  .import_linter_cache
	find src tests tools -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/bin/python:
	$(BOOTSTRAP_PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) -e .
	touch $@

# Holds everything `.installed` does, so it stands for both.
$(VENV)/.installed-dev: pyproject.toml constraints.txt | $(VENV)/bin/python
	$(PIP_INSTALL) -e '.[dev]'
	touch $@ $(VENV)/.installed

# MkDocs is not needed by tests, so nothing else installs it.
$(VENV)/.installed-docs: pyproject.toml constraints.txt | $(VENV)/.installed-dev
	$(PIP_INSTALL) -e '.[docs]'
	touch $@

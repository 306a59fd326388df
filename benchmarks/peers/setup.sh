#!/usr/bin/env bash
# One environment per peer, so that neither bends the other's versions or ours: bash benchmarks/peers/setup.sh
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}

peer() { # environment, packages
    [ -x "$1/bin/python" ] || "$PYTHON" -m venv "$1"
    "$1/bin/python" -m pip install --quiet torch==2.13.0 "${@:2}"
}

peer .venv-trl trl==1.16.0 peft
peer .venv-comlrl comlrl==1.4.3 peft
peer .venv-llama xllamacpp==2026.10.11549

#!/usr/bin/env bash
# Writes cpu.lock, gpu.lock and colab-floor.txt from pyproject.toml: `bash requirements/lock.sh`.
# Versions already in a lock are kept where they still fit; `--upgrade` takes the newest. Needs uv (`pip install uv`).
set -euo pipefail
cd "$(dirname "$0")/.."

compile() { # file, what it is, options ...
    local file="requirements/$1" what=$2 body
    shift 2
    body=$(mktemp)
    if [ -f "$file" ]; then cp "$file" "$body"; fi
    uv pip compile pyproject.toml --quiet --extra test --python-version 3.11 --output-file "$body" \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@" > /dev/null
    {
        echo "# $what"
        echo "# Made by: bash requirements/lock.sh    Install: pip install -r $file -e ."
        grep -v "sys_platform == 'none'" "$body" # what requirements/no-cuda.txt switched off
    } > "$file"
    rm "$body"
}

compile cpu.lock "The pinned CPU set: Linux, macOS and Windows, Python 3.11-3.14. No CUDA package stands in it." \
    --extra cpu --universal --override requirements/no-cuda.txt "$@"
compile gpu.lock "The pinned GPU set: NVIDIA on x86-64 Linux, glibc 2.35 and up. Resolved; not yet run on a GPU." \
    --extra gpu --python-platform x86_64-manylinux_2_35 "$@"
compile colab-floor.txt "The low end of the ranges in pyproject.toml, Colab's set, on Linux with the torch of our locks." \
    --extra tasks --resolution lowest-direct --override requirements/no-cuda.txt \
    --constraint requirements/colab-constraints.txt "$@"

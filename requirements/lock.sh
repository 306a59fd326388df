#!/usr/bin/env bash
# Writes the locks from pyproject.toml: `bash requirements/lock.sh`; `--check` only compares.
# Versions already in a lock are kept where they still fit; `--upgrade` takes the newest. Needs uv (`pip install uv`).
set -euo pipefail
cd "$(dirname "$0")/.."
check=0
if [ "${1:-}" = --check ]; then check=1 && shift; fi

compile() { # file, what it is, how it is installed, options ...
    local file="requirements/$1" what=$2 install=$3 body
    shift 3
    body=$(mktemp)
    if [ -f "$file" ]; then cp "$file" "$body"; fi
    uv pip compile pyproject.toml --quiet --extra test --python-version 3.11 --output-file "$body" \
        --no-header --no-annotate --no-emit-index-url --no-emit-find-links "$@" > /dev/null
    {
        echo "# $what"
        echo "# Made by: bash requirements/lock.sh    Install: pip install $install$file -e ."
        grep -v "sys_platform == 'none'" "$body" # what the overrides switched off
    } > "$body.whole"
    if [ "$check" = 0 ]; then
        cp "$body.whole" "$file"
    elif ! diff -u "$file" "$body.whole"; then
        echo "$file no longer follows from pyproject.toml: run bash requirements/lock.sh" >&2
        exit 1
    fi
    rm "$body" "$body.whole"
}

linux=(--python-platform x86_64-manylinux_2_35)
compile cpu.lock "The pinned CPU set: Linux, macOS and Windows, Python 3.11-3.14. No CUDA package stands in it." "-r " \
    --extra cpu --universal --override requirements/no-cuda.txt "$@"
compile gpu.lock "The pinned GPU set: NVIDIA on x86-64 Linux, glibc 2.35 and up. Resolved; not yet run on a GPU." "-r " \
    --extra gpu "${linux[@]}" "$@"
compile colab-floor.txt "The low end of the ranges in pyproject.toml, Colab's set, on Linux with the torch of our locks." "-r " \
    --extra tasks --extra sandbox --resolution lowest-direct --override requirements/no-cuda.txt \
    --constraint requirements/colab-constraints.txt "$@"
for engine in vllm unsloth; do
    compile "$engine-cpu.lock" "The real $engine on a CPU, for \`make test-$engine\` on x86-64 Linux." "--no-deps -r " \
        "requirements/$engine-cpu.in" --override requirements/no-cuda.txt \
        --override requirements/engines-overrides.txt "${linux[@]}" "$@"
done

# What conda hands to pip, for either set.
for lock in cpu gpu; do
    sed -n "s|^      - ||p" environment.yml | sed "s|cpu.lock|$lock.lock|" |
        uv pip compile - --quiet --python-version 3.11 "${linux[@]}" --override requirements/no-cuda.txt > /dev/null
done

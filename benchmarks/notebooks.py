"""How long the notebooks take, with their solutions, each at full length in a kernel of its own, one after the other.

    MAS_LAB_THREADS=1 python benchmarks/notebooks.py          # writes data/results/benchmark_notebooks.json
    MAS_LAB_THREADS=1 python benchmarks/notebooks.py 03 07    # these alone; the others stay as they were recorded

Seconds of the wall clock, and of the processor with all child processes. A neighbour makes the first longer, and
hardly the second. A test compares the second with what the notebooks promise. Leaves out: which cell takes how long.
"""

import json
import os
import sys
import time
from pathlib import Path

import nbformat

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "notebooks" / "tools"))

import execution
import forms

OUT = Path(__file__).resolve().parents[1] / "data" / "results" / "benchmark_notebooks.json"
SPENT = "import os; print(sum(os.times()[:4]))"


def measured(master: Path) -> dict[str, float]:
    spent, begin, before = [], time.perf_counter(), sum(os.times()[2:4])
    notebook = nbformat.reads(json.dumps(forms.notebook(master, "solution")), 4)
    execution.execute(notebook, master.stem, then=lambda ask: spent.append(float(ask(SPENT))))
    wall, ended = time.perf_counter() - begin, sum(os.times()[2:4]) - before
    return {"wall": round(wall, 1), "processor": round(max(ended, *spent), 1), "load": round(os.getloadavg()[0], 1)}


def main() -> None:
    found = json.loads(OUT.read_text(encoding="utf-8")) if OUT.is_file() else {}
    for master in forms.masters():
        if not sys.argv[1:] or master.stem[:2] in sys.argv[1:]:
            found[master.stem] = measured(master)
            print(f"{master.stem:<24}", found[master.stem], flush=True)
            OUT.write_text(json.dumps(dict(sorted(found.items())), indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

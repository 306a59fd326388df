"""How long `import mas_lab` takes: median wall and processor seconds of fresh processes, and what takes longest.

    .venv/bin/python benchmarks/importing.py

Processor seconds include the start of Python; a busy neighbour disturbs them less than the wall clock. Which modules an
import pulls in is a test's matter (`tests/test_api.py`).
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

LIMIT = 3.0


def measure() -> tuple[float, float]:
    """(wall, processor) seconds of a process that imports mas_lab and ends."""
    start = time.perf_counter()
    code = "import mas_lab, time; print(time.process_time())"
    own = subprocess.run([sys.executable, "-P", "-c", code], check=True, capture_output=True, text=True).stdout
    return time.perf_counter() - start, float(own)


def heaviest(count: int) -> list[tuple[float, str]]:
    """(milliseconds with all that it imports, module) of the packages of others that take longest."""
    told = subprocess.run([sys.executable, "-P", "-X", "importtime", "-c", "import mas_lab"], check=True, text=True,
                          capture_output=True).stderr  # fmt: skip
    lines = [line.split("|") for line in told.splitlines()[1:] if line.count("|") == 2]
    whole = {name.strip(): int(total) / 1000 for _, total, name in lines}
    others = {name: total for name, total in whole.items() if "." not in name and name != "mas_lab"}
    return sorted(((total, name) for name, total in others.items()), reverse=True)[:count]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    rounds = parser.parse_args().rounds
    wall, own = (statistics.median(seconds) for seconds in zip(*(measure() for _ in range(rounds)), strict=True))
    load = f", load average {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    print(f"import mas_lab: {wall:.2f} s, of the processor {own:.2f} s (limit {LIMIT:.0f} s; {rounds} processes{load})")
    for milliseconds, name in heaviest(8):
        print(f"{milliseconds:8.0f} ms  {name}")


if __name__ == "__main__":
    main()

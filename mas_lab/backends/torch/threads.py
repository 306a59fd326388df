"""The number of torch threads and the number type on a CPU: both are measured under the present load.

On shared CPUs one thread is often faster than two. The first policy on a CPU decides for the process
(`settle_threads`). `MAS_LAB_THREADS` overrides the probe. Products in bfloat16 are several times faster than in float32
on processors with avx512_bf16 or AMX, and slower on others. The first large model decides (`settle_dtype`), and
`dtype=` overrides it. Leaves out: threads of environments.
"""

import os
import statistics
import sys
import time
from functools import reduce

import torch
from torch.utils.benchmark import Timer

from mas_lab.arguments import check_arguments
from mas_lab.child import usable_cores
from mas_lab.display.progress import in_notebook

VARIABLE = "MAS_LAB_THREADS"
OTHERS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "WORLD_SIZE")
"""Variables that show that somebody has decided already: torch reads the first two, and a launcher sets the last."""
LARGE = 50_000_000
"""Number of weights above which a model on a CPU computes in bfloat16, if that is faster."""
FASTER = 1.5
"""How many times faster bfloat16 must be."""
_settled = False
_speedup: float | None = None
"""How many times faster bfloat16 is here. `None`: not measured yet."""


def set_threads(n: int) -> int:
    """Set the number of torch threads; no policy that is loaded later changes it.

    Args:
        n: Number of threads, from 1.

    Returns:
        n.

    Raises:
        ValueError: `n` is below 1.
    """
    global _settled
    check_arguments(set_threads, locals(), n=1)
    torch.set_num_threads(n)
    _settled = True
    return n


def settle_threads() -> None:
    """Set the number of threads once in a process, when its first policy is loaded on a CPU, and print a line.

    The number is `MAS_LAB_THREADS` or the result of `probe_threads`. Nothing changes if somebody has decided already:
    `set_threads` was called, one of `OTHERS` is set, or torch has another number than it starts with (all cores, or
    half of them if each counts twice).
    """
    cores, now = usable_cores(), torch.get_num_threads()
    decided = now == 1 or now not in (cores, cores // 2) or any(name in os.environ for name in OTHERS)
    if _settled or (decided and VARIABLE not in os.environ):
        return
    n = set_threads(probe_threads())
    why = VARIABLE if VARIABLE in os.environ else "measured"
    _print(f"torch uses {n} thread{'s' * (n > 1)} of {cores} cores ({why}); lab.set_threads(n) sets another number")


def settle_dtype(weights: int) -> torch.dtype:
    """Return the number type of the products of a model with so many weights on a CPU.

    The first large model of a process measures, and prints a line.
    """
    global _speedup
    if weights <= LARGE:
        return torch.float32
    if _speedup is None:
        _speedup = probe_bfloat16()
        _print(f"large models compute in bfloat16 if it is {FASTER} times as fast (here {_speedup:.1f}); see dtype=")
    return torch.bfloat16 if _speedup >= FASTER else torch.float32


def take_threads(n: int, run: str) -> None:
    """Use as many threads as a run was made with, so that it goes on bit for bit; print a line if that is a change."""
    if n != torch.get_num_threads():
        _print(f"torch now uses {n} thread{'s' * (n > 1)}, as {run} did; lab.set_threads(n) sets another number")
    set_threads(n)


def _print(line: str) -> None:
    """Print a line, to stdout in a notebook and to stderr elsewhere."""
    print(f"mas_lab: {line}", file=None if in_notebook() else sys.stderr)


def probe_threads(seconds: float = 0.2) -> int:
    """Return the number of torch threads that runs a small forward and backward pass fastest right now.

    Args:
        seconds: Duration of the probe.

    Returns:
        The number of threads. The environment variable MAS_LAB_THREADS, if set, is the answer.

    It tries 1, 2, 4, … threads in turns, up to the cores that this process may use. More threads must be 10 % faster.
    It does not change the setting.
    """
    if VARIABLE in os.environ:
        return int(os.environ[VARIABLE])
    timers = {
        2**i: Timer("work()", globals={"work": _work}, num_threads=2**i) for i in range(usable_cores().bit_length())
    }
    taken, end = [], time.perf_counter() + seconds
    while not taken or (len(timers) > 1 and time.perf_counter() < end):
        taken.append([timer.timeit(1).mean for timer in timers.values()])
    median = dict(zip(timers, map(statistics.median_high, zip(*taken, strict=True)), strict=True))
    return reduce(lambda best, n: n if median[n] < 0.9 * median[best] else best, median)


def probe_bfloat16(rounds: int = 7) -> float:
    """Return how many times faster than float32 the products of a linear layer are in bfloat16.

    Half of the products have 16 rows, as in sampling, the others 256, as in an update. Both types take turns on one
    thread, and the medians of their processor time are compared, which hardly depends on the load.
    """
    products = "linear(rows[:16], layer); " * 16 + "linear(rows, layer)"
    timers = []
    for dtype in (torch.float32, torch.bfloat16):
        names = {"linear": torch.nn.functional.linear, "rows": torch.ones(256, 576, dtype=dtype)}
        names["layer"] = torch.ones(1536, 576, dtype=dtype)
        timers.append(Timer(products, globals=names, timer=time.thread_time, num_threads=1))
    slow, fast = zip(*[[timer.timeit(1).mean for timer in timers] for _ in range(rounds)], strict=True)
    return statistics.median(slow) / statistics.median(fast)


def _work() -> None:
    """Go forward and backward through the computations of two transformer blocks, in about 10 ms."""
    hidden = torch.ones(1024, 128)
    up, down = torch.ones(128, 384, requires_grad=True), torch.ones(384, 128, requires_grad=True)
    for _ in range(2):
        hidden = hidden + torch.nn.functional.silu(hidden @ up) @ down / 384
    hidden.square().mean().backward()

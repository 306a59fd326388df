"""Run programs in pydantic-monty, a subset of Python, in a child process of the sandbox (`child.serve`).

The library hangs in a process that was forked from one that used it. So its worker gets a separate child process.
Writing the programs and reading their answers is in `harness` and `sandbox`.
"""

import datetime
import time
from collections.abc import Callable
from typing import Any

RECURSION = 500
"""Most calls within each other."""
MOST_PRINTED = 16 << 20
"""Bytes that a program may print."""
MOST_SAID = 1 << 18
"""Characters of the printed text that are kept."""
MOST_ANSWERED = 1 << 24
"""Most characters of all answers together; as objects they take many times as much memory."""
GRACE = 0.25
"""Seconds after the limit at which the library ends a worker that does not end its program."""


def prepare() -> Callable[[str, float, int, int], dict[str, Any]]:
    import pydantic_monty

    graces = {"feed_duration_limit_grace": GRACE, "turn_duration_limit_grace": GRACE}
    pool = pydantic_monty.Monty(max_processes=1, **graces).__enter__()
    midnight = datetime.datetime(2000, 1, 1)
    policy = {"datetime": midnight, "sleep": "zero", "process_time": "zero", "random_start": {"seed": 0}}

    def run(source: str, seconds: float, megabytes: int, fuel: int) -> dict[str, Any]:
        """Run `source` in a fresh session and return the parts of `sandbox.Told`."""
        limits = {"max_feed_duration_secs": seconds, "max_memory": megabytes << 20, "max_recursion_depth": RECURSION}
        printed = pydantic_monty.CollectStreams(max_bytes=MOST_PRINTED)
        text, error, late, begun = None, "", False, time.monotonic()
        try:
            with pool.checkout(limits=limits, os_policy=policy) as session:
                text = session.feed_run(source, print_callback=printed)
        except pydantic_monty.MontyCrashedError as crash:
            error, late = str(crash) if crash.timed_out else "", crash.timed_out
        except pydantic_monty.MontyError as failure:
            raised = failure.exception()
            error = f"{type(raised).__name__}: {raised}"
            late = isinstance(raised, TimeoutError) and time.monotonic() - begun >= seconds  # programs may raise it too
        said = "".join(text for stream, text in printed.output if stream == "stdout")[:MOST_SAID]
        text = text if isinstance(text, str) else None
        if text and len(text) > MOST_ANSWERED:
            text, error = None, f"MemoryError: the answers take {len(text)} characters, more than {MOST_ANSWERED}"
        return {"text": text, "error": error, "said": said, "backstop": late, "late": late}

    return run

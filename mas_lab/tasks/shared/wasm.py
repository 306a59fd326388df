"""Run programs in pyeryx, CPython in WebAssembly, in a child process of the sandbox (`child.serve`).

Writing the programs and reading their answers is in `harness` and `sandbox`.
"""

from collections.abc import Callable
from typing import Any

RESULT = "_mas_lab_result"
MOST_SAID = 1 << 18
"""Bytes of the printed text that are kept."""
MOST_ANSWERED = 1 << 24
"""Most characters of all answers together; as objects they take many times as much memory."""
FILES = 1 << 20
"""Bytes of files in memory that a program may write."""


def prepare() -> Callable[[str, float, int, int], dict[str, Any]]:
    run("", 5.0, 256, 10**9)  # start the first instance now, which takes a tenth of a second
    return run


def run(source: str, seconds: float, megabytes: int, fuel: int) -> dict[str, Any]:
    """Run `source` in a fresh instance and return the parts of `sandbox.Told`."""
    import eryx

    limits = eryx.ResourceLimits(
        execution_timeout_ms=max(1, round(seconds * 1000)),
        max_memory_bytes=megabytes << 20,
        max_fuel=fuel,
        max_callback_invocations=0,
        max_vfs_bytes=FILES,
    )
    printed: list[bytes] = []
    box = eryx.Sandbox(resource_limits=limits, result_variable=RESULT, on_stdout=printed.append)
    text, error, late, backstop = None, "", False, False
    try:
        text = box.execute(source).result
    except eryx.TimeoutError as over:
        error, late, backstop = f"TimeoutError: {over}", True, True
    except eryx.ResourceLimitError as over:
        late = "fuel" in str(over)
        error = f"{'TimeoutError' if late else 'MemoryError'}: {over}"
    except eryx.EryxError as raised:
        lines = str(raised).splitlines()
        error = lines[-1] if lines[:1] == ["Traceback (most recent call last):"] else ""
    said = b"".join(printed)[:MOST_SAID].decode("utf-8", "replace")
    text = text if isinstance(text, str) else None
    if text and len(text) > MOST_ANSWERED:
        text, error = None, f"MemoryError: the answers take {len(text)} characters, more than {MOST_ANSWERED}"
    return {"text": text, "error": error, "said": said, "backstop": backstop, "late": late}

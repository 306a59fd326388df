"""One block of text about this machine, to paste into a question: platform, versions, device, threads and more.

Everything is tried: a device counts if it has multiplied two matrices, and a sandbox counts if it has run a program. No
failure ends the report, because a broken installation needs the report most. Leaves out: repairs.
"""

import os
import platform
import sys
import textwrap

from mas_lab.backends.devices import GIB, first_line, probe
from mas_lab.child import usable_cores
from mas_lab.display.progress import FRONT_ENDS, front_end
from mas_lab.runs.run import runs_dir
from mas_lab.tasks import sandbox as box
from mas_lab.train.record import version_of

PACKAGES = (
    "torch", "transformers", "peft", "trl", "accelerate", "safetensors", "tokenizers", "numpy", "pandas",
    "pyarrow", "datasets", "math-verify", "reasoning-gym", "pydantic-monty", "pyeryx", "plotly", "ipywidgets",
    "anywidget", "ipykernel", "jupyterlab", "unsloth", "vllm",
)  # fmt: skip
LIBRARIES = {"pyeryx": "pyeryx", "monty": "pydantic-monty"}


def doctor() -> str:
    """Print a report about this machine and return it.

    Returns:
        The block of text: platform, Python, packages, devices, threads, sandbox, front end and the folder of runs.
    """
    sections = {
        "platform": f"{platform.platform()}, {platform.machine()}",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "packages": versions(),
        "device": devices(),
        "threads": threads(),
        "sandbox": sandbox(),
        "widgets": FRONT_ENDS[front_end()],
        "runs": str(runs_dir()),
    }
    lines = [f"mas_lab {version_of('mas-lab') or '(from a checkout, not installed)'}"]
    for name, text in sections.items():
        lines += textwrap.wrap(text, 110, initial_indent=f"{name:<11}", subsequent_indent=" " * 11)
    block = "\n".join(lines)
    print(block)
    return block


def versions() -> str:
    """Return the installed versions of the stack, and the names of missing packages."""
    found = {name: version_of(name) for name in PACKAGES}
    present = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    missing = ", ".join(name for name, version in found.items() if not version)
    return f"{present}; not installed: {missing or 'none'}"


def devices() -> str:
    """Return every device that torch names, each with the result of a real matrix product."""
    try:
        import torch
    except (ImportError, OSError) as error:
        return f"torch cannot be imported: {first_line(error)}"
    names = {"cpu": "cpu"}
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        memory = about.total_memory / GIB
        names[f"cuda:{i}"] = f"cuda:{i} {about.name}, {memory:.0f} GiB, compute {about.major}.{about.minor}"
    if torch.backends.mps.is_available():
        names["mps"] = "mps"
    return "; ".join(f"{name}: {probe(device)}" for device, name in names.items())


def threads() -> str:
    """Return the cores that this process may use, and the number of torch's threads."""
    parts = [f"{usable_cores()} of {os.cpu_count()} cores usable"]
    if "torch" in sys.modules:
        parts.append(f"torch uses {sys.modules['torch'].get_num_threads()}")
    parts.append(f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}")
    return ", ".join(parts)


def sandbox() -> str:
    """Return which sandbox runs a model's programs and whether it works, or the error that says what to install."""
    try:
        name = box.tier()
        works = box.run("def f(x): return x + 1", "f", [[1]]).values == (2,)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return f"{name} ({LIBRARIES[name]} {version_of(LIBRARIES[name])}): {'works' if works else 'FAILS at 1 + 1'}"

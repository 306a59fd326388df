"""One block about this machine, to paste into a question: platform, versions, device, threads, sandbox, widgets.

Everything is tried, not asked: a device counts when it has multiplied two matrices, a kernel feature when the kernel
has answered. No failure ends the report, since a broken installation is where it is needed. Leaves out: repairs.
"""

import ctypes
import errno
import os
import platform
import subprocess
import sys
import textwrap
from importlib import metadata
from pathlib import Path

from mas_lab.backends.devices import devices
from mas_lab.progress import FRONT_ENDS, front_end
from mas_lab.runs.run import runs_dir

PACKAGES = (
    "torch", "transformers", "peft", "trl", "accelerate", "safetensors", "tokenizers", "numpy", "pandas", "pandera",
    "pyarrow", "datasets", "math-verify", "reasoning-gym", "plotly", "ipywidgets", "anywidget", "ipykernel",
    "jupyterlab", "unsloth", "vllm",
)  # fmt: skip
LANDLOCK_CREATE_RULESET, LANDLOCK_VERSION = 444, 1
PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 22, 2
UNSHARE = "import ctypes, sys; sys.exit(ctypes.CDLL(None).unshare(0x10000000 | 0x40000000 | 0x20000000) != 0)"
"""New user, network and process namespaces, tried in a child, which keeps them."""


def doctor() -> str:
    """Print the block and return it."""
    sections = {
        "platform": f"{platform.platform()}, {platform.machine()}",
        "python": f"{platform.python_version()} ({platform.python_implementation()})",
        "packages": versions(),
        "device": devices(),
        "threads": threads(),
        "sandbox": sandbox(),
        "widgets": FRONT_ENDS[front_end()],
        "runs": runs(),
    }
    lines = [f"mas_lab {_version('mas-lab') or '(from a checkout, not installed)'}"]
    for name, text in sections.items():
        indent = " " * 11
        lines += textwrap.wrap(text, 110, initial_indent=f"{name:<{len(indent)}}", subsequent_indent=indent)
    block = "\n".join(lines)
    print(block)
    return block


def versions() -> str:
    """The installed versions of the stack, and what of it is missing."""
    found = {name: _version(name) for name in PACKAGES}
    present = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    missing = ", ".join(name for name, version in found.items() if not version)
    return f"{present}; not installed: {missing or 'none'}"


def threads() -> str:
    """Cores that this process may use, the quota of its container, and how many threads torch takes."""
    affinity = getattr(os, "sched_getaffinity", None)
    usable = len(affinity(0)) if affinity else os.cpu_count()
    told = [f"{usable} of {os.cpu_count()} cores usable"]
    quota = Path("/sys/fs/cgroup/cpu.max")
    if quota.is_file() and not (limit := quota.read_text(encoding="utf-8").split())[0].startswith("max"):
        told.append(f"container quota {int(limit[0]) / int(limit[1]):g}")
    if "torch" in sys.modules:
        told.append(f"torch uses {sys.modules['torch'].get_num_threads()}")
    told.append(f"OMP_NUM_THREADS={os.environ.get('OMP_NUM_THREADS', 'unset')}")
    return ", ".join(told)


def sandbox() -> str:
    """The kernel features that confine model-written code, as the kernel answers for them."""
    if sys.platform != "linux":
        return f"no Landlock, seccomp or user namespaces on {sys.platform}"
    libc = ctypes.CDLL(None, use_errno=True)
    version = libc.syscall(LANDLOCK_CREATE_RULESET, None, 0, LANDLOCK_VERSION)
    ctypes.set_errno(0)
    libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, None)  # a null filter: EFAULT where filters exist, EINVAL elsewhere
    seccomp = ctypes.get_errno() == errno.EFAULT
    child = subprocess.run([sys.executable, "-I", "-S", "-c", UNSHARE], capture_output=True, check=False)
    namespaces = child.returncode == 0
    return (
        f"Landlock {f'ABI {version}' if version > 0 else 'no'}, seccomp {'yes' if seccomp else 'no'}, "
        f"user, network and process namespaces {'yes' if namespaces else 'no'}"
    )


def runs() -> str:
    """Where runs are kept, and whether that can be written to."""
    folder = Path(runs_dir())
    above = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return f"{folder} ({'writable' if os.access(above, os.W_OK) else 'NOT writable'})"


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None

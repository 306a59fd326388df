"""Hosted notebooks: detect the service and install missing packages without replacing any.

Colab and Kaggle have a torch, pandas and ipywidgets that fit their drivers and front ends. pip must therefore keep
every installed version and may only add packages. This file needs nothing but Python, because a notebook runs it from
the wheel's folder before the package can be imported. Leaves out: getting the wheel itself (the notebooks' first cell).
"""

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

UNSLOTH = (
    "unsloth>=2026.10.7",  # without a floor, resolvers go back to releases of 2025
    "unsloth_zoo>=2026.10.7",
    "bitsandbytes>=0.50.2",  # the 4-bit base
    "trl>=1.15,<1.16",  # 1.16 is above Unsloth's cap
)
SWITCHES = {
    "internet": {
        "kaggle": "Settings > Internet > On (it wants a verified phone number), or attach the wheels as a data set and "
        "set PIP_FIND_LINKS to its folder",
        "colab": "Runtime > Disconnect and delete runtime, then again",
        "local": "check the network of this machine",
    },
    "gpu": {
        "kaggle": "the accelerator is off: Settings > Accelerator > GPU T4 x2",
        "colab": "the runtime has no GPU: Runtime > Change runtime type > T4 GPU",
        "local": "no NVIDIA GPU answered nvidia-smi",
    },
}
PINNABLE = re.compile(
    r"(\d+!)?\d+(\.\d+)*((a|b|rc)\d+)?(\.post\d+)?(\.dev\d+)?(\+[a-z0-9]+([._-][a-z0-9]+)*)?", re.IGNORECASE
)
"""Versions that pip accepts in a constraint. Some old system packages have other versions, and one of those stops
pip."""


@dataclass(frozen=True)
class Host:
    """The service that runs this notebook."""

    name: str
    """ "colab", "kaggle" or "local"."""
    gpus: tuple[str, ...]
    """The names that nvidia-smi gives."""

    @property
    def usable_gpus(self) -> tuple[str, ...]:
        """Return the GPUs without the P100, which today's torch sees and fails on."""
        return tuple(gpu for gpu in self.gpus if "P100" not in gpu)

    def why_no_gpu(self) -> str | None:
        """Return which switch is off, or `None` if a GPU is usable."""
        if self.usable_gpus:
            return None
        old = "the P100 fails under this torch: Settings > Accelerator > GPU T4 x2"
        return old if self.gpus else SWITCHES["gpu"][self.name]


def detect() -> str:
    """Return "colab", "kaggle" or "local", by the traces that each service leaves in the environment."""
    if "KAGGLE_KERNEL_RUN_TYPE" in os.environ:
        return "kaggle"
    return "colab" if "COLAB_RELEASE_TAG" in os.environ or "google.colab" in sys.modules else "local"


def gpus() -> tuple[str, ...]:
    """Return the names of the NVIDIA GPUs that the driver knows; torch may not be installed yet."""
    if shutil.which("nvidia-smi") is None:
        return ()
    query = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    done = subprocess.run(query, capture_output=True, encoding="utf-8", errors="replace", check=False)
    return tuple(line.strip() for line in done.stdout.splitlines() if line.strip()) if done.returncode == 0 else ()


def installed() -> dict[str, str]:
    """Return every installed distribution and its version."""
    found = {}
    for distribution in metadata.distributions():
        name, version = distribution.metadata["Name"], distribution.version
        if name and version:
            found.setdefault(re.sub(r"[-_.]+", "-", name).lower(), version)  # imports take the first one
    return found


def plan_install(needs: Sequence[str], have: Mapping[str, str], constraints: Path) -> list[str]:
    """Return the pip command that adds `needs` beside `have`, and write `constraints`, which pin all of `have`."""
    pins = [f"{name}=={version}\n" for name, version in sorted(have.items()) if PINNABLE.fullmatch(version)]
    constraints.write_text("".join(pins), encoding="utf-8")
    install = [sys.executable, "-m", "pip", "install", "--disable-pip-version-check"]
    return [*install, "--constraint", str(constraints), *needs]


def add(needs: Sequence[str], host: str, *flags: str) -> dict[str, str]:
    """Install `needs` and their requirements in this environment; return what was added. `flags` are pip's.

    Raises SystemExit with the reason if that fails.
    """
    before = installed()
    with tempfile.TemporaryDirectory() as folder:
        command = plan_install(needs, before, Path(folder) / "constraints.txt")
        done = subprocess.run([*command, *flags], capture_output=True, encoding="utf-8", errors="replace", check=False)
    if done.returncode:
        why = "\n".join(f"{done.stdout}\n{done.stderr}".strip().splitlines()[-12:])
        offline = f"If pip could not reach the package index: {SWITCHES['internet'][host]}."
        refused = f"Nothing was installed: pip cannot add {', '.join(needs)} beside what is here"
        upgrade = f"%pip install --upgrade {' '.join(map(shlex.quote, needs))}"
        unfit = (
            "If a package of this machine does not fit: this line in a cell replaces it; restart the session after it"
        )
        raise SystemExit(f"{refused}:\n{why}\n{offline}\n{unfit}:\n  {upgrade}")
    importlib.invalidate_caches()
    return {name: version for name, version in installed().items() if name not in before}


def missing(needs: Iterable[str], have: Mapping[str, str]) -> list[str]:
    """Return the requirements of `needs` that have no installed version; requirements of extras are skipped."""
    names = {need: re.match(r"[\w.-]+", need)[0] for need in needs if "extra ==" not in need}
    return [need for need, name in names.items() if re.sub(r"[-_.]+", "-", name).lower() not in have]


def prepare(gpu_needs: Sequence[str] = (), needs: Sequence[str] = (), alone: Sequence[str] = ()) -> Host:
    """Install the missing requirements of mas_lab and of this notebook (`needs`), and print a report.

    `gpu_needs` are installed too if a hosted GPU is usable, and `alone` without its own requirements. A local
    environment stays as it is, unless mas_lab or the notebook has a requirement that is not installed at all.
    """
    host = Host(detect(), gpus())
    why = host.why_no_gpu()
    if gpu_needs or host.name != "local":
        use = "" if gpu_needs else "; tiny models train on the processor, and notebook 10 uses the GPU"
        print(f"{host.name}: on the CPU, since {why}." if why else f"{host.name}: {', '.join(host.gpus)}{use}")
    if host.name == "local" and not missing([*(metadata.requires("mas-lab") or ()), *needs, *alone], installed()):
        return host
    on_gpu = gpu_needs if host.usable_gpus and host.name != "local" else ()
    added = add(["mas-lab", *needs, *on_gpu], host.name) | (add(alone, host.name, "--no-deps") if alone else {})
    print(f"added: {', '.join(f'{name} {version}' for name, version in sorted(added.items())) or 'nothing'}")
    return host

"""Import of Unsloth at the right moment, with an error message if it fails.

Unsloth patches transformers, TRL and PEFT when it is imported, so it must come first. `mas_lab` imports none of them
before a policy is made. Leaves out: the use of Unsloth (`model`).
"""

import sys
import warnings

from mas_lab.backends.devices import probe
from mas_lab.policy import PolicyError

LATER = ("trl", "transformers", "peft")
DEVICES = {"cpu": "cpu", "cuda": "cuda", "hip": "cuda"}
"""Unsloth's names of the kinds of device that this back end uses, and torch's names."""


def import_unsloth():
    """Return the module; raise PolicyError if it is missing or refuses this machine."""
    late = [] if "unsloth" in sys.modules else [name for name in LATER if name in sys.modules]
    if "unsloth" not in sys.modules:
        refuse_broken_gpu()
    try:
        import unsloth
    except Exception as error:  # it refuses a machine with various errors
        raise PolicyError(
            f'back end "unsloth": Unsloth cannot be imported here: {type(error).__name__}: {error}. It needs Linux or '
            "Windows, and an NVIDIA, AMD or Intel GPU, or from 2026.10.9 on any CPU: pip install unsloth. If it is "
            'installed, its requirements may be incomplete (pip check). backend="torch" trains the same adapters'
        ) from error
    if unsloth.DEVICE_TYPE not in DEVICES:
        raise PolicyError(
            f'back end "unsloth": Unsloth chose the device {unsloth.DEVICE_TYPE!r} here, whose models are not plain '
            'torch; use backend="torch"'
        )
    if late and unsloth.DEVICE_TYPE != "cpu":
        warnings.warn(
            f"Unsloth was imported after {', '.join(late)}, which it can then patch only in part: slower, and more "
            'memory. Restart and make the backend="unsloth" policy first, or `import unsloth` in the first cell.',
            stacklevel=2,
        )
    return unsloth


def refuse_broken_gpu() -> None:
    """Raise PolicyError for a GPU that is visible and fails at its first product (a P100 under a recent torch)."""
    import torch

    if not torch.cuda.is_available():
        return
    outcome = probe("cuda")
    if outcome != "works":
        about = torch.cuda.get_device_properties(0)
        raise PolicyError(
            f'back end "unsloth": the GPU {about.name} (compute capability {about.major}.{about.minor}) is visible but '
            f'{outcome}. On Kaggle choose the accelerator "GPU T4 x2" instead of P100; elsewhere use backend="torch", '
            "which then takes the CPU, or hide the GPU (CUDA_VISIBLE_DEVICES=) before Python starts"
        )

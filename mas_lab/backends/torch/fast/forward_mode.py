"""Guard forward-mode derivatives, because torch has one level of them for all threads.

Leaves out: the derivatives themselves (`directional`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.autograd import forward_ad

LEVEL = threading.RLock()
_thread = threading.local()


@contextmanager
def forward_mode() -> Iterator[None]:
    """Let this thread compute with dual numbers; other threads wait for it, also if they use another model."""
    with LEVEL, forward_ad.dual_level():
        _thread.is_dual = True
        try:
            yield
        finally:
            _thread.is_dual = False


def in_forward_mode() -> bool:
    """Return True if this thread computes with dual numbers; fused kernels have no forward-mode derivative."""
    return getattr(_thread, "is_dual", False)

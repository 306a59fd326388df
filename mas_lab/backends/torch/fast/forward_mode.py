"""Guard forward-mode derivatives, because torch has one level of them for all threads.

Leaves out: the derivatives themselves (`directional`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.autograd import forward_ad

LEVEL = threading.RLock()
_user: int | None = None


@contextmanager
def forward_mode() -> Iterator[None]:
    """Let this thread compute with dual numbers; other threads wait for it, also if they use another model."""
    global _user
    with LEVEL, forward_ad.dual_level():
        _user = threading.get_ident()
        try:
            yield
        finally:
            _user = None


def in_forward_mode() -> bool:
    """Return True if this thread computes with dual numbers; fused kernels have no forward-mode derivative."""
    return forward_ad._current_level >= 0 and _user in (None, threading.get_ident())

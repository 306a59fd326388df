"""Forward-mode derivatives in one thread: torch has one level of them for all threads, and this says whose it is.

Leaves out: what is derived (`slopes`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.autograd import forward_ad

LEVEL = threading.RLock()
_user: int | None = None


@contextmanager
def forward_mode() -> Iterator[None]:
    """Inside, this thread computes with duals; another one that would waits for it, whatever its model."""
    global _user
    with LEVEL, forward_ad.dual_level():
        _user = threading.get_ident()
        try:
            yield
        finally:
            _user = None


def in_forward_mode() -> bool:
    """Does this thread compute with duals? Fused kernels have no forward-mode derivative."""
    return forward_ad._current_level >= 0 and _user in (None, threading.get_ident())

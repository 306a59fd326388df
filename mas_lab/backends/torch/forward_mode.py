"""Forward-mode derivatives in one thread: torch has one level of them for all threads, and this module guards it.

Leaves out: the derivatives themselves (`slopes`).
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from torch.autograd import forward_ad

from mas_lab.locks import Only, alone

LEVEL = Only("torch's forward mode")
_user: int | None = None


@contextmanager
def forward_mode() -> Iterator[None]:
    """Let this thread compute with dual numbers; other threads that want to wait, whatever their model."""
    global _user
    with alone([LEVEL]), forward_ad.dual_level():
        _user = threading.get_ident()
        try:
            yield
        finally:
            _user = None


def in_forward_mode() -> bool:
    """Return True if this thread computes with dual numbers; fused kernels have no forward-mode derivative."""
    return forward_ad._current_level >= 0 and _user in (None, threading.get_ident())

"""When one of several processes ends: the others notice, and each says why before it is stopped.

Leaves out: what the ranks do together (`ranks`).
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mas_lab.backends.ranks.engine import RankError

GOES_ON = "If the run is kept, the same command goes on from its newest checkpoint"


@contextmanager
def connected(rank: str) -> Iterator[None]:
    """Another rank's end shows as an error of the process group: say so."""
    try:
        yield
    except RuntimeError as error:
        if not _is_lost(error):
            raise
        raise RankError(
            f"{rank}: another rank ended or lost its connection. {GOES_ON}. What was seen here: "
            f"{str(error).splitlines()[0].rpartition('] ')[2][:100]}"
        ) from error


def _is_lost(error: RuntimeError) -> bool:
    """Did the process group fail, and not the work? Gloo and DDP raise plain RuntimeErrors."""
    known = ("gloo", "nccl", "connection", "closed by peer", "socket")
    return isinstance(error, torch.distributed.DistError) or any(word in str(error).lower() for word in known)


@contextmanager
def saying_why(number: int) -> Iterator[None]:
    """A launcher that sees a rank end stops the others by SIGTERM: let them say why before they end. After an error
    this process ends by itself, and a SIGTERM that came before its last words were out would swallow them."""

    def stop(*_):
        raise SystemExit(
            f"mas_lab: rank {number} was stopped by the launcher: another rank ended, or it was asked to. {GOES_ON}"
        )

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    after = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    except GeneratorExit:
        raise
    except BaseException:
        after = signal.SIG_IGN
        raise
    finally:
        signal.signal(signal.SIGTERM, after)

"""The end of one of several processes: the others notice it, and each prints the reason before it is stopped.

Leaves out: the common work of the ranks (`ranks`).
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from mas_lab.backends.distributed.engine import RankError

GOES_ON = "If the run is kept, the same command goes on from its newest checkpoint"


@contextmanager
def connected(rank: str) -> Iterator[None]:
    """Turn an error of the process group into a RankError, because it means that another rank ended."""
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
    """Return True if the process group failed, and not the work; Gloo and DDP raise plain RuntimeErrors."""
    known = ("gloo", "nccl", "connection", "closed by peer", "socket")
    return isinstance(error, torch.distributed.DistError) or any(word in str(error).lower() for word in known)


@contextmanager
def saying_why(number: int) -> Iterator[None]:
    """Print the reason when the launcher stops this rank by SIGTERM, because another rank ended.

    After an error this process ends by itself. It then ignores SIGTERM, which would cut off its last message.
    """

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

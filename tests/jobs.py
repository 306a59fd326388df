"""Jobs that the tests of `processes` hand to other processes, and a program that runs endless ones."""

import os
import signal
import sys
import time

from mas_lab.display.progress import may_print
from mas_lab.study.processes import side_by_side


def fail():
    raise ValueError("planned")


def die():
    os.kill(os.getpid(), signal.SIGTERM)


def is_silent():
    return not may_print()


def endless():
    """Print the process in one write, since two prints may mix, and go on until it is stopped."""
    os.write(1, f"{os.getpid()}\n".encode())
    time.sleep(1200)


if __name__ == "__main__":
    try:
        list(side_by_side([(endless,), (endless,)], workers=2))
    except KeyboardInterrupt:
        sys.exit(130)

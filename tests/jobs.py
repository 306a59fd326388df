"""Jobs that the tests of `processes` hand to other processes, and a program that runs endless ones."""

import os
import signal
import sys
import time

from mas_lab.study.processes import side_by_side


def count(name, total, tell):
    """Counts to `total`; returns its name, and the process in which it did."""
    for done in range(total + 1):
        tell(name, done, total)
    return name, os.getpid()


def fail(tell):
    raise ValueError("planned")


def say(number):
    """A line at once: of two that are printed side by side, the ends may come apart."""
    os.write(1, f"{number}\n".encode())


def endless(name, tell):
    """Says who it is, and goes on until it is stopped."""
    say(os.getpid())
    for done in range(10**9):
        tell(name, done, 10**9)
        time.sleep(0.02)


def hushed(tell):
    """Would a bar within a job be drawn?"""
    from mas_lab.display.progress import progress_bar

    return progress_bar(1, "rollout", "episode").disable


def forks(*_):
    """On a signal: a fork that stays."""
    if fork := os.fork():
        say(fork)
    else:
        time.sleep(1200)


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, forks)
    try:
        list(side_by_side([(endless, "first"), (endless, "second")], workers=2))
    except KeyboardInterrupt:
        sys.exit(130)

"""One lock per model: a rollout or an update has its weights and gradients to itself, other threads wait.

A model that one thread trains with `train()` is trained by no other. Policies on several devices train at the same
time. Leaves out fairness and other processes.
"""

import threading
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain
from typing import Any

from mas_lab.policy import Policy, PolicyError


class ModelLock:
    """Lock one model. `trainer` is the thread whose `train()` changes its weights."""

    def __init__(self):
        self.lock = threading.RLock()
        self.trainer: threading.Thread | None = None


@contextmanager
def locked(policies: Iterable[Policy], training: bool = False) -> Iterator[None]:
    """Keep other threads off these models; with `training`, raise PolicyError if another thread trains one of them."""
    policies = list(policies)
    with ExitStack() as stack:
        for lock in sorted({policy.lock for policy in policies}, key=id):  # one order, so no deadlock
            while not lock.lock.acquire(timeout=0.2):  # Windows cannot interrupt a longer wait
                pass
            stack.callback(lock.lock.release)
        for policy in policies if training else ():
            trainer = policy.lock.trainer
            if trainer not in (None, threading.current_thread()) and trainer.is_alive():
                raise PolicyError(
                    f"policy {policy.name!r}: a train() in thread {trainer.name!r} is training its model; end it first "
                    "(a dashboard by .stop() and .wait(), train() by .close()), or load another model"
                )
        yield


@contextmanager
def training(policies: Sequence[Policy]) -> Iterator[Callable[[Callable, Sequence[Any]], list[Any]]]:
    """Keep other threads off the models of `policies`, and yield a map over the steps that train them.

    It returns a list. If there are several devices, each has a thread, in which its steps are done one after the other.
    A step is anything with a `policy`.
    """
    with locked(policies, training=True):
        devices = {policy.capabilities.device for policy in policies}
        if len(devices) < 2:
            yield lambda function, steps: list(map(function, steps))
            return
        with ThreadPoolExecutor(len(devices)) as pool:
            yield partial(_map_by_device, pool)


def _map_by_device(pool: ThreadPoolExecutor, function: Callable[[Any], Any], steps: Sequence[Any]) -> list[Any]:
    by_device: dict[str, list[int]] = {}
    for number, step in enumerate(steps):
        by_device.setdefault(step.policy.capabilities.device, []).append(number)
    done = pool.map(lambda own: [(number, function(steps[number])) for number in own], by_device.values())
    found = dict(chain(*done))
    return [found[number] for number in range(len(steps))]


def one_trainer(policies: Iterable[Policy], steps: Generator) -> Generator:
    """Yield from `steps`, a loop that trains `policies`, while no other thread trains their models."""
    policies = list(policies)
    try:
        while True:
            with locked(policies, training=True):
                for policy in policies:
                    policy.lock.trainer = threading.current_thread()
            report = next(steps, None)
            _release(policies, threading.main_thread())  # a notebook may leave its loop unfinished for ever
            if report is None:
                return
            yield report
    finally:
        steps.close()
        _release(policies, threading.current_thread())


def _release(policies: Iterable[Policy], trainer: threading.Thread) -> None:
    for lock in (policy.lock for policy in policies):
        lock.trainer = None if lock.trainer is trainer else lock.trainer

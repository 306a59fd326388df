"""One model, one thread at a time: who uses a model now, who waits, and who is refused by name.

Threads may share a model: a dashboard trains it in one while a cell scores it in another. What holds then:
- Calls on one model wait for each other (`alone`), so that no gradients mix and no adapter is switched under a call.
- A rollout plays with one set of weights (`playing`): what changes them waits until other threads' rollouts have ended.
- A policy is trained by one thread at a time (`trained_alone`): another one that would change its weights is refused.

Who waits can be interrupted, and gets its turn as soon as it is free, before whoever asks later. Where threads would
wait for each other for ever, the last one is refused. Leaves out: processes, and which calls these are (the back ends).
"""

import threading
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import Any

from mas_lab.policy import PolicyError

SLICE = 0.2
"""Seconds of waiting at once, since Windows interrupts no endless wait."""
_changed = threading.Condition()
"""Guards all locks: they change hands seldom, and who needs several takes them at once."""
_waiting: list["_Wish"] = []
_trainers: list["_Trainer"] = []
_standing = threading.local()


class ModelLock:
    """Of one model: the thread that uses it, and the threads whose rollouts play with its weights."""

    def __init__(self):
        self.holder: int | None = None
        self.depth = self.changing = 0
        """How often its holder has taken it, and how often of these to change the weights."""
        self.players: Counter[int] = Counter()


class Only:
    """What a process has one of, to be used by one thread at a time as a model is: `alone([it])`."""

    def __init__(self, name: str):
        self.name, self.lock = name, ModelLock()


class _Wish:
    """To use the models of some policies; what may only be done with all of them waits for all at once."""

    def __init__(self, policies: Iterable[Any], changing: bool = False):
        self.policies = [policy for policy in policies if getattr(policy, "lock", None) is not None]
        self.locks = list({id(policy.lock): policy.lock for policy in self.policies}.values())
        self.thread, self.changing, self.taken = this_thread(), changing, False

    def blockers(self) -> set[int]:
        """The threads that are in the way."""
        found = set()
        for lock in self.locks:
            if lock.holder not in (None, self.thread):
                found.add(lock.holder)
            elif self.changing and not lock.changing:
                found |= lock.players.keys() - {self.thread}
        return found

    def take(self) -> None:
        self.taken = True
        for lock in self.locks:
            lock.holder, lock.depth, lock.changing = self.thread, lock.depth + 1, lock.changing + self.changing

    def give_back(self) -> None:
        self.taken = False
        for lock in self.locks:
            lock.depth, lock.changing = lock.depth - 1, lock.changing - self.changing
            lock.holder = self.thread if lock.depth else None

    def names(self) -> str:
        return ", ".join(dict.fromkeys(repr(policy.name) for policy in self.policies))


class _Play(_Wish):
    """To play with weights that stay as they are. Rollouts go on side by side."""

    def blockers(self) -> set[int]:
        return {lock.holder for lock in self.locks if lock.changing and lock.holder != self.thread}

    def take(self) -> None:
        self.taken = True
        for lock in self.locks:
            lock.players[self.thread] += 1

    def give_back(self) -> None:
        self.taken = False
        for lock in self.locks:
            lock.players[self.thread] -= 1
            if not lock.players[self.thread]:
                del lock.players[self.thread]


@contextmanager
def alone(policies: Iterable[Any], changing: bool = False) -> Iterator[None]:
    """Inside, no other thread uses the models of `policies`; this one may do so again within.

    `changing`: their weights will change. Raises PolicyError where another thread trains one of them, or where waiting
    would have no end.
    """
    wish = _Wish(policies, changing)
    if changing:
        _refuse_what_others_train(wish)
    with _granted(wish):
        if changing:
            _refuse_what_others_train(wish)  # who began while this one waited
        yield


def playing(policies: Iterable[Any]) -> AbstractContextManager[None]:
    """Inside, the weights of `policies` stay what they are, as far as other threads go."""
    return _granted(_Play(policies))


def held(changing: bool = False) -> Callable:
    """For a method of a policy: `alone` with its model."""

    def decorate(method: Callable) -> Callable:
        @wraps(method)
        def call(policy, *arguments, **named):
            with alone([policy], changing):
                return method(policy, *arguments, **named)

        return call

    return decorate


@contextmanager
def _granted(wish: _Wish) -> Iterator[None]:
    try:
        with _changed:
            if not wish.blockers():
                wish.take()
            else:
                _waiting.append(wish)
            while not wish.taken:
                _refuse_to_wait_for_ever(wish)
                _changed.wait(SLICE)
        yield
    finally:
        with _changed:
            if wish.taken:
                wish.give_back()
            elif wish in _waiting:
                _waiting.remove(wish)
            for other in list(_waiting):
                if not other.blockers():
                    _waiting.remove(other)
                    other.take()
            _changed.notify_all()


def _refuse_to_wait_for_ever(wish: _Wish) -> None:
    """Raises PolicyError where whoever is in the way waits, over however many others, for this very thread."""
    seen, new = set(), wish.blockers()
    while new:
        seen |= new
        new = {thread for other in _waiting if other.thread in new for thread in other.blockers()} - seen
    if wish.thread in seen:
        raise PolicyError(
            f"policy {wish.names()}: in use by thread {_named(min(wish.blockers()))!r}, which waits for what this one "
            f"({_named(wish.thread)!r}) holds; use these models one after the other, not one within the other"
        )


# Who trains


class _Trainer:
    """A training in progress, and the thread that last went on with it."""

    def __init__(self, policies: Iterable[Any]):
        self.policies, self.thread, self.works = list(policies), threading.current_thread(), False

    def shares(self, policies: Iterable[Any]) -> list[Any]:
        return [policy for policy in policies if any(policy is own for own in self.policies)]

    def is_elsewhere(self) -> bool:
        return self.thread.ident != this_thread() and self.thread.is_alive()

    def goes_on(self) -> bool:
        """In its step, or in a thread that lives for it. A notebook's main thread outlives every loop that it left."""
        return self.works or self.thread is not threading.main_thread()


def trained_alone(policies: Iterable[Any], steps: Generator) -> Generator:
    """`steps`, which train `policies`: until they end no other thread trains these, or changes their weights.

    Raises PolicyError where another thread does so already.
    """
    trainer = _Trainer(policies)
    try:
        while True:
            _go_on(trainer)
            try:
                report = next(steps)
            except StopIteration:
                return
            finally:
                trainer.works = False
            yield report
    finally:
        try:
            steps.close()
        finally:
            with _changed:
                if trainer in _trainers:
                    _trainers.remove(trainer)


def _go_on(trainer: _Trainer) -> None:
    with _changed:
        for other in _trainers:
            if other is not trainer and other.is_elsewhere() and other.goes_on():
                _refuse(other, other.shares(trainer.policies))
        trainer.thread, trainer.works = threading.current_thread(), True
        if trainer not in _trainers:
            _trainers.append(trainer)


def _refuse_what_others_train(wish: _Wish) -> None:
    with _changed:
        own = [trainer for trainer in _trainers if not trainer.is_elsewhere()]
        for other in _trainers:
            if other.is_elsewhere():
                _refuse(other, [p for p in other.shares(wish.policies) if not any(mine.shares([p]) for mine in own)])


def _refuse(other: _Trainer, policies: list[Any]) -> None:
    if policies:
        raise PolicyError(
            f"policy {policies[0].name!r}: a train() in thread {other.thread.name!r} is training it, and its weights "
            "are changed nowhere else until that has ended; end it first (a dashboard by .stop() and .wait(), train() "
            "by .close()), or load a policy of its own"
        )


# Threads


def this_thread() -> int:
    """The thread that calls, or the one that it works for."""
    return getattr(_standing, "thread", None) or threading.get_ident()


@contextmanager
def standing_for(thread: int) -> Iterator[None]:
    """Inside, this thread does a part of what `thread`, which waits for it, does."""
    _standing.thread = thread
    try:
        yield
    finally:
        del _standing.thread


def _named(thread: int) -> str:
    return next((one.name for one in threading.enumerate() if one.ident == thread), str(thread))

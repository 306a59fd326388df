"""The common part of all vLLM engines: tickets and publishing.

Samples of stale weights are noticed by `update`, which compares their log-probabilities with those of the weights that
are trained (`Capabilities.tolerance`). Leaves out: the transport of requests and weights (`process`, `server`).
"""

import shutil
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mas_lab.backends.torch.model import BACK
from mas_lab.backends.torch.state import save_weights
from mas_lab.backends.vllm.snapshot import Snapshot
from mas_lab.policy import Completion, NotFiniteError, PolicyError, Request, check_fit


class EngineError(PolicyError):
    """Error of an engine that could not answer; `ticket` is the request, if it is known."""

    def __init__(self, message: str, ticket: int | None = None):
        super().__init__(message)
        self.ticket = ticket


Answer = tuple[int, Sequence[int] | EngineError, Sequence[float]]
"""Ticket, token ids or the error in their place, log-probabilities."""


class VllmEngine:
    """An engine for the policies of one model (one policy, or the adapters of one base).

    It starts at the first request or publish. A subclass moves requests and weights:
        _start(folder): Start or reach the engine.
        _send(ticket, policy, request), _abort(tickets): Begin and drop requests.
        _receive(): Return the finished answers (`Answer`) after a short wait; there may be none.
        _take_adapter(policy, path): Read the adapter in `path`.
        _take_weights(policy, path): Take all weights, by files in `path` if need be.
        _sleep(level), _wake(): Hand the GPU's memory back, and take it again.

    Attributes:
        syncs: Number of times that each policy's weights were sent.
    """

    streams = True
    snapshots = False

    def __init__(self, model):
        self.model, self.options = model, model.options
        self.syncs: Counter[str] = Counter()
        self._started = self._resting = self._dropped = self._lazy = False
        self._turn = threading.RLock()  # one thread at a time: vLLM is not safe for several
        self._tickets = count()
        self._running: dict[int, tuple[Any, Request]] = {}
        self._answers: list[tuple[int, Completion | PolicyError]] = []
        self._published: dict[str, int] = {}
        self._folder: tempfile.TemporaryDirectory | None = None
        self._paths: dict[str, Path] = {}
        self._eos = model.eos_ids()
        self._text = lru_cache(2**16)(lambda ids: model.tokenizer.decode(ids, skip_special_tokens=True))

    # Sampling

    def submit(self, policy, requests: Sequence[Request]) -> list[int]:
        """Queue requests and return a ticket for each; publish first if the policy's weights have changed."""
        check_fit(policy, requests)
        with self._turn, _naming(policy):
            self._publish(policy)
            self._wake_up()
            tickets = [next(self._tickets) for _ in requests]
            try:
                for ticket, request in zip(tickets, requests, strict=True):
                    self._running[ticket] = policy, request
                    self._send(ticket, policy, request)
            except BaseException:
                self.cancel(tickets)
                raise
            return tickets

    def ready(self) -> list[tuple[int, Completion]]:
        """Return the answers since the last call, as (ticket, completion), after a short wait."""
        with self._turn:
            for ticket, ids, logprobs in self._receive() if self._running else ():
                self._answers.append((ticket, self._complete(ticket, ids, logprobs)))
            answers, self._answers = self._answers, []
        for _, answer in answers:
            if isinstance(answer, PolicyError):
                raise answer
        return answers

    def sample(self, policy, requests: Sequence[Request]) -> list[Completion]:
        """Answer these requests now, in order; other queued requests stay queued."""
        with self._turn:
            tickets, others = self.submit(policy, requests), []
            answers: dict[int, Completion | None] = dict.fromkeys(tickets)
            try:
                while any(answer is None for answer in answers.values()):
                    for ticket, completion in self.ready():
                        if ticket in answers:
                            answers[ticket] = completion
                        else:
                            others.append((ticket, completion))
            except BaseException:
                self.cancel(tickets)
                raise
            self._answers += others
            return list(answers.values())

    def cancel(self, tickets: Iterable[int]) -> None:
        """Drop requests whose answers nobody needs any more."""
        gone = set(tickets)
        with self._turn:
            self._answers = [entry for entry in self._answers if entry[0] not in gone]
            running = [ticket for ticket in gone if self._running.pop(ticket, None)]
            if running:
                self._abort(running)

    def _complete(
        self, ticket: int, ids: Sequence[int] | EngineError, logprobs: Sequence[float]
    ) -> Completion | PolicyError:
        policy, request = self._running.pop(ticket)
        if isinstance(ids, EngineError):
            return ids
        if not np.isfinite(logprobs).all():
            return NotFiniteError(f"policy {policy.name!r}: vLLM's log-probabilities are not finite; {BACK}")
        ids = tuple(ids)
        if request.temperature == 0:  # vLLM reports the untempered distribution, but the draw was certain
            logprobs = (0.0,) * len(ids)
        text = self._text(ids)
        stopped = "stop" if any(one in text for one in request.stop) else "length"
        return Completion(ids, tuple(logprobs), text, "eos" if ids[-1] in self._eos else stopped)

    def sampling(self, request: Request) -> dict[str, Any]:
        """Return the settings of a request, which the engine and the servers call alike."""
        return {
            "max_tokens": request.max_tokens, "temperature": request.temperature,
            "seed": request.seed % 2**63 if self.options.reproducible else None,
            "logprobs": 0, "top_p": request.top_p, "top_k": request.top_k or 0, "stop": list(request.stop),
            "stop_token_ids": sorted(self._eos), "ignore_eos": True,  # the ids are the model's own list
            "include_stop_str_in_output": True,  # the text must match the ids
        }  # fmt: skip

    # Publishing

    def sync_weights(self, policy) -> None:
        """Let vLLM sample from the policy's present weights; do nothing if it has them.

        Once snapshots were made, weights are published by the next request that needs them: others may be in flight.
        """
        if not self._lazy:
            with _naming(policy):
                self._publish(policy)

    def snapshot(self, policy) -> Snapshot:
        """Return the policy's present weights; a request to them publishes them."""
        with self._turn:
            self._start_once()
            self._lazy = True
        path = Path(tempfile.mkdtemp(prefix=f"{policy.adapter or 'weights'}_{policy.version}_", dir=self._folder.name))
        save_weights(policy, path)
        return Snapshot(policy, path)

    def _publish(self, policy) -> None:
        self._start_once()
        key = policy.adapter or ""
        if self._published.get(key) == policy.version:
            return
        if key in self._published and any(one.adapter == policy.adapter for one, _ in self._running.values()):
            raise PolicyError(
                f"policy {policy.name!r}: its weights changed while {len(self._running)} requests were in flight; let "
                "a rollout end before its policies are trained"
            )
        self._wake_up()
        # At its start an engine read the same files as the trainer.
        if self.model.lora is not None or self._dropped or key in self._published or policy.version != 0:
            self._push(policy)
            self.syncs[policy.name] += 1
        self._published[key] = policy.version

    def release_memory(self) -> None:
        """Hand the GPU's memory back until the next request or publish, if `sleep` is on.

        Weights that are trained in full are dropped (level 2), because all of them will be sent anew. The base of
        adapters goes to the machine's memory (level 1).
        """
        if self.options.sleep and self._started and not self._resting:
            self._dropped = self.model.lora is None
            self._sleep(2 if self._dropped else 1)
            if self._dropped:
                self._published.clear()
            self._resting = True

    def _wake_up(self) -> None:
        if self._resting:
            if self.model.device.type == "cuda":
                torch.cuda.empty_cache()  # else the trainer's free blocks are missing to the engine
            self._wake()
            self._resting = False

    def _start_once(self) -> None:
        if not self._started:
            if self._folder is None:
                self._folder = tempfile.TemporaryDirectory(prefix="mas_lab_vllm_", dir=self.options.shared_dir)
            self._published.clear()
            self._paths.clear()
            self._start(Path(self._folder.name))
            self._started = True

    def _push(self, policy) -> None:
        """Send the policy's weights; drop everything computed with the old ones."""
        written, whole = isinstance(policy, Snapshot), policy.adapter is None
        name = "weights" if whole else f"{policy.adapter}_{policy.version}"  # the prefix cache depends on it
        path = policy.path if written else Path(self._folder.name) / name
        if whole:
            self._take_weights(policy, path)
            return
        if not written:
            save_weights(policy, path)
        before, self._paths[policy.adapter] = self._paths.get(policy.adapter), path
        self._take_adapter(policy, path)
        if before is not None:
            shutil.rmtree(before, ignore_errors=True)  # that of a snapshot may be gone


@contextmanager
def _naming(policy) -> Iterator[None]:
    """Name the policy in an engine's error."""
    try:
        yield
    except EngineError as error:
        raise EngineError(f"policy {policy.name!r}: {error}") from error

"""A vLLM engine behind HTTP: a server that is started here and ends with this process, or running ones by address.

Prompts and answers are token ids. A running server must have been started with `--logprobs-mode processed_logprobs` and
VLLM_SERVER_DEV_MODE=1 (full weights, prefixes, sleep). For adapters it also needs `--enable-lora`, `--max-loras` and
VLLM_ALLOW_RUNTIME_LORA_UPDATING=1. `--data-parallel-size` is free. Servers answer in turns, and all of them get the
weights.

Every request has a key: one made for a server that is started here, and VLLM_API_KEY of this process for servers by
address. vLLM guards only the OpenAI API with it, and `python -m mas_lab.backends.vllm.serve` guards all routes. Leaves
out: encryption; put a proxy in front of a server that others can reach.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from itertools import cycle
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import torch

from mas_lab.backends.torch.state import save_weights
from mas_lab.backends.vllm import serve
from mas_lab.backends.vllm.engine import Answer, EngineError, VllmEngine
from mas_lab.backends.vllm.snapshot import Snapshot
from mas_lab.policy import Request

MOMENT = 0.02
"""Seconds that `ready` waits for a first answer, so that other engines get their turn."""
PLAIN = {"top_p": 1.0, "top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0, "presence_penalty": 0.0,
         "frequency_penalty": 0.0, "return_token_ids": True, "ignore_eos": True}  # fmt: skip
"""Parameters of every request, whatever a server's defaults are."""


class ServerEngine(VllmEngine):
    """An engine of OpenAI-compatible vLLM servers, with at most `max_seqs` requests in flight per server."""

    def __init__(self, model):
        super().__init__(model)
        where = self.options.where
        self._child: Child | None = None
        self._urls = [] if where == "server" else [where] if isinstance(where, str) else list(where)
        self._futures: dict[int, Future] = {}
        self._name = uuid4().hex[:8]  # a server may serve adapters of others too
        self._threads: ThreadPoolExecutor | None = None

    @property
    def snapshots(self) -> bool:
        """Return True if the servers can sample while the weights learn: they then never sleep."""
        return not self.options.sleep

    # Connecting

    def _start_once(self) -> None:
        if self._child is not None and not self._child.is_alive():
            self._started = False  # it ended between two rollouts
        super()._start_once()

    def _start(self, folder: Path) -> None:
        if self.options.where == "server" and not (self._child and self._child.is_alive()):
            self._child = Child(self.model, folder)
        if self._child is not None:
            self._child.wait(self.options.patience)
            self._urls = [self._child.url]
        self._client = self._new_client()
        self._bases = {url: self._call(url, "/v1/models", method="GET")["data"][0]["id"] for url in self._urls}
        self._turns = cycle(self._urls)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.options.max_seqs * len(self._urls), "vllm")

    def _new_client(self) -> httpx.Client:
        key = os.environ.get(serve.KEY) if self._child is None else self._child.key
        return httpx.Client(
            headers={"Authorization": f"Bearer {key}"} if key else {},
            timeout=self.options.patience,
            limits=httpx.Limits(max_connections=None, keepalive_expiry=2.0),  # vLLM closes idle connections after 5 s
            trust_env=self._child is None,  # no proxy between this process and its own server
        )

    def _call(self, url: str, path: str, body: dict | None = None, method: str = "POST") -> Any:
        """Return the server's answer; raise an EngineError that names the server and the remedy."""
        try:
            if self._child is not None and not self._child.is_alive():
                raise RuntimeError("it has ended")  # and another process may have its port
            answer = self._client.request(method, url.rstrip("/") + path, json=body)
        except (httpx.HTTPError, RuntimeError) as error:  # also RuntimeError: the client was closed by `_abort`
            remedy = "; start it again and resume the run"
            if self._child is not None:
                remedy = f", see {self._child.log}; resume the run, and a new one is started"
            what = f"the vLLM server at {url} does not answer ({type(error).__name__}: {error})"
            raise EngineError(what + remedy) from error
        if answer.is_error:
            raise EngineError(
                f"the vLLM server at {url} refused {path} ({answer.status_code}): {answer.text[:500]}; set {serve.KEY} "
                "to its key where this process starts, and start the server with VLLM_SERVER_DEV_MODE=1, for adapters "
                "also with VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and --enable-lora"
            )
        return answer.json() if "json" in answer.headers.get("content-type", "") else None

    # Sampling

    def _send(self, ticket: int, policy, request: Request) -> None:
        body = {**PLAIN, "model": self._served(policy), "prompt": list(request.prompt_ids), **self.sampling(request)}
        self._futures[ticket] = self._threads.submit(self._complete_at, next(self._turns), body)

    def _served(self, policy) -> str | None:
        """Return the servers' name of an adapter; `None` for a whole model, which each server names by itself."""
        return policy.adapter and f"{policy.adapter}-{self._name}"

    def _complete_at(self, url: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._call(url, "/v1/completions", body | {"model": body["model"] or self._bases[url]})["choices"][0]

    def _receive(self) -> list[Answer]:
        done = wait(self._futures.values(), MOMENT, FIRST_COMPLETED).done
        answers = []
        for ticket in [ticket for ticket, future in self._futures.items() if future in done]:
            future = self._futures.pop(ticket)
            if error := future.exception():
                self._started = False  # the next request connects to the server again
                named = EngineError(f"policy {self._running[ticket][0].name!r}: {error}", ticket)
                named.__cause__ = error
                answers.append((ticket, named, ()))
            else:
                choice = future.result()
                answers.append((ticket, choice["token_ids"], choice["logprobs"]["token_logprobs"]))
        return answers

    def _abort(self, tickets: Sequence[int]) -> None:
        """Drop requests. Close the connections if none is left, so that the server drops the running ones too."""
        for future in [self._futures.pop(ticket) for ticket in tickets if ticket in self._futures]:
            future.cancel()
        if not self._running:
            self._client.close()
            self._client = self._new_client()

    # Publishing

    def _take_adapter(self, policy, path: Path) -> None:
        body = {"lora_name": self._served(policy), "lora_path": str(path), "load_inplace": True}
        for url in self._urls:
            self._call(url, "/v1/load_lora_adapter", body)

    def _take_weights(self, policy, path: Path) -> None:
        if not isinstance(policy, Snapshot):
            save_weights(policy, path)
        for url in self._urls:
            self._call(url, "/collective_rpc", {"method": "reload_weights", "kwargs": {"weights_path": str(path)}})
            if not self._call(url, "/reset_prefix_cache")["success"]:
                raise EngineError(f"the server at {url} kept prefixes of the weights before")

    def _sleep(self, level: int) -> None:
        for url in self._urls:
            self._call(url, f"/sleep?level={level}")

    def _wake(self) -> None:
        for url in self._urls:
            self._call(url, "/wake_up")


class Child:
    """A server that this process starts, on the loopback address and with a key for it; it ends with this process.

    The server inherits a socket that is already bound, so that no other process answers in its place.

    Attributes:
        url: Its address.
        key: The key that it requires.
        log: File with its output.
    """

    def __init__(self, model, folder: Path):
        serve.prepare()
        self.key, self.log = secrets.token_urlsafe(32), folder / "server.log"
        with socket.socket() as bound, self.log.open("wb") as log:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as vLLM sets it on its own sockets
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
            self.process = subprocess.Popen(
                _command(model, port), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=_environment(model) | {serve.KEY: self.key, serve.LISTENS: str(bound.fileno())},
                pass_fds=[bound.fileno()], start_new_session=True,
            )  # fmt: skip
        self.url = f"http://127.0.0.1:{port}"
        weakref.finalize(self, _end, self.process, os.getpid())

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float) -> None:
        """Wait until the server answers; raise EngineError with the end of its log if it does not."""
        end = time.monotonic() + seconds
        bearing = {"Authorization": f"Bearer {self.key}"}
        while self.is_alive() and time.monotonic() < end:
            with suppress(httpx.HTTPError):
                if httpx.get(f"{self.url}/health", headers=bearing, timeout=5, trust_env=False).is_success:
                    return
            time.sleep(0.25)
        why = f"is not up after {seconds:.0f} s" if self.is_alive() else f"ended with status {self.process.poll()}"
        tail = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        _end(self.process, os.getpid())
        raise EngineError(f"the vLLM server that was started here {why}; the end of its log:\n{tail}")


def _command(model, port: int) -> list[str]:
    # A path avoids the import of the package. -P: a module beside it is also called vllm.
    line = [sys.executable, "-P", serve.__file__, "--host", "127.0.0.1", "--port", str(port)]
    line += ["--disable-uvicorn-access-log", "--disable-fastapi-docs"]
    for name, value in model.engine_arguments().items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            line += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
    return line


def _environment(model) -> dict[str, str]:
    changed = {
        serve.FOLLOWS: str(os.getpid()),
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0" if model.lora is None else "1",
        "VLLM_SERVER_DEV_MODE": "1" if model.lora is None or model.options.sleep else "0",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "0",
        "VLLM_HOST_IP": "127.0.0.1",  # its own processes connect here
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    if model.options.gpus is not None:
        changed["CUDA_VISIBLE_DEVICES"] = model.options.gpus
    return {name: value for name, value in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"} | changed


def _end(process: subprocess.Popen, starter: int) -> None:
    """End the server and its workers, which are a session of their own; a fork of the starting process ends nothing."""
    if os.getpid() != starter:
        return
    for sign in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, sign)
            process.wait(10)
        except (ProcessLookupError, subprocess.TimeoutExpired):
            continue

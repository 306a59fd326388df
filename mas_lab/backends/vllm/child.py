"""A vLLM server that this process starts, on the loopback address and for itself alone; it ends with this process.

The server inherits a socket that is already bound, requires a key made for it, and has only the routes that its model
needs. It proves its identity in each answer. Leaves out: requests to it (`server`), and its own side (`serve`).
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import time
import weakref
from pathlib import Path

import httpx
import torch

from mas_lab.backends.vllm import serve
from mas_lab.backends.vllm.engine import EngineError
from mas_lab.backends.vllm.weights import widened


class Child:
    """The server of a `VllmModel`.

    Attributes:
        url: Its address.
        key: The key that it requires.
        log: File with its output.
        heads: The mapping to wider attention heads, or None.
    """

    def __init__(self, model, folder: Path):
        serve.prepare()
        base, self.heads = widened(model, folder)
        self.key, self._answer = secrets.token_urlsafe(32), secrets.token_urlsafe(32)
        self.log = folder / "server.log"
        with socket.socket() as bound, self.log.open("wb") as log:
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as vLLM sets it on its own sockets
            bound.bind(("127.0.0.1", 0))
            port = bound.getsockname()[1]
            secret = {serve.KEY: self.key, serve.ANSWER: self._answer}
            self.process = subprocess.Popen(
                _command(model, base, port),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=_environment(model) | secret | {serve.LISTENS: str(bound.fileno())},
                pass_fds=[bound.fileno()],
                start_new_session=True,
            )
        self.url = f"http://127.0.0.1:{port}"
        weakref.finalize(self, _end, self.process, os.getpid())

    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait(self, seconds: float) -> None:
        """Wait until the server answers; raise EngineError with the end of its log if it does not."""
        end = time.monotonic() + seconds
        bearing = {"Authorization": f"Bearer {self.key}"}
        while self.is_alive() and time.monotonic() < end:
            try:
                found = httpx.get(f"{self.url}/health", headers=bearing, timeout=5, trust_env=False)
            except httpx.HTTPError:
                time.sleep(0.25)
                continue
            self.require(found)
            if found.is_success:
                return
        why = f"ended with status {self.process.poll()}" if not self.is_alive() else f"is not up after {seconds:.0f} s"
        tail = self.log.read_text(encoding="utf-8", errors="replace")[-2000:]
        _end(self.process, os.getpid())
        raise EngineError(f"the vLLM server that was started here {why}; the end of its log:\n{tail}")

    def require(self, found: httpx.Response) -> None:
        """Raise EngineError if another server answered."""
        if found.headers.get(serve.PROOF) == self._answer:
            return
        who = found.headers.get("server", "a server without a name")
        state = "lives" if self.is_alive() else "has ended"
        raise EngineError(
            f"at {self.url} a stranger answers ({who!r}), not the vLLM server that was started here, which {state}: "
            f"see {self.log}; resume the run, and a new one is started"
        )


def _command(model, base: str, port: int) -> list[str]:
    # A path avoids the import of the package. -P: a module beside it is also called vllm.
    line = [sys.executable, "-P", serve.__file__, "--host", "127.0.0.1", "--port", str(port)]
    line += ["--disable-uvicorn-access-log", "--disable-fastapi-docs"]
    for name, value in model.engine_arguments(base).items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            line.append(f"--{flag}" if value else f"--no-{flag}")
        else:
            line += [f"--{flag}", *map(str, value if isinstance(value, list) else [value])]
    return line


def _environment(model) -> dict[str, str]:
    routes = _routes(model)
    changed = {
        serve.FOLLOWS: str(os.getpid()),
        serve.ROUTES: ",".join(["/health", "/v1/models", "/v1/completions", *routes]),
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "0" if model.lora is None else "1",
        "VLLM_SERVER_DEV_MODE": "1" if any(not route.startswith("/v1/") for route in routes) else "0",
        "VLLM_ALLOW_INSECURE_SERIALIZATION": "0",
        "VLLM_HOST_IP": "127.0.0.1",  # its own processes connect here
        "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
    }
    if model.options.gpus is not None:
        changed["CUDA_VISIBLE_DEVICES"] = model.options.gpus
    return {name: value for name, value in os.environ.items() if name != "VLLM_ENABLE_V1_MULTIPROCESSING"} | changed


def _routes(model) -> list[str]:
    """Return the routes by which weights reach this model's server, and those by which it sleeps."""
    routes = ["/collective_rpc", "/reset_prefix_cache"] if model.lora is None else ["/v1/load_lora_adapter"]
    return [*routes, "/sleep", "/wake_up"] if model.options.sleep else routes


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

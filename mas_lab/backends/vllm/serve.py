"""vLLM's OpenAI-compatible server with a key on every route: `python -m mas_lab.backends.vllm.serve --model DIR ...`.

It has vLLM's own flags, and listens on the loopback address unless `--host` says otherwise. Full weights can be
exchanged in it without a GPU too. VLLM_API_KEY in its environment guards every route, where vLLM's own check guards the
OpenAI API alone. Leaves out: requests to it (`server`).
"""

import os
import runpy
import secrets
import signal
import socket
import sys
import threading
import time

QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
KEY = "VLLM_API_KEY"
"""The key that a request must have; it is vLLM's own variable, for a server and for its clients."""
LISTENS = "MAS_LAB_VLLM_LISTENS"
"""The number of the bound socket that the server inherits."""
FOLLOWS = "MAS_LAB_VLLM_FOLLOWS"
"""The id of the process with which the server ends."""
GRACE = 10.0
"""Seconds between asking a server to end and ending it."""


def prepare() -> None:
    """Prepare this process; call it before anything of vLLM is imported."""
    for name, value in (QUIET | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}).items():
        os.environ.setdefault(name, value)
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        # Compiling small helpers with a C++ compiler would take half a minute.
        type(current_platform).simple_compile_backend = "eager"
        import vllm._custom_ops as ops

        # oneDNN would still use packed copies of the old weights after new weights are loaded.
        ops._supports_onednn = False


class Gate:
    """Access control in front of all routes of a server: it requires the key, if there is one."""

    def __init__(self, app):
        self.app, self.key = app, os.environ.get(KEY)

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan" or self._bears_key(scope):
            return await self.app(scope, receive, send)
        from starlette.responses import PlainTextResponse

        await PlainTextResponse("this server wants a key: Authorization: Bearer ...", 401)(scope, receive, send)

    def _bears_key(self, scope) -> bool:
        if not self.key:
            return True
        found = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(found) == 1 and secrets.compare_digest(found[0], f"Bearer {self.key}".encode())


def _end_with(parent: int) -> None:
    """End this process and its workers when `parent`, which started it, ends in any way.

    The system reports another parent then. A pipe would stay open in the processes that the parent forked.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)  # the server has a session of its own


def _listen_here(number: int) -> None:
    """Let vLLM use the socket that was bound for it; by its number, another process may take the port."""
    from vllm.entrypoints.openai import api_server

    launcher = sys.modules[api_server.setup_server.__module__]
    launcher.create_server_socket = lambda *_, **__: socket.socket(fileno=number)


def _serve() -> None:
    if os.environ.get("VLLM_SERVER_DEV_MODE", "0") != "0" and not os.environ.get(KEY):
        raise SystemExit(f"VLLM_SERVER_DEV_MODE=1 lets whoever reaches this server change its weights: set {KEY} too")
    if not any(argument.split("=")[0] in ("--host", "--uds") for argument in sys.argv):
        sys.argv += ["--host", "127.0.0.1"]
    sys.argv += ["--middleware", "__main__.Gate"]
    if FOLLOWS in os.environ:
        threading.Thread(target=_end_with, args=(int(os.environ[FOLLOWS]),), daemon=True).start()
        _listen_here(int(os.environ[LISTENS]))
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")


if __name__ in ("__main__", "__mp_main__"):  # also in a spawned worker of the server
    prepare()
if __name__ == "__main__":
    _serve()

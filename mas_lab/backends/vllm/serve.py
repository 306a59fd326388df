"""The process of a vLLM server: its preparation, its access control, and its end.

`python -m mas_lab.backends.vllm.serve --model DIR ...` is vLLM's OpenAI-compatible server with its own flags. It
listens on the loopback address unless `--host` says otherwise. Full weights can be exchanged in it without a GPU too.
VLLM_API_KEY in its environment guards every route, not only those of the OpenAI API. Leaves out: requests to it
(`server`).
"""

import json
import os
import secrets
import signal
import socket
import sys
import threading
import time

QUIET = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
KEY = "VLLM_API_KEY"
"""The key that a request must have; it is vLLM's own variable, for a server and for its clients."""
ANSWER = "MAS_LAB_VLLM_ANSWER"
"""The secret by which a server that was started here proves its identity in each answer."""
PROOF = "x-mas-lab-server"
"""The header that holds this secret."""
ROUTES = "MAS_LAB_VLLM_ROUTES"
"""The paths of such a server, separated by commas; every other path is refused."""
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
    """Access control in front of all routes of a server: it requires the key, and only opens routes that are used.

    vLLM's own check guards the OpenAI API alone. Its switch for developers opens many routes, but weights need only two
    or three of them. `/collective_rpc` can call any method of a worker; here it may only read weights.
    """

    def __init__(self, app):
        self.app = app
        self.key, self.answer = os.environ.get(KEY) or None, os.environ.get(ANSWER)
        routes = os.environ.get(ROUTES)
        self.routes = None if routes is None else routes.split(",")

    async def __call__(self, scope, receive, send) -> None:
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if not self._bears_key(scope):
            return await _refuse(scope, send, 401, "this server wants a key: Authorization: Bearer ...")
        if self.answer is not None:
            send = self._proving(send)
        if self.routes is not None and scope["path"] not in self.routes:
            return await _refuse(scope, send, 404, f"this server has no {scope['path']}")
        if self.routes is not None and scope["path"] == "/collective_rpc":
            body = await _body(receive)
            if not _reads_weights(body):
                return await _refuse(scope, send, 403, "/collective_rpc calls reload_weights(weights_path=...) alone")
            receive = _again(body, receive)
        await self.app(scope, receive, send)

    def _bears_key(self, scope) -> bool:
        if self.key is None:
            return True
        found = [value for name, value in scope["headers"] if name == b"authorization"]
        return len(found) == 1 and secrets.compare_digest(found[0], f"Bearer {self.key}".encode())

    def _proving(self, send):
        async def proving(message):
            if message["type"] == "http.response.start":
                headers = [*message.get("headers", ()), (PROOF.encode(), self.answer.encode())]
                message = {**message, "headers": headers}
            await send(message)

        return proving


async def _refuse(scope, send, status: int, why: str) -> None:
    if scope["type"] == "websocket":
        return await send({"type": "websocket.close", "code": 1008, "reason": why})
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": json.dumps({"error": why}).encode()})


async def _body(receive) -> bytes:
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
    return body


def _reads_weights(body: bytes) -> bool:
    try:
        asked = json.loads(body)
        return asked == {"method": "reload_weights", "kwargs": {"weights_path": str(asked["kwargs"]["weights_path"])}}
    except (ValueError, TypeError, KeyError):
        return False


def _again(body: bytes, receive):
    """Return a `receive` for a request whose body has been read."""
    first = [{"type": "http.request", "body": body, "more_body": False}]

    async def again():
        return first.pop() if first else await receive()

    return again


# The end of the server


def follow(parent: int) -> None:
    """End this process when `parent`, which started it, ends in any way, on Linux and macOS.

    The system reports the parent, and names another one when it has ended. A pipe would stay open in the processes that
    the parent forked.
    """
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)  # the server has a session of its own


def _forks_follow() -> None:
    """Let every later fork of this process end with it too."""
    forking = {}
    os.register_at_fork(
        before=lambda: forking.update(parent=os.getpid()), after_in_child=lambda: follow(forking["parent"])
    )


def _listen_here(number: int) -> None:
    """Let vLLM use the socket that was bound for it; by its number, another process may take the port."""
    from vllm.entrypoints.openai import api_server

    launcher = sys.modules[api_server.setup_server.__module__]
    launcher.create_server_socket = lambda *_, **__: socket.socket(fileno=number)


def _serve() -> None:
    import runpy

    if os.environ.get("VLLM_SERVER_DEV_MODE", "0") != "0" and not os.environ.get(KEY):
        raise SystemExit(f"VLLM_SERVER_DEV_MODE=1 lets whoever reaches this server change its weights: set {KEY} too")
    if not any(argument.split("=")[0] in ("--host", "--uds") for argument in sys.argv):
        sys.argv += ["--host", "127.0.0.1"]
    sys.argv += ["--middleware", "__main__.Gate"]
    if LISTENS in os.environ:
        _listen_here(int(os.environ[LISTENS]))
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")


if __name__ == "__mp_main__" and FOLLOWS in os.environ:  # a spawned worker of the server
    follow(os.getppid())
if __name__ == "__main__" and FOLLOWS in os.environ:
    follow(int(os.environ[FOLLOWS]))
    _forks_follow()
if __name__ in ("__main__", "__mp_main__"):
    prepare()
if __name__ == "__main__":
    _serve()

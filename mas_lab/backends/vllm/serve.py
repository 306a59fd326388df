"""A vLLM server's own process: what it needs first, whom it answers, and with whom it ends.

`python -m mas_lab.backends.vllm.serve --model DIR ...` is vLLM's OpenAI-compatible server, with its own flags, on the
loopback address unless `--host` says otherwise; full weights can be exchanged in it without a GPU too. VLLM_API_KEY in
its environment guards every route, not only those of the OpenAI API. Leaves out: talking to it (`server`).
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
"""What a request must bear; vLLM's own name, in a server's environment and in that of who asks it."""
ANSWER = "MAS_LAB_VLLM_ANSWER"
"""The secret with which a server that was started here proves in each answer that it is the one."""
PROOF = "x-mas-lab-server"
"""The header that holds it."""
ROUTES = "MAS_LAB_VLLM_ROUTES"
"""The paths, comma between them, that such a server has; every other one is refused."""
LISTENS = "MAS_LAB_VLLM_LISTENS"
"""The number of the bound socket that it inherits."""
FOLLOWS = "MAS_LAB_VLLM_FOLLOWS"
"""The process that it ends with."""
GRACE = 10.0
"""Seconds between asking a server to end and ending it."""


def prepare() -> None:
    """To be called before anything of vLLM is imported."""
    for name, value in (QUIET | {"VLLM_CPU_OMP_THREADS_BIND": "nobind"}).items():
        os.environ.setdefault(name, value)
    from vllm.platforms import current_platform

    if current_platform.is_cpu():
        # Small helpers would be compiled by a C++ compiler, for half a minute.
        type(current_platform).simple_compile_backend = "eager"
        import vllm._custom_ops as ops

        # Packed copies of the weights would go on being used after new weights are loaded.
        ops._supports_onednn = False


class Gate:
    """Before all routes of a server: it asks for the key, and has no route but those that are used.

    vLLM's own check guards the OpenAI API alone, and its switch for developers opens many routes for the two or three
    that weights need. Of `/collective_rpc`, which calls any method of a worker, only the reading of weights is left.
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
    """`receive` of a request whose body has been read."""
    first = [{"type": "http.request", "body": body, "more_body": False}]

    async def again():
        return first.pop() if first else await receive()

    return again


# With whom it ends


def follow(parent: int) -> None:
    """Ends this process with `parent`, which started it, however that ends, on Linux and macOS.

    The system says who the parent is, and at its end names another; a pipe would stay open in whatever it forked.
    """
    threading.Thread(target=_follow, args=(parent,), daemon=True).start()


def _follow(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(0, signal.SIGKILL)  # a server that is started here has a session of its own


def _forks_follow() -> None:
    """What this process forks from now on ends with it too."""
    forking = {}
    os.register_at_fork(
        before=lambda: forking.update(parent=os.getpid()), after_in_child=lambda: follow(forking["parent"])
    )


def _listen_here(number: int) -> None:
    """vLLM binds the socket that was bound for it; by its number, the port may be somebody else's by then."""
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


if __name__ == "__mp_main__" and FOLLOWS in os.environ:  # a worker of the server, where those are spawned
    follow(os.getppid())
if __name__ == "__main__" and FOLLOWS in os.environ:
    follow(int(os.environ[FOLLOWS]))
    _forks_follow()
if __name__ in ("__main__", "__mp_main__"):
    prepare()
if __name__ == "__main__":
    _serve()

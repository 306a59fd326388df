"""HTTP server for programs: OpenAI's chat completions on loopback, with one key per episode.

Leaves out: the parameters of a call (`openai_chat`), and how it is answered (`switchboard`).
"""

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from mas_lab.bridges.openai_chat import Refused, streamed

MOST = 8 * 2**20
"""Maximal size of a request in bytes."""
Ask = Callable[[Any], dict[str, Any]]
"""Function that answers one request's JSON, or raises `Refused`."""


class Gateway:
    """Context manager that runs the server.

    `address` is the base URL for clients. `episodes` maps a key to the function that answers that episode's calls.
    """

    def __init__(self):
        self.episodes: dict[str, Ask] = {}
        self.agents: tuple[str, ...] = ()
        gateway = self

        class Handler(_Handler):
            owner = gateway

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> "Gateway":
        Thread(target=self._server.serve_forever, args=(0.1,), name="mas_lab gateway", daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.episodes.clear()
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    owner: Gateway
    protocol_version = "HTTP/1.1"
    timeout = 600

    def do_GET(self) -> None:
        self._answered(self._models)

    def do_POST(self) -> None:
        self._answered(self._completion)

    def _answered(self, answer: Callable[[], None]) -> None:
        try:
            answer()
        except Refused as refused:
            self.close_connection = True  # the rest of the request is not read
            self._send(refused.status, refused.body())
        except OSError:  # the client has disconnected
            self.close_connection = True

    def _models(self) -> None:
        self._episode()
        if self.path.partition("?")[0] != "/v1/models":
            raise Refused(404, "not_found", f"there is nothing at {self.path!r:.80}")
        models = [{"id": agent, "object": "model", "created": 0, "owned_by": "mas_lab"} for agent in self.owner.agents]
        self._send(200, {"object": "list", "data": models})

    def _completion(self) -> None:
        ask = self._episode()
        if self.path.partition("?")[0] != "/v1/chat/completions":
            raise Refused(404, "not_found", f"there is nothing at {self.path!r:.80}; ask /v1/chat/completions")
        try:
            length = int(self.headers.get("Content-Length", ""))
        except ValueError:
            raise Refused(411, "length", "the request has no Content-Length") from None
        if not 0 <= length <= MOST:
            raise Refused(413, "length", f"the request has {length} bytes; at most {MOST} are read")
        try:
            body = json.loads(self.rfile.read(length))
        except (ValueError, RecursionError) as error:
            raise Refused(400, "invalid_json", f"the body is no JSON: {error}") from None
        answer = ask(body)
        if body.get("stream"):
            self._stream(answer)
        else:
            self._send(200, answer)

    def _episode(self) -> Ask:
        key = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if key not in self.owner.episodes:
            raise Refused(401, "invalid_api_key", "the key is of no episode that is being played")
        return self.owner.episodes[key]

    def _send(self, status: int, body: Mapping[str, Any]) -> None:
        data = json.dumps(body).encode()
        self._head(status, "application/json", len(data))
        self.wfile.write(data)

    def _stream(self, answer: Mapping[str, Any]) -> None:
        data = "".join(streamed(answer)).encode()
        self._head(200, "text/event-stream", len(data))
        self.wfile.write(data)

    def _head(self, status: int, kind: str, length: int) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(length))
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Log nothing: the program gets each error, and the table holds each completion."""

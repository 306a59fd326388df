"""HTTP server for programs: OpenAI's chat completions on loopback, with one key per episode.

Leaves out: the parameters of a call (`openai_chat`), and how it is answered (`dispatcher`).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from mas_lab.bridges.openai_chat import Refused, streamed

MOST = 8 * 2**20
"""Maximal size of a request in bytes."""
Ask = Callable[[Any], dict[str, Any]]
"""Function that answers one request's JSON, or raises `Refused`."""


class Gateway(ThreadingHTTPServer):
    """Context manager that runs the server.

    `address` is the base URL for clients. `episodes` maps a key to the function that answers that episode's calls.
    """

    def __init__(self, agents: Sequence[str]):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.agents, self.episodes = agents, {}
        self.address = f"http://127.0.0.1:{self.server_port}/v1"

    def __enter__(self) -> "Gateway":
        Thread(target=self.serve_forever, args=(0.1,), name="mas_lab gateway", daemon=True).start()
        return self

    def __exit__(self, *_) -> None:
        self.episodes.clear()
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    server: Gateway
    protocol_version = "HTTP/1.1"
    timeout = 600

    def do_GET(self) -> None:
        self._answer(self._models)

    def do_POST(self) -> None:
        self._answer(self._completion)

    def _answer(self, respond: Callable[[Ask], None]) -> None:
        """Send what `respond` sends to the asking episode, or the error that it raises."""
        try:
            respond(self._episode())
        except Refused as refused:
            self.close_connection = True  # the rest of the request is not read
            self._send(refused.body(), refused.status)
        except OSError:  # the client has disconnected
            self.close_connection = True

    def _models(self, _: Ask) -> None:
        self._require_path("/v1/models")
        models = [{"id": agent, "object": "model", "created": 0, "owned_by": "mas_lab"} for agent in self.server.agents]
        self._send({"object": "list", "data": models})

    def _completion(self, ask: Ask) -> None:
        self._require_path("/v1/chat/completions")
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST:
            raise Refused(
                413, "length", f"the request's Content-Length is {length!r:.20}; at most {MOST} bytes are read"
            )
        try:
            body = json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise Refused(400, "invalid_json", f"the body is no JSON: {error}") from None
        answer = ask(body)
        self._send(streamed(answer) if body.get("stream") else answer)

    def _episode(self) -> Ask:
        key = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if key not in self.server.episodes:
            raise Refused(401, "invalid_api_key", "the key is of no episode that is being played")
        return self.server.episodes[key]

    def _require_path(self, path: str) -> None:
        if self.path.partition("?")[0] != path:
            raise Refused(404, "not_found", f"there is nothing at {self.path!r:.80}; ask {path}")

    def _send(self, body: Mapping[str, Any] | str, status: int = 200) -> None:
        """Send JSON, or a stream of events as one text."""
        data = (body if isinstance(body, str) else json.dumps(body)).encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/event-stream" if isinstance(body, str) else "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the program gets each error, and the table holds each completion."""

"""HTTP server for programs: OpenAI's chat completions on loopback, with one key per episode.

Leaves out: the parameters of a call (`openai_chat`), and how it is answered (`dispatcher`).
"""

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from mas_lab.bridges.openai_chat import Refused

MOST = 8 * 2**20
"""Maximal size of a request in bytes."""
PATH = "/v1/chat/completions"
Ask = Callable[[Any], dict[str, Any]]
"""Function that answers one request's JSON, or raises `Refused`."""


class Gateway(ThreadingHTTPServer):
    """Context manager that runs the server.

    `address` is the base URL for clients. `episodes` maps a key to the function that answers that episode's calls.
    """

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.episodes: dict[str, Ask] = {}
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

    def do_POST(self) -> None:
        """Send what the asking episode answers, or the error that it raises."""
        try:
            ask = self._episode()
            self._send(ask(self._body()))
        except Refused as refused:
            self.close_connection = True  # the rest of the request may not have been read
            self._send(refused.body(), refused.status)
        except OSError:  # the client has disconnected
            self.close_connection = True

    def _episode(self) -> Ask:
        key = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if key not in self.server.episodes:
            raise Refused(401, "invalid_api_key", "the key is of no episode that is being played")
        if self.path.partition("?")[0] != PATH:
            raise Refused(404, "not_found", f"there is nothing at {self.path!r:.80}; ask {PATH}")
        return self.server.episodes[key]

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or int(length) > MOST:
            told = f"the request's Content-Length is {length!r:.20}; at most {MOST} bytes are read"
            raise Refused(413, "length", told)
        try:
            return json.loads(self.rfile.read(int(length)))
        except (ValueError, RecursionError) as error:
            raise Refused(400, "invalid_json", f"the body is no JSON: {error}") from None

    def _send(self, body: Mapping[str, Any], status: int = 200) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the program gets each error, and the table holds each completion."""

"""HTTP server for programs, on loopback: OpenAI's chat completions and responses.

Each episode has a key. A stream has its answer in one piece. Leaves out: what a request may ask for (`chat`,
`responses`), and how a call is answered (`dispatcher`).
"""

import json
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from mas_lab.contrib.programs import responses
from mas_lab.contrib.programs.chat import RequestError, chunks_of, parsed

PATH, RESPONSES = "/v1/chat/completions", "/v1/responses"
MOST = 8 * 2**20
"""Maximal size of a request in bytes."""
Ask = Callable[[Any], dict[str, Any]]
"""Function that answers one request's JSON, or raises `RequestError`."""


class Gateway(ThreadingHTTPServer):
    """Context manager that runs the server.

    `address` is the base URL for clients. `episodes` maps a key to the function that answers that episode's calls.
    """

    request_queue_size = 1024  # all episodes may connect at once; beyond the queue, connections are reset

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

    def handle_error(self, *_: Any) -> None:
        """Say nothing: what is left to fail once a request has its answer is the connection of a client that left."""


class _Handler(BaseHTTPRequestHandler):
    server: Gateway
    protocol_version = "HTTP/1.1"
    timeout = 600
    wbufsize = -1  # one packet an answer: a second one would wait for the acknowledgement of the first

    def parse_request(self) -> bool:
        """Refuse a request of HTTP/0.9 at once: it has no headers to wait for."""
        if b" HTTP/" in self.raw_requestline:
            return super().parse_request()
        self.command = self.requestline = ""
        self.send_error(505, "the request line names no version; use HTTP/1.1")
        return False

    def do_POST(self) -> None:
        """Send what the asking episode answers, or the error that it raises."""
        try:
            ask, path = self._episode()
            body = self._body()
            answer = ask(body) if path == PATH else responses.answer_of(ask, body)
            streams = isinstance(body, Mapping) and body.get("stream")
        except RequestError as refused:
            return self._refuse(refused)
        except Exception as error:  # every request gets an answer
            return self._refuse(RequestError(500, "server_error", f"{type(error).__name__}: {error!s:.300}"))
        if not streams:
            self._send(json.dumps(answer))
        elif path == PATH:
            usage = (body.get("stream_options") or {}).get("include_usage")
            pieces = [f"data: {json.dumps(chunk)}" for chunk in chunks_of(answer, bool(usage))]
            self._send("\n\n".join([*pieces, "data: [DONE]", ""]), kind="text/event-stream")
        else:
            pieces = [f"event: {one['type']}\ndata: {json.dumps(one)}" for one in responses.events_of(answer)]
            self._send("\n\n".join([*pieces, ""]), kind="text/event-stream")

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Send what the HTTP layer refuses, such as a GET, in the same form."""
        self._refuse(RequestError(code, "http", f"{message or 'not supported'}; POST to {PATH} or {RESPONSES}"))

    def _refuse(self, refused: RequestError) -> None:
        self.close_connection = True  # the rest of the request may not have been read
        self._send(json.dumps(refused.body()), refused.status)

    def _episode(self) -> tuple[Ask, str]:
        key = self.headers.get("Authorization", "").removeprefix("Bearer ").strip()
        if key not in self.server.episodes:
            raise RequestError(401, "invalid_api_key", "the key is of no episode that is being played")
        path = self.path.partition("?")[0]
        if path not in (PATH, RESPONSES):
            raise RequestError(404, "not_found", f"there is nothing at {self.path!r:.80}; ask {PATH} or {RESPONSES}")
        return self.server.episodes[key], path

    def _body(self) -> Any:
        length = self.headers.get("Content-Length", "")
        if not length.isdecimal() or len(length) > len(str(MOST)) or int(length) > MOST:
            raise RequestError(
                413, "length", f"Content-Length is {length!r:.20}; give a number of at most {MOST} bytes"
            )
        try:
            return parsed(self.rfile.read(int(length)))
        except ValueError as error:
            raise RequestError(400, "invalid_json", f"the body is no JSON: {error}") from None

    def _send(self, text: str, status: int = 200, kind: str = "application/json") -> None:
        data = text.encode()
        self.request_version = self.protocol_version  # or a request that was not understood would get no status
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Connection", "close" if self.close_connection else "keep-alive")
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: Any) -> None:
        """Log nothing: the program gets each error, and the table holds each completion."""

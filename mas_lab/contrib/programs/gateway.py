"""HTTP server for programs, on loopback: OpenAI's chat completions and responses.

Each episode has a key. A stream has its answer in one piece. Leaves out: what a request may ask for (`chat`,
`responses`), and how a call is answered (`dispatcher`).
"""

import json
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from mas_lab.contrib.programs.chat import RequestError, chunk_of
from mas_lab.contrib.programs.responses import as_chat, as_response

CHAT, RESPONSES = "/v1/chat/completions", "/v1/responses"
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
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """Say nothing: what is left to fail once a request has its answer is the connection of a client that left."""


class _Handler(BaseHTTPRequestHandler):
    server: Gateway
    protocol_version = "HTTP/1.1"
    timeout = 600
    wbufsize = -1  # one packet an answer: a second one would wait for the acknowledgement of the first

    def do_POST(self) -> None:
        """Send what the asking episode answers, or the error that it raises."""
        data, status, kind = self.rfile.read(int(self.headers.get("Content-Length", 0))), 200, "application/json"
        try:
            ask = self.server.episodes.get(self.headers.get("Authorization", "").removeprefix("Bearer "))
            if ask is None:
                raise RequestError(401, "the key is of no episode that is being played")
            if self.path not in (CHAT, RESPONSES):
                raise RequestError(404, f"there is nothing at {self.path!r:.80}; ask {CHAT} or {RESPONSES}")
            body = json.loads(data)
            answer = ask(body) if self.path == CHAT else as_response(ask(as_chat(body)))
            text = json.dumps(answer)
            if body.get("stream"):
                kind, text = "text/event-stream", f"data: {json.dumps(chunk_of(answer))}\n\ndata: [DONE]\n\n"
        except Exception as error:  # every request gets an answer
            status = getattr(error, "status", 500)
            message = str(error) if isinstance(error, RequestError) else f"{type(error).__name__}: {error!s:.300}"
            text = json.dumps({"error": {"message": message, "type": "invalid_request_error", "code": None}})
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(text)))  # json.dumps writes ASCII
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: Any) -> None:
        """Log nothing: the program gets each error, and the table holds each completion."""

"""HTTP server for programs: the part of OpenAI's chat completions that this kit supports, on loopback.

Each episode has a key. A request is refused if the sampled tokens could not represent its result. Answers are written
whole. Leaves out: how a call is answered (`dispatcher`).
"""

import json
import time
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, ConfigDict, Field, ValidationError, field_validator

from mas_lab.env import Message, no_message
from mas_lab.policy import Completion
from mas_lab.runs.forms import first_problem

IGNORED = ("user", "metadata", "store", "stream_options", "service_tier", "parallel_tool_calls", "prompt_cache_key",
           "safety_identifier", "timeout", "logprobs")  # fmt: skip
"""Parameters that change no token of the answer."""
NEUTRAL = {
    "top_p": 1, "n": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "tools": [], "functions": [],
    "response_format": {"type": "text"}, "tool_choice": "none", "top_logprobs": 0, "stream": False,
}  # fmt: skip
"""Parameters that are accepted with these values only: training needs tokens from the full distribution."""
INSTEAD = {
    "tools": "say in the prompt how a tool is called, and read the call from the answer's text",
    "response_format": "ask for JSON in the prompt, and read it from the answer's text",
    "n": "make the call again; each call is a row",
    "stream": "leave it out; the answer comes in one piece",
    "seed": "draws hang on play's seed, the task, the episode, the agent and the number of its call",
}


class Refused(Exception):
    """Error for a call that gets no answer, with HTTP status, OpenAI's error code and message."""

    def __init__(self, status: int, code: str, sentence: str):
        super().__init__(sentence)
        self.status, self.code = status, code

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": "invalid_request_error", "param": None, "code": self.code}}


def _read(message: Any) -> Message:
    """Return a message with its content as one text, even if it came in parts; raise ValueError if it is none."""
    one = {key: value for key, value in dict(message).items() if value is not None or key == "content"}
    one["role"] = "system" if one.get("role") == "developer" else one.get("role")
    if isinstance(parts := one.get("content"), list):
        if any(not isinstance(part, Mapping) or part.get("type") != "text" for part in parts):
            raise ValueError("it has a part that is no text; policies here read text alone")
        one["content"] = "".join(str(part.get("text", "")) for part in parts)
    if problem := no_message(one):
        raise ValueError(problem)
    return one


class Asked(BaseModel):
    """One call of `agent` with `messages`. `None` in a field: the team's sampling setting holds."""

    model_config = ConfigDict(extra="allow", strict=True)

    agent: str = Field(alias="model")
    messages: list[Annotated[dict[str, Any], AfterValidator(_read)]] = Field(min_length=1)
    temperature: float | None = Field(None, gt=0, le=10)  # at 0 equal answers would be compared
    max_tokens: int | None = Field(None, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))
    stop: list[Annotated[str, Field(min_length=1)]] = []

    @field_validator("stop", mode="before")
    @classmethod
    def _listed(cls, stop: Any) -> Any:
        return [stop] if isinstance(stop, str) else stop


def asked_of(body: Any) -> Asked:
    """Parse a request's JSON, or raise `Refused` with the parameter and an alternative."""
    if not isinstance(body, Mapping):
        raise Refused(400, "invalid_json", "the body is no JSON object with model and messages")
    try:
        asked = Asked.model_validate({name: value for name, value in body.items() if value is not None})
    except ValidationError as error:
        raise Refused(400, "invalid_value", first_problem(error)) from None
    for name, value in asked.model_extra.items():
        if name not in IGNORED and (name not in NEUTRAL or value != NEUTRAL[name]):
            instead = INSTEAD.get(name, "leave it out")
            raise Refused(400, "unsupported_parameter", f"{name}={value!r:.80} is not supported here: {instead}")
    return asked


def answer_to(asked: Asked, number: int, prompt_tokens: int, completion: Completion, text: str) -> dict[str, Any]:
    """Return the answer as one JSON object; its id is the number of the call in its episode."""
    said = len(completion.ids)
    finish = "length" if completion.finish == "length" else "stop"
    choice = {"index": 0, "finish_reason": finish, "logprobs": None,
              "message": {"role": "assistant", "content": text, "refusal": None}}  # fmt: skip
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": said, "total_tokens": prompt_tokens + said}
    return {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": int(time.time()),
            "model": asked.agent, "choices": [choice], "usage": usage}  # fmt: skip


PATH = "/v1/chat/completions"
MOST = 8 * 2**20
"""Maximal size of a request in bytes."""
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

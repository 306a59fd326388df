"""The part of OpenAI's chat completions that this kit supports.

A request is parsed, and refused if the sampled tokens could not represent its result. An answer is written whole or as
a stream. Leaves out: how a call is answered (`dispatcher`), and the HTTP server (`gateway`).
"""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mas_lab.env import Message, no_message
from mas_lab.policy import Completion

IGNORED = ("user", "metadata", "store", "stream_options", "service_tier", "parallel_tool_calls", "prompt_cache_key",
           "safety_identifier", "timeout", "logprobs")  # fmt: skip
"""Parameters that change no token of the answer."""
NEUTRAL = {
    "top_p": 1, "n": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "tools": [], "functions": [],
    "response_format": {"type": "text"}, "tool_choice": "none", "top_logprobs": 0,
}  # fmt: skip
"""Parameters that are accepted with these values only: training needs tokens from the full distribution."""
INSTEAD = {
    "tools": "say in the prompt how a tool is called, and read the call from the answer's text",
    "functions": "say in the prompt how a tool is called, and read the call from the answer's text",
    "response_format": "ask for JSON in the prompt, and read it from the answer's text",
    "n": "make the call again; each call is a row",
    "seed": "draws hang on play's seed, the task, the episode, the agent and the number of its call",
}


class Refused(Exception):
    """Error for a call that gets no answer, with HTTP status, OpenAI's error code and message."""

    def __init__(self, status: int, code: str, sentence: str):
        super().__init__(sentence)
        self.status, self.code = status, code

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": "invalid_request_error", "param": None, "code": self.code}}


@dataclass(frozen=True)
class Asked:
    """One call of `agent` with `messages`. `None` in a field: the team's sampling setting holds."""

    agent: str
    messages: list[Message]
    temperature: float | None = None
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()


def asked_of(body: Any) -> Asked:
    """Parse a request's JSON, or raise `Refused` with the parameter and an alternative."""
    if not isinstance(body, Mapping):
        raise Refused(400, "invalid_json", "the body is no JSON object with model and messages")
    known = {"model", "messages", "temperature", "max_tokens", "max_completion_tokens", "stop", "stream", *IGNORED}
    for name, value in body.items():
        if name not in known and value is not None and (name not in NEUTRAL or value != NEUTRAL[name]):
            instead = INSTEAD.get(name, "leave it out")
            raise Refused(400, "unsupported_parameter", f"{name}={value!r:.80} is not supported here: {instead}")
    if not isinstance(body.get("model"), str):
        raise Refused(400, "model", "model is missing; it is the agent's name")
    stop = body.get("stop") or ()
    stop = (stop,) if isinstance(stop, str) else tuple(stop)
    if not all(isinstance(one, str) and one for one in stop):
        raise Refused(400, "stop", f"stop={stop!r:.80}; give texts")
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    if limit is not None and (type(limit) is not int or limit < 1):
        raise Refused(400, "max_tokens", f"max_tokens={limit!r:.80}; give a number of 1 or more")
    temperature = body.get("temperature")
    if temperature is not None and not (isinstance(temperature, int | float) and 0 < temperature <= 10):
        told = f"temperature={temperature!r:.80}; give one above 0: what is always said alike is compared with nothing"
        raise Refused(400, "temperature", told)
    temperature = None if temperature is None else float(temperature)
    return Asked(body["model"], _messages(body.get("messages")), temperature, limit, stop)


def _messages(messages: Any) -> list[Message]:
    if not isinstance(messages, list) or not messages:
        raise Refused(400, "messages", "messages is missing; give a list of {'role': ..., 'content': text}")
    read = []
    for number, message in enumerate(messages):
        if not isinstance(message, Mapping):
            told = f"message {number} is {message!r:.80}; give {{'role': ..., 'content': text}}"
            raise Refused(400, "messages", told)
        one = {key: value for key, value in message.items() if value is not None or key == "content"}
        role = "system" if one.get("role") == "developer" else one.get("role")
        one |= {"role": role, "content": _text(one.get("content"), number)}
        if problem := no_message(one):
            raise Refused(400, "messages", f"message {number}: {problem}")
        read.append(one)
    return read


def _text(content: Any, number: int) -> Any:
    """Return the content of a message as one text, even if it came in parts."""
    if not isinstance(content, list):
        return content
    if any(not isinstance(part, Mapping) or part.get("type") != "text" for part in content):
        raise Refused(400, "messages", f"message {number} has a part that is no text; policies here read text alone")
    return "".join(str(part.get("text", "")) for part in content)


def answer_to(asked: Asked, number: int, prompt_tokens: int, completion: Completion, text: str) -> dict[str, Any]:
    """Return the answer as one JSON object; its id is the number of the call in its episode."""
    said = len(completion.ids)
    finish = "length" if completion.finish == "length" else "stop"
    choice = {"index": 0, "finish_reason": finish, "logprobs": None,
              "message": {"role": "assistant", "content": text, "refusal": None}}  # fmt: skip
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": said, "total_tokens": prompt_tokens + said}
    return {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": int(time.time()),
            "model": asked.agent, "choices": [choice], "usage": usage}  # fmt: skip


def streamed(answer: Mapping[str, Any]) -> str:
    """Return the same answer as server-sent events: the whole text, the finish reason, the usage."""
    [choice] = answer["choices"]
    told = {"role": "assistant", "content": choice["message"]["content"]}
    choices = [
        [{"index": 0, "delta": told, "finish_reason": None}],
        [{"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]}],
        [],
    ]
    chunks = [{**answer, "object": "chat.completion.chunk", "choices": one, "usage": None} for one in choices]
    chunks[-1]["usage"] = answer["usage"]
    return "".join(f"data: {json.dumps(chunk)}\n\n" for chunk in chunks) + "data: [DONE]\n\n"

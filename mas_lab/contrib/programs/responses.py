"""OpenAI's responses, as the chat completions that they stand for: read a request, and write its answer.

Leaves out: what a server would have to remember (`previous_response_id`), and tools that run on a server.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from mas_lab.contrib.programs.chat import RequestError, first_problem

SAME = ("model", "temperature", "top_p", "parallel_tool_calls", "stream", "metadata", "store", "user")
"""Parameters that mean the same in both."""
PASSED = ("input", "instructions", "max_output_tokens", "text", "tools", "tool_choice", "include", "truncation",
          "reasoning", "prompt_cache_key", "prompt_cache_retention", "safety_identifier", "service_tier")  # fmt: skip
"""Parameters that are translated below, or change no token."""


class _Text(BaseModel):
    format: dict[str, Any] = {}


class _Shape(BaseModel):
    """The parts of a request that are read here; the rest is read as a chat completion."""

    input: str | list[dict[str, Any]] = []
    tools: list[dict[str, Any]] = []
    text: _Text = _Text()


def answer_of(ask: Callable[[Any], dict[str, Any]], body: Any) -> dict[str, Any]:
    """Return a response, which `ask` answers as a chat completion."""
    if not isinstance(body, Mapping):
        raise RequestError(400, "invalid_json", "the body is no JSON object with model and input")
    return as_response(ask(as_chat({name: value for name, value in body.items() if value is not None})))


def as_chat(body: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request for a response as one for a chat completion."""
    try:
        _Shape.model_validate(body)
    except ValidationError as error:
        raise RequestError(400, "invalid_value", first_problem(error)) from None
    for name in body.keys() - {*SAME, *PASSED}:
        message = f"{name} is not supported here: leave it out, or use chat completions"
        raise RequestError(400, "unsupported_parameter", message)
    chat = {name: body[name] for name in SAME if name in body}
    messages = [{"role": "system", "content": body["instructions"]}] if body.get("instructions") else []
    input, before = body.get("input", []), None
    for item in [{"role": "user", "content": input}] if isinstance(input, str) else input:
        number = _number(item)
        _add(messages, item, joins=before == number or None in (before, number))
        before = before if item.get("type") == "reasoning" else number
    chat["messages"] = messages
    if "max_output_tokens" in body:
        chat["max_tokens"] = body["max_output_tokens"]
    for tool in body.get("tools", ()):
        if tool.get("type") != "function":
            raise RequestError(400, "unsupported_parameter", f"a tool of type {tool.get('type')!r:.40}; give functions")
        chat.setdefault("tools", []).append({"type": "function", "function": dict(tool)})
    choice = body.get("tool_choice")
    if choice is not None:
        chat["tool_choice"] = {"function": choice} if isinstance(choice, Mapping) else choice
    form = body.get("text", {}).get("format", {})
    if form.get("type", "text") != "text":
        chat["response_format"] = {"type": form["type"], "json_schema": form}
    return chat


def _number(item: Mapping[str, Any]) -> str | None:
    """Return the number of the response that an item comes from, by the ids that `as_response` gives; else `None`."""
    found = (re.match(r"(?:msg|fc|call)_(\d+)(?:_\d+)?$", str(item.get(name))) for name in ("call_id", "id"))
    return next((match[1] for match in found if match), None)


def _add(messages: list[dict[str, Any]], item: Mapping[str, Any], joins: bool) -> None:
    """Add an item of a response's input; a call that `joins` belongs to the message of the assistant before it."""
    kind, content = item.get("type", "message"), item.get("content", "")
    if kind == "message":
        if isinstance(content, list):
            content = [{"type": "text", "text": part["text"]} if isinstance(part, Mapping) and "text" in part else part
                       for part in content]  # fmt: skip
        messages.append({"role": item.get("role"), "content": content})
    elif kind == "function_call":
        if not (joins and messages and messages[-1]["role"] == "assistant"):
            messages.append({"role": "assistant", "content": ""})
        call = {"id": item.get("call_id"), "function": {"name": item.get("name"), "arguments": item.get("arguments")}}
        messages[-1].setdefault("tool_calls", []).append(call)
    elif kind == "function_call_output":
        output = item.get("output", "")
        output = output if isinstance(output, str) else json.dumps(output)
        messages.append({"role": "tool", "tool_call_id": item.get("call_id"), "content": output})
    elif kind != "reasoning":  # which no chat template writes again
        raise RequestError(400, "invalid_value", f"an input of type {kind!r:.40} is not supported here; use messages")


def as_response(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat completion as a response."""
    [choice], usage, name = answer["choices"], answer["usage"], answer["id"].removeprefix("chatcmpl-")
    message, output = choice["message"], []
    if text := message.get("reasoning_content"):
        content = [{"type": "reasoning_text", "text": text}]
        output.append({"type": "reasoning", "id": f"rs_{name}", "summary": [], "content": content})
    if message["content"] or not message.get("tool_calls"):
        text = {"type": "output_text", "text": message["content"], "annotations": [], "logprobs": []}
        output.append({"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed",
                       "content": [text]})  # fmt: skip
    for index, call in enumerate(message.get("tool_calls", ())):
        output.append({"type": "function_call", "id": f"fc_{name}_{index}", "call_id": call["id"],
                       "status": "completed", **call["function"]})  # fmt: skip
    cut = choice["finish_reason"] == "length"
    return {
        "id": f"resp_{name}", "object": "response", "created_at": answer["created"], "model": answer["model"],
        "status": "incomplete" if cut else "completed", "output": output, "error": None, "instructions": None,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None, "metadata": {}, "tools": [],
        "tool_choice": "auto", "parallel_tool_calls": True, "temperature": None, "top_p": None,
        "usage": {"input_tokens": usage["prompt_tokens"], "input_tokens_details": {"cached_tokens": 0},
                  "output_tokens": usage["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0},
                  "total_tokens": usage["total_tokens"]},
    }  # fmt: skip


def events_of(response: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield a response as the events of a stream, each text in one piece."""
    started = {**response, "status": "in_progress", "output": [], "usage": None}
    events = [{"type": "response.created", "response": started}]
    for index, item in enumerate(response["output"]):
        events += [{"output_index": index, **event} for event in _events_of(item)]
    events.append({"type": f"response.{response['status']}", "response": response})
    yield from ({**event, "sequence_number": number} for number, event in enumerate(events))


def _events_of(item: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the events of an item; clients read its text from the deltas alone."""
    empty = {"message": {"content": []}, "function_call": {"arguments": ""}}.get(item["type"], {})
    yield {"type": "response.output_item.added", "item": {**item, **empty}}
    at = {"item_id": item["id"]}
    if item["type"] == "message":
        [part], at = item["content"], {**at, "content_index": 0}
        yield {"type": "response.content_part.added", **at, "part": {**part, "text": ""}}
        yield {"type": "response.output_text.delta", **at, "delta": part["text"], "logprobs": []}
        yield {"type": "response.output_text.done", **at, "text": part["text"], "logprobs": []}
        yield {"type": "response.content_part.done", **at, "part": part}
    elif item["type"] == "function_call":
        input = {"name": item["name"], "arguments": item["arguments"]}
        yield {"type": "response.function_call_arguments.delta", **at, "delta": item["arguments"]}
        yield {"type": "response.function_call_arguments.done", **at, **input}
    yield {"type": "response.output_item.done", "item": item}

"""OpenAI's responses, as the chat completions that they stand for; openai-agents asks for them by default.

Leaves out: streams, what a server would have to remember (`previous_response_id`), and tools that run on a server.
"""

from collections.abc import Mapping
from typing import Any

from mas_lab.contrib.programs.chat import RequestError

CHANGED = {"input", "instructions", "max_output_tokens", "text", "tools", "tool_choice"}
"""Parameters that have another form in a chat completion."""


def as_chat(body: Any) -> dict[str, Any]:
    """Return a request for a response as one for a chat completion."""
    try:
        form, choice = (body.get("text") or {}).get("format"), body.get("tool_choice")
        if body.get("stream"):
            raise RequestError(400, "stream=True is not supported for responses: leave it out, or use chat completions")
        return {name: value for name, value in body.items() if name not in CHANGED} | {
            "messages": _messages(body.get("instructions"), body.get("input", [])),
            "max_tokens": body.get("max_output_tokens"),
            "tools": [{"type": tool["type"], "function": tool} for tool in body.get("tools") or ()],
            "tool_choice": {"function": choice} if isinstance(choice, Mapping) else choice,
            "response_format": form and {"type": form["type"]} | ({"json_schema": form} if "schema" in form else {}),
        }
    except (AttributeError, LookupError, TypeError) as error:
        raise RequestError(400, f"the request has not the form of OpenAI's responses: {error!r:.200}") from None


def _messages(instructions: str | None, items: str | list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the items of an input as messages; the calls of one response belong to one message."""
    messages, before = [{"role": "system", "content": instructions}] if instructions else [], []
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind = item.get("type", "message")
        number = (item.get("call_id") or item.get("id") or "").split("_")[1:2]  # as `as_response` writes it
        if kind == "message":
            messages.append({"role": item["role"], "content": item["content"]})
        elif kind == "function_call":
            joins = before == number or not (before and number)  # clients may leave out the id of a message
            if not (messages and messages[-1]["role"] == "assistant" and joins):
                messages.append({"role": "assistant"})
            function = {"name": item["name"], "arguments": item["arguments"]}
            messages[-1].setdefault("tool_calls", []).append({"id": item["call_id"], "function": function})
        elif kind == "function_call_output":
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
        elif kind != "reasoning":  # which no chat template writes again
            raise RequestError(400, f"an input of type {kind!r:.40} is not supported here; use messages")
        before = number
    return messages


def as_response(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return a chat completion as a response."""
    [choice], usage, name, output = answer["choices"], answer["usage"], answer["id"].removeprefix("chatcmpl-"), []
    message, cut = choice["message"], choice["finish_reason"] == "length"
    if message["content"] or "tool_calls" not in message:
        text = {"type": "output_text", "text": message["content"], "annotations": []}
        output.append({"type": "message", "id": f"msg_{name}", "role": "assistant", "content": [text]})
    for call in message.get("tool_calls", ()):
        output.append({"type": "function_call", "call_id": call["id"], **call["function"]})
    return {
        "id": f"resp_{name}", "object": "response", "created_at": answer["created"], "model": answer["model"],
        "status": "incomplete" if cut else "completed", "output": output,
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "usage": {"input_tokens": usage["prompt_tokens"], "input_tokens_details": {"cached_tokens": 0},
                  "output_tokens": usage["completion_tokens"], "output_tokens_details": {"reasoning_tokens": 0},
                  "total_tokens": usage["total_tokens"]},
    }  # fmt: skip

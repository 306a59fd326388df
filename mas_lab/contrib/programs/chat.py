"""OpenAI's chat completions: read a request, and write its answer.

A request is refused if the sampled tokens could not represent its result. Leaves out: the server (`gateway`), and how a
call is answered (`dispatcher`).
"""

import json
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, Field, ValidationError

from mas_lab.env import MESSAGE_KEYS, Message, no_message, not_plain
from mas_lab.tool_calls import fits

IGNORED = {"user", "metadata", "store", "service_tier", "parallel_tool_calls", "prompt_cache_key", "safety_identifier",
           "timeout", "verbosity", "reasoning", "reasoning_effort", "stream_options", "include", "truncation",
           "seed"}  # fmt: skip
"""Parameters that change no token of the answer."""
NEUTRAL = {"n": 1, "logprobs": False, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}}
"""Parameters that are accepted with these values only: training needs tokens from the full distribution."""
UNSAID = (None, {"type": "text"})
"""Values that say no more than a parameter that is left out."""
NO_ARGUMENTS = {"type": "object", "properties": {}}


def first_problem(error: ValidationError) -> str:
    """Return the first error of pydantic in words, with its place in the data."""
    first = error.errors()[0]
    place = ".".join(f"{one!s:.100}" for one in first["loc"])
    return f"{place}: {first['msg']} (got {first['input']!r:.100})".removeprefix(": ")


class RequestError(Exception):
    """Error for a call that gets no answer, with the HTTP status."""

    def __init__(self, status: int, sentence: str):
        super().__init__(sentence)
        self.status = status


def _as_schema(parameters: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON schema as it is; raise ValueError if it is none."""
    fits(parameters)
    return parameters


def _as_object(arguments: str | dict[str, Any]) -> Any:
    """Return the arguments of a call as chat templates write them; a text that is no JSON stays as it is."""
    with suppress(ValueError, RecursionError):
        return json.loads(arguments or "{}") if isinstance(arguments, str) else arguments
    return arguments


Schema = Annotated[dict[str, Any], AfterValidator(_as_schema)]
Arguments = Annotated[str | dict[str, Any], AfterValidator(_as_object)]


class Function(BaseModel, strict=True):
    """A function on offer, or the form of an answer; keys for the server alone, such as `strict`, are dropped."""

    name: str = Field(min_length=1)
    description: str | None = None
    parameters: Schema = Field(NO_ARGUMENTS, validation_alias=AliasChoices("parameters", "schema"))


class Tool(BaseModel, strict=True):
    """A tool on offer."""

    type: Literal["function"]
    function: Function


class Format(BaseModel, strict=True):
    """The form of an answer that is no free text."""

    type: Literal["json_schema"]
    json_schema: Function


class Called(BaseModel, strict=True):
    """A function that was called, or must be."""

    name: str
    arguments: Arguments = {}


class ToolCall(BaseModel, strict=True):
    """A call of the history, or a tool that must be called."""

    id: str = ""
    type: Literal["function"] = "function"
    function: Called


class ChatMessage(BaseModel, extra="allow", strict=True):
    """A message of a request; `_read` checks its other keys."""

    tool_calls: list[ToolCall] | None = None


def _read(message: ChatMessage) -> Message:
    """Return a message as chat templates take it, with its content as one text; raise ValueError if it is none."""
    given = message.model_dump()
    one = {key: given[key] for key in ("role", "content", *MESSAGE_KEYS) if given.get(key) is not None}
    one["role"] = "system" if one.get("role") == "developer" else one.get("role")
    if isinstance(parts := one.get("content"), list):
        if not all(isinstance(part, Mapping) and isinstance(part.get("text"), str) for part in parts):
            raise ValueError("a part of its content is no text, and policies here read text alone")
        one["content"] = "".join(part["text"] for part in parts)
    if one["role"] == "assistant":
        one.setdefault("content", "")
    if problem := no_message(one):
        raise ValueError(problem)
    return one


class ChatRequest(BaseModel, extra="allow", strict=True):
    """One call of `agent` with `messages`. `None` in a field: the team's sampling setting holds."""

    agent: str = Field(alias="model")
    messages: list[Annotated[ChatMessage, AfterValidator(_read)]] = Field(min_length=1)
    temperature: float | None = Field(None, ge=0.01, le=10)  # below, equal answers would be compared
    max_tokens: int | None = Field(None, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))
    stop: Annotated[list[str], BeforeValidator(lambda stop: [stop] if isinstance(stop, str) else stop)] = []
    tools: list[Tool] = []
    tool_choice: Literal["auto", "none", "required"] | ToolCall = "auto"
    response_format: Format | None = None
    stream: bool = False

    @property
    def offered(self) -> list[dict[str, Any]]:
        """Return the tools that the prompt offers, as a chat template takes them."""
        return [tool.model_dump(exclude_none=True) for tool in self.tools] if self.tool_choice != "none" else []


def parse_request(body: Any) -> ChatRequest:
    """Parse a request's JSON, or raise `RequestError` with the parameter and an alternative.

    The `tool_choice` of the result is "auto", "none", "required", or the name of the tool that must be called.
    """
    form = "" if isinstance(body, Mapping) else "the body is no JSON object with model and messages"
    if problem := form or not_plain(body, "the request"):
        raise RequestError(400, problem)
    try:
        chat = ChatRequest.model_validate({name: value for name, value in body.items() if value not in UNSAID})
    except ValidationError as error:
        raise RequestError(400, first_problem(error)) from None
    for name, value in chat.model_extra.items():
        if name not in IGNORED and value != NEUTRAL.get(name):
            raise RequestError(400, f"{name}={value!r:.80} is not supported here: leave it out")
    choice = chat.tool_choice.function.name if isinstance(chat.tool_choice, ToolCall) else chat.tool_choice
    if chat.response_format:  # a tool that must be called; its arguments become the content
        form = chat.response_format.json_schema
        choice = "required" if chat.tools else form.name
        chat.tools.append(Tool(type="function", function=form))
    names = [tool.function.name for tool in chat.tools]
    if choice not in ("auto", "none", *names) and not (names and choice == "required"):
        known = f"'auto', 'none', 'required' or a function of tools ({', '.join(names)})"
        raise RequestError(400, f"tool_choice={choice!r:.80}; give {known}")
    chat.tool_choice = choice if names else "none"
    return chat


def answer_to(chat: ChatRequest, message: Message, finish: str, tokens: tuple[int, int], number: int) -> dict[str, Any]:
    """Return the answer to a request as JSON.

    Args:
        chat: The request.
        message: The message that the policy answered with.
        finish: How the completion ended.
        tokens: Number of tokens of the prompt and of the completion.
        number: Number of the call in its episode.
    """
    finish, message = "length" if finish == "length" else "stop", dict(message)
    calls = message.pop("tool_calls", [])
    texts = [json.dumps(call["function"]["arguments"]) for call in calls]
    if chat.response_format and [call["function"]["name"] for call in calls] == [chat.response_format.json_schema.name]:
        message["content"] = texts[0]
    elif calls:
        finish, message["content"] = "tool_calls", message["content"] or None
        message["tool_calls"] = [
            call | {"function": call["function"] | {"arguments": text}} for call, text in zip(calls, texts, strict=True)
        ]
    usage = {"prompt_tokens": tokens[0], "completion_tokens": tokens[1], "total_tokens": sum(tokens)}
    return {"id": f"chatcmpl-{number}", "object": "chat.completion", "created": int(time.time()), "model": chat.agent,
            "choices": [{"index": 0, "finish_reason": finish, "message": message}], "usage": usage}  # fmt: skip


def chunk_of(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return an answer as the only chunk of a stream."""
    [choice] = answer["choices"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
    piece = {"index": 0, "delta": delta, "finish_reason": choice["finish_reason"]}
    return {**answer, "object": "chat.completion.chunk", "choices": [piece]}

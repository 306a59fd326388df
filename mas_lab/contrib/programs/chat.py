"""OpenAI's chat completions: read a request, and write its answer.

A request is refused if the sampled tokens could not represent its result. Leaves out: the server (`gateway`), and how a
call is answered (`dispatcher`).
"""

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from mas_lab.env import Message, no_message, not_plain
from mas_lab.tool_calls import fits

IGNORED = ("user", "metadata", "store", "service_tier", "parallel_tool_calls", "prompt_cache_key", "safety_identifier",
           "timeout", "verbosity", "reasoning_effort")  # fmt: skip
"""Parameters that change no token of the answer."""
NEUTRAL = {"top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}, "top_logprobs": 0,
           "functions": []}  # fmt: skip
"""Parameters that are accepted with these values only: training needs tokens from the full distribution."""
INSTEAD = {"functions": "pass them as tools", "top_logprobs": "logprobs=True has the sampled tokens"}
UNUSED = ("refusal", "annotations", "audio", "function_call")
"""Keys of a message that no chat template takes."""
FORMAT = "response_format"
"""Name of the tool for a schema without a name."""
MOST_DRAWS = 64
"""Largest `n`."""


def first_problem(error: ValidationError) -> str:
    """Return the first error of pydantic in words, with its place in the data."""
    first = error.errors()[0]
    place = ".".join(f"{one!s:.100}" for one in first["loc"])
    return f"{place}: {first['msg']} (got {first['input']!r:.100})".removeprefix(": ")


class RequestError(Exception):
    """Error for a call that gets no answer, with HTTP status, OpenAI's error code and message."""

    def __init__(self, status: int, code: str, sentence: str):
        super().__init__(sentence)
        self.status, self.code = status, code

    def body(self) -> dict[str, Any]:
        return {"error": {"message": str(self), "type": "invalid_request_error", "param": None, "code": self.code}}


def parsed(text: str | bytes) -> Any:
    """Return JSON data; raise ValueError if it is no JSON, or data that cannot be kept, as it nests too deep."""
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if problem := not_plain(data, "it"):
        raise ValueError(problem)
    return data


def _read(message: dict[str, Any]) -> Message:
    """Return a message with its content as one text, even if it came in parts; raise ValueError if it is none."""
    one = {key: value for key, value in message.items() if value is not None and key not in UNUSED}
    one.setdefault("content", message.get("content"))
    one["role"] = "system" if one.get("role") == "developer" else one.get("role")
    if "reasoning" in one:
        one.setdefault("reasoning_content", one.pop("reasoning"))
    if isinstance(parts := one.get("content"), list):
        if any(not isinstance(part, Mapping) or part.get("type") != "text" for part in parts):
            raise ValueError("it has a part that is no text; policies here read text alone")
        one["content"] = "".join(str(part.get("text", "")) for part in parts)
    if not isinstance(one["role"], str):
        raise ValueError(f"its role is {one['role']!r:.80}; give a text")
    if one["role"] == "assistant":
        one["content"] = one.get("content") or ""
    if problem := no_message(one):
        raise ValueError(problem)
    if "tool_calls" in one:
        one["tool_calls"] = [_read_call(call) for call in one["tool_calls"]]
    return one


def _function_of(item: Any, what: str) -> Mapping[str, Any]:
    """Return the function of a tool or of a tool call; raise ValueError if it has no name."""
    function = item.get("function") if isinstance(item, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str) or not function["name"]:
        raise ValueError(f"{what} is {item!r:.80}; give {{'type': 'function', 'function': {{'name', ...}}}}")
    return function


def _read_call(call: Any) -> dict[str, Any]:
    """Return a call of the history with its arguments as an object, as chat templates write them."""
    function = _function_of(call, "a tool call")
    arguments = function.get("arguments") or {}
    with suppress(ValueError):  # a text that is no JSON stays as it is
        arguments = parsed(arguments) if isinstance(arguments, str) else arguments
    return {"id": str(call.get("id", "")), "type": "function",
            "function": {"name": function["name"], "arguments": arguments}}  # fmt: skip


def _read_tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool as a chat template takes it, without the keys that concern the server alone, such as `strict`."""
    function = _function_of(tool, "a tool")
    if tool.get("type") != "function":
        raise ValueError(f"a tool has the type {tool.get('type')!r:.80}; give functions")
    known = {key: function[key] for key in ("name", "description", "parameters") if function.get(key) is not None}
    schema = known.setdefault("parameters", {"type": "object", "properties": {}})
    if problem := not_plain(known, "it"):
        raise ValueError(problem)
    try:
        if not fits(schema):
            raise ValueError("it takes too long to read")
    except ValueError as error:
        raise ValueError(f"the parameters of {known['name']!r} are no JSON schema: {error!s:.120}") from None
    return {"type": "function", "function": known}


def _listed(stop: Any) -> Any:
    return [stop] if isinstance(stop, str) else stop


class ChatRequest(BaseModel):
    """One call of `agent` with `messages`. `None` in a field: the team's sampling setting holds."""

    model_config = ConfigDict(extra="allow", strict=True)

    agent: str = Field(alias="model")
    messages: list[Annotated[dict[str, Any], AfterValidator(_read)]] = Field(min_length=1)
    temperature: float | None = Field(None, ge=0.01, le=10)  # below, equal answers would be compared
    max_tokens: int | None = Field(None, ge=1, validation_alias=AliasChoices("max_completion_tokens", "max_tokens"))
    stop: Annotated[list[Annotated[str, Field(min_length=1)]], BeforeValidator(_listed)] = []
    tools: list[Annotated[dict[str, Any], AfterValidator(_read_tool)]] = []
    tool_choice: Any = "auto"
    response_format: dict[str, Any] = {}
    n: int = Field(1, ge=1, le=MOST_DRAWS)
    seed: int | None = None
    stream: bool = False
    stream_options: dict[str, Any] = {}
    logprobs: bool = False

    @property
    def offered(self) -> list[dict[str, Any]]:
        """Return the tools that the prompt offers."""
        return self.tools if self.tool_choice != "none" else []


def parse_request(body: Any) -> ChatRequest:
    """Parse a request's JSON, or raise `RequestError` with the parameter and an alternative."""
    if not isinstance(body, Mapping):
        raise RequestError(400, "invalid_json", "the body is no JSON object with model and messages")
    try:
        chat = ChatRequest.model_validate({name: value for name, value in body.items() if value is not None})
    except ValidationError as error:
        raise RequestError(400, "invalid_value", first_problem(error)) from None
    for name, value in chat.model_extra.items():
        if name not in IGNORED and (name not in NEUTRAL or value != NEUTRAL[name]):
            instead = INSTEAD.get(name, "leave it out")
            raise RequestError(400, "unsupported_parameter", f"{name}={value!r:.80} is not supported here: {instead}")
    _add_format(chat)
    chat.tool_choice = _choice(chat)
    return chat


def _add_format(chat: ChatRequest) -> None:
    """Turn a JSON schema for the answer into a tool that must be called; its arguments become the content."""
    kind = chat.response_format.get("type", "text")
    if kind == "text":
        chat.response_format = {}
        return
    form = chat.response_format.get("json_schema")
    if kind != "json_schema" or not isinstance(form, Mapping) or "schema" not in form:
        remedy = "give type 'json_schema' with a schema, or a tool"
        raise RequestError(400, "unsupported_parameter", f"response_format={kind!r:.40} is not supported: {remedy}")
    name = form.get("name") or FORMAT
    function = {"name": name, "parameters": form["schema"], "description": form.get("description")}
    try:
        chat.tools.append(_read_tool({"type": "function", "function": function}))
    except ValueError as error:
        raise RequestError(400, "invalid_value", f"response_format: {error}") from None
    chat.response_format = {"name": name}
    if len(chat.tools) == 1:
        chat.tool_choice = {"function": {"name": name}}
    elif chat.tool_choice == "auto":
        chat.tool_choice = "required"


def _choice(chat: ChatRequest) -> str:
    """Return "auto", "none", "required", or the name of the tool that must be called."""
    choice, names = chat.tool_choice, [tool["function"]["name"] for tool in chat.tools]
    if isinstance(choice, Mapping):
        function = choice.get("function", choice)
        name = function.get("name") if isinstance(function, Mapping) else None
        if name in names:
            return name
    elif choice in ("auto", "none") or (choice == "required" and names):
        return choice if names else "none"
    message = f"tool_choice={choice!r:.80}; give 'auto', 'none', 'required' or a function of tools ({', '.join(names)})"
    raise RequestError(400, "invalid_value", message)


@dataclass(frozen=True)
class ChatAnswer:
    """One answer to a call: the message, how it ended, its tokens, and the log-probabilities of these."""

    message: Message
    finish: str
    tokens: Sequence[Any]
    """Its token ids, or text and bytes of each where the request asks for `logprobs`."""
    logprobs: Sequence[float]
    prompt_tokens: int
    number: int
    """Number of the call in its episode."""


def answer_to(chat: ChatRequest, answers: Sequence[ChatAnswer]) -> dict[str, Any]:
    """Return the answers to a request as one JSON object; its id is the number of the first call in its episode."""
    choices = [_choice_of(chat, one, index) for index, one in enumerate(answers)]
    prompt, completion = answers[0].prompt_tokens, sum(len(one.tokens) for one in answers)
    usage = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}
    return {"id": f"chatcmpl-{answers[0].number}", "object": "chat.completion", "created": int(time.time()),
            "model": chat.agent, "choices": choices, "usage": usage}  # fmt: skip


def _choice_of(chat: ChatRequest, one: ChatAnswer, index: int) -> dict[str, Any]:
    message = {"role": "assistant", "refusal": None, **one.message}
    calls = message.pop("tool_calls", [])
    finish = "length" if one.finish == "length" else "stop"
    if chat.response_format and [call["function"]["name"] for call in calls] == [chat.response_format["name"]]:
        message["content"] = json.dumps(calls[0]["function"]["arguments"])
    elif calls:
        finish, message["content"] = "tool_calls", message["content"] or None
        message["tool_calls"] = [
            call | {"function": call["function"] | {"arguments": json.dumps(call["function"]["arguments"])}}
            for call in calls
        ]
    logprobs = None
    if chat.logprobs:
        content = [{"token": text, "logprob": logprob, "bytes": code, "top_logprobs": []}
                   for (text, code), logprob in zip(one.tokens, one.logprobs, strict=True)]  # fmt: skip
        logprobs = {"refusal": None, "content": content}
    return {"index": index, "finish_reason": finish, "logprobs": logprobs, "message": message}


def read_token(tokenizer: Any, token: int) -> tuple[str, list[int] | None]:
    """Return a token's text and its bytes, which clients join: a token may be a part of a character.

    The bytes are `None` if the text shows that they are no characters, and the vocabulary does not hold bytes.
    """
    text = tokenizer.decode([token])
    if "\ufffd" not in text:
        return text, list(text.encode())
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    byte_of = {character: code for code, character in bytes_to_unicode().items()}
    code = [byte_of.get(character) for character in tokenizer.convert_ids_to_tokens(token)]
    return text, code if None not in code and bytes(code).decode(errors="replace") == text else None


def chunks_of(answer: Mapping[str, Any], usage: bool) -> list[dict[str, Any]]:
    """Return an answer as the chunks of a stream: each choice in one piece, its end, and the usage if it is wanted."""
    head = {key: answer[key] for key in ("id", "created", "model")} | {"object": "chat.completion.chunk"}
    found = []
    for choice in answer["choices"]:
        delta = {key: value for key, value in choice["message"].items() if key != "refusal"}
        if "tool_calls" in delta:
            delta["tool_calls"] = [{"index": index, **call} for index, call in enumerate(delta["tool_calls"])]
        piece = {"index": choice["index"], "delta": delta, "logprobs": choice["logprobs"], "finish_reason": None}
        end = {"index": choice["index"], "delta": {}, "finish_reason": choice["finish_reason"]}
        found += [{**head, "choices": [piece]}, {**head, "choices": [end]}]
    return [*found, {**head, "choices": [], "usage": answer["usage"]}] if usage else found

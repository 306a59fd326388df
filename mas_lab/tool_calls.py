"""Write tools into a prompt, and read the calls out of an answer.

A tokenizer's chat template writes tools, and its response template reads calls; both are parts of transformers. TRL has
response templates for the chat templates of many models. Tools and calls have the form of OpenAI's chat completions.
Leaves out: running a tool, which is up to the environment or the program.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mas_lab.child import ChildEnded, workers
from mas_lab.env import Env, Message, Tools, not_plain, tools_of
from mas_lab.policy import Completion, Policy, PolicyError

QWEN3 = {
    "defaults": {"role": "assistant"},
    "start_anchor": "<|im_start|>assistant\n",
    "fields": {
        "reasoning_content": {"open": "<think>", "close_pattern": r"</think>\s*", "content": "text"},
        "tool_calls": {"open": "<tool_call>", "close_pattern": r"</tool_call>\s*", "repeats": True, "content": "json",
                       "transform": {"type": "function", "function": "{content}"}},
        "content": {"close_pattern": r"<\|im_end\|>\s*", "content": "text"},
    },
}  # fmt: skip
"""Response template of Qwen3, for text without a tokenizer, such as a demonstration."""
SECONDS = 5.0
"""Time limit of comparing the arguments of a call with their schema."""
UNFIT = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError)
"""Errors of the library for a text that does not fit its response template."""
END = "\0"
"""A character that no model writes; what it follows is at its end."""
QUOTED = r'"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*+"'
"""Pattern of a text in JSON, for the module `regex`, with which transformers reads templates."""


def response_template(tokenizer: Any) -> Mapping[str, Any]:
    """Return the response template of a tokenizer, its own or the one that TRL has for its chat template.

    Raises:
        PolicyError: There is none.
    """
    if getattr(tokenizer, "response_template", None) is None:
        try:
            from trl.chat_template_utils import add_response_schema

            add_response_schema(tokenizer)
        except (ImportError, ValueError) as error:
            raise PolicyError(
                "nothing says how this model writes tool calls: its tokenizer has no response_template, and TRL knows "
                f"none for its chat template ({error}); set policy.tokenizer.response_template"
            ) from error
    return tokenizer.response_template


def read_answer(text: str, tools: Tools, template: Mapping[str, Any] = QWEN3, prompt: str = "") -> tuple[Message, str]:
    """Return the message of an answer, and its status.

    A malformed call is no call: the whole text is then the content of the message.

    Args:
        text: The answer with its special tokens.
        tools: The tools that the prompt offered.
        template: A response template of transformers.
        prompt: Text of the prompt, which may have begun the answer.

    Returns:
        The assistant's message, whose `tool_calls` have `arguments` as a dict, and its `table.CALL_STATUSES`.
    """
    from transformers.utils.chat_parsing import ResponseParser, parse_response

    plain = {"role": "assistant", "content": text}
    try:
        calls = template["fields"].get("tool_calls", {})
        typed = calls.get("content") == "json"
        offered = [] if typed else [dict(tool) for tool in tools]  # for them the library casts every text to its type
        changed = {"tool_calls": _with_whole_arguments(calls)} if calls else {}
        template = {**template, "fields": {**template["fields"], **changed}}
        parser = ResponseParser(template, prefix=prompt, tools=offered)
        events = [*parser.initial_events, *parser.feed(text + END)]
        last = next((event for event in reversed(events) if event["type"] != "region_chunk"), {})
        if last.get("field") == "tool_calls" and last["type"] == "region_open":
            return plain, "unclosed"
        message = parse_response(text, template, prefix=prompt, tools=offered)
        if calls.get("content_args", {}).get("value_parser", {}).get("name") == "json":
            _keep_types(message, parse_response(text, template, prefix=prompt))
    except UNFIT:
        return plain, "invalid_json"
    message = {"content": "", **message}
    status = "ok" if message.get("tool_calls") else "none"
    for call in message.get("tool_calls", ()):
        if problem := _problem(call["function"], tools):
            return plain, problem
    return message, status


def _with_whole_arguments(calls: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a template's field of calls; in it, the mark that ends a call does not count inside an argument."""
    how, close = calls.get("content_args", {}), calls.get("close", [])
    ends = calls.get("close_pattern") or "|".join(map(re.escape, [close] if isinstance(close, str) else close))
    quoted = "|".join(f"{re.escape(begin)}.*?{re.escape(end)}" for begin, end in how.get("string_delims", ()))
    skipping = f"(?:{quoted or how.get('tag_pattern', QUOTED)})(*SKIP)(*FAIL)|{ends}"
    rest = {name: part for name, part in calls.items() if name != "close"}
    return rest | {"close_pattern": skipping} if ends else calls


def _keep_types(cast: Message, read: Message) -> None:
    """Undo each cast but that of Python's words: a value in quotes is a text, as in JSON."""
    for call, own in zip(cast.get("tool_calls", ()), read.get("tool_calls", ()), strict=True):
        arguments = own["function"]["arguments"]
        kept = {name: value for name, value in arguments.items() if value not in ("True", "False", "None")}
        call["function"]["arguments"] |= kept


def _problem(function: Any, tools: Tools) -> str:
    """Return the status of a call that cannot be made, else an empty text."""
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        return "invalid_json"
    known = {tool["function"]["name"]: tool["function"] for tool in tools}
    if function["name"] not in known:
        return "unknown_tool"
    function["arguments"] = {} if function.get("arguments") is None else function["arguments"]
    if not_plain(function, "the call"):  # Python's reader takes NaN, lone surrogates and any depth
        return "invalid_json"
    try:
        fit = fits(known[function["name"]].get("parameters", {}), function["arguments"])
    except ValueError as error:
        raise ValueError(f"the parameters of the tool {function['name']!r} are no JSON schema: {error}") from None
    return "" if fit and isinstance(function["arguments"], dict) else "wrong_arguments"


def fits(schema: Any, *arguments: Any) -> bool:
    """Return True if each of `arguments` fits a JSON schema, which may refer to its own parts only.

    It is False if the comparison takes more than `SECONDS`, as that with a pattern may, or does not end. Raises
    ValueError if `schema` is no JSON schema.
    """
    try:
        answer = workers("schema").ask([json.dumps(schema), *arguments], SECONDS)
    except ChildEnded:
        return False
    if isinstance(answer, str):
        raise ValueError(answer)
    return answer


def answer_of(
    policy: Policy, prompt_ids: Sequence[int], completion: Completion, tools: Tools, number: int
) -> tuple[Message, str]:
    """Return the message that a policy answered with, and its status; the calls have ids, `call_<number>_<index>`."""
    tokenizer = policy.tokenizer
    prompt, text = tokenizer.decode(list(prompt_ids)), tokenizer.decode(list(completion.ids))
    message, status = read_answer(text, tools, response_template(tokenizer), prompt)
    if status != "ok":
        message["content"] = message["content"] if status == "none" else completion.text
        return message, status
    return _with_ids(message, number), status


def as_action(env: Env, agent: str, text: str, number: int) -> str | Message:
    """Return what an environment gets for a text that no policy said: the text, or a message for an agent with tools.

    Calls are read as Qwen3 writes them. They get the ids `call_<number>_<index>`.
    """
    tools = tools_of(env, agent)
    return _with_ids(read_answer(text, tools)[0], number) if tools else text


def _with_ids(message: Message, number: int) -> Message:
    if "tool_calls" not in message:
        return message
    calls = [{"id": f"call_{number}_{index}", **call} for index, call in enumerate(message["tool_calls"])]
    return message | {"tool_calls": calls}


def opening(write: Callable[..., str], messages: Sequence[Message], choice: str) -> str:
    """Return how the answer must begin, so that it calls a tool.

    The opening joins the prompt, and the rest is sampled. So each token of the completion is drawn from the model's own
    distribution, which a grammar mask would change.

    Args:
        write: Function (messages, add_generation_prompt=...) -> text of the chat template.
        messages: The chat.
        choice: "required" for any tool, or the name of a function.

    Raises:
        PolicyError: The chat template writes calls in another place than answers.
    """
    name = "required" if choice == "required" else choice
    call = {"type": "function", "function": {"name": name, "arguments": {}}}
    prompt = write(messages, add_generation_prompt=True)
    called = write([*messages, {"role": "assistant", "content": "", "tool_calls": [call]}], add_generation_prompt=False)
    if not called.startswith(prompt) or name not in (rest := called[len(prompt) :]):
        raise PolicyError("its chat template writes no tool call where the answer begins; use tool_choice='auto'")
    return rest[: rest.index(name)] + (name if choice != "required" else "")

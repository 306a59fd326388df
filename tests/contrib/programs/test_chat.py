"""Requests behind the gateway: what a prompt offers, what an answer calls, and what is refused.

A response asks for the same as a chat completion, in another form.
"""

import copy
import json

import pytest
from talking import call, exchange, last, make_tokenizer

USER = [{"role": "user", "content": "1 + 2"}]
SCHEMA = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
ADD = {"type": "function", "function": {"name": "add", "description": "A sum.", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "other"}}
ASKED = {"model": "solver", "messages": USER, "tools": [ADD, OTHER]}
FLAT = [{"type": "function", **tool["function"]} for tool in ASKED["tools"]]
RESPONSE = {"model": "solver", "input": "1 + 2", "tools": FLAT}
RESPONSES = "/v1/responses"
GOOD = call("add", expression="1 + 2")
TWO = f"Both.\n{GOOD}\n{call('other')}"


def says(text):
    return lambda prompt, draw: text


def solves(prompt, draw):
    role, text = last(prompt)
    return f"It is {text}" if role == "tool" else f"<think>\nI add.\n</think>\n\n{GOOD}"


def prompts(turns):
    return [make_tokenizer().decode(ids) for ids in turns["prompt_ids"]]


def choice_of(found):
    return json.loads(found[0][1])["choices"][0]


def compact(message):
    function = message["tool_calls"][0]["function"]
    function["arguments"] = json.dumps(json.loads(function["arguments"]), separators=(",", ":"))


@pytest.mark.parametrize("changed", [
    lambda message: None,
    compact,
    lambda message: message.pop("reasoning_content") and message["tool_calls"][0].pop("type"),
    lambda message: message.update(content=[{"type": "text", "text": "something else"}], audio=None, annotations=[]),
])  # fmt: skip
def test_history_is_the_message_that_was_sampled_however_a_client_writes_it(changed):
    def goes_on(answer):
        message = copy.deepcopy(answer["choices"][0]["message"])
        assert message["reasoning_content"] == "I add." and message["tool_calls"][0]["id"] == "call_0_0"
        changed(message)
        result = {"role": "tool", "tool_call_id": "call_0_0", "content": "3"}
        return ASKED | {"messages": [*USER, message, result]}

    found, turns = exchange(solves, ASKED, goes_on)
    assert [status for status, _ in found] == [200, 200] and turns["call_status"].tolist() == ["ok", "none"]
    sampled = f"I add.\n</think>\n\n{GOOD}<|im_end|>\n<|im_start|>user\n<tool_response>\n3\n</tool_response>"
    assert sampled in prompts(turns)[1]


def test_a_call_of_the_history_that_nobody_sent_is_written_as_it_came():
    function = {"name": "gone", "arguments": '{"a": '}
    before = {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": function}]}
    _, turns = exchange(says("so"), ASKED | {"messages": [*USER, before, {"role": "tool", "content": "none"}]})
    assert '<tool_call>\n{"name": "gone", "arguments": {"a": }\n</tool_call>' in prompts(turns)[0]


NAMED = {"type": "function", "function": {"name": "add"}}
OPENED = '<tool_call>\n{"name": "'


@pytest.mark.parametrize(
    ("path", "choice", "opened"),
    [("", "none", ""), ("", "required", OPENED), ("", NAMED, f"{OPENED}add"),
     (RESPONSES, {"type": "function", "name": "add"}, f"{OPENED}add")],
)  # fmt: skip
def test_a_choice_that_demands_a_call_opens_it_in_the_prompt(path, choice, opened):
    asked = (RESPONSE if path else ASKED) | {"tool_choice": choice}
    found, turns = exchange(says(GOOD), asked, **({"path": path} if path else {}))
    [prompt], row = prompts(turns), turns.iloc[0]
    assert prompt.endswith(opened) and ("<tools>" in prompt) == (choice != "none")
    assert make_tokenizer().decode(row["completion_ids"]) == f"{GOOD}<|im_end|>".removeprefix(opened)
    if choice == "none":
        message = choice_of(found)["message"]
        assert message["content"] == row.completion and "tool_calls" not in message and "call_status" not in turns
    else:
        answer = json.loads(found[0][1])
        made = answer["output"][0] if path else answer["choices"][0]["message"]["tool_calls"][0]["function"]
        assert (made["name"], made["arguments"]) == ("add", '{"expression": "1 + 2"}') and row.call_status == "ok"


@pytest.mark.parametrize(("said", "status"), [
    ("It is 3", "none"), (GOOD, "ok"), (f"{GOOD}\n{call('gone')}", "unknown_tool"),
])  # fmt: skip
def test_a_malformed_call_comes_back_as_plain_content_and_the_row_names_its_defect(said, status):
    found, turns = exchange(says(said), ASKED)
    choice = choice_of(found)
    assert turns["call_status"].tolist() == [status] and turns["valid"].tolist() == [status in ("none", "ok")]
    assert turns["completion"].tolist() == [said]
    if status != "ok":
        assert choice["message"] == {"role": "assistant", "content": said} and choice["finish_reason"] == "stop"


def test_two_calls_have_ids_of_their_own_and_a_stream_has_them_in_one_piece():
    found, turns = exchange(says(TWO), ASKED, ASKED | {"stream": True})
    chunk, done = [line.removeprefix("data: ") for line in found[1][1].split("\n\n") if line]
    whole, piece = choice_of(found), json.loads(chunk)["choices"][0]
    assert done == "[DONE]" and json.loads(chunk)["usage"]["prompt_tokens"] == len(turns["prompt_ids"][1])
    assert [one["index"] for one in piece["delta"]["tool_calls"]] == [0, 1]
    for choice, message, number in ((whole, whole["message"], 0), (piece, piece["delta"], 1)):
        assert choice["finish_reason"] == "tool_calls" and message["content"].strip() == "Both."
        assert [one["id"] for one in message["tool_calls"]] == [f"call_{number}_0", f"call_{number}_1"]
        assert message["tool_calls"][1]["function"]["arguments"] == "{}"


@pytest.mark.parametrize("path", ["", RESPONSES])
def test_a_schema_for_the_answer_is_a_call_that_is_demanded_and_its_arguments_are_the_content(path):
    form = {"name": "Sum", "schema": SCHEMA, "strict": True}
    asked = {"model": "solver"} | (
        {"input": "1 + 2", "text": {"format": {"type": "json_schema", **form}}}
        if path
        else {"messages": USER, "response_format": {"type": "json_schema", "json_schema": form}}
    )
    found, turns = exchange(says(call("Sum", expression="1 + 2")), asked, **({"path": path} if path else {}))
    answer = json.loads(found[0][1])
    said = answer["output"][0]["content"][0]["text"] if path else answer["choices"][0]["message"]["content"]
    assert json.loads(said) == {"expression": "1 + 2"} and "tool_calls" not in found[0][1]
    assert turns["call_status"].tolist() == ["ok"] and prompts(turns)[0].endswith(f"{OPENED}Sum")
    if not path:  # beside tools, it demands one of all
        found, turns = exchange(says(GOOD), ASKED | asked)
        assert choice_of(found)["message"]["tool_calls"][0]["function"]["name"] == "add"
        assert turns["prompt"][0].endswith("tool_choice: required")


def test_what_clients_send_besides_changes_nothing():
    plain = {"model": "solver", "messages": [{"role": "system", "content": "Add."}, *USER], "tools": [ADD]}
    strict = {"type": "function", "function": ADD["function"] | {"strict": True}}
    parts = [{"type": "text", "text": "1 +"}, {"type": "text", "text": " 2"}]
    told = [{"role": "developer", "content": "Add."}, {"role": "user", "content": parts, "name": None}]
    more = {"messages": told, "tools": [strict], "parallel_tool_calls": False, "store": True, "stream": False, "n": 1,
            "tool_choice": "auto", "response_format": {"type": "text"}, "top_p": 1, "reasoning_effort": "low",
            "max_completion_tokens": None, "seed": 7}  # fmt: skip
    found, turns = exchange(says("3"), plain, plain | more)
    assert [status for status, _ in found] == [200, 200] and turns["prompt_ids"][0] == turns["prompt_ids"][1]


def tool_with(parameters):
    return {"tools": [{"type": "function", "function": {"name": "add", "parameters": parameters}}, OTHER]}


REFUSED = [
    ({"model": None}, "model: Field required"),
    ({"temperature": 0}, "temperature: Input should be greater than or equal to 0.01"),
    ({"messages": [{"content": "x"}]}, "has no role"),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "no text"),
    ({"messages": [{"role": "tool", "content": None}]}, "content is None; give text"),
    (tool_with({"type": "obj"}), "tools.0.function.parameters: Value error, 'obj' is not valid"),
    ({"tool_choice": {"function": {"name": "gone"}}}, "or a function of tools (add, other)"),
    ({"tools": [], "tool_choice": "required"}, "give 'auto', 'none', 'required'"),
    ({"n": 2, "top_p": 1}, "n=2 is not supported"),
    ({"response_format": {"type": "json_object"}}, "response_format.type: Input should be 'json_schema'"),
    ([3], "no JSON object"),
]
REFUSED_RESPONSES = [
    ({"previous_response_id": "resp_0"}, "previous_response_id='resp_0' is not supported here: leave it out"),
    ({"stream": True}, "use chat completions"),
    ({"input": [3]}, "has not the form of OpenAI's responses"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "use messages"),
]


@pytest.mark.parametrize(("path", "asked", "refused"), [
    ("/v1/chat/completions", ASKED, REFUSED), (RESPONSES, RESPONSE, REFUSED_RESPONSES),
])  # fmt: skip
def test_what_no_answer_could_stand_for_is_refused_with_the_line_that_helps(path, asked, refused):
    bodies = [asked | more if isinstance(more, dict) else more for more, _ in refused]
    found, turns = exchange(says("3"), *bodies, path=path)
    for (more, sentence), (status, text) in zip(refused, found, strict=True):
        assert status == 400 and sentence in json.loads(text)["error"]["message"], (more, status, text)
    assert turns.empty


def test_a_response_is_the_chat_completion_of_its_messages_and_tools():
    def goes_on(answer):
        said, *made = answer["output"]
        made = [one | {"arguments": one["arguments"].replace(" ", "")} for one in made]
        results = [{"type": "function_call_output", "call_id": one["call_id"], "output": "3"} for one in made]
        return RESPONSE | {"input": [*USER, said, *made, *results]}

    told = {"model": "solver", "messages": [{"role": "system", "content": "Add."}, *USER], "tools": ASKED["tools"]}
    _, as_chat = exchange(says(TWO), told)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "1 + 2"}]}
    bodies = RESPONSE | {"input": [{"role": "system", "content": "Add."}, item]}, RESPONSE | {"instructions": "Add."}
    found, turns = exchange(says(TWO), *bodies, goes_on, RESPONSE | {"max_output_tokens": 2}, path=RESPONSES)
    assert turns["prompt_ids"].tolist()[:2] == [as_chat["prompt_ids"][0]] * 2
    answer, cut = (json.loads(found[place][1]) for place in (1, 3))
    assert [one["type"] for one in answer["output"]] == ["message", "function_call", "function_call"]
    assert answer["output"][0]["content"][0]["text"].strip() == "Both." and answer["status"] == "completed"
    assert answer["output"][1] == {"type": "function_call", "call_id": "call_1_0", "name": "add",
                                   "arguments": '{"expression": "1 + 2"}'}  # fmt: skip
    assert answer["usage"]["output_tokens"] == len(turns["completion_ids"][1])
    assert f"{TWO}<|im_end|>" in prompts(turns)[2]
    assert prompts(turns)[2].count("<tool_response>\n3\n</tool_response>") == 2
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}

"""Tool calls behind the gateway: what a prompt offers, what an answer calls, and what is refused."""

import copy
import json
from itertools import chain
from threading import Event

import numpy as np
import pytest
from talking import call, exchange, last, make_tokenizer, team_of
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

import mas_lab as lab
from mas_lab import tool_calls
from mas_lab.contrib.programs.chat import RequestError, read_token

USER = [{"role": "user", "content": "1 + 2"}]
SCHEMA = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
ADD = {"type": "function", "function": {"name": "add", "description": "A sum.", "parameters": SCHEMA}}
OTHER = {"type": "function", "function": {"name": "other"}}
ASKED = {"model": "solver", "messages": USER, "tools": [ADD, OTHER]}
GOOD = call("add", expression="1 + 2")


def says(text):
    return lambda prompt, draw: text


def solves(prompt, draw):
    role, text = last(prompt)
    return f"It is {text}" if role == "tool" else f"<think>\nI add.\n</think>\n\n{GOOD}"


def message_of(answer):
    return answer["choices"][0]["message"]


def compact(message):
    function = message["tool_calls"][0]["function"]
    function["arguments"] = json.dumps(json.loads(function["arguments"]), separators=(",", ":"))


@pytest.mark.parametrize(
    "changed",
    [
        lambda message: None,
        compact,
        lambda message: message.pop("reasoning_content"),
        lambda message: message.update(content=""),
        lambda message: message.update(content=[{"type": "text", "text": "something else"}]),
        lambda message: message["tool_calls"][0]["function"].update(arguments="no JSON {"),
        lambda message: message["tool_calls"][0]["function"].update(arguments="[" * 100_000),
        lambda message: message["tool_calls"][0].pop("type"),
        lambda message: message.update(audio=None, annotations=[], function_call=None, reasoning="I add."),
    ],
)
def test_history_is_the_message_that_was_sampled_however_a_client_writes_it(changed):
    def goes_on(answer):
        message = copy.deepcopy(message_of(answer))
        assert message["reasoning_content"] == "I add." and message["tool_calls"][0]["id"] == "call_0_0"
        changed(message)
        result = {"role": "tool", "tool_call_id": "call_0_0", "content": "3"}
        return ASKED | {"messages": [*USER, message, result]}

    found, turns = exchange(solves, ASKED, goes_on)
    assert [status for status, _ in found] == [200, 200] and turns["call_status"].tolist() == ["ok", "none"]
    prompt = make_tokenizer().decode(turns["prompt_ids"][1])
    assert f"I add.\n</think>\n\n{GOOD}<|im_end|>\n<|im_start|>user\n<tool_response>\n3\n</tool_response>" in prompt


def test_a_call_of_the_history_that_nobody_sent_is_written_as_it_came():
    function = {"name": "gone", "arguments": '{"a": '}
    before = {"role": "assistant", "content": None, "tool_calls": [{"id": "x", "function": function}]}
    found, turns = exchange(says("so"), ASKED | {"messages": [*USER, before, {"role": "tool", "content": "none"}]})
    assert found[0][0] == 200
    assert '<tool_call>\n{"name": "gone", "arguments": {"a": }\n</tool_call>' in make_tokenizer().decode(
        turns["prompt_ids"][0]
    )


NAMED = {"type": "function", "function": {"name": "add"}}
OPENED = '<tool_call>\n{"name": "'


@pytest.mark.parametrize(
    ("choice", "opened"),
    [("auto", ""), ("none", ""), ("required", OPENED), (NAMED, f"{OPENED}add")],
    ids=["auto", "none", "required", "named"],
)
def test_a_choice_that_demands_a_call_opens_it_in_the_prompt(choice, opened):
    found, turns = exchange(says(GOOD), ASKED | {"tool_choice": choice})
    tokenizer, row = make_tokenizer(), turns.iloc[0]
    prompt, said = (tokenizer.decode(row[name]) for name in ("prompt_ids", "completion_ids"))
    assert prompt.endswith(opened) and said == f"{GOOD}<|im_end|>".removeprefix(opened)
    assert ("<tools>" in prompt) == (choice != "none")
    message = message_of(json.loads(found[0][1]))
    if choice == "none":
        assert message["content"] == row.completion and "tool_calls" not in message and "call_status" not in turns
    else:
        [made] = message["tool_calls"]
        assert made["function"] == {"name": "add", "arguments": '{"expression": "1 + 2"}'} and row.call_status == "ok"


def test_two_calls_in_one_answer_have_ids_of_their_own():
    found, _ = exchange(says(f"Both.\n{GOOD}\n{call('other')}"), ASKED)
    choice = json.loads(found[0][1])["choices"][0]
    assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"].strip() == "Both."
    made = choice["message"]["tool_calls"]
    assert [one["id"] for one in made] == ["call_0_0", "call_0_1"] and made[1]["function"]["arguments"] == "{}"


@pytest.mark.parametrize(
    ("said", "status"),
    [
        ("It is 3", "none"),
        (GOOD, "ok"),
        (GOOD.replace('"}}', '"'), "invalid_json"),
        (GOOD.removesuffix("</tool_call>"), "unclosed"),
        (call("gone"), "unknown_tool"),
        (call("add", sum="1 + 2"), "wrong_arguments"),
        (call("add", expression=3), "wrong_arguments"),
        (f"{GOOD}\n{call('gone')}", "unknown_tool"),
    ],
)
def test_a_malformed_call_comes_back_as_plain_content_and_the_row_names_its_defect(said, status):
    found, turns = exchange(says(said), ASKED)
    choice = json.loads(found[0][1])["choices"][0]
    assert turns["call_status"].tolist() == [status] and turns["valid"].tolist() == [status in ("none", "ok")]
    assert turns["completion"].tolist() == [said]
    if status != "ok":
        assert choice["message"]["content"] == said and choice["finish_reason"] == "stop"
        assert "tool_calls" not in choice["message"]


def test_draws_of_one_request_are_rows_with_turns_of_their_own():
    found, turns = exchange(lambda prompt, draw: str(draw.random()), ASKED | {"n": 2, "seed": 7})
    answer = json.loads(found[0][1])
    texts = [choice["message"]["content"] for choice in answer["choices"]]
    assert texts == turns["completion"].tolist() and len(set(texts)) == 2
    assert turns["turn"].tolist() == [0, 1] and turns["depth"].tolist() == [0, 1]
    assert turns["info"].tolist() == [{"ignored": ["seed"]}] * 2
    assert answer["usage"]["completion_tokens"] == sum(map(len, turns["completion_ids"]))


def test_logprobs_are_those_of_the_sampled_tokens():
    found, turns = exchange(says("It is 3"), ASKED | {"logprobs": True, "top_logprobs": 0}, ASKED)
    first, other = (json.loads(text)["choices"][0]["logprobs"] for _, text in found)
    assert np.allclose([token["logprob"] for token in first["content"]], turns["logprobs"][0], rtol=0, atol=0)
    assert "".join(token["token"] for token in first["content"]) == "It is 3<|im_end|>" and other is None
    assert bytes(chain.from_iterable(token["bytes"] for token in first["content"])) == b"It is 3<|im_end|>"


def test_the_bytes_of_tokens_join_where_the_vocabulary_holds_bytes():
    """`é` and the flame are two and four tokens of a byte each; another vocabulary names its bytes by codes."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    made = Tokenizer(models.BPE(vocab={one: place for place, one in enumerate(sorted(alphabet))}, merges=[]))
    made.pre_tokenizer, made.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made)
    text = "aé 🔥\n"
    read = [read_token(tokenizer, token) for token in tokenizer.encode(text)]
    assert bytes(chain.from_iterable(code for _, code in read)) == text.encode() and read[1] == ("\ufffd", [0xC3])
    codes = {"a": 0, **{f"<0x{byte:02X}>": byte + 1 for byte in range(256)}}
    made = Tokenizer(models.BPE(vocab=codes, merges=[], byte_fallback=True))
    made.decoder = decoders.ByteFallback()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made)
    assert [read_token(tokenizer, token) for token in (0, 0xC3 + 1)] == [("a", [97]), ("\ufffd", None)]


def events_of(text):
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


@pytest.mark.parametrize("usage", [True, False])
def test_a_stream_has_its_answer_in_one_piece_with_an_index_and_an_end(usage):
    options = {"stream_options": {"include_usage": True}} if usage else {}
    found, turns = exchange(says(f"{GOOD}\n{call('other')}"), ASKED | {"stream": True} | options)
    *chunks, done = events_of(found[0][1])
    chunks = [json.loads(chunk) for chunk in chunks]
    assert done == "[DONE]" and {chunk["object"] for chunk in chunks} == {"chat.completion.chunk"}
    assert [one["index"] for one in chunks[0]["choices"][0]["delta"]["tool_calls"]] == [0, 1]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks if chunk["choices"]] == [None, "tool_calls"]
    assert [chunk["usage"]["prompt_tokens"] for chunk in chunks if "usage" in chunk] == (
        [len(turns["prompt_ids"][0])] if usage else []
    )


FORM = {"type": "json_schema", "json_schema": {"name": "Sum", "schema": SCHEMA, "strict": True}}


def test_a_schema_for_the_answer_is_a_call_that_is_demanded_and_its_arguments_are_the_content():
    said = call("Sum", expression="1 + 2")
    found, turns = exchange(says(said), {"model": "solver", "messages": USER, "response_format": FORM})
    choice = json.loads(found[0][1])["choices"][0]
    assert json.loads(choice["message"]["content"]) == {"expression": "1 + 2"} and choice["finish_reason"] == "stop"
    assert turns["call_status"].tolist() == ["ok"] and "tool_calls" not in choice["message"]
    assert make_tokenizer().decode(turns["prompt_ids"][0]).endswith(f"{OPENED}Sum")


def test_a_schema_beside_tools_demands_one_of_them():
    found, turns = exchange(says(GOOD), ASKED | {"response_format": FORM})
    assert message_of(json.loads(found[0][1]))["tool_calls"][0]["function"]["name"] == "add"
    assert turns["prompt"][0].endswith("tool_choice: required")


def test_what_clients_send_besides_changes_nothing():
    plain = {"model": "solver", "messages": [{"role": "system", "content": "Add."}, *USER], "tools": [ADD]}
    strict = {"type": "function", "function": ADD["function"] | {"strict": True}}
    parts = [{"type": "text", "text": "1 +"}, {"type": "text", "text": " 2"}]
    told = [{"role": "developer", "content": "Add."}, {"role": "user", "content": parts, "name": None}]
    more = {"messages": told, "tools": [strict], "parallel_tool_calls": False, "store": True, "stream": False,
            "tool_choice": "auto", "response_format": {"type": "text"}, "top_p": 1, "reasoning_effort": "low",
            "max_completion_tokens": None}  # fmt: skip
    found, turns = exchange(says("3"), plain, plain | more)
    assert [status for status, _ in found] == [200, 200] and turns["prompt_ids"][0] == turns["prompt_ids"][1]


def tool_with(parameters):
    return {"tools": [{"type": "function", "function": {"name": "add", "parameters": parameters}}]}


REFUSED = [
    ({"tools": [{}]}, "tools.0: "),
    ({"tools": ["add"]}, "tools.0: "),
    ({"tools": [{"type": "web_search"}]}, "give {'type': 'function'"),
    ({"tools": [{"type": "function", "function": {"name": ""}}]}, "give {'type': 'function'"),
    (tool_with({"type": "obj"}), "the parameters of 'add' are no JSON schema: 'obj' is not valid"),
    (tool_with({"properties": {"a": {"$ref": "#/$defs/no"}}}), "'/$defs/no' does not exist"),
    (tool_with({"items": [{"$ref": "http://127.0.0.1:9/schema.json"}]}), "no JSON schema"),
    (tool_with({"pattern": "("}), "'(' is not a 'regex'"),
    (tool_with(3), "are no JSON schema"),
    (tool_with({"description": "\ud800"}), "a lone surrogate"),
    ({"tool_choice": "always"}, "give 'auto', 'none', 'required' or a function of tools (add, other)"),
    ({"tool_choice": {"function": {"name": "gone"}}}, "give 'auto', 'none', 'required'"),
    ({"tool_choice": ["add"]}, "give 'auto', 'none', 'required'"),
    ({"tools": [], "tool_choice": "required"}, "give 'auto', 'none', 'required'"),
    ({"functions": [{}]}, "pass them as tools"),
    ({"top_logprobs": 3}, "logprobs=True has the sampled tokens"),
    ({"response_format": {"type": "json_object"}}, "give type 'json_schema' with a schema, or a tool"),
    ({"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}}, "with a schema, or a tool"),
    ({"response_format": "json"}, "response_format: "),
    ({"n": 0}, "n: "),
    ({"n": 65}, "n: "),
    ({"stream": "yes"}, "stream: "),
    ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}, "no text"),
    ({"messages": [{"role": "assistant", "tool_calls": [{"id": "x"}]}]}, "a tool call is {'id': 'x'}; give"),
    ({"messages": [{"role": "assistant", "tool_calls": "x"}]}, "tool_calls"),
    ({"messages": [{"role": "tool", "content": None}]}, "content"),
]


def test_what_no_answer_could_stand_for_is_refused_with_the_line_that_helps():
    found, turns = exchange(says("3"), *(ASKED | more for more, _ in REFUSED))
    for (more, sentence), (status, text) in zip(REFUSED, found, strict=True):
        assert status == 400 and sentence in json.loads(text)["error"]["message"], (more, status, text)
    assert turns.empty


def test_arguments_that_cannot_be_compared_are_malformed_and_cost_their_call_alone():
    circle = {"properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": {"$ref": "#/$defs/a"}}}
    found, turns = exchange(says(call("add", a=1)), ASKED | tool_with(circle), ASKED)
    assert [status for status, _ in found] == [200, 200]
    assert turns["call_status"].tolist() == ["wrong_arguments", "wrong_arguments"]


def test_a_slow_schema_of_one_episode_delays_no_other(monkeypatch):
    """The comparison of the slow episode ends after the quick episode, or else after a minute."""
    done, ended, slow = Event(), [], tool_with({"properties": {"expression": {"pattern": "^(1+)+$"}}})

    def fits(schema, *given):
        return "pattern" not in str(schema) or not given or done.wait(60)

    def program(task, endpoint):
        name = task.data["task"]
        for _ in range(1 if name == "slow" else 3):
            endpoint.message("solver", USER, tools=(slow if name == "slow" else ASKED)["tools"])
        ended.append(name)
        if name == "quick":
            done.set()
        return 1.0

    monkeypatch.setattr(tool_calls, "fits", fits)
    lab.play(program, team_of(says(GOOD), "solver"), ["slow", "quick"], max_tokens=400, patience_s=0.01)
    assert ended == ["quick", "slow"]


@pytest.mark.parametrize("levels", [101, 450, 5000])
def test_a_request_that_nests_too_deep_is_refused(levels):
    nested = json.loads("[" * 90 + "]" * 90)
    for _ in range(levels - 90):
        nested = [nested]
    message = {"role": "assistant", "content": "", "tool_calls": nested}
    found = []

    def program(task, endpoint):
        for more in ({"messages": [message]}, tool_with({"enum": nested})):
            with pytest.raises(RequestError) as refused:
                endpoint.ask(ASKED | more)
            found.append((refused.value.status, "deep" in str(refused.value)))
        endpoint("solver", "hello")
        return 1.0

    lab.play(program, team_of(says("3"), "solver"), ["one"], max_tokens=400)
    assert found == [(400, True)] * 2

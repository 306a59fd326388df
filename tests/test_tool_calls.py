"""Tool calls: what is read out of an answer, and how an answer that must be a call begins."""

import json
from functools import partial
from types import SimpleNamespace

import pytest

from mas_lab import tool_calls
from mas_lab.pocket.words import make_tool_tokenizer
from mas_lab.policy import Completion, PolicyError
from mas_lab.tasks.calculator import CALCULATE
from mas_lab.tool_calls import QWEN3, answer_of, opening, read_answer, response_template

TOOLS = [CALCULATE]
SUM = {"a": 30, "op": "+", "b": 4}


def written(function, end="\n</tool_call>"):
    return f"<tool_call>\n{function if isinstance(function, str) else json.dumps(function)}{end}"


def sum_of(name="calculate", **changed):
    return {"name": name, "arguments": SUM | changed}


@pytest.mark.parametrize(("text", "status"), [
    ("34", "none"), (f"<think>\nadd\n</think>\n\nNow {written(sum_of())}", "ok"),
    (written(sum_of()) + written(sum_of(b=5)), "ok"),
    (written('{"name": "calculate", "arguments": {"a": "x", "a": 30, "op": "+", "b": 4}}'), "ok"),
    (written(sum_of(), end=""), "unclosed"), (written(sum_of()) + "\n<tool_call>", "unclosed"),
    (written('{"name": "calculate", "arguments": {}'), "invalid_json"), (written("5"), "invalid_json"),
    (written({"name": 5, "arguments": {}}), "invalid_json"),
    (written(sum_of()) + written(sum_of("compute")), "unknown_tool"),
    (written({"name": "calculate"}), "wrong_arguments"), (written(sum_of(op="*")), "wrong_arguments"),
    (written(sum_of(a="30")), "wrong_arguments"),
])  # fmt: skip
@pytest.mark.parametrize("end", ["<|im_end|>", ""])
def test_each_answer_has_its_status_and_a_malformed_call_is_plain_content(text, status, end):
    message, found = read_answer(text + end, TOOLS)
    assert found == status
    assert ("tool_calls" in message) == (status == "ok")
    assert message.get("reasoning_content", "add") == "add", "told apart from the content"
    if "tool_calls" in message:
        assert message["tool_calls"][0] == {"type": "function", "function": sum_of()}
    if status not in ("ok", "none"):
        assert message == {"role": "assistant", "content": text + end}


EDIT = {"type": "function", "function": {"name": "edit", "parameters": {"properties": {"text": {"type": "string"}}}}}


@pytest.mark.parametrize("text", ["a </tool_call> b", '"</tool_call>\\"'])
def test_the_mark_that_ends_a_call_may_stand_in_an_argument(text):
    call = written({"name": "edit", "arguments": {"text": text}})
    message, status = read_answer(f"<think>{call}</think>Now {call}{call}<|im_end|>", [EDIT])
    assert status == "ok" and [one["function"]["arguments"]["text"] for one in message["tool_calls"]] == [text, text]
    assert message["reasoning_content"] == call and message["content"] == "Now"
    begun = call[: call.index("edit") + 2]
    message, status = read_answer(call.removeprefix(begun), [EDIT], QWEN3, f"<|im_start|>assistant\n{begun}")
    assert status == "ok" and message["tool_calls"][0]["function"]["arguments"] == {"text": text}


@pytest.mark.parametrize(("name", "call"), [
    ("qwen3_5_template", written("<function=edit>\n<parameter=text>\na </tool_call> b\n</parameter>\n</function>")),
    ("lfm2_2_5_template", "<|tool_call_start|>[edit(text='a )]<|tool_call_end|> b')]<|tool_call_end|>"),
    ("gemma4_template", '<|tool_call>call:edit{text:<|"|>a <tool_call|> b<|"|>}<tool_call|><turn|>'),
])  # fmt: skip
def test_the_mark_that_ends_a_call_may_stand_in_an_argument_of_each_form(name, call):
    trl = pytest.importorskip("trl.chat_template_utils", reason="TRL is not installed")
    message, status = read_answer(call, [EDIT], getattr(trl, name))
    (made,) = message["tool_calls"]
    assert status == "ok" and made["function"]["arguments"]["text"].startswith("a ")
    assert made["function"]["arguments"]["text"].endswith(" b")


def deep(levels):
    return f'{{"a": {"[" * levels + "]" * levels}}}'


ANY = {"type": "object"}
SELF, WORDS = {"$ref": "#"}, {"properties": {"a": {"pattern": "^(a+)+$"}}}


@pytest.mark.parametrize(("schema", "arguments", "status"), [
    (ANY, deep(90), "ok"), (ANY, deep(100_000), "invalid_json"), (ANY, '{"a": NaN}', "invalid_json"),
    (ANY, '{"a": 1e999}', "invalid_json"), (ANY, '{"a": "\\ud800"}', "invalid_json"),
    (ANY, f'{{"a": {"9" * 4301}}}', "invalid_json"), (SELF, '{"a": 1}', "wrong_arguments"),
    (WORDS, f'{{"a": "{"a" * 60}b"}}', "wrong_arguments"),
    ({"properties": {"a": {"multipleOf": 0.5}}}, f'{{"a": {"9" * 400}}}', "wrong_arguments"),
])  # fmt: skip
def test_arguments_that_no_reader_or_comparison_ends_are_malformed(monkeypatch, schema, arguments, status):
    if status == "wrong_arguments":
        monkeypatch.setattr(tool_calls, "SECONDS", 0.3 if schema is WORDS else 1.0)
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    assert read_answer(written(f'{{"name": "f", "arguments": {arguments}}}'), [tool])[1] == status


def test_a_tool_whose_parameters_are_no_schema_is_an_error_with_its_name():
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "zork"}}}
    with pytest.raises(ValueError, match="the parameters of the tool 'f' are no JSON schema: 'zork'"):
        read_answer(written('{"name": "f", "arguments": {}}'), [tool])


@pytest.fixture(scope="module")
def tokenizer():
    return make_tool_tokenizer(("3", "0", "4", "+", "calculate", "a", "op", "b"))


@pytest.mark.parametrize(("end", "status"), [("\n</tool_call>", "ok"), ("", "unclosed")])
def test_calls_of_a_completion_have_ids_and_malformed_ones_their_text(tokenizer, end, status):
    text, policy = written(sum_of(), end), SimpleNamespace(tokenizer=tokenizer)
    ids = (*tokenizer(text)["input_ids"], tokenizer.eos_token_id)
    message, found = answer_of(policy, [], Completion(ids, (), text, "eos"), TOOLS, number=3)
    assert found == status
    if status == "ok":
        assert [call["id"] for call in message["tool_calls"]] == ["call_3_0"]
    else:
        assert message["content"] == text


@pytest.mark.parametrize(
    ("choice", "begun"), [("required", '<tool_call>\n{"name": "'), ("calculate", '<tool_call>\n{"name": "calculate')]
)
def test_a_demanded_call_is_begun_as_the_chat_template_writes_it(tokenizer, choice, begun):
    write = partial(tokenizer.apply_chat_template, tokenize=False, tools=TOOLS)
    assert opening(write, [{"role": "user", "content": "30 + 4"}], choice) == begun


def test_a_chat_template_of_a_known_model_gets_its_response_template_of_trl():
    trl = pytest.importorskip("trl.chat_template_utils", reason="TRL is not installed")
    known = make_tool_tokenizer(())
    known.chat_template, known.response_template = trl.qwen3_chat_template, None
    assert set(response_template(known)["fields"]) == set(QWEN3["fields"])


def test_arguments_in_a_form_without_types_get_the_types_of_their_schema():
    trl = pytest.importorskip("trl.chat_template_utils", reason="TRL is not installed")
    pairs = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in SUM.items())
    text = f"<tool_call>\n<function=calculate>\n{pairs}</function>\n</tool_call>"
    message, status = read_answer(text, TOOLS, trl.qwen3_5_template)
    assert status == "ok" and message["tool_calls"][0]["function"] == sum_of()


@pytest.mark.parametrize(("arguments", "found"), [
    ("a=43", {"a": 43}), ("a='43'", None), ("s='43'", {"s": "43"}), ("s=43", None), ("b=True", {"b": True}),
    ("o=None", {"o": None}), ("o='7'", None), ("l=[1, 2]", {"l": [1, 2]}), ("l='[1, 2]'", None),
])  # fmt: skip
def test_a_quoted_value_of_a_python_call_is_a_text(arguments, found):
    trl = pytest.importorskip("trl.chat_template_utils", reason="TRL is not installed")
    types = {"a": "integer", "s": "string", "b": "boolean", "o": ["integer", "null"], "l": "array"}
    schema = {"type": "object", "properties": {name: {"type": kind} for name, kind in types.items()}}
    tool = {"type": "function", "function": {"name": "f", "parameters": schema}}
    text = f"<|tool_call_start|>[f({arguments})]<|tool_call_end|><|im_end|>"
    message, status = read_answer(text, [tool], trl.lfm2_2_5_template)
    assert status == ("wrong_arguments" if found is None else "ok")
    assert found is None or message["tool_calls"][0]["function"]["arguments"] == found


def test_a_template_without_calls_and_a_model_that_nothing_can_read_are_refused():
    def write(messages, add_generation_prompt):
        return "".join(message["content"] for message in messages) + ">" * add_generation_prompt

    with pytest.raises(PolicyError, match="writes no tool call where the answer begins"):
        opening(write, [{"role": "user", "content": "30 + 4"}], "required")
    unknown = make_tool_tokenizer(())
    unknown.chat_template, unknown.response_template = "{{ messages }}", None
    with pytest.raises(PolicyError, match=r"set policy\.tokenizer\.response_template"):
        response_template(unknown)

"""OpenAI's responses behind the gateway: the same calls as chat completions, in another form."""

import json
from functools import partial

import pytest
from talking import call, exchange, last, make_tokenizer

from mas_lab.contrib.programs.responses import as_chat

PATH = "/v1/responses"
post_all = partial(exchange, path=PATH)
SCHEMA = {"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]}
ADD = {"type": "function", "name": "add", "description": "A sum.", "parameters": SCHEMA, "strict": True}
ASKED = {"model": "solver", "input": "1 + 2", "instructions": "Add.", "tools": [ADD]}
GOOD = call("add", expression="1 + 2")
CHAT = [{"role": "system", "content": "Add."}, {"role": "user", "content": "1 + 2"}]


def solves(prompt, draw):
    role, text = last(prompt)
    return f"It is {text.split()[0]}" if role == "tool" else f"<think>\nI add.\n</think>\n\n{GOOD}\n{GOOD}"


def says(text):
    return lambda prompt, draw: text


def prompt_of(turns, row=0):
    return make_tokenizer().decode(turns["prompt_ids"][row])


def test_a_response_is_the_chat_completion_of_its_messages_and_tools():
    chat = {"model": "solver", "messages": CHAT, "tools": [{"type": "function", "function": ADD}]}
    _, as_chat = exchange(solves, chat)
    item = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "1 + 2"}]}
    developer = {"role": "developer", "content": "Add."}
    bodies = ASKED, ASKED | {"input": [item]}, ASKED | {"instructions": None, "input": [developer, item]}
    found, turns = post_all(solves, *bodies)
    assert [status for status, _ in found] == [200, 200, 200]
    assert turns["prompt_ids"].tolist() == [as_chat["prompt_ids"][0]] * 3
    answer = json.loads(found[0][1])
    assert [one["type"] for one in answer["output"]] == ["reasoning", "function_call", "function_call"]
    assert answer["output"][1] == {"type": "function_call", "id": "fc_0_0", "call_id": "call_0_0",
                                   "status": "completed", "name": "add",
                                   "arguments": '{"expression": "1 + 2"}'}  # fmt: skip
    assert answer["status"] == "completed" and answer["usage"]["output_tokens"] == len(turns["completion_ids"][0])


def test_items_of_the_history_are_the_message_that_was_sampled():
    def goes_on(answer):
        made = [one for one in answer["output"] if one["type"] == "function_call"]
        made = [one | {"arguments": one["arguments"].replace(" ", "")} for one in made]
        results = [{"type": "function_call_output", "call_id": one["call_id"], "output": "3"} for one in made]
        return ASKED | {"input": [{"role": "user", "content": "1 + 2"}, *made, *results]}

    found, turns = post_all(solves, ASKED, goes_on)
    assert "I add.\n</think>\n\n" + f"{GOOD}\n{GOOD}<|im_end|>" in prompt_of(turns, 1)
    assert prompt_of(turns, 1).count("<tool_response>\n3\n</tool_response>") == 2
    [message] = json.loads(found[1][1])["output"]
    assert message["content"][0]["text"] == "It is 3" and message["role"] == "assistant"


@pytest.mark.parametrize(("ids", "sizes"), [
    (("msg_0", "fc_0_0", "fc_0_1"), [2]), (("msg_0", "fc_1_0", "fc_1_1"), [0, 2]),
    (("msg_0", "fc_0_0", "fc_1_0"), [1, 1]), ((None, "fc_1_0", "fc_1_1"), [2]),
])  # fmt: skip
def test_a_call_joins_the_message_of_its_own_response_alone(ids, sizes):
    """A client that leaves out ids sends a message just before the calls of its response."""
    said = {"type": "message", "id": ids[0], "role": "assistant", "content": "It is 4."}
    thought = {"type": "reasoning", "id": "rs_1", "summary": []}
    made = [{"type": "function_call", "id": name, "call_id": name.replace("fc", "call"), "name": "add",
             "arguments": "{}"} for name in ids[1:]]  # fmt: skip
    found = as_chat({"model": "solver", "input": [said, thought, *made]})["messages"]
    assert [len(message.get("tool_calls", ())) for message in found] == sizes
    assert [message["content"] for message in found] == ["It is 4.", *[""] * (len(sizes) - 1)]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "name": "add"}])
def test_a_choice_demands_a_call(choice):
    found, turns = post_all(says(GOOD), ASKED | {"tool_choice": choice})
    assert prompt_of(turns).rpartition("\n")[2].startswith('{"name": "')
    assert json.loads(found[0][1])["output"][0]["name"] == "add"


def test_a_format_for_the_text_is_a_schema_for_the_answer():
    form = {"format": {"type": "json_schema", "name": "Sum", "schema": SCHEMA, "strict": True}}
    said = call("Sum", expression="1 + 2")
    found, _ = post_all(says(said), {"model": "solver", "input": "1 + 2", "text": form})
    assert json.loads(json.loads(found[0][1])["output"][0]["content"][0]["text"]) == {"expression": "1 + 2"}


def test_a_stream_has_each_text_as_a_delta_and_ends_with_the_response():
    found, _ = post_all(says(f"Now.\n{GOOD}"), ASKED | {"stream": True})
    events = [json.loads(line.removeprefix("data: ")) for line in found[0][1].splitlines() if line.startswith("data: ")]
    names = [line.removeprefix("event: ") for line in found[0][1].splitlines() if line.startswith("event: ")]
    assert names == [event["type"] for event in events] and names[0] == "response.created"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    items = {kind: [one["item"] for one in events if one["type"] == f"response.output_item.{kind}"]
             for kind in ("added", "done")}  # fmt: skip
    deltas = [event["delta"] for event in events if event["type"].endswith(".delta")]
    assert deltas == [items["done"][0]["content"][0]["text"], items["done"][1]["arguments"]]
    assert items["added"][0]["content"] == [] and items["added"][1]["arguments"] == ""
    assert names[-1] == "response.completed" and events[-1]["response"]["output"] == items["done"]


def test_an_answer_that_is_cut_is_incomplete():
    found, turns = post_all(says("a long answer"), ASKED | {"max_output_tokens": 2})
    assert json.loads(found[0][1])["incomplete_details"] == {"reason": "max_output_tokens"}
    assert turns["finish"].tolist() == ["length"]


REFUSED = [
    ({"previous_response_id": "resp_0"}, "previous_response_id is not supported here: leave it out, or use chat"),
    ({"tools": [{"type": "web_search"}]}, "a tool of type 'web_search'; give functions"),
    ({"tools": ["add"]}, "tools.0: "),
    ({"tools": 3}, "tools"),
    ({"input": 3}, "input"),
    ({"input": [3]}, "input"),
    ({"input": [{"type": "item_reference", "id": "x"}]}, "use messages"),
    ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]}, "no text"),
    ({"input": [{"role": "user", "content": ["x"]}]}, "no text"),
    ({"input": [], "instructions": None}, "messages"),
    ({"text": 3}, "text: "),
    ({"text": {"format": "json"}}, "text.format: "),
    ({"text": {"format": {"type": "json_object"}}}, "give type 'json_schema'"),
    ({"tool_choice": "always"}, "give 'auto'"),
    ({"temperature": 0}, "temperature"),
    ({"instructions": 3}, "content"),
    ({"max_output_tokens": "many"}, "max_"),
]


def test_what_no_answer_could_stand_for_is_refused_with_the_line_that_helps():
    found, turns = post_all(says("3"), *(ASKED | more for more, _ in REFUSED), [3])
    for (more, sentence), (status, text) in zip([*REFUSED, ([3], "no JSON object")], found, strict=True):
        assert status == 400 and sentence in json.loads(text)["error"]["message"], (more, status, text)
    assert turns.empty

"""Agents of five frameworks get what the same calls in plain Python get, to the last digit; and their tools run."""

import re
import warnings

import framework_agents as real
import pandas as pd
import plain_agents as plain
import pytest
from talking import call, last, team_of

from mas_lab.contrib import programs

TASKS = [{"problem": "1 + 2", "gold": "3"}, {"problem": "40 + 2", "gold": "42"}, {"problem": "5 + 5", "gold": "10"}]


def solves(prompt, draw):
    """Call the tool, then say its result; now and then a sum is wrong, or its call malformed."""
    role, text = last(prompt)
    if role == "tool":
        return f"It is {text}"
    said = call("calculator", expression=draw.choice([text, text, f"{text} + 1"]))
    return draw.choice([said, said, said, said[:-20]])


def answers(prompt, draw):
    return call("Answer", value=sum(map(int, last(prompt)[1].split("+"))) + draw.randrange(2))


def hands_over(prompt, draw):
    role, _ = last(prompt)
    if "Check it." in prompt:
        return f"{draw.choice(['approve', 'reject'])} {re.findall(r'[0-9]+', prompt)[-1]}"
    return call("transfer_to_checker") if role == "tool" else solves(prompt, draw)


def observes(prompt, draw):
    _, text = last(prompt)
    if text.startswith("Observation:"):
        return call("final_answer", answer=text.split()[-1])
    return call("calculator", expression=draw.choice([text, f"{text} + 1"]).removeprefix("New task:\n"))


def codes(prompt, draw):
    _, text = last(prompt)
    if text.startswith("Observation:"):
        return f"Thought: I know it.\n<code>\nfinal_answer({text.splitlines()[2]})\n</code>"
    asked = draw.choice([text, f"{text} + 1"]).removeprefix("New task:\n")
    return f"Thought: I work it out.\n<code>\nprint(calculator(expression={asked!r}))\n</code>"


def results(prompt, draw):
    role, text = last(prompt)
    if role == "tool":
        return call("final_result", value=int(text))
    return call("calculator", expression=draw.choice([text, f"{text} + 1"]))


CLIENTS = {
    real.openai_sdk: ("openai", plain.langgraph, solves),
    real.langgraph: ("langchain", plain.langgraph, solves),
    real.langgraph_streamed: ("langchain", plain.langgraph, solves),
    real.structured: ("langchain_openai", plain.structured, answers),
    real.structured_by_schema: ("langchain_openai", plain.structured_by_schema, answers),
    real.openai_agents: ("agents", plain.openai_agents, hands_over),
    real.openai_agents_by_chat: ("agents", plain.openai_agents, hands_over),
    real.smolagents_tools: ("smolagents", plain.smolagents_tools, observes),
    real.smolagents_code: ("smolagents", plain.smolagents_code, codes),
    real.pydantic_ai: ("pydantic_ai", plain.pydantic_ai, results),
    real.autogen: ("autogen_agentchat", plain.autogen, solves),
    real.autogen_streamed: ("autogen_agentchat", plain.autogen, solves),
}


def played(program, reply):
    """Return the sorted table of a program, none of whose episodes fails, and what its tools worked out."""
    plain.RAN.clear()
    with warnings.catch_warnings(action="error", category=programs.ProgramWarning):
        team = team_of(reply, *plain.AGENTS)
        turns = programs.play(program, team, TASKS, n=4, seed=1, patience_s=60, max_tokens=200)
    return turns.sort_values(["episode", "depth"], ignore_index=True), sorted(plain.RAN)


@pytest.mark.slow
@pytest.mark.parametrize("program", CLIENTS, ids=lambda program: program.__name__)
def test_a_framework_gets_what_the_same_calls_in_plain_python_get(program):
    package, same, reply = CLIENTS[program]
    pytest.importorskip(package, reason="make clients installs it")
    (turns, ran), (expected, expected_ran) = (played(each, reply) for each in (program, same))
    pd.testing.assert_frame_equal(turns, expected, check_exact=True)
    assert ran == expected_ran and bool(ran) == turns["prompt"].str.contains("calculator").any()
    assert 0 < turns["team_reward"].sum() < len(TASKS) * 4

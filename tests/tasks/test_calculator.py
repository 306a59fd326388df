"""Calculator: a tool that runs, in an environment and behind the gateway."""

import json
import random

import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.contrib import programs
from mas_lab.tasks.calculator import program, value
from mas_lab.tool_calls import as_action

ENV = lab.make_env("calculator")
SUM = {"name": "calculate", "arguments": {"a": 30, "op": "+", "b": 4}}


def stepped(state, text, agent):
    return ENV.step(state, {agent: as_action(ENV, agent, text, 0)})


def called(**changed):
    function = SUM | {"arguments": SUM["arguments"] | changed}
    return f"<tool_call>\n{json.dumps(function)}\n</tool_call>"


def test_a_team_of_two_calls_passes_the_first_answer_on_and_earns_1():
    state = ENV.start(lab.Task("t", {"chain": "30 + 4 - 12"}))
    assert ENV.acting(state) == ("opener",) and ENV.observe(state, "opener")[0]["content"] == "30 + 4"
    step = stepped(state, called(), "opener")
    assert (step.team_reward, step.local_rewards, step.valid) == (0, {"opener": 1.0}, {"opener": True})
    assert not step.done and stepped(step.state, called(), "opener").done  # a second call ends the episode
    *_, said, result = ENV.observe(step.state, "opener")
    assert said["tool_calls"][0]["function"] == SUM
    assert result == {"role": "tool", "tool_call_id": "call_0_0", "content": "34"}
    step = stepped(step.state, "34", "opener")
    assert ENV.acting(step.state) == ("closer",) and step.local_rewards == {"opener": 1.0}
    assert ENV.observe(step.state, "closer") == [{"role": "user", "content": "34 - 12"}]
    step = stepped(stepped(step.state, called(a=34, op="-", b=12), "closer").state, "22", "closer")
    assert (step.team_reward, step.success, step.done) == (1.0, True, True)


@pytest.mark.parametrize(("text", "local", "valid", "done"), [
    (called(b=5), 0.0, True, False), ("34", 1.0, True, False), ("35", 0.0, True, False), ("well", 0.0, False, True),
    (called()[:-13], 0.0, False, True), (called().replace("calculate", "compute"), 0.0, False, True),
])  # fmt: skip
def test_local_reward_is_for_what_leads_to_the_answer(text, local, valid, done):
    step = stepped(ENV.start(lab.Task("t", {"chain": "30 + 4 - 12"})), text, "opener")
    assert (step.local_rewards, step.valid, step.done) == ({"opener": local}, {"opener": valid}, done)


@pytest.mark.parametrize(("changed", "said"), [
    ({"a": 30.0, "self": 5}, "34"), ({"b": -4.0}, "26"), ({"a": 1e300}, "too large"),
    ({"a": int("9" * 4300), "b": int("9" * 4300)}, "too large"),
])  # fmt: skip
def test_what_fits_the_schema_can_be_computed(changed, said):
    step = stepped(ENV.start(ENV.tasks(1, "train", 0)[0]), called(**changed), "opener")
    assert step.state.messages[-1]["content"] == said and step.valid == {"opener": True}


def test_a_faultless_demonstration_solves_every_task():
    env = lab.make_env("calculator", mistakes=0)
    for task in env.tasks(3, "test", seed=0):
        state, done = env.start(task), False
        while not done:
            [agent] = env.acting(state)
            text = env.demonstrate(state, agent, random.Random(0))
            step = env.step(state, {agent: as_action(env, agent, text, 0)})
            state, done = step.state, step.done
        assert step.success and state.first == value(task.data["chain"])


@pytest.fixture(scope="module")
def policy():
    return lab.load_policy("calculator")


def test_the_program_and_the_environment_make_the_same_table(policy):
    """Their draws have other seeds; at this temperature there is one answer."""
    likely = dict.fromkeys(ENV.agents, lab.Sampling(temperature=0.01))
    team, tasks = lab.Team(dict.fromkeys(ENV.agents, policy), sampling=likely), ENV.tasks(6, "train", seed=0)
    own = lab.rollout(ENV, team, tasks)
    played = programs.play(program, team, tasks, max_tokens=ENV.max_tokens)
    columns = ["episode", "depth", "agent", "turn", "prompt", "prompt_ids", "completion_ids", "call_status",
               "team_reward", "success"]  # fmt: skip
    own, played = (table.sort_values(["episode", "depth"], ignore_index=True)[columns] for table in (own, played))
    pd.testing.assert_frame_equal(played, own)
    assert {"ok", "none"} <= set(own["call_status"]) and own["success"].any()


def test_the_inspectors_show_malformed_calls(policy, tmp_path):
    team = lab.Team.shared(policy, ENV.agents)
    turns = lab.RECIPES["dr_mas"].advantages(lab.rollout(ENV, team, ENV.tasks(4, "train", seed=0), lab.episodes(4)))
    table = lab.RewardInspector(turns).table.set_index("agent")
    malformed = ~turns["call_status"].isin(["none", "ok"])
    assert table["malformed"].to_dict() == malformed.groupby(turns["agent"]).mean().to_dict() and malformed.any()
    page = lab.RolloutViewer(turns).to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    assert "tool call: unclosed" in page

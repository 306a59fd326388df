"""The conformance check must catch an env that is broken in one way, and name the place."""

import random
from dataclasses import dataclass, field

import pytest

from mas_lab.check import check_env
from mas_lab.env import EnvError, Step, Task


@dataclass(frozen=True)
class Count:
    """Two agents in turn say a number; the episode ends after each spoke twice."""

    broken: str = ""
    name = "count"
    agents = ("one", "two")
    max_turns = 2
    max_return = 4.0
    pocket = "none"
    max_tokens = 4
    calls: list = field(default_factory=list, init=False, compare=False)

    def tasks(self, n, split, seed):
        first = 0 if self.broken == "leak" else {"train": 0, "test": 10_000}[split]
        numbers = [first + 100 * seed + i for i in range(n)]
        return [Task(f"{split}{numbers[0] if self.broken == 'ids' else i}", {"goal": i}) for i in numbers]

    def start(self, task):
        return {"said": ()} if self.broken != "list" else {"said": []}

    def acting(self, state):
        if self.broken == "stranger":
            return ("three",)
        if self.broken == "mute" and len(state["said"]) == 3:
            return ()
        return (self.agents[len(state["said"]) % 2],)

    def observe(self, state, agent):
        if self.broken == "moody":
            return [{"role": "user", "content": str(random.random())}]
        return "say" if self.broken == "chat" else [{"role": "user", "content": f"{agent}: say a number"}]

    def step(self, state, actions):
        (agent,) = actions
        if self.broken == "impure":
            state["said"] += (agent,)
            said = state["said"]
        elif self.broken == "list":
            state["said"].append(agent)
            said = list(state["said"])
        else:
            said = (*state["said"], agent)
        self.calls.append(agent)
        reward = {"nan": float("nan"), "infinite": float("inf"), "rich": 5.0, "none": None}.get(self.broken, 1.0)
        if self.broken == "counter":
            reward = float(len(self.calls))
        done = len(said) == 4 and self.broken != "endless"
        local = {} if self.broken == "nobody" else {agent: 0.0}
        success = False if self.broken == "lost" else done
        valid = {agent: 1 if self.broken == "flag" else True}
        return Step({"said": said}, reward, local, valid, success, done)


def test_a_good_env_passes_and_the_report_counts():
    report = check_env(Count(), tasks=2).set_index("check")["times"]
    assert report["ends within max_turns"] == 2 * 5 * 4  # tasks, kinds of text, turns
    assert report["return within max_return"] == 2 * 5


BROKEN = {
    "impure": "agent 'one', turn 0: step changed what it was given",
    "list": "agent 'one', turn 0: step changed what it was given",
    "counter": "agent 'one', turn 0: step gave two answers",
    "moody": "agent 'one', turn 0: observe gave two answers",
    "endless": "agent 'one', turn 2: acts again after max_turns=2",
    "mute": "nobody acts after turns",
    "nan": "agent 'one', turn 0: reward team_reward is nan",
    "infinite": "agent 'one', turn 0: reward team_reward is inf",
    "none": "reward team_reward is None",
    "rich": "above max_return=4.0",
    "lost": "without success",
    "nobody": "step.local_rewards has",
    "flag": r"step.valid\[one\] is 1; give a bool",
    "stranger": "agent 'three', turn 0: not in agents",
    "chat": "agent 'one', turn 0: observe gave 'say'; give a list",
    "ids": "has id 'train0' twice",
    "leak": "in both splits",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_env_is_caught_with_its_place(broken):
    with pytest.raises(EnvError, match=f"^env 'count'.*{BROKEN[broken]}"):
        check_env(Count(broken), tasks=2)


def test_a_missing_part_is_named():
    class Half:
        agents, max_turns, max_return = ("one",), 1, 1.0

    with pytest.raises(EnvError, match="env 'Half': `tasks` is missing"):
        check_env(Half())


class Opaque:
    """A state without equality that a step changes: only its pickle tells."""

    def __init__(self, turns=0):
        self.turns = turns


@pytest.mark.parametrize("pure", [True, False])
def test_states_without_equality_are_compared_by_content(pure):
    class Plain(Count):
        agents, max_return = ("one",), 1.0

        def start(self, task):
            return Opaque()

        def acting(self, state):
            return ("one",)

        def step(self, state, actions):
            if not pure:
                state.turns += 1
            return Step(Opaque(state.turns + pure), 1.0, {"one": 0.0}, {"one": True}, True, True)

    if pure:
        check_env(Plain(), tasks=2)
    else:
        with pytest.raises(EnvError, match="step changed what it was given"):
            check_env(Plain(), tasks=2)

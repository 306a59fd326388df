"""The conformance check must catch an env that is broken in one way, and name the place."""

import json
import random
from dataclasses import dataclass, field, replace

import pytest
from scripted import Duel

from mas_lab.check import LONG, check_env
from mas_lab.env import EnvError, Step, Task, transcript


@dataclass(frozen=True)
class Count:
    """Two agents in turn say a number; the episode ends after each spoke twice."""

    broken: str = ""
    name = "count"
    agents = ("one", "two")
    max_turns = 2
    max_return = 4.0
    pocket = "none"
    calls: list = field(default_factory=list, init=False, compare=False)

    @property
    def max_tokens(self):
        return 0 if self.broken == "wordless" else 4

    def tasks(self, n, split, seed):
        first = 0 if self.broken == "leak" else {"train": 0, "test": 10_000}[split]
        numbers = [first + 100 * seed + i for i in range(n)]
        return [Task(f"{split}{numbers[0] if self.broken == 'ids' else i}", {"goal": i}) for i in numbers]

    def start(self, task):
        if self.broken == "start raises":
            raise ZeroDivisionError
        return {"said": ()}

    def acting(self, state):
        if self.broken == "stranger":
            return ("three",)
        if self.broken == "mute" and len(state["said"]) == 3:
            return ()
        return (self.agents[len(state["said"]) % 2],)

    def observe(self, state, agent):
        if self.broken in MESSAGES:
            return [MESSAGES[self.broken]]
        if self.broken == "moody":
            return [{"role": "user", "content": str(random.random())}]
        return "say" if self.broken == "chat" else [{"role": "user", "content": f"{agent}: say a number"}]

    def step(self, state, actions):
        ((agent, text),) = actions.items()
        if "\x00" in text and self.broken == "step raises":
            raise ZeroDivisionError
        if self.broken == "bare":
            return {"reward": 1.0}
        said = (*state["said"], agent)
        if self.broken == "impure":
            state["said"] = said
        self.calls.append(agent)
        reward = {"nan": float("nan"), "rich": 5.0}.get(self.broken, 1.0)
        if self.broken == "counter":
            reward = float(len(self.calls))
        done = len(said) == 4 and self.broken != "endless"
        local = {"nobody": {}, "idle": {"one": 0.0, "two": 1.0}}.get(self.broken, {agent: 0.0})
        success = False if self.broken == "lost" else done
        valid = {agent: 1 if self.broken == "flag" else True}
        info = {"seen": (1, 2)} if self.broken == "tuple" else {}
        return Step({"said": said}, reward, local, valid, success, done, info)


MESSAGES = {
    "role": {"role": "judge", "content": "say"},
    "key": {"role": "user", "content": "say", "names": "x"},
    "silence": {"role": "user", "content": None},
}


def test_a_good_env_passes_and_the_report_counts():
    report = check_env(Count(), tasks=2).set_index("check")["times"]
    assert report["ends within max_turns"] == 2 * 5 * 4  # tasks, kinds of text, turns
    assert report["return within max_return"] == 2 * 5


BROKEN = {
    "impure": r"agent 'one', turn 0, text '': step changed .* state = copy.deepcopy\(state\)",
    "counter": "agent 'one', turn 0, text '': step gave two answers",
    "moody": "agent 'one', turn 0: observe gave two answers",
    "endless": "agent 'one', turn 2: acts again after max_turns=2",
    "mute": r"acting gave \(\) after turns .*; name one or more of",
    "nan": "Count.step: team_reward is nan for env 'count', task 'train0', agent 'one', turn 0",
    "rich": "above max_return=4.0",
    "lost": "without success",
    "nobody": "agent 'one' has no local reward or no `valid` for env 'count'",
    "flag": r"valid\['one'\] is 1 for .* give True or False",
    "stranger": r"task 'train0': acting gave \('three',\)",
    "chat": "agent 'one', turn 0: observe gave 'say'; give a list",
    "ids": r"split 'train', seed 0: tasks\(2\) gave 2 tasks with 1 ids; if these are all, pass tasks=1$",
    "leak": "in both splits; .*splits_meet = True",
    "wordless": "max_tokens=0; give an int from 1, or one per agent",
    "bare": "step: it returned dict for env 'count', task 'train0', agent 'one', turn 0",
    "idle": r"step.local_rewards has \['one', 'two'\], but only \['one'\] may be named",
    "tuple": r"info\['seen'\] is \(1, 2\) \(tuple\); use JSON types.*env 'count', task 'train0', agent 'one', turn 0",
    "role": "observe gave {'role': 'judge', 'content': 'say'} has no role",
    "key": "a message has the key 'names'; chat templates take role, content, name",
    "silence": "a message's content is None; give text",
    "start raises": "task 'train0': start failed: ZeroDivisionError",
    "step raises": r"agent 'one', turn 0, text '.x00 .*: step failed: ZeroDivisionError.*; an env answers whatever",
}


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_env_is_caught_with_its_place(broken):
    with pytest.raises(EnvError, match=BROKEN[broken]):
        check_env(Count(broken), tasks=2)


def test_tool_messages_pass_and_few_tasks_may_stand_in_both_splits_where_the_env_says_so():
    call = {"type": "function", "function": {"name": "add", "arguments": {"a": 1}}}

    class Tools(Count):
        splits_meet = True

        def observe(self, state, agent):
            asked = {"role": "assistant", "content": None, "tool_calls": [call]}
            return [asked, {"role": "tool", "name": "add", "tool_call_id": "7", "content": "3"}]

    times = check_env(Tools("leak"), tasks=1).set_index("check")["times"]
    assert times["observe gives chat messages"] == 5 * 4 and "train and test are disjoint" not in times
    assert transcript(Tools().observe({}, "one")) == f"assistant: [{json.dumps(call)}]\ntool add 7: 3"


GAMES = {
    "shared": "team_reward is 1.0 in a competitive env; what an agent earns there is its local reward",
    "poor": "agent 'left': earned 1.0, above max_return=0.5",
    "sore": "success is False, but the agents earned {'left': 1.0, 'right': -1.0}; .*'left' earned most",
}


@pytest.mark.parametrize("broken", GAMES)
def test_a_game_is_judged_by_laws_of_its_own(broken):
    report = check_env(Duel(), tasks=2).set_index("check")["times"]
    assert report["success is the first agent's win"] == 2 * 6 and "success pays" not in report

    class Broken(Duel):
        max_return = 0.5 if broken == "poor" else 1.0

        def step(self, state, actions):
            step = super().step(state, actions)
            changes = {"shared": {"team_reward": 1.0}, "sore": {"success": False}}
            return replace(step, **changes.get(broken, {}))

    with pytest.raises(EnvError, match=GAMES[broken]):
        check_env(Broken(), tasks=4)


class Long(Count):
    """One agent that speaks thirty times; the state is a list."""

    agents, max_turns, max_return, max_tokens = ("one",), 30, 1.0, 4

    def start(self, task):
        return []

    def acting(self, state):
        return ("one",)

    def step(self, state, actions):
        done = len(state) == 29
        return Step([*state, actions["one"]], float(done), {"one": 0.0}, {"one": True}, done, done)


def test_a_purity_that_breaks_late_is_found_and_a_very_long_text_is_said_once():
    heard = []

    class Hears(Long):
        def step(self, state, actions):
            heard.append(len(actions["one"]))
            return super().step(state, actions)

    class Late(Long):
        def step(self, state, actions):
            if len(state) == 24:
                state.append("x")
            return super().step(state, actions)

    check_env(Hears(), tasks=1)
    assert max(heard) == LONG and sum(heard) < 4 * LONG
    with pytest.raises(EnvError, match="turn 24, text '': step changed its argument"):
        check_env(Late(), tasks=1)


class Opaque:
    """A state without equality: only its pickle tells whether a step changed it."""

    turns = 0


def test_states_without_equality_are_compared_by_content():
    class Plain(Long):
        def start(self, task):
            return Opaque()

        def step(self, state, actions):
            return Step(Opaque(), 1.0, {"one": 0.0}, {"one": True}, True, True)

    class Impure(Plain):
        def step(self, state, actions):
            state.turns += 1
            return super().step(state, actions)

    check_env(Plain(), tasks=2)
    with pytest.raises(EnvError, match="step changed its argument"):
        check_env(Impure(), tasks=2)

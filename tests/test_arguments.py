"""Arguments of another type or out of range are refused where they are given, with what to give instead."""

import math

import numpy as np
import pandas as pd
import pytest
import small

import mas_lab as lab
from mas_lab.contrib import programs

ENV, TASKS = small.Relay(), [lab.Task("one", {})]
TEAM = lab.Team.shared(object(), ENV.agents)


def rollout(**changed):
    return lambda: lab.rollout(**{"env": ENV, "team": TEAM, "tasks": TASKS, **changed})


def sampling(**changed):
    return lambda: lab.Sampling(**changed)


def train(**changed):
    return lambda: lab.train(**{"env": ENV, "team": TEAM, "recipe": "at_grpo", "steps": 1, **changed})


@pytest.mark.parametrize(("call", "told"), [
    (sampling(stop=""), "Sampling: stop=('',); give texts that are not empty"),
    (sampling(top_p=0.0), "top_p=0.0; give a share above 0, at most 1"), (sampling(top_p=1.5), "top_p=1.5"),
    (sampling(top_p=math.nan), "top_p=nan"),
    (sampling(top_k=0), "top_k=0 (int); give a whole number or None (1 or more)"), (sampling(top_k=2.5), "top_k=2.5"),
    *((sampling(temperature=wrong), f"temperature={wrong}") for wrong in (math.nan, math.inf, -1.0)),
    (rollout(tasks=4), "rollout: tasks=4 (int); give a list of Task, such as env.tasks("),
    (rollout(plan=8), "rollout: plan=8 (int); give a callable, such as lab.episodes(8)"),
    (rollout(plan=lab.episodes), "give a callable, an instance and not the class: episodes(...)"),
    (train(steps=2.5), "train: steps=2.5 (float); give a whole number or None (0 or more)"),
    (train(sampling=lab.Sampling()), "sampling belongs to the team: team.with_sampling(...)"),
    (train(recipe=lab.RECIPES["grpo"].replace(plan=8)), "train: plan=8 (int)"),
    (lambda: lab.load_policy("plan_path", lr=math.inf), "lr=inf (float); give a number or None (0 or more, not"),
    (lambda: lab.load_base("plan_path", lr=math.inf), "load_base: lr=inf (float); give a number or None (0"),
    (lambda: lab.load_base("plan_path").adapter("a", lr=math.nan), "adapter: lr=nan (float); give a number or None"),
    (lambda: lab.load_policy("plan_path", lora=0), "load_policy: lora=0 (int); give a whole number or None (1 or"),
    (lambda: lab.episodes(2.5), "episodes: n=2.5 (float)"), (lambda: lab.tree(2, pick=lab.mixed), "tree: pick=<class"),
    (lambda: lab.Task(None, {}), "Task: id=None (NoneType); give text"),
    (lambda: lab.check_env("math"), "check_env: env='math' (str); give Env, such as lab.make_env('plan_path')"),
    (lambda: lab.Team(None), "Team: policies=None (NoneType); give a dict of text to Policy, such as {'solver': p"),
    (lambda: lab.Team({}), "Team: it has no agents"),
    (lambda: lab.Team({"solver": "math"}), "agent 'solver': policy='math' (str); give Policy, such as lab.load_"),
    (lambda: lab.running_mean("agent", "a"), "by='agent' must be a tuple of columns, such as ('agent',)"),
    (lambda: lab.clipped(kl="a"), "clipped: kl='a' (str); give a number"),
    (lambda: lab.return_to_go("a"), "return_to_go: gamma='a' (str); give a number (0 or more)"),
    (lambda: programs.play(print, TEAM, 8), "play: tasks=8 (int)"),
    (lambda: lab.load_run(7), "load_run: path=7 (int); give text or a path"),
    (lambda: lab.export("run", "a.txt"), "export: path='a.txt'; a run becomes a zip, so give a name that ends in"),
])  # fmt: skip
def test_a_wrong_argument_is_refused_at_the_door(call, told):
    with pytest.raises((TypeError, ValueError)) as refused:
        call()
    assert told in str(refused.value)


def test_numbers_of_numpy_are_numbers_and_one_stop_string_may_stand_alone():
    assert lab.episodes(np.int64(2)).n == 2 and lab.Sampling(temperature=np.float32(0.5)).top_k is None
    assert lab.Sampling(stop="\n") == lab.Sampling(stop=("\n",)) and lab.Sampling(stop=["a", "b"]).stop == ("a", "b")


@pytest.mark.parametrize(("credit", "told"), [
    (lab.mixed, r"an instance and not the class: mixed\(\.\.\.\)"),
    (lambda turns: turns["nothing"], r"group: credit <.*> failed in step 3: KeyError: 'nothing'"),
])  # fmt: skip
def test_what_is_no_credit_and_what_is_no_column_is_named(credit, told):
    row = {"step": 3, "task": "t", "episode": "e", "agent": "solver", "turn": 0, "team_reward": 1.0}
    turns = pd.DataFrame([row, {**row, "turn": 1}])
    with pytest.raises(ValueError, match=told):
        lab.group(turns, by="task", credit=credit)
    with pytest.raises(lab.TableError, match="column 'agnet' is missing; did you mean 'agent'"):
        lab.group(turns, by=("task", "agnet"), credit=lab.mixed())

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
    (sampling(stop=(7,)), "stop=(7,) (tuple); give a list of text"),
    (sampling(top_p=0.0), "top_p=0.0; give a share above 0, at most 1"), (sampling(top_p=1.5), "top_p=1.5"),
    (sampling(top_p=math.nan), "top_p=nan"),
    (sampling(top_k=0), "top_k=0 (int); give a whole number or None (1 or more)"), (sampling(top_k=2.5), "top_k=2.5"),
    *((sampling(temperature=wrong), f"temperature={wrong}") for wrong in (math.nan, math.inf, -1.0)),
    (rollout(tasks=4), "rollout: tasks=4 (int); give a list of Task, such as env.tasks("),
    (rollout(tasks=["math"]), "rollout: tasks=['math'] (list); give a list of Task"),
    (rollout(plan=8), "rollout: plan=8 (int); give a callable, such as lab.episodes(8)"),
    (rollout(plan=lab.episodes), "give a callable, an instance and not the class: episodes(...)"),
    (rollout(env=TEAM, team=ENV), "rollout: env=Team("),
    (rollout(seed="a"), "rollout: seed='a' (str); give a whole number"),
    (train(env="math"), "train: env='math' (str); give Env, such as lab.make_env("),
    (train(steps=2.5), "train: steps=2.5 (float); give a whole number or None (0 or more)"),
    (train(tasks=TASKS), "(list); give a whole number (1 or more)"),
    (train(sampling=lab.Sampling()), "sampling belongs to the team: team.with_sampling(...)"),
    (train(recipe=lab.RECIPES["grpo"].replace(plan=8)), "train: plan=8 (int)"),
    (lambda: lab.load_policy("plan_path", lr=-1e-3), "load_policy: lr=-0.001 (float); give a number or None (0 or"),
    (lambda: lab.load_policy("plan_path", lr=math.inf), "lr=inf (float); give a number or None (0 or more, not"),
    (lambda: lab.load_base("plan_path", lr=math.inf), "load_base: lr=inf (float); give a number or None (0"),
    (lambda: lab.load_base("plan_path").adapter("a", lr=math.nan), "adapter: lr=nan (float); give a number or None"),
    (lambda: lab.return_to_go(gamma=math.inf), "return_to_go: gamma=inf (float)"),
    (lambda: lab.load_policy("plan_path", lr="1e-3"), "load_policy: lr='1e-3' (str); give a number"),
    (lambda: lab.load_policy("plan_path", lora=0), "load_policy: lora=0 (int); give a whole number or None (1 or"),
    (lambda: lab.episodes("4"), "episodes: n='4' (str); give a whole number (1 or more)"),
    (lambda: lab.episodes(2.5), "episodes: n=2.5 (float)"), (lambda: lab.tree(2, pick=lab.mixed), "tree: pick=<class"),
    (lambda: lab.Task(None, {}), "Task: id=None (NoneType); give text"),
    (lambda: lab.check_env(ENV, tasks="a"), "check_env: tasks='a' (str); give a whole number"),
    (lambda: lab.check_env(small.Relay), "give Env, an instance and not the class: Relay(...)"),
    (lambda: lab.check_env("math"), "check_env: env='math' (str); give Env, such as lab.make_env('plan_path')"),
    (lambda: lab.Team(None), "Team: policies=None (NoneType); give a dict of text to Policy, such as {'solver': p"),
    (lambda: lab.Team({}), "Team: it has no agents"),
    (lambda: lab.Team({"solver": "math"}), "agent 'solver': policy='math' (str); give Policy, such as lab.load_"),
    (lambda: lab.Team.shared(object(), "solver"), "agents='solver' (str); give a list of text, such as env.agents"),
    (lambda: lab.Team(object()), "(object); give a dict of text to Policy, such as {'solver': policy}"),
    (lambda: lab.running_mean("agent", "a"), "by='agent' must be a tuple of columns, such as ('agent',)"),
    (lambda: lab.running_mean(3), "running_mean: by=3 (int); give a list of text"),
    (lambda: lab.running_mean(decay="a"), "running_mean: decay='a' (str); give a number"),
    (lambda: lab.clipped("a"), "clipped: low='a' (str); give a number"),
    (lambda: lab.clipped(kl="a"), "clipped: kl='a' (str); give a number"),
    (lambda: lab.return_to_go("a"), "return_to_go: gamma='a' (str); give a number (0 or more)"),
    (lambda: lab.mixed("a"), "mixed: alpha='a' (str); give a number"),
    (lambda: lab.episode_return("a"), "episode_return: invalid='a' (str); give a number"),
    (lambda: lab.course.glossary(3), "glossary: words=3 (int); give text"),
    (lambda: lab.make_env("math", max_turns=2.5), "math: max_turns=2.5 (float); give a whole number"),
    (lambda: programs.play(print, TEAM, 8), "play: tasks=8 (int)"),
    (lambda: lab.set_threads(1.5), "set_threads: n=1.5 (float); give a whole number"),
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


def test_a_column_with_a_typo_is_recognised(turns):
    with pytest.raises(lab.TableError, match="column 'agnet' is missing; did you mean 'agent'"):
        lab.group(turns, by=("task", "agnet"), credit=lab.mixed())


@pytest.mark.parametrize(("credit", "told"), [
    ("mixed", r"group: credit='mixed' \(str\); give a callable, such as lab\.episode_return\(\)"),
    (lab.mixed, r"an instance and not the class: mixed\(\.\.\.\)"),
    (lambda turns: turns["nothing"], r"group: credit <.*> failed in step 3: KeyError: 'nothing'"),
])  # fmt: skip
def test_what_is_no_credit_is_named(credit, told, turns):
    with pytest.raises(ValueError, match=told):
        lab.group(turns, by="task", credit=credit)


@pytest.fixture
def turns():
    row = {"step": 3, "task": "t", "episode": "e", "agent": "solver", "turn": 0, "team_reward": 1.0}
    return pd.DataFrame([row, {**row, "turn": 1}])

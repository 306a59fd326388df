"""The registry of envs, and envs as plain data."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from mas_lab.env import Env, spec
from mas_lab.tasks import ENVS, make_env


@pytest.mark.parametrize("name", sorted(ENVS))
def test_every_env_keeps_the_contract_and_round_trips_as_data(name):
    env = make_env(name)
    assert isinstance(env, Env)
    assert make_env(**spec(env)) == env


@pytest.mark.parametrize("name", ["plan_path", "math", "tldr"])
def test_a_published_task_has_its_published_rewards_and_a_single_agent(name):
    env = make_env(name, rewards="published", single_agent=True)
    assert isinstance(env, Env) and env.agents == ("solo",)
    assert spec(env)["rewards"] == "published" and make_env(**spec(env)) == env


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'chess'; known are: plan_path, .*math, .*tldr"):
        make_env("chess")


def test_an_option_that_an_env_lacks_is_refused_with_its_options():
    make_env("tldr", n_agents=None)  # a standard option at its default
    with pytest.raises(ValueError, match="no option walls; its options are: max_turns, mistakes, n_agents"):
        make_env("plan_path", walls=3)
    with pytest.raises(ValueError, match="'tldr' has no option n_agents"):
        make_env("tldr", n_agents=4)


def test_an_env_of_ones_own_is_told_by_its_class_and_options():
    @dataclass(frozen=True)
    class Mine:
        words: tuple[str, ...] = ("a", "b")
        inner: Env = field(default_factory=lambda: make_env("ladder", n_agents=2))
        read: Callable = json.loads

    told = {"words": ["a", "b"], "inner": {"is": "mas_lab.tasks.ladder:Ladder", "n_agents": 2}, "read": "json:loads"}
    name = f"{__name__}:test_an_env_of_ones_own_is_told_by_its_class_and_options.<locals>.Mine"
    assert spec(Mine()) == {"name": name, **told} and json.loads(json.dumps(spec(Mine()))) == spec(Mine())


def test_one_that_is_no_dataclass_is_told_by_its_class_alone():
    class Plain:
        name = "plain"

    told = spec(Plain())
    assert set(told) == {"name"} and told["name"].startswith(f"{__name__}:") and told["name"].endswith(".Plain")

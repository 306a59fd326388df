"""The registry of envs, and envs as plain data."""

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
    with pytest.raises(ValueError, match="'chess'; known are: plan_path, math, tldr"):
        make_env("chess")


def test_an_unknown_option_names_the_env_and_its_options():
    with pytest.raises(ValueError, match="no option walls; its options are: max_turns, mistakes, n_agents"):
        make_env("plan_path", walls=3)


def test_a_standard_option_that_an_env_lacks_is_refused_unless_it_is_the_default():
    make_env("tldr", n_agents=None)
    with pytest.raises(ValueError, match="'tldr' has no option n_agents"):
        make_env("tldr", n_agents=4)


def test_a_users_env_joins_the_registry(monkeypatch):
    monkeypatch.setitem(ENVS, "mine", ENVS["plan_path"])
    assert make_env("mine", size=4).side == 4

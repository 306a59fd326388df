"""The ladder: protocol, rewards by hand, and that a pocket model plays it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mas_lab.check.env import check_env
from mas_lab.display.svg_rules import validate_svg
from mas_lab.env import EnvError, Task, spec
from mas_lab.paths import data_dir
from mas_lab.tasks import make_env
from mas_lab.tasks.ladder import Ladder

PROBLEMS = ["9 - 7 * 5 + 7 - 2", "1 + 1 + 1 + 1 + 1", "2 * 2 * 2 * 2 * 2", "0 - 1 + 0 - 0 + 0"]  # 5, 5, 2, 9
RIGHT = ["2 0 7 5 answer 5", "answer 5", "answer 2", "9 9 9 9 answer 9"]


def climb(*texts):
    """(agent, step) of an episode of four stages; each text is said by whoever is to act."""
    env = Ladder(n_agents=4)
    state, steps = env.start(Task("t", {"problems": PROBLEMS})), []
    for text in texts:
        (agent,) = env.acting(state)
        steps.append((agent, env.step(state, {agent: text})))
        state = steps[-1][1].state
    return steps


def earned(steps):
    return [(agent, step.team_reward, step.local_rewards[agent], step.done) for agent, step in steps]


def test_the_top_pays_everything():
    steps = climb(*RIGHT)
    assert earned(steps) == [
        ("stage_1", 0.0, 1.0, False),
        ("stage_2", 0.0, 1.0, False),
        ("stage_3", 0.0, 1.0, False),
        ("stage_4", 1.0, 1.0, True),
    ]
    assert [step.success for _, step in steps] == [False, False, False, True]
    assert Ladder(n_agents=4).acting(steps[-1][1].state) == ()


def test_the_first_wrong_answer_ends_it_and_pays_the_share_passed():
    assert earned(climb(RIGHT[0], RIGHT[1], "answer 3"))[-1] == ("stage_3", 0.5, 0.0, True)
    assert earned(climb(RIGHT[0], RIGHT[1], RIGHT[2], "answer 0"))[-1] == ("stage_4", 0.75, 0.0, True)
    assert earned(climb("answer 4")) == [("stage_1", 0.0, 0.0, True)]


def test_what_cannot_be_read_is_invalid_and_wrong():
    [(agent, step)] = climb("five")
    assert (step.valid, step.done, step.success, step.team_reward) == ({agent: False}, True, False, 0.0)


def test_each_stage_hears_its_own_chain_alone():
    env, steps = Ladder(n_agents=4), climb(RIGHT[0])
    assert env.observe(steps[0][1].state, "stage_2") == [{"role": "user", "content": f"solve {PROBLEMS[1]}"}]


@pytest.mark.parametrize("n_agents", [None, 2, 8])
def test_the_contract_holds(n_agents):
    env = make_env("ladder", n_agents=n_agents)
    assert env.agents == tuple(f"stage_{number}" for number in range(1, (n_agents or 8) + 1))
    assert make_env(**spec(env)) == env
    check_env(env, tasks=2)


@pytest.mark.parametrize("n_agents", [1, 9, 2.5, True])
def test_a_ladder_has_two_to_eight_stages(n_agents):
    with pytest.raises(ValueError, match=f"ladder: n_agents={n_agents}; use 2 to 8"):
        make_env("ladder", n_agents=n_agents)


def test_tasks_are_as_many_chains_as_stages_and_splits_share_none():
    env = Ladder()
    found = {split: [chain for task in env.tasks(100, split, 3) for chain in task.data["problems"]] for split in
             ("train", "test")}  # fmt: skip
    assert all(len(chains) == len(set(chains)) == 800 for chains in found.values())
    assert not set(found["train"]) & set(found["test"])
    assert env.tasks(30, "train", 1)[:10] == env.tasks(10, "train", 1) != env.tasks(10, "train", 2)
    with pytest.raises(EnvError, match="ladder: split='dev'"):
        env.tasks(1, "dev", 0)


@given(st.integers(0, 10**6), st.integers(2, 8), st.randoms(use_true_random=False))
def test_whatever_is_said_the_return_is_the_share_of_right_answers(seed, n_agents, rng):
    env = Ladder(n_agents=n_agents)
    (task,) = env.tasks(1, "train", seed)
    state, done, total, right = env.start(task), False, 0.0, 0.0
    while not done:
        (agent,) = env.acting(state)
        step = env.step(state, {agent: env.demonstrate(state, agent, rng)})
        state, done, total, right = step.state, step.done, total + step.team_reward, right + step.local_rewards[agent]
    assert total == right / n_agents
    assert step.success == (right == n_agents)


def test_the_pocket_model_knows_every_word():
    from transformers import AutoTokenizer

    env = Ladder()
    known = AutoTokenizer.from_pretrained(data_dir() / "pocket" / env.pocket).get_vocab()
    assert set(env.words) <= set(known)


def test_the_picture_has_a_rung_for_each_stage_and_says_who_fell():
    """Four rungs, 26 pixels apart; the first one is the lowest, at 18 + 4 * 26 - 13 = 109."""
    env = Ladder(n_agents=4)
    [(_, first), (_, second)] = climb(RIGHT[0], "answer 1")
    states = env.start(Task("t", {"problems": PROBLEMS})), first.state, second.state
    start, passed, fell = map(env.draw, states)
    assert '<text x="72" y="113">9 - 7 * 5 + 7 - 2 = 5</text>' in start and "0 of 4 stages" in start
    assert "M21 109H59" in start and 'cy="116"' in start  # on the ground
    assert 'd="M21 109H59" stroke="#00795a"' in passed and 'cy="100"' in passed
    assert "1 of 4 stages are passed. The next answer was wrong." in fell and 'cy="116"' in fell
    assert "M21 83H59" in passed and "M21 83H59" not in fell and validate_svg(fell) == ""

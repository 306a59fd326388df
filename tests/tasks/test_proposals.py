"""Laws of the tasks in which a proposal is followed by an act: whatever is said, the return depends on the end."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas_lab.tasks import make_env
from mas_lab.tasks.sudoku import solution


def place(state):
    """Return what a proposal leaves as it is."""
    return next(getattr(state, name) for name in ("at", "place", "grid") if hasattr(state, name))


def reached(env, state):
    """Return the share of the way or the digits that is done, and the share that the team is paid for."""
    if env.name == "sudoku":
        right = [digit == wanted for digit, wanted in zip(state.grid, solution(state.clues), strict=True)]
        return 1 - right.count(False) / state.clues.count(0), float(all(right))
    floor, first = (state.maze, state.maze.start) if env.name == "plan_path" else (state.room, state.start)
    away = floor.away.get(place(state))
    done = None if away is None else 1 - away / floor.away[first]
    if env.name == "plan_path":
        return done, done + (away == 0)
    off = len(first[1] - floor.targets)
    return done, 0.0 if away is None else 1 - len(place(state)[1] - floor.targets) / off + (away == 0)


@settings(max_examples=80)
@given(
    name=st.sampled_from(["plan_path", "sokoban", "sokoban boxes", "sudoku"]),
    seed=st.integers(0, 500),
    mistakes=st.sampled_from([0.3, 0.9]),
    rewards=st.sampled_from(["ours", "published"]),
)
def test_the_return_depends_on_the_end_alone(name, seed, mistakes, rewards):
    name, *boxes = name.split()
    options = dict.fromkeys(boxes, 2) | ({"n_agents": 2 + seed % 3} if name == "plan_path" else {})
    env, rng = make_env(name, mistakes=mistakes, rewards=rewards, **options), random.Random(seed)
    state, total, own, done = env.start(env.tasks(1, "train", seed)[0]), 0.0, 0.0, False
    while not done:
        (agent,) = env.acting(state)
        step = env.step(state, {agent: "x" if rng.random() < 0.2 else env.demonstrate(state, agent, rng)})
        if agent == env.agents[-1]:
            own += step.local_rewards[agent]
        else:
            assert step.team_reward == 0 and place(step.state) == place(state)
        assert rewards == "published" or name != "plan_path" or 0 <= step.local_rewards[agent] <= 1
        state, total, done = step.state, total + step.team_reward, step.done
    assert total <= env.max_return
    if rewards == "ours":
        share, paid = reached(env, state)
        assert total == pytest.approx(paid) and (total == pytest.approx(env.max_return)) == step.success
        assert name == "plan_path" or (own < 1 if share is None else own == pytest.approx(share))

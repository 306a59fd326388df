"""The math task: protocol, rewards by hand, and the traps that public code fell into."""

import random
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import in_turn

from mas_lab.env import EnvError, Task
from mas_lab.paths import data_dir
from mas_lab.tasks.math import Math
from mas_lab.tasks.shared import grading, rows

PROBLEM = "9 - 7 * 5 + 7 - 2"  # 2, 0, 7, 5
WORDS = str(data_dir() / "math" / "word_problems.jsonl")


def play(env, *texts, problem=PROBLEM, gold="5"):
    return in_turn(env, Task("t", {"problem": problem, "gold": gold}), texts)


def earned(steps):
    """Return agents, team rewards, local rewards, and ends."""
    found = [(agent, step.team_reward, step.local_rewards[agent], step.done) for agent, step in steps]
    return [list(column) for column in zip(*found, strict=True)]


def test_the_outcome_arrives_once_at_the_approval():
    steps = play(Math(), "2 0 7 5 answer 5", "approve")
    assert earned(steps) == [["solver", "verifier"], [0.0, 1.0], [1.0, 1.0], [False, True]]
    assert [step.success for _, step in steps] == [False, True]
    assert steps[-1][1].state.done and Math().acting(steps[-1][1].state) == ()


def test_the_last_answer_counts_when_the_rounds_run_out():
    steps = play(Math(max_turns=2), "answer 4", "reject", "answer 5", "reject")
    rewards = [0.0, 0.0, 0.0, 1.0], [0.2, 1.0, 1.0, 0.0]
    assert earned(steps) == [["solver", "verifier"] * 2, *rewards, [False, False, False, True]]
    assert sum(step.team_reward for _, step in steps) == Math().max_return


@pytest.mark.parametrize(("size", "text", "ours", "published"), [
    ("pocket", "2 0 7 5 reject", False, False), ("pocket", "", None, None),
    ("words", "I reject it.", False, False), ("words", "approve or reject", None, True),
    ("pocket", "approve 5", None, True), ("pocket", "approve reject", None, True), ("full", "I approve", None, None),
    ("full", "so <verdict> reject </verdict>", False, False), ("full", "<verdict>Approve</verdict>", True, True),
    ("full", "<verdict>reject</verdict> no, <verdict>approve</verdict>", None, True),
])  # fmt: skip
def test_verdicts(size, text, ours, published):
    assert Math(size=size).read_verdict(text) is ours
    assert Math(size=size, rewards="published").read_verdict(text) is published


def test_an_unreadable_verdict_is_invalid_and_approves_as_published_alone():
    step = play(Math(), "answer 5", "fine by me")[-1][1]
    assert step.valid == {"verifier": False} and step.local_rewards == {"verifier": 0.0}
    assert Math().acting(step.state) == ("solver",)
    published = Math(rewards="published")
    step = play(published, "answer 4", "fine by me")[-1][1]
    assert step.done and step.valid == {"verifier": False} and step.team_reward == 0.0
    assert play(published, "answer 5", "reject approve")[-1][1].team_reward == 1.0
    assert not play(Math(), "answer 5", "reject approve")[-1][1].done


@pytest.mark.parametrize(("text", "answer"), [
    ("answer 5", "5"), ("2 0 7 5 answer 5", "5"), ("1 answer 5", "5"), ("answer 5 answer 6", None),
    ("answer 5 5", None), ("answer 15", None), ("5", None), ("approve answer 5", None), ("", None), ("answer ٣", None),
])  # fmt: skip
def test_pocket_answers(text, answer):
    assert Math().read_answer(text) == answer
    step = play(Math(), text)[-1][1]
    assert step.valid == {"solver": answer is not None}
    assert step.local_rewards["solver"] == (1.0 if answer == "5" else 0.2 if answer else 0.0)


def test_who_speaks_and_that_the_fixer_does_only_after_a_rejection():
    env = Math(fixer=True)
    assert [agent for agent, _ in play(env, "answer 5", "approve")] == ["solver", "verifier"]
    steps = play(env, "answer 4", "reject", "answer 5", "approve")
    agents, rewards = ["solver", "verifier", "fixer", "verifier"], ([0.0, 0.0, 0.0, 1.0], [0.2, 1.0, 1.0, 1.0])
    assert earned(steps) == [agents, *rewards, [False, False, False, True]]
    assert play(Math(single_agent=True), "answer 5")[0][1].success and Math().agents == ("solver", "verifier")
    several = play(Math(n_agents=4), "answer 5", "answer 6", "answer 4", "reject", "answer 1")
    assert [agent for agent, _ in several] == ["solver_1", "solver_2", "solver_3", "verifier", "solver_1"]
    assert Math(n_agents=4, fixer=True).agents == ("solver_1", "solver_2", "verifier", "fixer")


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.lists(st.sampled_from(Math().words), max_size=8), st.booleans())
def test_whatever_is_said_the_return_is_the_truth_of_the_last_answer(seed, babble, fixer):
    env, rng = Math(fixer=fixer), random.Random(seed)
    (task,) = env.tasks(1, "train", seed)
    state, total, done = env.start(task), 0.0, False
    while not done:
        (agent,) = env.acting(state)
        text = " ".join(babble) if rng.random() < 0.3 else env.demonstrate(state, agent, rng)
        step = env.step(state, {agent: text})
        assert step == env.step(state, {agent: text})
        state, total, done = step.state, total + step.team_reward, step.done
    assert total == float(state.answers[-1] == task.data["gold"]) == float(step.success)
    assert state.rounds <= env.max_turns


def test_a_drive_is_no_configuration(tmp_path, monkeypatch):
    import datasets

    found = []
    monkeypatch.chdir(tmp_path)
    Path("C:sets").mkdir()
    monkeypatch.setattr(datasets, "load_dataset", lambda *given: found.append(given) or {})
    assert not any(list(rows.read(data, "math")) for data in ("C:sets", r"C:\sets\math:main", "org/math:main"))
    assert found == [("C:sets", None), (r"C:\sets\math", "main"), ("org/math", "main")]


@pytest.mark.slow
def test_an_endless_answer_is_wrong_and_the_next_one_is_graded():
    graded = []
    thread = threading.Thread(target=lambda: graded.append(grading.same_answer("9^{9^{9^9}}", "4", timeout_s=2.0)))
    thread.start()
    thread.join(timeout=30)
    assert graded == [False]
    assert grading.same_answer(r"\frac{8}{2}", "4")


@pytest.mark.parametrize(("dataset", "words"), [
    ("chain_sums", "reasoning_gym has no dataset 'chain_sums'; known are: .*chain_sum,"),
    ("word_sorting", r"math: .* the order counts .* use the env of examples/reasoning_gym_env\.py"),
    ("modulo_grid", r"math: reasoning_gym:modulo_grid, problem .*: nobody can give .* dataset='modulo_grid'"),
    ("graph_color", r"math: reasoning_gym:graph_color, problem .*: nobody can give .* dataset='graph_color'"),
])  # fmt: skip
def test_a_generator_is_refused_if_it_is_unknown_or_its_answers_have_an_order_or_cannot_be_given(dataset, words):
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    with pytest.raises(EnvError, match=words):
        Math(size="full", data=f"reasoning_gym:{dataset}").tasks(8, "train", 0)


@pytest.mark.parametrize("dataset", ["knights_knaves", "polynomial_equations"])
def test_a_generator_is_taken_if_its_lists_have_no_order(dataset):
    pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
    assert Math(size="full", data=f"reasoning_gym:{dataset}").tasks(1, "train", 0)

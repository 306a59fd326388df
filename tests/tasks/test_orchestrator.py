"""Orchestrator and vote: splits, parts and joins, and who decides, by hand."""

import pytest

import mas_lab as lab
from mas_lab.tasks import orchestrator
from mas_lab.tasks.orchestrator import State
from mas_lab.tasks.shared.chains import ProblemState

ENV = lab.make_env("orchestrator")
VOTE = lab.make_env("vote", n_agents=4)
PROBLEM = "3 + 4 + 2 * 5 * 6 + 1"  # 3 + 4 + 60 + 1 = 68; from left to right it would be (7 + 2) * 30 + 1 = 271


def played(said, problem=PROBLEM, gold="8", env=ENV):
    """Return the steps of an episode in which the agents say `said`, a list of texts per step."""
    state, steps = State(problem, gold), []
    for texts in said:
        steps.append(env.step(state, dict(zip(env.acting(state), texts, strict=True))))
        state = steps[-1].state
    return steps


def test_a_right_split_right_parts_and_a_right_sum_earn_the_reward():
    assert orchestrator.value(PROBLEM) == 8 and orchestrator.split(PROBLEM) == ["3 + 4", "2 * 5 * 6 + 1"]
    steps = played([["3 + 4 and 2 * 5 * 6 + 1"], ["7 answer 7", "answer 1"], ["answer 8"]])
    shown = [ENV.observe(steps[0].state, agent)[0]["content"] for agent in ENV.workers]
    assert shown == ["solve 3 + 4", "solve 2 * 5 * 6 + 1"]
    assert [step.team_reward for step in steps] == [0, 0, 1]
    assert [[*step.local_rewards.values()] for step in steps] == [[1], [1, 1], [1]]
    assert steps[-1].success and steps[-1].done


def test_a_split_at_another_plus_gives_a_wrong_answer():
    steps = played([["3 and 4 + 2 * 5 * 6 + 1"], ["answer 3", "answer 1"], ["answer 4"]])
    assert [[*step.local_rewards.values()] for step in steps] == [[0], [1, 1], [1]]
    assert not steps[-1].success and steps[-1].done


@pytest.mark.parametrize("said", ["", "3 + 4 + 2 * 5 * 6 + 1", "3 and 4 and 2 * 5 * 6 + 1", "3 + 4 and 2 * 5",
                                  "3 + 4 + 2 * 5 * 6 + 1 and", "3 + 4 and 2 * 5 * 6 + 1 answer 8"])  # fmt: skip
def test_a_split_that_leaves_out_adds_or_answers_ends_the_episode(said):
    (step,) = played([[said]])
    assert step.done and not step.success and step.team_reward == 0
    assert (step.local_rewards["orchestrator"], step.valid["orchestrator"]) == (0, False)


def test_an_answer_that_cannot_be_read_is_shown_as_none_and_never_summed():
    steps = played([["3 + 4 and 2 * 5 * 6 + 1"], ["7", "answer 1"], ["answer 8"]])
    assert dict(steps[1].valid) == {"worker_1": False, "worker_2": True}
    assert ENV.observe(steps[1].state, "orchestrator")[0]["content"] == "join none 1"
    assert steps[2].local_rewards["orchestrator"] == 0 and steps[2].success


def test_in_full_size_workers_see_their_part_alone():
    env = lab.make_env("orchestrator", size="full")
    (step,) = played([["thinking <part> one? </part>\n<part>two?</part> done"]], "all?", "3", env)
    system, part = env.observe(step.state, "worker_2")
    assert (part["content"], step.local_rewards["orchestrator"]) == ("two?", 1) and "all?" not in system["content"]
    steps = played([["<part>one?</part><part>two?</part>"], ["\\boxed{1}", "?"], ["\\boxed{3.0}"]], "all?", "3", env)
    assert steps[-1].success and dict(steps[1].local_rewards) == {"worker_1": 0, "worker_2": 0}
    said = env.observe(steps[1].state, "orchestrator")[1]["content"]
    assert said == "all?\n\nPart: one?\nAnswer: 1\n\nPart: two?\nAnswer: none"
    for bad in ("<part>one?</part>", "<part>one?</part><part> </part>", "no parts"):
        assert played([[bad]], "all?", "3", env)[0].done


# Vote


@pytest.mark.parametrize(("said", "reward", "decision"), [
    (["answer 4", "answer 4", "answer 3", "answer 9"], 1, "4"), (["answer 3", "answer 4", "answer 3", ""], 0, "3"),
    (["answer 4", "answer 4", "answer 3", "answer 3"], 0, None), (["answer 4", "4", "", "answer"], 1, "4"),
    (["", "4", "answer", "3"], 0, None),
])  # fmt: skip
def test_the_majority_of_readable_answers_decides(said, reward, decision):
    state = ProblemState("3 + 4 * 2", "4")
    step = VOTE.step(state, dict(zip(VOTE.agents, said, strict=True)))
    assert (step.team_reward, step.success, step.info["decision"]) == (reward, bool(reward), decision)
    assert step.done and step.state.done
    assert list(step.local_rewards.values()) == [float(text == "answer 4") for text in said]
    assert list(step.valid.values()) == [text.startswith("answer ") for text in said]


def test_in_full_size_equal_answers_are_one_vote():
    env = lab.make_env("vote", size="full", n_agents=3)
    said = dict(zip(env.agents, ["\\boxed{1/2}", "so \\boxed{0.5}", "\\boxed{7}"], strict=True))
    step = env.step(ProblemState("a half?", "0.5"), said)
    assert step.team_reward == 1 and list(step.local_rewards.values()) == [1, 1, 0]
    env = lab.make_env("vote", single_agent=True)
    assert env.agents == ("solo",) and env.step(ProblemState("1 + 1", "2"), {"solo": "answer 2"}).success

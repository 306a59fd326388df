"""Vote: who decides, by hand."""

import pytest

import mas_lab as lab
from mas_lab.tasks.shared.chains import ProblemState as State

VOTE = lab.make_env("vote", n_agents=4)


@pytest.mark.parametrize(
    ("said", "reward", "decision"),
    [
        (["answer 4", "answer 4", "answer 3", "answer 9"], 1, "4"),
        (["answer 3", "answer 4", "answer 3", "answer 9"], 0, "3"),
        (["answer 4", "answer 4", "answer 3", "answer 3"], 0, None),
        (["answer 4", "4", "", "answer"], 1, "4"),
        (["answer 4", "answer 3", "", ""], 0, None),
        (["", "4", "answer", "3"], 0, None),
    ],
)
def test_the_majority_of_readable_answers_decides(said, reward, decision):
    state = State("3 + 4 * 2", "4")
    step = VOTE.step(state, dict(zip(VOTE.agents, said, strict=True)))
    assert (step.team_reward, step.success, step.info["decision"]) == (reward, bool(reward), decision)
    assert step.done and step.state.done
    assert list(step.local_rewards.values()) == [float(text == "answer 4") for text in said]
    assert list(step.valid.values()) == [text.startswith("answer ") for text in said]


def test_in_full_size_equal_answers_are_one_vote():
    env = lab.make_env("vote", size="full", n_agents=3)
    said = dict(zip(env.agents, ["\\boxed{1/2}", "so \\boxed{0.5}", "\\boxed{7}"], strict=True))
    step = env.step(State("a half?", "0.5"), said)
    assert step.team_reward == 1 and list(step.local_rewards.values()) == [1, 1, 0]
    assert "majority" in env.observe(State("a half?", "0.5"), "voter_1")[0]["content"]


def test_one_agent_alone_is_its_own_majority():
    env = lab.make_env("vote", single_agent=True)
    assert env.agents == ("solo",) and env.step(State("1 + 1", "2"), {"solo": "answer 2"}).success

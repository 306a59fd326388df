"""The glossary says what words mean, in one place; the pages of the glossary and of the course are up to date.

Also the course's games: they keep the laws of games, and pay the winner.
"""

import runpy
from pathlib import Path

import pytest

import mas_lab as lab
from mas_lab.course.games import THROWS, Race, RockPaperScissors, exploitability, winnings
from mas_lab.course.glossary import TERMS

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", ["course", "glossary"])
def test_a_page_of_the_docs_is_written_from_its_source(name):
    page = ROOT / "docs" / f"{name}.md"
    made = runpy.run_path(str(page.with_suffix(".py")))
    assert page.read_text(encoding="utf-8") == made["page"](), f"python docs/{name}.py"


def test_words_are_found_in_any_case():
    shown = lab.course.glossary("Advantage", "flat group")
    assert shown["term"].tolist() == ["advantage", "flat group"]
    assert shown["meaning"].iloc[0].startswith("how much better") and shown["source"].iloc[0] == "arXiv 2402.03300"
    assert "how much better" in shown._repr_html_() and len(lab.course.glossary()) == len(TERMS)
    assert list(TERMS["term"]) == sorted(TERMS["term"], key=str.lower)
    with pytest.raises(KeyError, match="no 'advantages'; like it: advantage"):
        lab.course.glossary("advantages")


RIGHT, WRONG = "1 2 3 4 answer 4", "1 2 3 4 answer 5"


@pytest.mark.parametrize("left, right, won", [(RIGHT, WRONG, 1), (RIGHT, RIGHT, 0), ("?", RIGHT, -1)])
def test_who_alone_is_right_wins(left, right, won):
    env = Race()
    assert lab.check_env(env, tasks=2).set_index("check").loc["success is the first agent's win", "times"] > 0
    state = env.start(lab.Task("t", {"problem": "0 + 1 + 1 + 1 + 1"}))
    assert env.acting(state) == ("left", "right") and env.observe(state, "left") == env.observe(state, "right")
    step = env.step(state, {"left": left, "right": right})
    assert step.local_rewards == {"left": won, "right": -won} and step.team_reward == 0
    assert step.success == (won > 0) and step.done and env.acting(step.state) == ()
    assert step.valid == {"left": left != "?", "right": True}


@pytest.mark.parametrize("left, right, won", [
    ("answer 0", "answer 2", 1), ("answer 1", "answer 9", 1), ("answer 5", "answer 4", 1), ("answer 3", "answer 7", -1),
    ("answer 6", "answer 0", 0), ("?", "answer 2", -1),
])  # fmt: skip
def test_a_throw_beats_the_one_before_it(left, right, won):
    env = RockPaperScissors()
    assert lab.check_env(env, tasks=2).set_index("check").loc["success is the first agent's win", "times"] > 0
    [state, other] = map(env.start, env.tasks(2, "train", 0))
    assert env.observe(state, "left") == env.observe(other, "right"), "every round has one prompt"
    step = env.step(state, {"left": left, "right": right})
    assert step.local_rewards == {"left": won, "right": -won} and step.success == (won > 0) and step.done
    assert step.info["left"] == (None if left == "?" else THROWS[int(left[-1]) % 3])


def test_winnings_and_exploitability_by_hand():
    assert winnings([0.5, 0.3, 0.2], [0.2, 0.5, 0.3]) == pytest.approx(-0.07)
    assert winnings([0, 1, 0], [1, 0, 0]) == 1 and winnings([0.2, 0.5, 0.3], [0.2, 0.5, 0.3]) == pytest.approx(0)
    assert exploitability([0.5, 0.3, 0.2]) == pytest.approx(0.3), "paper wins 0.5 and loses 0.2"
    assert exploitability([0, 0, 1]) == 1 and exploitability([1 / 3] * 3) == pytest.approx(0)

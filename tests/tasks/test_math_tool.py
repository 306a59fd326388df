"""Reasoner and tool user: rewards by hand, every ending, programs that fail, and the holes of the released rule."""

import pytest
from plays import together

from mas_lab.env import Task
from mas_lab.tasks import sandbox
from mas_lab.tasks.math_tool import MathTool
from mas_lab.tasks.shared import programs

PROBLEM = "9 - 7 * 5 + 7 - 2"  # 2, 0, 7, 5
RIGHT = "x = 9 ; x -= 7 ; x *= 5 ; x += 7 ; x -= 2 ; print ( x % 10 )"


def played(*turns, problem=PROBLEM, gold="5", **options):
    """The steps of an episode: in each turn the tool user's text and the reasoner's, or a single agent's."""
    return together(MathTool(**options), Task("t", {"problem": problem, "gold": gold}), turns)


def paid(steps):
    return [(step.team_reward, step.done, step.success) for step in steps]


def fenced(code):
    return f"So:\n```python\n{code}\n```"


def outcome(monkeypatch, **told):
    """Every program comes to this."""
    programs._known.clear()
    monkeypatch.setattr(sandbox, "run", lambda *asked, **limits: sandbox.Outcome(**told))


@pytest.fixture(autouse=True)
def nothing_remembered():
    yield
    programs._known.clear()


def test_a_right_answer_that_both_give_pays_and_ends_it():
    (step,) = played((RIGHT, "2 0 7 5 answer 5"))
    assert paid([step]) == [(1.0, True, True)]
    assert step.local_rewards == {"tool": 1.0, "reasoner": 1.0} and step.valid == {"tool": True, "reasoner": True}
    assert step.info == {"status": "ok", "printed": "5", "right": True, "agreed": True}
    assert MathTool().acting(step.state) == ()


def test_they_go_on_until_they_agree():
    (wrong,) = played(("print ( 4 )", "answer 4"))
    assert paid([wrong]) == [(0.0, True, False)]
    assert wrong.local_rewards == {"tool": pytest.approx(0.2), "reasoner": pytest.approx(0.2)}
    assert not played(("print ( 15 )", "answer 15"))[0].info["agreed"]  # both are unreadable
    steps = played((RIGHT, "answer 4"), ("print ( 3 )", "answer 5"), (RIGHT, "answer 5"))
    assert paid(steps) == [(0.0, False, False), (0.0, False, False), (1.0, True, True)]
    assert [step.local_rewards["tool"] for step in steps] == pytest.approx([1.0, 0.2, 1.0])


@pytest.mark.parametrize(("text", "local", "status", "answer"), [
    ("print ( 5 ) ; print ( 4 )", 0.2, "ok", "4"), ("print ( 15 )", 0.2, "ok", None), ("x = 5", 0.1, "ok", None),
    ("print ( 5 ) ; x = 5 % 0", 0.0, "error", None), ("print ( 5", 0.0, "no program", None),
    ("answer 5", 0.0, "no program", None),
])  # fmt: skip
def test_what_a_program_earns(text, local, status, answer):
    (step,) = played((text, "answer 4"))
    assert step.local_rewards["tool"] == pytest.approx(local)
    assert step.info["status"] == status and step.valid["tool"] == (status != "no program")
    assert step.state.printed == answer and step.info["right"] == (answer == "5")


def test_the_last_line_is_the_answer_and_an_endless_one_is_none(monkeypatch):
    outcome(monkeypatch, status="ok", stdout=f"1\n \n  {'7' * 5000} \n\n")
    (step,) = played((fenced("print(1)"), rf"\boxed{{{'7' * 300}}}"), size="full", gold="7" * 300)
    assert step.info["printed"] == "7" * 300 and step.state.printed is None and not step.done
    outcome(monkeypatch, status="ok", stdout="\ud800\n")
    assert programs.printed("x").line == "?"
    outcome(monkeypatch, status="ok", stdout="110.00000000000001\n")
    assert played((fenced("x"), ""), size="full", gold="110")[0].state.printed == "110"


def test_hole_a_reasoner_alone_earns_the_teams_reward():
    turns = [("print ( 4 )", "answer 5")] * 4
    published, ours = played(*turns, rewards="published"), played(*turns)
    assert paid(published) == [(1.0, False, False)] * 3 + [(1.0, True, True)]
    assert paid(ours) == [(0.0, False, False)] * 3 + [(0.0, True, False)]
    assert (MathTool(rewards="published").max_return, MathTool().max_return) == (4.0, 1.0)


def test_hole_the_answer_in_an_error():
    crash = (fenced('raise ValueError("it is 36")'), r"\boxed{36}")
    (published,) = played(crash, size="full", gold="36", rewards="published")
    (ours,) = played(crash, size="full", gold="36")
    assert published.info["status"] == ours.info["status"] == "error"
    assert published.local_rewards["tool"] == 1.0 and paid([published]) == [(1.0, True, True)]
    assert ours.local_rewards["tool"] == 0.0 and paid([ours]) == [(0.0, False, False)]


def test_a_single_agent_writes_until_an_answer_can_be_read():
    steps = played("print ( x )", "x = 5", RIGHT, single_agent=True)
    assert paid(steps) == [(0.0, False, False), (0.0, False, False), (1.0, True, True)]
    assert [step.local_rewards["solo"] for step in steps] == pytest.approx([0.0, 0.1, 1.0])
    assert paid(played("print ( 4 )", single_agent=True)) == [(0.0, True, False)]
    assert paid(played("", "", single_agent=True, max_turns=2)) == [(0.0, False, False), (0.0, True, False)]

"""Coder and tester: rewards by hand, every ending, what neither is shown, the published rule's holes, both sizes.

Also programs in answers: how values are compared, and what is remembered.
"""

from dataclasses import replace

import pytest
from plays import task_of, together

from mas_lab.env import transcript
from mas_lab.tasks import make_env, sandbox
from mas_lab.tasks.code_tests import CodeTests
from mas_lab.tasks.shared import programs
from mas_lab.tasks.shared.programs import Problem

TOTAL = Problem(
    text="The sum of two numbers.", entry="total", examples="assert total(1, 2) == 3",
    cases="assert total(2, 2) == 4\nassert total(0, 5) == 5\nassert total(-1, 1) == 0\nassert total(7, 8) == 15",
    gold="def total(a, b):\n    return a + b",
)  # fmt: skip
RIGHT = "```python\ndef total(a, b):\n    return a + b\n```"
HALF = "def total(a, b):\n    return a + b if a > 0 else 99"  # right on 2, 2 and 7, 8
CASES = "assert total(4, 5) == 9\nassert total(10, 20) == 30\nassert total(3, 3) == 6"
FULL = CodeTests(size="full")
PUBLISHED = replace(FULL, rewards="published")


def played(*turns, env=FULL, problem=TOTAL):
    """A step for each (code, tests)."""
    return together(env, task_of(problem), turns)


def test_rewards_by_hand():
    (step,) = played((RIGHT, CASES))
    assert step.team_reward == 1 and step.success and step.done and step.info["agreed"]
    assert step.local_rewards == pytest.approx({"coder": 1.0, "tester": 1.0})
    (step,) = played((HALF, CASES))  # agrees with every case, though it is half right
    assert (step.team_reward, step.done, step.success) == (0.5, True, False)
    assert step.local_rewards["coder"] == pytest.approx(0.1 + 0.1 + 0.8 * 0.5)
    (step,) = played((RIGHT, "assert total(4, 5) == 9\nassert total(3, 3) == 7\nassert total(0, 9) == 9"))
    assert step.local_rewards["tester"] == pytest.approx(0.2 + 0.8 * 2 / 3) and not step.done


@pytest.mark.parametrize(("code", "earned", "valid"), [
    ("def total(a, b: return", 0.0, False), ("total = 3", 0.0, False), ("def total(a): return a", 0.1, True),
    ("def total(a, b): return None", 0.2, True),
])  # fmt: skip
def test_what_a_coder_earns_below_a_passing_case(code, earned, valid):
    (step,) = played((code, CASES))
    assert step.local_rewards["coder"] == pytest.approx(earned) and step.valid["coder"] is valid
    assert (step.team_reward, step.done) == (0, False)


@pytest.mark.parametrize(("tests", "earned", "valid"), [
    ("", 0.0, False), ("assert total(1, 2)", 0.0, False),
    ("\n".join(f"assert total({n}, 1) == {n + 1}" for n in range(9)), 0.0, False),
    ("assert total(4, 5) == 9", 0.2 + 0.8 / 3, True),
    ("assert total(4, 5) == 9\nassert total(4, 5) == 8\nassert total(4, 6) == 10", 0.2 + 0.8 / 3, True),
])  # fmt: skip
def test_what_a_tester_earns(tests, earned, valid):
    (step,) = played((RIGHT, tests))
    assert step.local_rewards["tester"] == pytest.approx(earned) and step.valid["tester"] is valid
    assert not step.done


def test_a_return_is_what_the_last_function_is_worth():
    wrong = "assert total(4, 5) == 1\nassert total(3, 3) == 1\nassert total(2, 9) == 1"
    steps = played((HALF, wrong), (RIGHT, wrong), (HALF, wrong))
    assert [step.team_reward for step in steps] == [0.5, 0.5, -0.5]
    assert [step.done for step in steps] == [False, False, True] and not steps[-1].success
    steps = played((HALF, wrong), (HALF, wrong), (RIGHT, wrong))
    assert steps[-1].success and sum(step.team_reward for step in steps) == 1 and not steps[-1].info["agreed"]


@pytest.mark.parametrize("size", ["pocket", "full"])
def test_nothing_hidden_is_ever_shown(size):
    """Other hidden cases and another gold program: the same prompts, turn by turn."""
    env = CodeTests(size=size)
    problem = TOTAL if size == "full" else Problem(**CodeTests().tasks(1, "train", 0)[0].data)
    entry = problem.entry
    other = replace(problem, cases=f"assert {entry}([9]) == 4711", gold=f"def {entry}(*x): return 4711")
    turns = [("def f ( x ) : return x [ ::-1 ]", "assert f ( [ 1 , 2 , 3 ] ) == [ 9 ]")] if size == "pocket" else []
    turns = turns or [(HALF, "assert total(4, 5) == 8\nassert total(-3, 3) == 6")]
    states = [env.start(task_of(one)) for one in (problem, other)]
    for code, tests in [*turns, *turns, ("", "")]:
        for agent in env.agents:
            told = [transcript(env.observe(state, agent)) for state in states]
            assert told[0] == told[1] and "4711" not in told[1]
        states = [env.step(state, {"coder": code, "tester": tests}).state for state in states]


# --- holes of the published rule


SORTS = Problem("Sort a list.", "f", cases="assert f([2, 1]) == [1, 2]", gold="def f(x): return sorted(x)")


@pytest.mark.parametrize(("problem", "code", "tests", "agent", "published", "ours"), [
    # one easy case, written again and again; the example of the problem, copied; cases that doing nothing passes
    (TOTAL, RIGHT, "assert total(1, 1) == 2\n" * 4, "tester", 1.0, 0.2 + 0.8 / 3),
    (TOTAL, RIGHT, TOTAL.examples, "tester", 1.0, 0.2),
    (SORTS, "def f(x): return x", "assert f([]) == []\nassert f([1]) == [1]", "tester", 1.0, 0.2),
    (TOTAL, "x = 1", CASES, "coder", 0.1, 0.0),  # a text without the function builds
])  # fmt: skip
def test_holes_of_the_published_local_rewards(problem, code, tests, agent, published, ours):
    steps = [played((code, tests), env=env, problem=problem)[0] for env in (PUBLISHED, FULL)]
    assert [step.local_rewards[agent] for step in steps] == pytest.approx([published, ours])
    assert [step.done for step in steps] == [agent == "tester", False]


def test_hole_a_program_that_knows_the_examples_by_heart():
    by_heart = "def total(a, b): return {(1, 2): 3}.get((a, b))"
    paid = [played((by_heart, CASES), env=env)[0].team_reward for env in (PUBLISHED, FULL)]
    assert paid == pytest.approx([1 / 5, 0])
    also_hidden = replace(TOTAL, cases=f"{TOTAL.examples}\n{TOTAL.cases}")
    assert played((by_heart, CASES), problem=also_hidden)[0].team_reward == 0


def test_hole_no_case_is_agreement_and_never_agreeing_is_paid_every_turn():
    assert [played((HALF, "nothing"), env=env)[0].done for env in (PUBLISHED, FULL)] == [True, False]
    turns = [(RIGHT, "assert total(1, 1) == 7")] * 3
    published, ours = played(*turns, env=PUBLISHED), played(*turns)
    assert sum(step.team_reward for step in published) == PUBLISHED.max_return == 3
    assert sum(step.team_reward for step in ours) == FULL.max_return == 1


# --- standard input

READS = Problem(
    "Twice a number.", "solve", cases="assert solve('4') == '8'\nassert solve('5\\n') == '10\\n'", stdin=True,
    gold="print(2 * int(input()))",
)  # fmt: skip


def test_what_is_printed_is_compared_word_by_word():
    code = "def solve(text): return str(2 * int(text)) + '\\n'"
    (step,) = played((code,), env=replace(FULL, single_agent=True), problem=READS)
    assert step.success


@pytest.mark.skipif(sandbox.tier() != "pyeryx", reason="monty gives a program no standard input")
def test_a_gold_program_reads_its_standard_input():
    assert READS.confirm([[["3"], "6"], [["3"], "7"], [[3], "6"]]).passed == (True, False, False)


@pytest.mark.parametrize("tests", ["assert f ( [ 1 , 2 ] ) == [ 3 , 4 ]", "assert f ( [ 10 , 2 , 3 ] ) == [ 3 ]"])
def test_a_pocket_case_is_about_three_digits(tests):
    env = make_env("code_tests")
    (task,) = env.tasks(1, "train", 0)
    step = env.step(env.start(task), {"coder": "", "tester": tests})
    assert step.valid["tester"] is False and step.local_rewards["tester"] == 0


# --- programs in answers


@pytest.mark.parametrize(("value", "expected", "equal"), [
    (0.1 + 0.2, 0.3, True), (1, 1.0, True), ([1], (1,), True), (float("nan"), float("nan"), True), (1, True, False),
    (1, 1.00001, False), ([10**400], [float("inf")], False), (10**400, 10**400, True), (123456789.0, 123456790, False),
])  # fmt: skip
def test_values_are_compared_as_in_python_and_floats_within_a_tolerance(value, expected, equal):
    assert programs.same(value, expected) is programs.same(expected, value) is equal


@pytest.mark.parametrize(("printed", "expected", "equal"), [
    ("0.333333333", "0.333333333333", True), ("1.0", "1", True), ("x 2.00001\n", "x 2.0", True),
    ("0.3334", "0.3333", False), ("-1000001", "-1000000", False), ("0.5 1", "0.5", False), ("7", "inf", False),
    ("1000000008.0", "1000000007", False), ("1_000", "1000", False), ("7.000000001", "7", True),
])  # fmt: skip
def test_printed_numbers_are_close_as_in_apps_and_whole_ones_equal(printed, expected, equal):
    assert programs.prints_the_same(printed, expected) is equal


def test_only_what_a_program_decided_itself_is_remembered(monkeypatch):
    ended = [sandbox.Outcome("killed"), sandbox.Outcome("timeout", backstop=True), sandbox.Outcome("timeout")]
    monkeypatch.setattr(programs, "_known", {})
    monkeypatch.setattr(sandbox, "run", lambda *_, **__: ended.pop(0))
    assert [programs.printed("1").outcome.status for _ in range(4)] == ["killed", "timeout", "timeout", "timeout"]
    assert not ended

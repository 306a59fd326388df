"""Two functions whose worth is worked out by hand; the published rule beside ours on the programs that it falls for."""

from dataclasses import replace

import pytest
from plays import task_of, together

from mas_lab.tasks.code_pair import CodePair
from mas_lab.tasks.shared import pair_code
from mas_lab.tasks.shared.programs import Problem

ASKED = [[3, 1, 2], [9, 0, 4], [5, 5, 1], [2, 7, 6]]
PROBLEM = Problem(
    "Sort downwards.",
    "f",
    examples="assert f([1, 2]) == [2, 1]\nassert f([4, 8, 6]) == [8, 6, 4]",
    cases="\n".join(f"assert f({x}) == {sorted(x, reverse=True)}" for x in ASKED),
    gold="def f(x):\n    return sorted(x)[::-1]",
)
SORTS, SEVEN = "def aux(x):\n    return sorted(x)", "def aux(x):\n    return 7"
DEEP = f"def aux(x):\n    return {'-' * 1200}x"
ALONE = "    z = sorted(x)\n    return z[::-1]"
"""The end of a main that needs nobody."""


def f(body):
    return "def f(x):\n" + body


def ours(helper, main, problem=PROBLEM):
    return pair_code.judge(helper, main, problem, problem.hidden)


def published(helper, main, problem=PROBLEM):
    return pair_code.judge_published(helper, main, problem, problem.hidden)


# Levels, by hand


@pytest.mark.parametrize(("helper", "main", "score", "fault"), [
    ("", "", 0.0, "main"),
    (SORTS, "def f(x):\n    print(x)", 0.4, "main"),
    (SORTS, f("    def g():\n        return 1\n    g()"), 0.4, "main"),
    (SORTS, "def f(x)\n    return x", 0.4, "syntax"),
    ("def aux(x:", f(ALONE), 0.6, "syntax"),
    (DEEP, f(ALONE), 0.6, "syntax"), (SORTS, f(f"    y = 1{' + 1' * 1200}\n" + ALONE), 0.4, "syntax"),
    ("", f(ALONE), 0.6 + 0.5 + 1, "aux"),
    (SORTS, f("    return x"), 0.4 + 0.6 + 0.5 + 0.25, "tests"),  # 5 5 1 stands downwards
    (SORTS, f("    return x if x[0] == 2 else aux(5)"), 1.5, "tests"),
    (SORTS, f(ALONE), 2.5, "call"),
    (SORTS, f("    return aux(x)[::-1]"), 4.0, "fine"),
    (f"Here:\n```python\n{SORTS}\n```", f"```python\n{f('    return aux(x)[::-1]')}\n```\nDone.", 4.0, "fine"),
    (SORTS, f("    if x[0] in (3, 9):\n        return x\n    return aux(x)[::-1]"), 1.5 + 0.5 * 2.5, "tests"),
    (SORTS, f("    aux(x)\n" + ALONE), 2.5 - 0.5, "use"),
    ("def aux(x):\n    return sorted(x)[::-1]", f("    return aux(x)"), 3.0, "thin"),
])  # fmt: skip
def test_levels_by_hand(helper, main, score, fault):
    judged = ours(helper, main)
    assert (judged.score, judged.fault) == (pytest.approx(score), fault)


LARGEST = Problem("", "f", cases="assert f(3, 5) == 5\nassert f(9, 2) == 9\nassert f(4, 4) == 4\nassert f(0, 1) == 1")


@pytest.mark.parametrize(("helper", "main", "problem"), [
    (SORTS, f("    y = []\n    for v in aux(x):\n        y.insert(0, v)\n    return y"), PROBLEM),
    (SORTS, f("    y = list(x)\n    y[:] = aux(x)\n    y.reverse()\n    return y"), PROBLEM),
    ("def aux(v):\n    return -v", f("    return sorted(x, key=aux)"), PROBLEM),
    ("def aux(a, b):\n    return a > b",
     f("    y = list(x)\n    for i in range(3):\n        for j in range(2):\n            if not aux(y[j], y[j + 1]):\n"
       "                y[j], y[j + 1] = y[j + 1], y[j]\n    return y"), PROBLEM),
    (SORTS, "def back(y):\n    return aux(y)[::-1]\n\n" + f("    return back(x)"), PROBLEM),
    ("def aux(a, b):\n    return a > b", "def f(a, b):\n    return a if aux(a, b) else b", LARGEST),
    ("def aux(a):\n    return a * 2", "def f(a, b):\n    return max(aux(a), aux(b)) // 2", LARGEST),
])  # fmt: skip
def test_every_honest_way_to_use_it_counts(helper, main, problem):
    judged = ours(helper, main, problem)
    assert (judged.score, judged.fault) == (4.0, "fine")


# What the published rule falls for


@pytest.mark.parametrize(("helper", "main", "theirs", "mine"), [
    # a useless auxiliary under an unused name; a call in a comment, in a text; aux defined once more inside main
    (SEVEN, f("    unused = aux(x)\n" + ALONE), 4.0, 2.0),
    (SEVEN, f("    # aux(x) would help\n" + ALONE), 4.0, 2.5),
    (SEVEN, f("    def aux(y):\n        return sorted(y)\n    y = aux(x)\n    return y[::-1]"), 4.0, 2.0),
    (SEVEN, f("    aux = sorted\n    y = aux(x)\n    return y[::-1]"), 4.0, 2.0),
    # a line is seen as ignoring the result with one space and one character; with another argument it is not
    (SEVEN, f("    aux (x)\n" + ALONE), 3.5, 2.0),
    ("def aux(x, y):\n    return 7", f("    aux (x, x)\n" + ALONE), 4.0, 2.0),
    # a wrapper of three lines; aux that is given more than it needs
    ("def aux(x, n):\n    return sorted(x)[::-1]", f("    n = 1\n    y = aux(list(x), n)\n    return y"), 4.0, 3.0),
    ("def aux(x):\n    return sorted(x)[::-1]", f("    y = aux(x[::-1])\n    z = list(y)\n    return z"), 4.0, 3.0),
])  # fmt: skip
def test_holes_of_the_published_rule(helper, main, theirs, mine):
    assert (published(helper, main).score, ours(helper, main).score) == (theirs, mine)


def test_hole_one_test_with_a_dummy_beats_a_correct_thin_wrapper():
    three = replace(PROBLEM, cases="\n".join(PROBLEM.cases.splitlines()[:3]))
    dummy = SEVEN, f("    unused = aux(x)\n    if x == [3, 1, 2]:\n        return [3, 2, 1]\n    return []")
    thin = "def aux(x):\n    return sorted(x)[::-1]", f("    return aux(x)")
    assert published(*dummy, three).score == pytest.approx(3 + 1 / 3) and published(*thin, three).score == 3.0
    assert ours(*dummy, three).score == pytest.approx(1.5 + (1 - 0.5) / 3) and ours(*thin, three).score == 3.0


@pytest.mark.parametrize(("helper", "main"), [
    # the result decides nothing but whether somebody looks
    (SEVEN, f("    if aux(x) is None:\n        return None\n" + ALONE)),
    (SEVEN, f("    assert aux(x) == 7\n" + ALONE)),
    (SEVEN, f("    n = aux(x) - 7\n    return sorted(x)[::-1] + [0] * n")),
    # it does nothing, or what is done again
    ("def aux(x):\n    return x", f("    return sorted(aux(x))[::-1]")),
    (SORTS, f("    return sorted(aux(x))[::-1]")),
    # it is overwritten before it is used, or used for one test of many
    (SORTS, f("    y = aux(x)\n    y = sorted(x)\n    return y[::-1]")),
    (SORTS, f("    try:\n        y = aux(x)[::-1]\n    except Exception:\n        y = x\n    return sorted(x)[::-1]")),
    # main undoes what aux did
    ("def aux(x):\n    return x[::-1]", f("    x = aux(x)\n    x = x[::-1]\n    x = sorted(x)\n    return x[::-1]")),
    # main brings its own
    (SORTS, "from math import fabs as aux\n" + f("    return sorted(x, key=aux)[::-1]")),
    (SORTS, f("    global aux\n    aux = sorted\n    return aux(x)[::-1]")),
])  # fmt: skip
def test_a_result_that_only_seems_to_matter_is_ignored(helper, main):
    judged = ours(helper, main)
    assert (judged.parts["tests"], judged.fault, judged.score) == (1.0, "use", 2.0)


@pytest.mark.parametrize(("helper", "main"), [
    ("def aux(x):\n    return [v + 1 for v in x]", f("    return sorted([v - 1 for v in aux(x)])[::-1]")),
    ("def aux(x):\n    return sum(x)", f("    assert aux(x) == sum(x)\n" + ALONE)),
    (SORTS, f("    if aux([9, 1]) != [1, 9]:\n        return None\n" + ALONE)),
    ("def aux(x, n):\n    return n or sorted(x)[::-1]", f("    return list(aux(x, 0))")),
])  # fmt: skip
def test_limit_what_is_undone_or_verified_or_copied_looks_like_divided_work(helper, main):
    assert (ours(helper, main).score, ours(helper, main).fault) == (4.0, "fine")


def test_an_auxiliary_for_one_test_in_five_is_not_used():
    many = replace(PROBLEM, cases="\n".join(f"assert f([{i}, 5]) == [5, {i}]" for i in range(5)))
    judged = ours(SORTS, f("    if x[0] == 3:\n        return aux(x)[::-1]\n    return sorted(x)[::-1]"), many)
    assert (judged.fault, judged.score) == ("use", 2.0)


def test_a_helper_cannot_stand_in_for_main():
    judged = ours(f"{SORTS}\n\n{f(ALONE)}", f("    return aux(x)"))
    assert judged.parts["tests"] == 0.0 and judged.score == 1.5


# The env


def played(*turns, problem=PROBLEM, **options):
    return together(CodePair(max_turns=len(turns), **options), task_of(problem), turns)


GOOD = SORTS, f("    return aux(x)[::-1]")


def test_a_text_without_a_function_is_invalid_and_earns_its_writer_nothing():
    (step,) = played((SORTS, "no idea"), size="full")
    assert (step.team_reward, step.success, step.done) == (0.4, False, True)
    assert step.local_rewards == {"helper": 1.0, "main": 0.0} and step.valid == {"helper": True, "main": False}


def test_a_draft_is_judged_whole_and_shown_in_part():
    long = [f"{'Let me think. ' * 300}\n```python\n{code}\n```" for code in GOOD]
    env = CodePair(size="full", max_turns=2)
    step = env.step(env.start(task_of(PROBLEM)), dict(zip(env.agents, long, strict=True)))
    assert (step.team_reward, step.valid) == (4.0, {"helper": True, "main": True})
    told = env.observe(step.state, "main")[1]["content"]
    assert "2 of 2 pass" in told and long[1][:4000] in told and long[1][:4001] not in told


def test_turns_pay_what_was_gained_or_each_anew():
    steps = played((SORTS, f(ALONE)), GOOD, ("", ""), GOOD, GOOD, size="full")
    assert [step.team_reward for step in steps] == [2.5, 1.5, -4.0, 4.0, 0.0]
    assert [step.done for step in steps] == [False] * 4 + [True] and steps[-1].success
    paid = [step.team_reward for step in played(GOOD, GOOD, size="full", rewards="published")]
    assert paid == [3.0, 3.0] and CodePair(max_turns=2, rewards="published").max_return == 8.0  # of one line: a wrapper
    assert CodePair(max_turns=2).max_return == 4.0


def test_in_turn_main_sees_what_the_helper_wrote():
    env = CodePair(size="full", teamwork="in_turn")
    first, last = together(env, task_of(PROBLEM), GOOD)
    assert (first.team_reward, first.done, env.acting(first.state)) == (0.0, False, ("main",))
    assert SORTS in env.observe(first.state, "main")[1]["content"]
    assert (last.team_reward, last.done, last.success) == (4.0, True, True)


def test_a_single_agent_writes_both():
    (step,) = played([f"{SORTS}\n|||\n{GOOD[1]}"], size="full", single_agent=True)
    assert (step.team_reward, step.valid) == (4.0, {"solo": True})
    for text in (SORTS, f"{SORTS} ||| {GOOD[1]} ||| x"):
        (step,) = played([text], size="full", single_agent=True)
        assert (step.team_reward, step.valid, step.local_rewards) == (0.0, {"solo": False}, {"solo": 0.0})


@pytest.mark.parametrize("options", [
    {"size": "full"}, {"size": "full", "feedback": "plain"}, {"size": "full", "teamwork": "in_turn"},
    {"rewards": "published"}, {"size": "full", "single_agent": True},
], ids=str)  # fmt: skip
def test_hidden_tests_stand_in_no_prompt(options):
    """A hidden case that only a number of its own passes, raises, or returns."""
    sentinel = 918273645
    secret = replace(PROBLEM, cases=f"{PROBLEM.cases}\nassert f([{sentinel}]) == [{sentinel}]", gold=f"# {sentinel}")
    drafts = [GOOD, (SORTS, f("    return aux(x)")), (SORTS, f("    raise ValueError(x)")), ("", "")]
    env = CodePair(max_turns=5, **options)
    state, seen = env.start(task_of(secret)), []
    for helper, main in drafts:
        texts = {"helper": helper, "main": main, "solo": f"{helper} ||| {main}"}
        for _ in range(1 + (env.teamwork == "in_turn")):
            seen += [str(env.observe(state, agent)) for agent in env.acting(state)]
            state = env.step(state, {agent: texts[agent] for agent in env.acting(state)}).state
    seen += [str(env.observe(state, agent)) for agent in env.acting(state)]
    assert len(seen) >= 5 and not any(str(sentinel) in prompt for prompt in seen)


def test_a_function_is_given_standard_input_as_one_text():
    echo = Problem("Say it twice.", "solve", cases="assert solve('a') == 'a a\\n'\nassert solve('b c') == 'b c b c'",
                   stdin=True)  # fmt: skip
    judged = ours("def aux(s):\n    return s + ' '", "def solve(s):\n    return aux(s) + s", echo)
    assert (judged.score, judged.fault) == (4.0, "fine")

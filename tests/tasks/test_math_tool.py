"""Reasoner and tool user: rewards by hand, every ending, programs that fail, and the holes of the released rule."""

import importlib.util
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import mas_lab as lab
from mas_lab.check.env import check_env
from mas_lab.env import EnvError, Task, spec
from mas_lab.paths import data_dir
from mas_lab.tasks import make_env, sandbox
from mas_lab.tasks.math_tool import MathTool, written
from mas_lab.tasks.shared import chains, programs
from mas_lab.tasks.shared.rows import SPLITS

PROBLEM = "9 - 7 * 5 + 7 - 2"  # 2, 0, 7, 5
RIGHT = "x = 9 ; x -= 7 ; x *= 5 ; x += 7 ; x -= 2 ; print ( x % 10 )"
WORDS = str(data_dir() / "math" / "word_problems.jsonl")
needs_reasoning_gym = pytest.mark.skipif(
    importlib.util.find_spec("reasoning_gym") is None, reason="reasoning-gym is built by a C compiler: pip install it"
)


def played(*turns, problem=PROBLEM, gold="5", **options):
    """The steps of an episode: in each turn the tool user's text and the reasoner's, or a single agent's."""
    env = MathTool(**options)
    state, steps = env.start(Task("t", {"problem": problem, "gold": gold})), []
    for said in turns:
        said = (said,) if isinstance(said, str) else said
        steps.append(env.step(state, dict(zip(env.acting(state), said, strict=True))))
        state = steps[-1].state
    return steps


def paid(steps):
    return [(step.team_reward, step.done, step.success) for step in steps]


def fenced(code):
    return f"So:\n```python\n{code}\n```"


def outcome(monkeypatch, **told):
    """Every program comes to this."""
    programs.printed.cache_clear()
    monkeypatch.setattr(sandbox, "run", lambda source, **limits: sandbox.Outcome(**told))


@pytest.fixture(autouse=True)
def nothing_remembered():
    yield
    programs.printed.cache_clear()


def test_a_right_answer_that_both_give_pays_and_ends_it():
    (step,) = played((RIGHT, "2 0 7 5 answer 5"))
    assert paid([step]) == [(1.0, True, True)]
    assert step.local_rewards == {"tool": 1.0, "reasoner": 1.0} and step.valid == {"tool": True, "reasoner": True}
    assert step.info == {
        "task": "t", "turn": 0, "agent": "tool", "status": "ok", "printed": "5", "right": True, "agreed": True
    }  # fmt: skip
    assert MathTool().acting(step.state) == ()


def test_a_wrong_answer_that_both_give_ends_it_too():
    (step,) = played(("print ( 4 )", "answer 4"))
    assert paid([step]) == [(0.0, True, False)]
    assert step.local_rewards == {"tool": pytest.approx(0.2), "reasoner": pytest.approx(0.2)}


def test_they_go_on_until_they_agree():
    steps = played((RIGHT, "answer 4"), ("print ( 3 )", "answer 5"), (RIGHT, "answer 5"))
    assert paid(steps) == [(0.0, False, False), (0.0, False, False), (1.0, True, True)]
    assert [step.info["turn"] for step in steps] == [0, 1, 2]
    assert [step.local_rewards["tool"] for step in steps] == pytest.approx([1.0, 0.2, 1.0])


def test_turns_run_out():
    steps = played(*[(RIGHT, "answer 4")] * 2, max_turns=2)
    assert paid(steps) == [(0.0, False, False), (0.0, True, False)]
    assert len(played(*[("", "")] * 4)) == 4 and played(*[("", "")] * 4)[-1].done


@pytest.mark.parametrize(
    ("text", "local", "status", "answer"),
    [
        (RIGHT, 1.0, "ok", "5"),
        ("print ( 5 ) ; print ( 4 )", 0.2, "ok", "4"),
        ("print ( 4 ) ; print ( 5 )", 1.0, "ok", "5"),
        ("print ( 15 )", 0.2, "ok", None),
        ("x = 5", 0.1, "ok", None),
        ("print ( )", 0.1, "ok", None),
        ("print ( 5 ) ; x = 5 % 0", 0.0, "error", None),
        ("print ( x )", 0.0, "error", None),
        ("print ( 5", 0.0, "no program", None),
        ("answer 5", 0.0, "no program", None),
        ("", 0.0, "no program", None),
    ],
)
def test_what_a_program_earns(text, local, status, answer):
    (step,) = played((text, "answer 4"))
    assert step.local_rewards["tool"] == pytest.approx(local)
    assert step.info["status"] == status and step.valid["tool"] == (status != "no program")
    assert step.state.printed == answer and step.info["right"] == (answer == "5")


@pytest.mark.parametrize(
    ("text", "local", "valid"),
    [("answer 5", 1.0, True), ("2 0 7 5 answer 5", 1.0, True), ("answer 4", 0.2, True), ("5", 0.0, False),
     ("answer 5 5", 0.0, False), ("", 0.0, False), (RIGHT, 0.0, False)],
)  # fmt: skip
def test_what_an_answer_earns(text, local, valid):
    (step,) = played(("x = 5", text))
    assert step.local_rewards["reasoner"] == pytest.approx(local) and step.valid["reasoner"] is valid


def test_two_that_cannot_be_read_do_not_agree():
    (step,) = played(("print ( 15 )", "answer 15"))
    assert paid([step]) == [(0.0, False, False)] and not step.info["agreed"]


def test_unsupported_is_not_counted_wrong(monkeypatch):
    outcome(monkeypatch, status="unsupported", stderr="ModuleNotFoundError: No module named 'fractions'", stdout="5\n")
    monkeypatch.setattr(programs, "_warned", set())
    with pytest.warns(
        UserWarning, match=r"math_tool: task t, agent 'tool', turn 0: .*'fractions'.* neither right nor wrong"
    ):
        (step,) = played((RIGHT, "answer 5"))
    assert step.info["right"] is None and step.info["status"] == "unsupported" and not step.done
    assert step.info["unknown"] == [{"agent": "tool", "turn": 0, "error": step.info["error"]}]
    wrong = 0.2  # of a program that prints a wrong answer: it earns no less, and no more, or asking for it would pay
    assert step.local_rewards["tool"] == pytest.approx(wrong) and step.valid["tool"]
    assert MathTool().observe(step.state, "tool")[0]["content"].startswith("printed unsupported answered 5 tool ")


def test_what_the_wall_clock_ended_is_told(monkeypatch):
    outcome(monkeypatch, status="timeout", stderr="TimeoutError: no answer in 20 s", backstop=True)
    (step,) = played((RIGHT, "answer 5"))
    assert step.info["backstop"] is True and step.info["right"] is False
    assert (step.info["task"], step.info["turn"], step.info["agent"]) == ("t", 0, "tool")


def test_a_program_without_end_is_ended(monkeypatch):
    monkeypatch.setitem(programs.LIMITS, "timeout_s", 1)
    (step,) = played((fenced("while True:\n    pass"), r"\boxed{5}"), size="full")
    assert step.info["status"] == "timeout" and (
        sandbox.tier() != "monty" or step.info["backstop"]
    )  # else its fuel may
    assert step.local_rewards["tool"] == 0.0 and not step.done
    assert "It failed (timeout): " in MathTool(size="full").observe(step.state, "tool")[1]["content"]


def test_a_sandbox_is_asked_the_same_thing_once(monkeypatch):
    asked = []
    outcome(monkeypatch, status="ok", stdout="5\n")
    run = sandbox.run
    monkeypatch.setattr(sandbox, "run", lambda source, **limits: asked.append(limits) or run(source))
    played((RIGHT, "answer 4"), (RIGHT, "answer 5"))
    assert asked == [programs.LIMITS]


def test_the_last_line_is_the_answer_and_an_endless_one_is_none(monkeypatch):
    outcome(monkeypatch, status="ok", stdout=f"1\n \n  {'7' * 5000} \n\n")
    (step,) = played((fenced("print(1)"), rf"\boxed{{{'7' * 300}}}"), size="full", gold="7" * 300)
    assert step.info["printed"] == "7" * 300 and step.state.printed is None and not step.done
    outcome(monkeypatch, status="ok", stdout="\ud800\n")
    assert programs.printed("x").line == "?"


def test_hole_a_reasoner_alone_earns_the_teams_reward():
    turns = [("print ( 4 )", "answer 5")] * 4
    published, ours = played(*turns, rewards="published"), played(*turns)
    assert paid(published) == [(1.0, False, False)] * 3 + [(1.0, True, True)]
    assert paid(ours) == [(0.0, False, False)] * 3 + [(0.0, True, False)]


def test_hole_the_longer_they_disagree_the_more_it_pays():
    agreed = sum(step.team_reward for step in played((RIGHT, "answer 5"), rewards="published"))
    apart = sum(step.team_reward for step in played(*[("print ( 4 )", "answer 5")] * 4, rewards="published"))
    assert (agreed, apart) == (1.0, 4.0) and MathTool(rewards="published").max_return == 4.0
    assert MathTool().max_return == 1.0


def test_hole_the_answer_in_an_error():
    crash = (fenced('raise ValueError("it is 36")'), r"\boxed{36}")
    (published,) = played(crash, size="full", gold="36", rewards="published")
    (ours,) = played(crash, size="full", gold="36")
    assert published.info["status"] == ours.info["status"] == "error"
    assert published.local_rewards["tool"] == 1.0 and paid([published]) == [(1.0, True, True)]
    assert ours.local_rewards["tool"] == 0.0 and paid([ours]) == [(0.0, False, False)]


def test_published_pocket_prompts_say_known_words_alone(monkeypatch):
    outcome(monkeypatch, status="error", stderr="SyntaxError: at character 15")
    (step,) = played((RIGHT, "answer 4"), rewards="published")
    assert (
        MathTool(rewards="published").observe(step.state, "tool")[0]["content"].startswith("printed error answered 4 ")
    )


def test_several_candidates_are_no_answer():
    (step,) = played((fenced("print(*range(10))"), r"\boxed{5}"), size="full", gold="5")
    assert not step.info["right"] and not step.done


def test_pocket_prompts_tell_both_answers_of_the_turn_before():
    env = MathTool()
    first = env.start(Task("t", {"problem": PROBLEM, "gold": "5"}))
    assert [env.observe(first, agent)[0]["content"] for agent in env.agents] == [
        f"tool {PROBLEM}",
        f"reasoner {PROBLEM}",
    ]
    cases = {
        "printed 5 answered 4": (RIGHT, "answer 4"),
        "printed error answered none": ("print ( x )", "4"),
        "printed other answered none": ("print ( 15 )", ""),
        "printed nothing answered none": ("x = 5", ""),
        "printed none answered 0": ("x =", "answer 0"),
    }
    for told, said in cases.items():
        (step,) = played(said)
        for agent in env.agents:
            assert env.observe(step.state, agent) == [{"role": "user", "content": f"{told} {agent} {PROBLEM}"}]


def test_full_prompts():
    env = MathTool(size="full")
    first = env.start(Task("t", {"problem": "How many?", "gold": "5"}))
    system, user = env.observe(first, "tool")
    assert "```python" in system["content"] and user == {"role": "user", "content": "How many?"}
    assert r"\boxed{}" in env.observe(first, "reasoner")[0]["content"]
    (step,) = played((fenced("print(1 / 0)"), r"\boxed{4}"), size="full", problem="How many?")
    assert env.observe(step.state, "tool")[1]["content"] == (
        "How many?\n\nYour program of the last turn:\n\n```python\nprint(1 / 0)\n```\n\n"
        "It failed (error): ZeroDivisionError: division by zero\n\nThe reasoner answered: 4"
    )
    assert env.observe(step.state, "reasoner")[1]["content"] == (
        "How many?\n\nIn the last turn you answered: 4\n\nThe tool user's program answered: nothing that can be read"
    )
    (step,) = played(("I cannot.", "four"), size="full", problem="How many?")
    assert env.observe(step.state, "tool")[1]["content"] == (
        "How many?\n\nIn the last turn you wrote no program.\n\nThe reasoner answered: nothing that can be read"
    )


@pytest.mark.parametrize(
    ("code", "boxed", "gold"),
    [
        ("print(36.0)", "36", "36"),
        ("print('1/3')", r"\frac{1}{3}", "1/3"),
        ("print(6 * 6)", r"36 \text{ stamps}", "36"),
    ],
)
def test_full_size_answers_are_compared_by_what_they_mean(code, boxed, gold):
    (step,) = played((fenced(code), rf"so \boxed{{{boxed}}}"), size="full", gold=gold)
    assert paid([step]) == [(1.0, True, True)]


def test_a_single_agent_writes_until_an_answer_can_be_read():
    steps = played("print ( x )", "x = 5", RIGHT, single_agent=True)
    assert paid(steps) == [(0.0, False, False), (0.0, False, False), (1.0, True, True)]
    assert [step.local_rewards["solo"] for step in steps] == pytest.approx([0.0, 0.1, 1.0])
    told = [MathTool(single_agent=True).observe(step.state, "solo")[0]["content"] for step in steps[:2]]
    assert told == [f"printed error solo {PROBLEM}", f"printed nothing solo {PROBLEM}"]
    assert paid(played("print ( 4 )", single_agent=True)) == [(0.0, True, False)]
    assert paid(played("", "", single_agent=True, max_turns=2)) == [(0.0, False, False), (0.0, True, False)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"single_agent": True},
        {"rewards": "published"},
        {"rewards": "published", "single_agent": True},
        {"size": 3, "max_turns": 1},
        {"size": 9},
        {"size": "full", "data": WORDS},
        {"size": "full", "data": WORDS, "single_agent": True},
        {"size": "full", "data": WORDS, "rewards": "published"},
        pytest.param({"size": "full", "data": "reasoning_gym:chain_sum"}, marks=needs_reasoning_gym),
    ],
    ids=str,
)
def test_the_contract_holds(options):
    env = make_env("math_tool", **options)
    assert make_env(**spec(env)) == env
    check_env(env, tasks=2)


@pytest.mark.parametrize(
    "options",
    [{"size": "huge"}, {"size": 1}, {"rewards": "mine"}, {"max_turns": 0}, {"data": "x.jsonl"}, {"mistakes": 2.0}],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(ValueError, match="math_tool: "):
        MathTool(**options)


@given(st.integers(2, 9), st.integers(0, 10**6))
def test_a_program_without_slips_prints_the_value_of_its_chain(digits, seed):
    chain = next(chains.chains(random.Random(seed), digits))
    code = written(chain, random.Random(seed))
    assert programs.printed(code).line == str(chains.value(chain))
    assert len(code.split()) <= MathTool(size=digits).max_tokens["tool"]


spoken = st.lists(st.sampled_from(MathTool().words), max_size=12).map(" ".join) | st.sampled_from(
    [RIGHT, "answer 5", "answer 4", "print ( 4 )"]
)


@given(st.lists(st.tuples(spoken, spoken), min_size=4, max_size=4))
def test_whatever_is_said_the_team_earns_one_for_a_right_answer_agreed_on(turns):
    env = MathTool()
    state, earned = env.start(Task("t", {"problem": PROBLEM, "gold": "5"})), 0.0
    for tool, reasoner in turns:
        step = env.step(state, {"tool": tool, "reasoner": reasoner})
        assert step == env.step(state, {"tool": tool, "reasoner": reasoner})
        state, earned = step.state, earned + step.team_reward
        assert all(0 <= reward <= 1 for reward in step.local_rewards.values())
        if step.done:
            break
    assert step.done and earned == float(step.success)
    assert step.success == (state.printed == state.answer == "5")
    assert (state.turn == 4) or state.printed == state.answer is not None


def test_demonstrations_leave_room():
    rng, env, solved = random.Random(0), MathTool(), []
    for task in env.tasks(200, "train", 0):
        state, done = env.start(task), False
        while not done:
            step = env.step(state, {agent: env.demonstrate(state, agent, rng) for agent in env.agents})
            state, done = step.state, step.done
        solved.append(step.success)
    assert 0.2 < sum(solved) / 200 < 0.6


def test_prompts_and_demonstrations_say_known_words_alone():
    for options in ({}, {"single_agent": True}, {"size": 9}):
        env, rng = MathTool(**options), random.Random(0)
        for task in env.tasks(30, "train", 0):
            state, done = env.start(task), False
            while not done:
                prompts = [env.observe(state, agent)[0]["content"] for agent in env.agents]
                said = {agent: env.demonstrate(state, agent, rng) for agent in env.agents}
                assert set(" ".join([*prompts, *said.values()]).split()) <= set(env.words)
                step = env.step(state, said)
                state, done = step.state, step.done


def test_splits_share_no_problem_and_a_longer_list_begins_with_the_shorter_one():
    found = {s: {t.data["problem"] for n in range(10) for t in MathTool().tasks(50, s, n)} for s in SPLITS}
    assert all(len(one) > 450 for one in found.values())
    assert len(set.union(*found.values())) == sum(map(len, found.values()))
    assert MathTool().tasks(30, "train", 1)[:10] == MathTool().tasks(10, "train", 1)


def test_full_size_reads_what_math_reads(tmp_path):
    path = tmp_path / "rows.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": f"One more.\n#### {n + 1}"} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    tasks = MathTool(size="full", data=str(path)).tasks(20, "train", 0)
    found = {(task.data["problem"], task.data["gold"]) for task in tasks}
    assert len(found) == 20 and found <= {(f"What is {n} + 1?", str(n + 1)) for n in range(40)}
    (tmp_path / "broken.jsonl").write_text('{"question": "why?"}\n')
    with pytest.raises(EnvError, match=r"math_tool: .*broken\.jsonl, line 1: "):
        MathTool(size="full", data=str(tmp_path / "broken.jsonl")).tasks(1, "train", 0)
    with pytest.raises(EnvError, match="Known data sets: POLARIS"):
        MathTool(size="full", data=str(tmp_path / "missing")).tasks(1, "train", 0)


def test_each_shipped_problem_can_be_solved_by_both():
    env = MathTool(size="full", data=WORDS)
    for task in env.tasks(16, "train", 0):
        gold = task.data["gold"]
        said = {"tool": fenced(f"print({gold!r})"), "reasoner": rf"\boxed{{{gold}}}"}
        assert env.step(env.start(task), said).team_reward == 1.0


def test_the_pocket_model_knows_every_word_and_plays_both_forms():
    from transformers import AutoTokenizer

    known = AutoTokenizer.from_pretrained(data_dir() / "pocket" / "math_tool").get_vocab()
    assert set(MathTool().words) <= set(known)
    for env in (MathTool(), MathTool(single_agent=True)):
        team = lab.Team.shared(lab.load_policy("math_tool"), env.agents)
        turns = lab.rollout(env, team, env.tasks(32, "test", 0), lab.episodes(2), seed=0)
        assert turns["valid"].mean() > 0.8 and 0.1 < turns.groupby("episode")["success"].any().mean() < 0.8

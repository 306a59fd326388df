"""The size "words": questions, answers in free text, the teaching tasks and `math` in English, by hand."""

import random
import runpy
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plays import in_turn

from mas_lab.check import check_env
from mas_lab.env import EnvError, Task
from mas_lab.tasks import ENVS, make_env
from mas_lab.tasks.shared import questions
from mas_lab.tasks.shared.rows import SPLITS

IN_WORDS = [name for name in ENVS if "words" in getattr(ENVS[name], "sizes", ())]
STUDIES = Path(__file__).parents[2] / "benchmarks" / "studies" / "settings.py"
SUM, SMALLER = "What is 47 + 35?", "Which is smaller, 47 or 74?"  # 82, 47
STORY = "Tom has 82 apples and gives 31 away. How many are left?"  # 51
SYSTEM = {"role": "system", "content": "Answer with a number."}


def play(env, *texts, **data):
    """Return (agent, team reward, local reward, valid, success, done) of each text, and the last state."""
    steps = in_turn(env, Task("t", data), texts)
    return [(agent, step.team_reward, step.local_rewards[agent], step.valid[agent], step.success, step.done)
            for agent, step in steps], steps[-1][1].state  # fmt: skip


def user(env, state):
    system, said = env.observe(state, env.acting(state)[0])
    assert system["role"] == "system" and said["role"] == "user"
    return said["content"]


@pytest.mark.parametrize(("question", "answer"), [
    ("What is 82 - 47?", 35), ("Which is larger, 47 or 74?", 74), (SMALLER, 47), (STORY, 51),
    ("Anna has 12 eggs and buys 90 more. How many does Anna have now?", 102),
    ("The first answer was 5, which is wrong. " + SUM, 82),
])  # fmt: skip
def test_the_value_of_a_question(question, answer):
    assert questions.value(question) == answer


def test_every_template_is_read_as_what_it_was_drawn_from_and_another_text_is_refused():
    for kind, templates in questions.TEMPLATES.items():
        for template in templates:
            question = template.format(a=47, b=35, name="Tom", things="apples")
            assert questions.parts(question) == (kind, 47, 35)
    assert questions.TEMPLATES.keys() == questions.SHARES.keys() == questions.OPERATIONS.keys()
    with pytest.raises(EnvError, match=r"'How old are you\?' ends with none of the questions in words.toml"):
        questions.value("How old are you?")


@pytest.mark.parametrize(("text", "answer"), [
    ("The answer is 47.", "47"), ("47 + 35 = 82", "82"), ("**82**", "82"), ("$82", "82"), ("-5", "-5"), ("82-35", "35"),
    ("3.5", "3.5"), ("1,000", "1,000"), ("82\n", "82"), ("x82", None), ("", None), ("\u0664\u0667", None),
])  # fmt: skip
def test_an_answer_is_the_last_number_of_a_text(text, answer):
    assert questions.read_number(text) == answer


@settings(max_examples=25)
@given(st.integers(0, 10_000))
def test_nine_of_ten_attempts_are_right_and_the_others_off_by_one_or_ten(seed):
    rng = random.Random(seed)
    question = next(questions.questions(rng))
    attempts = [int(questions.read_number(questions.attempt(question, rng))) for _ in range(200)]
    right = questions.value(question)
    assert {abs(right + off) for off in (-10, -1, 0, 1, 10)} >= set(attempts)
    assert 0.8 < attempts.count(right) / 200 < 0.98
    assert int(questions.read_number(questions.attempt(question, rng, mistakes=0))) == right


@pytest.mark.parametrize("name", IN_WORDS)
def test_no_calculation_is_in_two_splits_and_there_are_many(name):
    env = make_env(name, size="words")
    assert env.max_tokens == 12
    drawn = {split: env.tasks(30, split, 0) for split in SPLITS}
    posed = {split: {questions.calculation(question) for task in tasks
                     for question in task.data.get("problems") or [task.data["problem"]]}
             for split, tasks in drawn.items()}  # fmt: skip
    assert len(set.union(*posed.values())) == sum(map(len, posed.values()))
    assert drawn["test"][:10] == env.tasks(10, "test", 0) != env.tasks(10, "test", 1)
    assert len({task.id for task in env.tasks(100, "test", 2)}) == 100


def test_a_helper_reads_what_the_solver_answered():
    env = make_env("paid_help", size="words")
    assert env.observe(env.start(Task("t", {"problem": SUM})), "solver") == [SYSTEM, {"role": "user", "content": SUM}]
    rows, _ = play(env, "It is 72.", "47 + 35 = 82", problem=SUM)
    assert rows == [("solver", 0, 0, True, False, False), ("helper", 0.2, 1, True, True, True)]
    _, state = play(env, "It is 72.", problem=SUM)
    assert user(env, state) == f"The first answer was 72, which is wrong. {SUM}"
    _, state = play(env, "no idea", problem=SUM)
    assert user(env, state) == f"The first answer was no number, which is wrong. {SUM}"


def test_the_other_teaching_tasks_pay_in_words_as_in_digits():
    both = [SUM, STORY]
    assert play(make_env("ladder", size="words", n_agents=2), "82", "50", problems=both)[0][-1][1] == 0.5
    assert play(make_env("cascade", size="words"), "81", "51", problems=[*both, SUM, STORY])[0][-1][1] == 0.7
    assert [row[1] for row in play(make_env("finisher", size="words"), "82", "0", problem=SUM)[0]] == [0, 0.8]
    stakes = make_env("stakes", size="words")  # the second value ends with 1: the task is high
    assert play(stakes, "82", problems=both)[0] == [("solver", 1, 1, True, True, True)]
    helped, _ = play(stakes, "81", "The answer is 82.", problems=both)
    assert helped[-1][:3] == ("helper", pytest.approx(0.3 - 4 * 0.004), 1)
    assert play(stakes, "82", "47", problems=[SUM, SMALLER])[0][-1] == ("clerk", 1, 1, True, True, True)


@pytest.mark.skipif(not STUDIES.is_file(), reason="the checkout has the studies, the wheel does not")
def test_an_answer_that_ends_with_seven_to_nine_is_checked():
    found = runpy.run_path(str(STUDIES))
    env = found["SpotCheck"](size="words")
    assert check_env(env, tasks=2)["times"].min() > 0
    assert play(env, "82", problem=SUM)[0] == [("solver", 1, 1, True, True, True)]
    rows, _ = play(env, "79", "82", problem=SUM)
    assert rows == [("solver", 0, 0, True, False, False), ("checker", 1, 1, True, True, True)]
    assert play(env, "none", problem=SUM)[0] == [("solver", 0, 0, False, False, True)]


def test_solver_verifier_and_fixer_talk_in_words():
    env = make_env("math", size="words", fixer=True)
    rows, state = play(env, "50", "I reject it.", problem=STORY, gold="51")
    assert [row[2] for row in rows] == [0.2, 1.0] and env.acting(state) == ("fixer",)
    assert user(env, state) == f"The verifier rejected 50. {STORY}"
    rows, state = play(env, "50", "reject", "The answer is 51.", problem=STORY, gold="51")
    assert user(env, state) == f"{STORY} The solver answered 51. Is this right?"
    rows, _ = play(env, "50", "reject", "51", "Approve.", problem=STORY, gold="51")
    assert rows[-1] == ("verifier", 1, 1, True, True, True)
    rows, state = play(env, "none", "approve or reject", problem=STORY, gold="51")
    assert [row[3] for row in rows] == [False, False]
    assert user(env, state) == f"The verifier rejected no number. {STORY}"
    several = make_env("math", size="words", n_agents=4)
    _, state = play(several, "50", "51", problem=STORY, gold="51")
    assert user(several, state) == f"Other solvers answered 50, 51. {STORY}"


def test_questions_have_numbers_of_two_digits_and_answers_from_one():
    drawn = questions.questions(random.Random(0))
    for kind, first, second in (questions.parts(next(drawn)) for _ in range(500)):
        assert 10 <= first <= 99 and 10 <= second <= 99 and questions.OPERATIONS[kind](first, second) >= 1

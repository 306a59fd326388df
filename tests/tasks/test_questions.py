"""The size "words": questions, answers in free text, the teaching tasks and `math` in English, by hand."""

import runpy
from pathlib import Path

import pytest
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


def test_every_template_is_read_as_what_it_was_drawn_from_and_another_text_is_refused():
    for kind, templates in questions.TEMPLATES.items():
        for template in templates:
            question = template.format(a=47, b=35, name="Tom", things="apples")
            assert questions.parts(question) == (kind, 47, 35)
    assert questions.TEMPLATES.keys() == questions.SHARES.keys() == questions.OPERATIONS.keys()
    asked = "What is 82 - 47?", "Which is larger, 47 or 74?", SMALLER, STORY, f"The first answer was 5. {SUM}"
    assert list(map(questions.value, asked)) == [35, 74, 47, 51, 82]
    with pytest.raises(EnvError, match=r"'How old are you\?' ends with none of the questions in words.toml"):
        questions.value("How old are you?")


@pytest.mark.parametrize(("text", "answer"), [
    ("The answer is 47.", "47"), ("47 + 35 = 82", "82"), ("**82**", "82"), ("$82", "82"), ("-5", "-5"), ("82-35", "35"),
    ("3.5", "3.5"), ("1,000", "1,000"), ("82\n", "82"), ("x82", None), ("", None), ("\u0664\u0667", None),
])  # fmt: skip
def test_an_answer_is_the_last_number_of_a_text(text, answer):
    assert questions.read_number(text) == answer


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
    for said, read in (("It is 72.", "72"), ("no idea", "no number")):
        _, state = play(env, said, problem=SUM)
        assert env.observe(state, "helper")[1]["content"] == f"The first answer was {read}, which is wrong. {SUM}"


@pytest.mark.skipif(not STUDIES.is_file(), reason="the checkout has the studies, the wheel does not")
def test_an_answer_that_ends_with_seven_to_nine_is_checked():
    found = runpy.run_path(str(STUDIES))
    env = found["SpotCheck"](size="words")
    assert check_env(env, tasks=2)["times"].min() > 0
    assert play(env, "82", problem=SUM)[0] == [("solver", 1, 1, True, True, True)]
    rows, _ = play(env, "79", "82", problem=SUM)
    assert rows == [("solver", 0, 0, True, False, False), ("checker", 1, 1, True, True, True)]
    assert play(env, "none", problem=SUM)[0] == [("solver", 0, 0, False, False, True)]

"""Generators of reasoning-gym as tasks: splits, judgement, and that no answer is run that could do anything."""

import pytest

from mas_lab.env import EnvError
from mas_lab.tasks import make_env

pytest.importorskip("reasoning_gym", reason="reasoning-gym is not installed")
DIGITS = {"min_digits": 1, "max_digits": 1, "min_terms": 2, "max_terms": 3}


def posed(dataset="chain_sum", **options):
    env = make_env("reasoning_gym", dataset=dataset, **options)
    task = env.tasks(1, "train", 0)[0]
    return env, task, env.start(task)


def test_a_right_answer_that_is_approved_pays():
    env, task, state = posed(config=DIGITS)
    assert env.acting(state) == ("solver",)
    drafted = env.step(state, {"solver": f"answer {task.data['gold']}"})
    assert drafted.local_rewards == {"solver": 1.0} and not drafted.done
    judged = env.step(drafted.state, {"verifier": "approve"})
    assert (judged.team_reward, judged.success, judged.done) == (1.0, True, True)


def test_the_generator_judges_where_many_answers_are_right():
    env, task, state = posed("countdown", size="full")
    other = f"({task.data['gold']}) + 0"  # uses a number that is not there
    assert env.is_right(task.data["gold"], state) and not env.is_right(other, state)
    assert env.is_right(f"({task.data['gold']})", state)


EVIL = [
    "__import__('os').system('touch {here}')", "open('{here}', 'w')", "exec(\"open('{here}', 'w')\")", "(1).__class__",
    "[open('{here}','w') for a in [1]]", "lambda: 0", "9**9**9**9", "(9)**99999999", "x**999999999", "f'{{1}}'",
    "1 if 1 else 2", "print(1)", "sin.x", "a" * 100_000, "[" * 5000,
]  # fmt: skip


@pytest.mark.parametrize("dataset", ["spiral_matrix", "countdown", "string_insertion", "n_queens", "binary_matrix"])
@pytest.mark.parametrize("answer", EVIL, ids=range(len(EVIL)))
def test_an_answer_is_not_run(dataset, answer, tmp_path):
    """These generators pass an answer to `eval`, or to what calls it."""
    env, _, state = posed(dataset, size="full")
    here = tmp_path / "ran"
    assert not env.is_right(answer.format(here=here), state)
    assert not here.exists()


@pytest.mark.parametrize(("options", "words"), [
    ({"dataset": "chain_sums"}, "no dataset 'chain_sums'; known are: .*chain_sum,"),
    ({"config": {"digits": 3}}, "config=.*digits"),
    ({"config": {"min_digits": 5, "max_digits": 1}}, "chain_sum.*config="),
])  # fmt: skip
def test_what_there_is_not_is_named(options, words):
    with pytest.raises(EnvError, match=words):
        make_env("reasoning_gym", **options)


@pytest.mark.parametrize("dataset", ["word_sorting", "word_ladder", "word_sequence_reversal"])
def test_math_refuses_a_generator_whose_lists_of_words_have_an_order(dataset):
    with pytest.raises(EnvError, match=rf"math: the order counts .* use lab\.make_env\('reasoning_gym', .*{dataset}"):
        make_env("math", size="full", data=f"reasoning_gym:{dataset}").tasks(1, "train", 0)


@pytest.mark.parametrize("dataset", ["tower_of_hanoi", "modulo_grid", "graph_color"])
def test_math_refuses_a_problem_whose_answer_nobody_can_give(dataset):
    why = rf"math: reasoning_gym:{dataset}, problem \d+: nobody can give its answer .* dataset='{dataset}'"
    with pytest.raises(EnvError, match=why):
        make_env("math", size="full", data=f"reasoning_gym:{dataset}").tasks(8, "train", 0)


@pytest.mark.parametrize("dataset", ["cryptarithm", "knights_knaves", "polynomial_equations"])
def test_math_takes_a_generator_whose_lists_have_none(dataset):
    assert make_env("math", size="full", data=f"reasoning_gym:{dataset}").tasks(1, "train", 0)

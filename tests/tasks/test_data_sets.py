"""The public data sets behind the full-size tasks: small files of the same form, and what is said where one is missing.

The columns are those of the data sets' own cards; the problems are ours.
"""

import json
import sys

import datasets
import pandas as pd
import pytest

from mas_lab.env import EnvError
from mas_lab.tasks import make_env
from mas_lab.tasks.shared.rows import SPLITS, split_of


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


def polaris(n):
    return {"problem": f"What is {n} + 1?", "answer": str(n + 1), "difficulty": "3/8"}


def gsm8k(n):
    return {"question": f"What is {n} + 1?", "answer": f"One more than {n}.\n#### {n + 1}"}


MATHS = {
    "dapo_processed": lambda n: {"prompt": f"What is {n} + 1?", "solution": str(n + 1), "source_prompt": "x"},
    "aime24": lambda n: {"id": n, "problem": f"What is {n} + 1?", "solution": rf"\boxed{{{n + 1}}}"},
    "aime_2024": lambda n: {"Problem": f"What is {n} + 1?", "Solution": f"It is {n + 1}.", "Answer": n + 1},
}


def folder_of(path, form, **splits):
    path.mkdir()
    for split, rows in splits.items():
        if form == "parquet":
            pd.DataFrame(rows).to_parquet(path / f"{split}-00000-of-00001.parquet")
        else:
            (path / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def drawn(env):
    """Every task of an env, as (split, data)."""
    found = []
    for split in SPLITS:
        with pytest.raises(EnvError, match="asked for 99") as refused:
            env.tasks(99, split, 0)
        count = int(str(refused.value).partition("holds ")[2].split()[0])
        found += [(split, task.data) for task in env.tasks(count, split, 0)]
    return found


@pytest.mark.parametrize(("row", "form"), [
    *((row, "jsonl") for row in MATHS.values()), (polaris, "parquet"), (gsm8k, "parquet"),
])  # fmt: skip
def test_problems_and_answers(tmp_path, row, form):
    data = folder_of(tmp_path / "set", form, train=[row(n) for n in range(40)] * 3)  # some sets repeat problems
    found = drawn(make_env("math", size="full", data=data))
    assert {(one["problem"], one["gold"]) for _, one in found} == {(f"What is {n} + 1?", str(n + 1)) for n in range(40)}
    assert len(found) == 40
    assert all(split_of(one["problem"]) == split for split, one in found)
    assert {split for split, _ in found} == set(SPLITS)


def test_what_a_set_lacks_is_drawn_from_its_training_rows(tmp_path):
    data = folder_of(tmp_path / "set", "jsonl", train=[polaris(n) for n in range(60)],
                     validation=[polaris(n) for n in range(55, 65)])  # fmt: skip
    env = make_env("math", size="full", data=data)
    found = drawn(env)
    told = {split: {one["problem"] for where, one in found if where == split} for split in SPLITS}
    assert told["val"] == {f"What is {n} + 1?" for n in range(55, 65)}
    rest = {f"What is {n} + 1?" for n in range(55)}
    assert told["test"] == {text for text in rest if split_of(text) == "test"} != set()
    assert told["train"] == rest - told["test"]
    tests = make_env("math", size="full", data=folder_of(tmp_path / "tests", "jsonl", test=list(map(gsm8k, range(30)))))
    assert len(tests.tasks(30, "test", 0)) == 30
    with pytest.raises(EnvError, match=r"0 rows of split 'train', asked for 1 .*train 0, val 0, test 30"):
        tests.tasks(1, "train", 0)


@pytest.mark.parametrize(("name", "row", "source"), [
    ("tldr", lambda n: {"prompt": f"TITLE: t\n\nPOST: {n}\n\nTL;DR:", "completion": "short"}, "TITLE: t\n\nPOST: {}"),
    ("arxiv_intro", lambda n: {"abstract_text": f"we show {n} .  it holds ."}, "we show {} . it holds ."),
    ("arxiv_intro", lambda n: {"abstract_text": [f"we show {n} .", "it holds ."]}, "we show {} . it holds ."),
])  # fmt: skip
def test_texts_in_the_splits_of_their_set(tmp_path, name, row, source):
    rows = list(map(row, range(9)))
    data = folder_of(tmp_path / "set", "parquet", train=rows[:3], validation=rows[3:6], test=rows[6:])
    for split, numbers in (("train", "012"), ("val", "345"), ("test", "678")):
        tasks = make_env(name, size="full", data=data).tasks(3, split, 0)
        assert {task.data["source"] for task in tasks} == set(map(source.format, numbers))


def test_a_single_table(tmp_path):
    pd.DataFrame([polaris(n) for n in range(40)]).to_csv(tmp_path / "rows.csv", index=False)
    assert len(drawn(make_env("math", size="full", data=str(tmp_path / "rows.csv")))) == 40


@pytest.mark.parametrize("form", ["jsonl", "parquet"])
def test_a_changed_file_and_another_folder_are_read_anew(tmp_path, monkeypatch, form):
    for gold, place in enumerate("aab"):
        (tmp_path / place / "set").mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(tmp_path / place)
        frame = pd.DataFrame([polaris(n) | {"answer": str(gold)} for n in range(40)])
        file = f"set/rows.{form}"
        frame.to_parquet(file) if form == "parquet" else frame.to_json(file, orient="records", lines=True)
        for data in (file, "set"):
            tasks = make_env("math", size="full", data=data).tasks(9, "train", 0)
            assert {task.data["gold"] for task in tasks} == {str(gold)}


@pytest.mark.parametrize(("task", "wanted"), [("tldr", "prompt or text"), ("arxiv_intro", "abstract_text or ")])
def test_a_row_without_the_columns_is_named_with_those_that_it_has(tmp_path, task, wanted):
    good = {"answer": "2", "problem": "1 + 1", "prompt": "a", "text": "a"}
    data = folder_of(tmp_path / "set", "parquet", train=[good, dict.fromkeys(good) | {"answer": "4"}])
    with pytest.raises(EnvError) as refused:
        make_env(task, size="full", data=data).tasks(1, "train", 0)
    assert f"{task}: {data}, row 2 of 'train': a row needs {wanted}" in str(refused.value)
    assert "this one has ['answer', 'problem', 'prompt', 'text']" in str(refused.value)


def test_a_line_of_a_file_is_named_by_its_number(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'{"problem": "1\xe2\x80\xa81", "answer": 2}\n{"problem": "\xff"}\n')  # the first is no line break
    with pytest.raises(EnvError, match=r"rows\.jsonl, line 2: .*utf-8"):
        make_env("math", size="full", data=str(path)).tasks(1, "train", 0)
    folder_of(tmp_path / "set", "jsonl", train=[polaris(n) for n in range(5)], test=[polaris(9)])
    with (tmp_path / "set" / "train.jsonl").open("a") as file:
        file.write('{"problem": \n')
    with pytest.raises(EnvError, match=r"train\.jsonl, line 6: "):
        make_env("math", size="full", data=str(tmp_path / "set")).tasks(1, "train", 0)


def test_what_does_not_open_is_named_with_what_to_do(tmp_path, monkeypatch):
    (tmp_path / "set").mkdir()
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    for data in (str(tmp_path / "set"), "org/none:main"):
        with pytest.raises(EnvError, match=f"math: '{data}' does not open: .*HF_HUB_OFFLINE=1.*hf download"):
            make_env("math", size="full", data=data).tasks(1, "train", 0)


def test_a_missing_library_says_which_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(EnvError, match=r"pip install 'mas-lab\[tasks\]'"):
        make_env("tldr", size="full").tasks(1, "train", 0)

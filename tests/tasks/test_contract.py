"""What every task keeps: the contract, refused options, splits, known words, demonstrations and pocket models.

Also the registry of envs, envs as plain data, and the tasks as a table: in a notebook, on their page.
"""

import json
import random
import runpy
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pandas as pd
import pytest
from small import Relay
from transformers import AutoTokenizer

import mas_lab as lab
from mas_lab.check import check_env
from mas_lab.env import Env, EnvError, spec
from mas_lab.paths import data_dir
from mas_lab.tasks import ENVS, make_env
from mas_lab.tasks.shared.rows import SPLITS

ROOT = Path(__file__).parents[2]
MATH, POSTS, ABSTRACTS, QUESTIONS, CORPUS = (str(data_dir() / f"{place}.jsonl") for place in (
    "math/word_problems", "tldr/posts", "arxiv/abstracts", "search/questions", "search/corpus"))  # fmt: skip
SOLO, PUBLISHED, FULL = {"single_agent": True}, {"rewards": "published"}, {"size": "full"}
KEPT = {
    "plan_path": [FULL, PUBLISHED, SOLO, {"n_agents": 8}],
    "sokoban": [{"boxes": 2}, FULL, PUBLISHED, SOLO],
    "sudoku": [{"size": 10}, FULL | {"side": 4} | PUBLISHED, SOLO],
    "math": [{"fixer": True}, {"n_agents": 4}, SOLO, PUBLISHED | {"size": 3}, FULL | {"data": MATH},
             FULL | {"data": "reasoning_gym:chain_sum", "fixer": True}],
    "math_tool": [PUBLISHED, SOLO | PUBLISHED, {"size": 9, "max_turns": 1}, FULL | {"data": MATH},
                  FULL | {"data": MATH} | SOLO],
    "search": [SOLO, PUBLISHED | {"size": 3}, FULL, FULL | SOLO, FULL | {"data": QUESTIONS, "corpus": CORPUS}],
    "tldr": [SOLO, PUBLISHED | {"size": 2}, FULL | {"data": POSTS}],
    "arxiv_intro": [{"max_turns": 2} | PUBLISHED, {"max_turns": 2} | SOLO, {"size": 3},
                    FULL | {"data": ABSTRACTS, "max_turns": 2}],
    "code_tests": [PUBLISHED, SOLO, {"size": 4, "max_turns": 5}],
    "code_pair": [{"max_turns": 2, "feedback": "plain"}, {"max_turns": 2} | PUBLISHED, SOLO,
                  {"teamwork": "in_turn"}, {"teamwork": "concatenated", "size": 4}],
    "ladder": [{"n_agents": 2}],
    "paid_help": [{"pay": 1.0}],
    "finisher": [{"low": 0.0}],
    "cascade": [],
    "stakes": [],
    "calculator": [{"largest": 20}],
    "vote": [SOLO, {"n_agents": 8, "size": 3}, FULL | {"data": MATH}, FULL | {"data": MATH} | SOLO],
    "orchestrator": [SOLO, {"n_agents": 8, "size": 5}, FULL | {"data": MATH}, FULL | {"data": MATH} | SOLO],
}  # fmt: skip
"""Options of each task that keep the contract, besides none."""
REFUSED = {
    "plan_path": [{"n_agents": 17}, SOLO | {"n_agents": 3}],
    "sokoban": [{"size": 7}, {"boxes": 3}],
    "sudoku": [{"size": 11}, {"side": 9}, FULL | {"side": 6}],
    "math": [{"size": True}, {"n_agents": 2, "fixer": True}, SOLO | {"fixer": True}, {"data": "x.jsonl"}],
    "math_tool": [{"size": 1}],
    "search": [{"size": 4}, {"data": QUESTIONS}, {"corpus": CORPUS}, FULL | {"data": QUESTIONS},
               FULL | {"corpus": CORPUS, "retriever": len}],
    "tldr": [{"size": 1}],
    "arxiv_intro": [{"size": 2}, {"max_turns": 3}],
    "code_tests": [{"size": 5}],
    "code_pair": [{"size": 5}, {"teamwork": "apart"}, {"feedback": "group"}, SOLO | {"teamwork": "in_turn"}],
    "ladder": [{"n_agents": 9}, {"n_agents": 2.5}, FULL],
    "paid_help": [{"pay": 0}, {"pay": 1.1}, {"pay": float("nan")}],
    "finisher": [{"low": 1}, {"low": float("nan")}],
    "calculator": [{"largest": 19}],
    "vote": [PUBLISHED, {"n_agents": 1}],
    "orchestrator": [PUBLISHED, {"n_agents": 2}, {"size": 6}],
}  # fmt: skip
BAD = [{"size": "huge"}, {"rewards": "mine"}, {"mistakes": 1.5}, {"max_turns": 0}]
SIZED = [name for name in REFUSED if name not in ("ladder", "paid_help", "finisher", "calculator")]
SIZES = [(name, {} if size == "pocket" else {"size": size}) for name, env in ENVS.items()
         for size in getattr(env, "sizes", ("pocket",)) if size != "full"]  # fmt: skip
"""Every task in every size that needs no data."""
POCKET = [name for name in ENVS if ENVS[name].pocket and not hasattr(ENVS[name], "tools")]


def listed(table):
    rows = [(name, options) for name, own in table.items() for options in own]
    return [pytest.param(*row, id=f"{row[0]} {place}") for place, row in enumerate(rows)]


@pytest.mark.parametrize(("name", "options"), [*SIZES, *listed(KEPT)], ids=str)
def test_the_contract_holds(name, options):
    if "reasoning_gym" in str(options):
        pytest.importorskip("reasoning_gym", reason="it is built by a C compiler: pip install it")
    if name == "search" and options.get("size") == "full":
        pytest.importorskip("bm25s")
    env = make_env(name, **options)
    assert make_env(**spec(env)) == env
    assert all(agent.split("_")[0] in env.order + "solo" for agent in env.agents)
    assert check_env(env, tasks=1)["times"].min() > 0


@pytest.mark.parametrize(("name", "options"), listed(REFUSED))
def test_an_option_that_makes_no_sense_is_refused(name, options):
    with pytest.raises(ValueError, match=rf"{name}: .*{next(reversed(options))}|{name}: "):
        make_env(name, **options)


@pytest.mark.parametrize("name", SIZED)
@pytest.mark.parametrize("options", BAD, ids=str)
def test_a_shared_option_that_makes_no_sense_is_named(name, options):
    ((option, value),) = options.items()
    one_turn = name in ("tldr", "vote", "orchestrator") and option == "max_turns"
    told = "no option max_turns" if one_turn else f"{name}: {option}={value!r}; "
    with pytest.raises(ValueError, match=told):
        make_env(name, **options)


@pytest.mark.parametrize("name", POCKET)
def test_splits_share_no_problem_and_a_longer_list_begins_with_the_shorter_one(name):
    env = make_env(name)
    tasks = {split: env.tasks(15, split, 0) + env.tasks(15, split, 1) for split in SPLITS}
    found = {split: {json.dumps(task.data) for task in drawn} for split, drawn in tasks.items()}
    assert all(len({task.id for task in drawn}) > 22 for drawn in tasks.values())
    assert len(set.union(*found.values())) == sum(map(len, found.values()))
    assert tasks["train"][15:25] == env.tasks(10, "train", 1) != env.tasks(10, "train", 2)
    with pytest.raises(EnvError, match=f"{name}: split='dev'"):
        env.tasks(1, "dev", 0)


@pytest.mark.parametrize("name", POCKET)
def test_prompts_and_demonstrations_say_words_that_the_pocket_model_knows(name):
    known = set(AutoTokenizer.from_pretrained(data_dir() / "pocket" / make_env(name).pocket).get_vocab())
    forms = [make_env(name), *([make_env(name, single_agent=True)] if name in SIZED else [])]
    for env, task in [(form, task) for form in forms for task in form.tasks(8, "train", 0)]:
        assert set(env.words) <= known
        state, done, rng = env.start(task), False, random.Random(task.id)
        while not done:
            prompts = {agent: env.observe(state, agent)[0]["content"] for agent in env.acting(state)}
            said = {agent: env.demonstrate(state, agent, rng) for agent in prompts}
            assert set(" ".join([*prompts.values(), *said.values()]).split()) <= set(env.words)
            most = env.max_tokens if isinstance(env.max_tokens, dict) else dict.fromkeys(said, env.max_tokens)
            assert all(len(text.split()) < most[agent] for agent, text in said.items())
            step = env.step(state, said)
            state, done = step.state, step.done


@pytest.mark.parametrize(("name", "options", "valid"), [
    ("math_tool", {}, 0.8), ("math_tool", SOLO, 0.8), ("arxiv_intro", {"max_turns": 2}, 0.9),
    ("code_pair", {"teamwork": "in_turn", "max_turns": 2}, 0.6), ("code_pair", SOLO, 0.6),
], ids=str)  # fmt: skip
def test_the_pocket_model_plays_every_form(name, options, valid):
    env = make_env(name, **options)
    team = lab.Team.shared(lab.load_policy(name), env.agents)
    turns = lab.rollout(env, team, env.tasks(8, "test", 0), seed=0)
    assert turns["valid"].mean() > valid
    said = {word for prompt in turns["prompt"] for word in prompt.removeprefix("user: ").split()}
    assert said <= set(env.words)


def test_an_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'planpath'; did you mean 'plan_path'\? known are: plan_path, "):
        make_env("planpath")


def test_an_option_that_an_env_lacks_is_refused_with_its_options():
    make_env("tldr", n_agents=None)  # a standard option at its default
    with pytest.raises(ValueError, match="no option walls; its options are: grade_thoughts, max_turns, mistakes"):
        make_env("plan_path", walls=3)


def test_an_env_of_ones_own_is_told_by_its_class_and_options():
    @dataclass(frozen=True)
    class Mine:
        words: tuple[str, ...] = ("a", "b")
        inner: Env = field(default_factory=lambda: make_env("ladder", n_agents=2))
        read: Callable = json.loads

    told = {"words": ["a", "b"], "inner": {"is": "mas_lab.tasks.ladder:Ladder", "n_agents": 2}, "read": "json:loads"}
    name = f"{__name__}:test_an_env_of_ones_own_is_told_by_its_class_and_options.<locals>.Mine"
    assert spec(Mine()) == {"name": name, **told} and json.loads(json.dumps(spec(Mine()))) == spec(Mine())

    class Plain:
        name = "plain"

    told = spec(Plain())
    assert set(told) == {"name"} and told["name"].startswith(f"{__name__}:") and told["name"].endswith(".Plain")


def test_the_table_shows_every_task_with_its_agents_and_a_task_of_ones_own(monkeypatch):
    assert all(name in lab.ENVS._repr_html_() and env.paper in repr(lab.ENVS) for name, env in lab.ENVS.items())
    monkeypatch.setitem(lab.ENVS, "mine", Relay)
    assert lab.ENVS.table().set_index("task").loc["mine"].tolist() == ["", ""]


@pytest.mark.skipif(not (ROOT / "docs" / "tasks.py").is_file(), reason="the checkout has the page, the wheel does not")
def test_the_page_holds_what_is_recorded():
    made = runpy.run_path(str(ROOT / "docs" / "tasks.py"))
    page = (ROOT / "docs" / "tasks.md").read_text("utf-8")
    assert all(f"\n## {name}\n" in page for name in lab.ENVS), "python docs/tasks.py"
    assert made["table"]().replace("docs/tasks.md#", "#") in page, "python docs/tasks.py"
    in_words = [made["in_words"](name) for name, size in SIZES if size]
    assert len(in_words) == 6 and all(told and told in page for told in in_words), "python docs/tasks.py"
    runs = pd.read_csv(data_dir() / "results" / "tldr" / "results.csv")
    assert f"→ {(runs['return'] / 3).min():.2f}-" in made["learned"]("tldr") and made["learned"]("nothing") == ""

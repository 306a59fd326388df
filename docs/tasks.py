"""Writes the page of tasks, `docs/tasks.md`: `python docs/tasks.py`.

Agents and order, the paper, what the pocket model learned (from `data/results/`), and an episode of each task as the
shipped pocket model plays it. Leaves out: what is rewarded (the docstring of each env says it).
"""

import inspect
import json
import re
from itertools import pairwise
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir

HERE = Path(__file__).parent
LEGEND = "`→` one after the other, `+` at the same time and unseen, `?` called on a condition"
SEED, LOOKED_AT = 0, 32
INTRO = f"""# Tasks

Made by `python docs/tasks.py`. Agents: {LEGEND}.
Pocket play: success on held-out tasks before and after training, the lowest and the highest of the recorded seeds
(`code_pair`, `tldr`, `arxiv_intro`: the share of the best return); [the numbers](../data/results/README.md). In
full size: [public data sets](data_sets.md). `math` and the teaching tasks of one turn also have `size="words"`: the
same rules, with short questions in English for a small real model.
"""
JUDGED = r"""## Who judges what

| said in full size | judged by |
|---|---|
| a number: `1,000`, `1e3`, `3/4`, `10\%` | the kit, exactly: 0.3333 is not 1/3, and 10 is not 10 % |
| numbers apart by spaces: `1 2 3`, a grid | the kit, in order, whatever separates them; never as a product |
| words: `Evelyn` for `\text{Evelyn}` | the kit, by letters and digits; only a single letter has a case |
| a unit: `4\text{ cm}` | the kit: either may lack it, another is wrong; `cm` is `centimeters`, `square m` is `m^2` |
| a numeral in a base: `2516_8` | math-verify; the kit writes the base as a symbol, or it would be passed over |
| a set, a tuple, an interval | the kit compares the brackets, math-verify the content |
| other mathematics | math-verify 0.9, for up to 5 seconds |
| an answer of `search` | exact match as in SQuAD, with any of the accepted answers; no F1 |
| a program, its cases and its output | the sandbox runs it, and the kit compares the values |
| two texts (`tldr`, `arxiv_intro`) | counts of words; no model judges |
| moves, cells | the rules of the game |

math-verify parses LaTeX only. Its search for plain numbers would find 12 in `\le 12` and in `12 \text{ or 13}`. Its
removal of units is off, because it takes the `t` of `2t` for one. An equation of numbers must hold: `6=12` is not 12.
An equation is a value only if a name stands on its left: `x=4` is 4, `x^2=4` is not.

The answer of a text is its last `\boxed{}` or `\fbox{}`, its tag, or its fenced block. Of several blocks the last one
that defines the function, asserts a case or prints counts. What a model thinks is not graded, and no other agent sees
it: only the text after the last `</think>` counts, and a thought without an end earns nothing.
`make_env(..., grade_thoughts=True)` grades and shows thoughts as well. If the chat template opens the thought and the
text ends before `</think>`, nobody can see that it is a thought, and all of it is graded.

`tests/answer_pairs.py` has 1004 pairs of answers with the verdict of mathematics, all of which are judged so, and the
known limits.
"""
OUT_THERE = """## Environments out there

`examples/` has an env for each of three libraries, to copy:
[`textarena_env.py`](../examples/textarena_env.py) and [`pettingzoo_env.py`](../examples/pettingzoo_env.py) play games
in self-play (`make games` installs both libraries), and [`reasoning_gym_env.py`](../examples/reasoning_gym_env.py) lets
a generator judge the answers to its problems.

An env of your own is five pure functions: [Your own parts](extending.md#an-environment).
"""


GRADED = ("code_pair", "tldr", "arxiv_intro")
"""Tasks that are scored by their share of the best return, because their success is only a threshold."""


def learned(task: str) -> str:
    """Return the recorded results of one task, before and after training, or an empty text."""
    folder = data_dir() / "results" / task
    if not (folder / "results.csv").is_file():
        return ""
    runs = pd.read_csv(folder / "results.csv")
    trial = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))["trial"]
    name, best = ("return", runs["max_return"]) if task in GRADED else ("success", 1.0)
    after = runs[name] / best
    ends = dict.fromkeys([f"{after.min():.2f}", f"{after.max():.2f}"])
    before = (runs[f"{name}_before"] / best).mean()
    return f"{before:.2f} → {'-'.join(ends)} ({trial['recipe']}, {trial['steps']} steps)"


def table() -> str:
    """The catalogue as Markdown."""
    found = lab.ENVS.table()
    found["pocket play"] = [learned(name) for name in found["task"]]
    lines = [f"| {' | '.join(found.columns)} |", f"|{'---|' * len(found.columns)}"]
    for row in found.itertuples(index=False):
        name, *rest = row
        lines.append(f"| [`{name}`](docs/tasks.md#{name}) | {' | '.join(rest)} |")
    return "\n".join(lines)


def arrows(order: str) -> str:
    """Who hands on to whom, as a Mermaid diagram; those who act at once stand side by side."""
    said = re.split(r",", order.replace("(", "").replace(")", ""))[0]
    groups = [re.findall(r"[a-z_0-9…]+\??", part) for part in said.split("→")]
    groups = [[agent for agent in group if agent != "or"] for group in groups]
    lines = ["```mermaid", "flowchart LR"]
    for place, group in enumerate(groups):
        lines += [f'    n{place}{i}["{agent.rstrip("?")}"]' for i, agent in enumerate(group)]
    for place, (here, there) in enumerate(pairwise(groups)):
        for i in range(len(here)):
            for j, agent in enumerate(there):
                lines.append(f"    n{place}{i} {'-.->' if agent.endswith('?') else '-->'} n{place + 1}{j}")
    return "\n".join([*lines, "```"])


def rows_of(turns: pd.DataFrame) -> str:
    """Return the turns of an episode as a table."""
    lines = ["| agent | is told | says | team reward | own reward |", "|---|---|---|---|---|"]
    for row in turns.itertuples():
        told, said = (" ".join(text.split()).replace("|", "\\|") for text in (row.prompt, row.completion))
        lines.append(f"| {row.agent} | {told} | {said} | {row.team_reward:.2f} | {row.local_reward:.2f} |")
    return "\n".join(lines) + "\n"


def in_words(name: str) -> str:
    """Return the recorded episode of a real model in the size "words", or an empty text."""
    folder = data_dir() / "results" / "words"
    turns, agents = (pd.read_csv(folder / f"{part}.csv", keep_default_na=False) for part in ("episodes", "agents"))
    turns, agents = (rows[rows["task"] == name] for rows in (turns, agents))
    if not len(turns):
        return ""
    last = agents[agents["steps"] == agents["steps"].max()]
    rates = ", ".join(f"{row.agent} {row.right:.2f}" for row in last.itertuples())
    steps = last["steps"].iloc[0]
    told = f"`lab.make_env({name!r}, size='words')`, SmolLM2-135M after {steps} steps of `lab.imitate` as solver and "
    told += f"{steps // 2} in the other role of `{last['warm_start'].iloc[0]}`"
    return f"{told}; right when called: {rates}.\n\n{rows_of(turns)}\n"


def episode(name: str) -> str:
    """An episode of the shipped pocket model, one that succeeds if there is any: who heard what, said what, earned
    what."""
    env = lab.make_env(name)
    team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
    turns = lab.rollout(env, team, env.tasks(LOOKED_AT, "test", SEED), lab.episodes(1), seed=SEED)
    solved = turns.groupby("task", sort=False)["success"].any()
    length = turns.groupby("task", sort=False).size()
    task = (length[solved] if solved.any() else length).idxmax()
    return rows_of(turns[turns["task"] == task])


def section(name: str) -> str:
    kind = lab.ENVS[name]
    doc = inspect.getdoc(kind)
    told = f"Pocket play: {learned(name)}.\n\n" if learned(name) else ""
    head = f"## {name}\n\n{kind.paper}. `lab.make_env({name!r})`\n\n{arrows(kind.order)}\n\n{doc}\n\n"
    return f"{head}{told}{episode(name)}\n{in_words(name)}".rstrip() + "\n"


def main() -> None:
    own = table().replace("docs/tasks.md#", "#")
    page = "\n".join([INTRO, own, "", *(section(name) for name in lab.ENVS), JUDGED, OUT_THERE])
    (HERE / "tasks.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

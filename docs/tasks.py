"""Writes the page of tasks, `docs/tasks.md`: `python docs/tasks.py`.

Of each env: its agents, who wrote about it, what the pocket model learned (from `data/results/`), what its docstring
says up to the rewards, the published rewards folded, and a short episode of the shipped pocket model. Leaves out the
rest of the docstring: when an answer is invalid, further options, sizes.
"""

import inspect
import json
import re
from itertools import pairwise
from pathlib import Path

import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.tasks.shared.chains import value

HERE = Path(__file__).parent
LEGEND = "`→` one after the other, `+` at the same time and unseen, `?` called on a condition"
SEED, LOOKED_AT = 0, 96
"""Seed and number of the episodes looked at."""
KEPT, SHOWN, WORDS_SHOWN = 20, 3, 16
"""Letters that a prompt may share with the one before, rows of an episode and words of a prompt that are shown."""
INTRO = f"""# Tasks

Agents: {LEGEND}.
*Pocket play*: success on held-out tasks before and after training, lowest and highest of the recorded seeds
(`code_pair`, `tldr`, `arxiv_intro`: share of the best return), and the recipe ([records](../data/results/README.md)).
Tasks without a paper are teaching tasks of this kit.

Each section ends with an episode: what an agent hears → what it says (its rewards). In an equation, [x] is 1 if x
holds, else 0. `help(lab.ENVS["math"])` says the rest: invalid answers, options, sizes.
"""
CHAINS = f"""In pocket size a problem is a **chain**: digits with `+`, `-` and `*`, read from left to right;
of each result only the last digit is kept. So `3 + 4 * 2` is {value("3 + 4 * 2")}: 3 + 4 = 7, and 7 * 2 = 14. An answer
may write these values first: `7 4 answer 4`."""
WORDS = """## In English

`math` and the teaching tasks of one turn also have `size="words"`: the same rules, with short questions for a small
real model. `paid_help`, played by SmolLM2-135M after a short supervised warm start
([how often each agent is right](../data/results/words/agents.csv)):

"""
FULL = """## Full size, and your own

`size="full"` has the problems of the papers, for instruction models: [public data sets](data_sets.md), and
[who judges an answer](data_sets.md#who-judges-what). An env of your own is [five pure
functions](extending.md#an-environment); `examples/` has three that wrap [TextArena](../examples/textarena_env.py),
[PettingZoo](../examples/pettingzoo_env.py) (`make games` installs both) and
[reasoning-gym](../examples/reasoning_gym_env.py).
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
    return f"{before:.2f} → {'-'.join(ends)}, `{trial['recipe']}`"


def linked(paper: str) -> str:
    """Return a paper as a link, and nothing for a task of this kit."""
    name, _, number = paper.rpartition("arXiv ")
    return f"[{name.rstrip(', ') or f'arXiv {number}'}](https://arxiv.org/abs/{number})" if number != paper else ""


def table() -> str:
    """The catalogue as Markdown."""
    found = lab.ENVS.table()
    found["pocket play"] = [learned(name) for name in found["task"]]
    lines = [f"| {' | '.join(found.columns)} |", f"|{'---|' * len(found.columns)}"]
    found["from"] = [linked(paper) for paper in found["from"]]
    for row in found.itertuples(index=False):
        name, *rest = row
        lines.append(f"| [`{name}`](docs/tasks.md#{name}) | {' | '.join(rest)} |")
    return "\n".join(lines)


def arrows(order: str) -> str:
    """Return who hands on to whom as a Mermaid diagram, or nothing if the order alone says it.

    Those who act at once stand side by side.
    """
    said = re.split(r",", order.replace("(", "").replace(")", ""))[0]
    groups = [re.findall(r"[a-z_0-9…]+\??", part) for part in said.split("→")]
    groups = [[agent for agent in group if agent != "or"] for group in groups]
    if len(groups) == 1 or list(map(len, groups)) == [1, 1]:
        return ""
    lines = ["```mermaid", "flowchart LR"]
    for place, group in enumerate(groups):
        lines += [f'    n{place}{i}["{agent.rstrip("?")}"]' for i, agent in enumerate(group)]
    for place, (here, there) in enumerate(pairwise(groups)):
        for i in range(len(here)):
            for j, agent in enumerate(there):
                lines.append(f"    n{place}{i} {'-.->' if agent.endswith('?') else '-->'} n{place + 1}{j}")
    return "\n".join([*lines, "```\n\n"])


def rows_of(turns: pd.DataFrame) -> str:
    """Return the first turns of an episode and its last as a list, with the rewards that are not 0.

    Of a prompt the last message is shown, without a long beginning that it shares with the prompt before.
    """
    lines, before = [], ""
    for row in turns.itertuples():
        prompt = re.split(r"^(?=(?:user|tool \S+): )", row.prompt, flags=re.MULTILINE)[-1].removeprefix("user: ")
        told, said = " ".join(prompt.split()), " ".join(row.completion.split())
        same = next((i for i, (a, b) in enumerate(zip(before, f"{told} ", strict=False)) if a != b), 0)
        same = told[:same].rfind(" ") + 1
        paid = {"team": row.team_reward, "own": row.local_reward}
        earned = ", ".join(f"{name} {number:.3g}" for name, number in paid.items() if number) or "0"
        heard = ("… " + told[same:] if same > KEPT else told).split()
        heard = heard if len(heard) <= WORDS_SHOWN else [*heard[: WORDS_SHOWN // 2], "…", *heard[-3:]]
        lines.append(f"- {row.agent}: `{' '.join(heard)}` → `{said}` ({earned})\n")
        before = told
    return "".join(lines if len(lines) <= SHOWN else [*lines[: SHOWN - 1], "- …\n", lines[-1]])


def in_words() -> str:
    """Return the recorded episode of `paid_help` by a real model in the size "words"."""
    turns = pd.read_csv(data_dir() / "results" / "words" / "episodes.csv", keep_default_na=False)
    return rows_of(turns[turns["task"] == "paid_help"])


def episode(name: str) -> str:
    """Return the shortest episode of the shipped pocket model that succeeds and has up to three agents, if any does."""
    env = lab.make_env(name)
    team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
    turns = lab.rollout(env, team, env.tasks(LOOKED_AT, "test", SEED), lab.episodes(1), seed=SEED)
    episodes = turns.groupby("task", sort=False)
    seen = episodes["agent"].nunique().clip(upper=3)
    found = pd.DataFrame({"won": episodes["success"].any(), "agents": seen, "turns": -episodes.size()})
    return rows_of(turns[turns["task"] == found.apply(tuple, axis=1).idxmax()])


def told(name: str) -> str:
    """Return what the docstring says up to the rewards, and the published rewards folded."""
    parts = inspect.getdoc(lab.ENVS[name]).split("\n\n")
    last = next(i for i, part in enumerate(parts) if part.startswith("Rewards:"))
    text = "\n\n".join(parts[: last + 1]).replace("Rewards:", "**Rewards.**")
    if name == "math":
        text += f"\n\n{CHAINS}"
    else:
        text = re.sub(r"\bchain\b", "[chain](#math)", text, count=1)
    for part in parts[last + 1 :]:
        if part.startswith("Published rewards"):
            fault = part[part.index("Fault: ") :]
            text += f"\n\n<details><summary>Published rewards</summary>\n\n{fault}\n\n</details>"
    return text


def section(name: str) -> str:
    return f"## {name}\n\n{arrows(lab.ENVS[name].order)}{told(name)}\n\n{episode(name)}"


def main() -> None:
    own = table().replace("docs/tasks.md#", "#")
    page = "\n".join([INTRO, own, "", *map(section, lab.ENVS), WORDS + in_words(), FULL])
    (HERE / "tasks.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()

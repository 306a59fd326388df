"""docs/cluster.md: its table follows from the placement's arithmetic, its lines run, and each diff begins where the
last one ended."""

import re
import runpy
from pathlib import Path

import mas_lab as lab

DOCS = Path(__file__).parents[2] / "docs"
TEXT = (DOCS / "cluster.md").read_text(encoding="utf-8")


def test_the_table_is_the_placements():
    made = runpy.run_path(str(DOCS / "cluster.py"))
    assert made["filled"](TEXT) == TEXT, "python docs/cluster.py"
    assert len(made["rows"]()) == 3 * 7 and "| no |" in TEXT and "2,048 tokens |" in TEXT


def lines(kind):
    return re.findall(rf"```{kind}\n(.*?)```", TEXT, flags=re.S)


def test_the_laptops_lines_run_and_each_diff_takes_away_what_stood_there():
    """Every step is applied to the one before, and what comes of it is Python."""
    now, names = lines("python")[0], {}
    exec(compile(now, "cluster.md", "exec"), names)
    assert names["stats"]["grad_norm"].gt(0).all() and len(names["turns"]) > 32 * 8 * 2 - 1
    for diff in lines("diff"):
        for hunk in diff.split("@@\n"):
            old, new = ("".join(line[1:] + "\n" for line in hunk.splitlines() if line[0] == sign) for sign in "-+")
            assert now.count(old) == 1, old
            now = now.replace(old, new)
        compile(now, "cluster.md", "exec")
    assert 'backend="tinker"' in now and "max_norm=None" in now and "Placement" not in now


def test_its_placement_is_to_be_had():
    [made] = re.findall(r"\+plan  = lab\.(Placement\(.*?\}\))", TEXT.replace("\n+   ", "\n    "), flags=re.S)
    plan = eval(made[:-1] + ", {f'cuda:{i}': 22.0 for i in range(4)})", {"Placement": lab.Placement, "lab": lab})
    told = plan.options("team")
    assert told["adapters"] == 2 and told["gpus"] == "2,3" and told["device"] == "cuda:0"

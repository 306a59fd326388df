"""What notebook 02 says of the recorded rollouts stands in the records, and it runs where there is no torch."""

import re
import subprocess
import sys
from pathlib import Path

import forms
import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.paths import data_dir, notebooks_dir

MASTER = notebooks_dir() / "masters" / "02_grouping.py"
TEXT = MASTER.read_text(encoding="utf-8")
TURN = ("episode", "agent", "turn")


def recorded(name):
    return pd.read_csv(data_dir() / "results" / "grouping" / f"{name}.csv", keep_default_na=False)


def by_agent():
    stats = lab.group_stats(lab.group(recorded("fixer"), ("task", "agent"), lab.episode_return()))
    return dict(list(stats.groupby("agent")))


def test_the_fixers_groups_are_those_of_the_text():
    own = by_agent()
    assert set(own["solver"]["size"]) == {8} and "speaks exactly once in an episode: 8 rows" in TEXT
    assert own["verifier"]["size"].max() > 8
    fixer = own["fixer"]
    assert f"called in {fixer['size'].sum()} of the turns, on five of the six problems" in TEXT and len(fixer) == 5
    assert fixer["lone"].sum() == 2 and (fixer["flat"] & ~fixer["lone"]).sum() == 1
    assert "twice alone, once in a group that always failed" in TEXT
    assert (fixer.loc[fixer["flat"] & ~fixer["lone"], "mean"] == 0).all()
    taught = fixer[~fixer["flat"]]
    assert f"Two groups with {taught['size'].sum()} rows" in TEXT and len(taught) == 2


def test_a_lost_row_moves_as_many_advantages_as_the_text_says():
    left = recorded("tree").drop(index=5).reset_index(drop=True)
    columns = lab.normalize(lab.group(left, TURN, lab.mixed()))
    place = columns.drop(columns=["center", "scale", "advantage"]).assign(group=[row // 4 for row in range(len(left))])
    place = lab.normalize(place)
    off = (place["advantage"] - columns["advantage"]).abs() > 1e-6
    assert f"*Explain.* {off.sum()} of {len(left)}." in TEXT
    assert (left.loc[[8, 10], "completion"] == "a1").all() and (left.loc[[8, 10], "agent"] == "planner").all()
    both = columns.loc[[8, 10], "advantage"].round(2).unique(), place.loc[[8, 10], "advantage"].round(2).unique()
    assert [list(each) for each in both] == [[0.58], [-0.06]] and "go from +0.58 to −0.06" in TEXT


def test_one_prompt_stands_at_two_turns_of_the_second_maze():
    turns = recorded("tree").groupby("prompt")["turn"].nunique()
    assert (turns == 2).sum() == 1 and turns.idxmax().endswith("planner")


def test_the_promise_holds_for_planners_and_not_for_executors():
    whole = recorded("whole").query("turn == 0")
    lab.group(whole[whole["agent"] == "planner"], ("task", "agent", "turn"), lab.mixed(), same_prompt=True)
    with pytest.raises(lab.TableError, match="answer different prompts"):
        lab.group(whole[whole["agent"] == "executor"], ("task", "agent", "turn"), lab.mixed(), same_prompt=True)


def test_what_the_counterfactual_came_to_is_what_the_findings_say():
    findings = (Path(__file__).resolve().parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
    ends = dict(re.findall(r"\| (return, global|counterfactual) \| [^|]+ \| ([\d.]+) \(.+?\), 10 seeds", findings))
    assert f"ended at {ends['counterfactual']} with it and at {ends['return, global']} with the plain return" in TEXT


def test_it_runs_where_there_is_no_torch(tmp_path):
    cells = forms.notebook(MASTER, "solution")["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code" and "install" not in cell["metadata"].get("tags", [])]
    lines = ["import sys", "sys.modules['torch'] = None", "display = print"]
    lines += ["".join(cell["source"]) for cell in code]
    script = tmp_path / "notebook.py"
    script.write_text("\n\n".join(lines), encoding="utf-8")
    found = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, encoding="utf-8")
    assert found.returncode == 0, found.stderr
    assert "4 of 4" in found.stdout

"""The demo: its two lines and tables by hand, a training as it says, and the whole of it for one step."""

from dataclasses import replace

import pandas as pd
import pytest

from mas_lab.__main__ import main as command
from mas_lab.demo import trials as demo
from mas_lab.demo.command import headline, results
from mas_lab.demo.report import largest_norms
from mas_lab.demo.trials import Trained


def trained(trial, after, norm, began=100.0, ended=130.0):
    named = {"env": trial.env["name"], "recipe": trial.recipe, "seed": trial.seed}
    curve = pd.DataFrame({"step": [0, 30], "tokens": [0, 5000], "success": [0.25, after]}).assign(**named)
    norms = pd.DataFrame({"step": [1, 1, 2], "policy": ["a", "b", "a"], "policy_norm": [0.5, norm, 0.25]})
    return Trained(trial, 0.25, after, 20.0, curve, norms.assign(**named), None, began, ended)


def test_a_line_has_means_over_seeds_and_on_the_ladder_the_largest_norms():
    run = trained(demo.maze("at_grpo", 0, steps=20), 0.94, 1.0)
    assert headline([run]) == "plan_path: at_grpo 0.25 -> 0.94, 30 s"
    ends = {("dr_mas", 0): (0.5, 2.71), ("grpo", 0): (0.0, 19.0), ("dr_mas", 1): (0.6, 1.5), ("grpo", 1): (0.1, 28.94)}
    runs = [trained(demo.ladder(*one), *end, ended=130.0 + 60 * one[1]) for one, end in ends.items()]
    line = "ladder of 8: dr_mas 0.25 -> 0.55 (largest norm 2.7), grpo 0.25 -> 0.05 (28.9), 2 seeds, 90 s"
    assert headline(runs) == line


def test_a_row_per_run_and_the_largest_norm_of_each_step():
    run = trained(demo.ladder("grpo", 2), 0.5, 3.0)
    assert results([run]).to_dict("records") == [{
        "env": "ladder", "recipe": "grpo", "seed": 2, "before": 0.25, "after": 0.5, "seconds": 20.0, "steps": 30,
        "tokens": 5000, "largest_norm": 3.0,
    }]  # fmt: skip
    assert largest_norms([run])[["step", "policy_norm"]].to_numpy().tolist() == [[1, 3.0], [2, 0.25]]


def test_a_budget_ends_a_training_at_the_step_that_reaches_it():
    trial = demo.Trial({"name": "ladder", "n_agents": 2}, "dr_mas", 0, 3e-4, {"tasks": 2, "check": False}, budget=300,
                       per_agent=True, held_out=2, on_the_way=2)  # fmt: skip
    run = demo.learn(trial)
    tokens = run.curve["tokens"].iloc[-1]
    assert tokens >= 300 > tokens - run.last.tokens
    assert set(run.norms["policy"]) == {"stage_1", "stage_2"} and run.curve["step"].iloc[-1] == run.last.step + 1


@pytest.mark.parametrize("text", ["0", "two"])
def test_a_count_below_one_is_refused(text, capsys):
    with pytest.raises(SystemExit):
        command(["demo", f"--seeds={text}"])
    assert f"--seeds: {text!r} is no count; give a number from 1" in capsys.readouterr().err


@pytest.fixture
def few(monkeypatch):
    """Fewer held-out tasks than the demo has."""
    ladder = demo.ladder
    monkeypatch.setattr(demo, "HELD_OUT", 8)
    monkeypatch.setattr(demo, "ladder", lambda *told: replace(ladder(*told), held_out=8, on_the_way=8))


@pytest.mark.slow
def test_the_whole_demo_ends_with_two_lines_and_a_page(few, tmp_path, capsys):
    assert command(["demo", "--out", str(tmp_path), "--seeds", "1", "--steps", "2"]) == 0
    first, last, *lines = capsys.readouterr().out.splitlines()
    assert first.startswith("first curve: ") and last.startswith("report: ")
    assert [line.partition(":")[0] for line in lines] == ["plan_path", "ladder of 8"]
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "A ladder of 8, under two baselines" in page and "Spikes of grpo, seed 0" in page
    runs = pd.read_json(tmp_path / "results.json")
    assert runs["recipe"].tolist() == ["at_grpo", "dr_mas", "grpo"] and set(runs["seed"]) == {0}
    assert set(pd.read_csv(tmp_path / "curves.csv")["env"]) == {"plan_path", "ladder"}


@pytest.mark.slow
def test_the_comparison_is_at_equal_tokens(few, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("mas_lab.demo.command.side_by_side", lambda jobs: [job(*told) for job, *told in jobs])
    assert command(["demo", "--compare", "--out", str(tmp_path), "--seeds", "1", "--steps", "1"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("plan_path: at_grpo 0.")
    runs = pd.read_json(tmp_path / "results.json").set_index("recipe")
    assert list(runs.index) == ["at_grpo", "grpo", "grpo_mixed"]
    assert (runs["tokens"] >= runs.loc["at_grpo", "tokens"]).all()

"""A training ends with its budget, wherever it was stopped on the way, and its usage is that of the run."""

import re

import pytest
from small import RECIPE, SETTINGS, Relay, bits, make_team, start

import mas_lab as lab
from mas_lab.runs.scores import run_curve, score_curve
from mas_lab.train.budget import KINDS, Budget, Usage


@pytest.fixture(scope="module")
def six(models, tmp_path_factory):
    run = tmp_path_factory.mktemp("spent") / "run"
    reports = list(start("shared", models, run, 6))
    return run, reports


def test_what_was_spent_is_told_the_same_by_reports_and_by_the_run(six):
    run, reports = six
    usage = Usage()
    for report in reports:
        usage.add(report)
    assert usage.steps == Usage.of(lab.load_run(run)).steps
    assert [usage.after(done)["tokens"] for done in range(1, 7)] == run_curve(lab.load_run(run))["tokens"].tolist()
    turns = reports[0].turns
    assert usage.steps[0]["episodes"] == turns["episode"].nunique()
    assert usage.after(6)["optimizer_steps"] == sum(report.stats["optimizer_step"].nunique() for report in reports)
    assert usage.after(0) == dict.fromkeys(KINDS, 0)


def after_the_first(turns):
    return turns["step"] > 0


def never(turns):
    return turns["step"] < 0


@pytest.mark.parametrize("select", [after_the_first, never])
def test_a_step_without_a_selected_row_uses_no_optimizer_step(models, tmp_path, select):
    recipe, usage = RECIPE.replace(select=select), Usage()
    for report in lab.train(Relay(), make_team("shared", models), recipe, 2, run=tmp_path / "run", **SETTINGS):
        usage.add(report)
    assert [step["optimizer_steps"] for step in usage.steps] == [0, 2 if select is after_the_first else 0]
    assert usage.steps == Usage.of(lab.load_run(tmp_path / "run")).steps


@pytest.mark.parametrize("kind", KINDS)
def test_it_ends_with_the_step_that_reaches_the_budget(six, models, kind):
    amount = Usage.of(lab.load_run(six[0])).after(2)[kind]
    assert len(list(start("shared", models, None, None, budget={kind: amount}))) == 2
    assert len(list(start("shared", models, None, 1, budget={kind: amount}))) == 1, "or after its steps"


def test_a_run_that_was_stopped_ends_and_is_scored_where_it_would_have_been(six, models, tmp_path):
    """Scores stand where a count of tokens is reached and at both ends."""
    usage, run = Usage.of(lab.load_run(six[0])), tmp_path / "run"
    counts = [1, usage.after(2)["tokens"] + 1]
    asked = {"budget": Budget("tokens", usage.after(3)["tokens"] + 1), "score_tasks": 2, "score_episodes": 1}
    next(start("shared", models, run, None, **asked, score_at=counts))
    assert len(list(start("shared", models, run, None, **asked, score_at=counts))) == 3
    assert list(start("shared", models, run, None, **asked, score_at=counts)) == []
    assert score_curve(lab.load_run(run))["step"].tolist() == [0, 1, 3, 4]


def test_a_share_of_the_budget_is_scored_after_the_step_that_reaches_it(six, models, tmp_path):
    """Six steps; a quarter of the budget is reached by the first step whose sum is that much."""
    usage, run, kind = Usage.of(lab.load_run(six[0])), tmp_path / "run", "tokens"
    amount = usage.after(6)[kind]
    asked = {"budget": {kind: amount}, "score_every": 0.25, "score_tasks": 2, "score_episodes": 1}
    for _ in zip(range(3), start("shared", models, run, None, **asked), strict=False):
        pass
    list(start("shared", models, run, None, **asked))
    reached = [next(s for s in range(7) if usage.after(s)[kind] >= amount * share / 4) for share in range(5)]
    assert score_curve(lab.load_run(run))["step"].tolist() == reached and len(set(reached)) == 5
    assert bits(run) == bits(six[0])


@pytest.mark.parametrize("budget", [{"tokens": 0}, {"hours": 2}, {"tokens": 1, "episodes": 1}])
def test_what_is_no_budget_is_refused(models, budget):
    words = re.escape(
        f"budget={budget}; give one of tokens, episodes, optimizer_steps with a whole number of 1 or more"
    )
    with pytest.raises(ValueError, match=words):
        start("shared", models, None, None, budget=budget)

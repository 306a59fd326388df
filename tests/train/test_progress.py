"""Which tasks a step plays: more rounds of them until enough are worth learning from, and a curriculum of one's own."""

from collections import Counter
from dataclasses import dataclass, field, replace

import pandas as pd
import pytest
import small

import mas_lab as lab
from mas_lab.table import selected

LIVELY = lab.RECIPES["grpo"].replace(name="lively", plan=lab.episodes(3), select=lab.not_flat())
QUICK = {"tasks": 4, "check": False}


def sparse(turns):
    """It pays only for two words of three that are alike, so that many groups are flat."""
    return (lab.episode_return()(turns) > 0.2).astype(float)


SPARSE = LIVELY.replace(credit=sparse)


def train(models, recipe=SPARSE, steps=2, turns=1, **settings):
    return lab.train(small.Relay(max_turns=turns), small.make_team("shared", models), recipe, steps, **QUICK | settings)


def live(turns) -> int:
    return turns.loc[turns["selected"], "task"].nunique()


def test_tasks_are_drawn_until_enough_of_them_are_worth_learning_from(models):
    for report, plain in zip(train(models, rounds=20, steps=1), train(models, steps=1), strict=True):
        turns = report.turns
        assert live(turns) == 4 > live(plain.turns)
        assert turns["task"].nunique() > 4 == plain.turns["task"].nunique()
        assert set(Counter(zip(turns["task"], turns["agent"], strict=True)).values()) == {3}  # no task twice
        flat = turns.groupby("group")["credit"].transform("nunique") == 1
        assert (turns["selected"] == ~flat).all()
        assert not report.notes
        assert report.tokens == turns["completion_ids"].map(len).sum() == report.scored["tokens"]
        assert report.success == turns[turns["agent"] == "doer"].groupby("episode")["success"].last().mean()
        assert report.stats["turns"].sum() == turns["selected"].sum() < len(turns)
        pd.testing.assert_frame_equal(turns[: len(plain.turns)], plain.turns)  # the first round is as it was


def test_where_the_rounds_do_not_suffice_the_report_says_so(models):
    flat = LIVELY.replace(credit=lambda turns: pd.Series(0.0, turns.index))
    [report] = train(models, flat, steps=1, rounds=3)
    assert report.turns["task"].nunique() == 12 and not selected(report.turns).any() and len(report.stats) == 0
    assert report.notes[0] == "0 of 4 tasks have a row that is learned from, after 3 rounds of 12 tasks"
    assert report.notes[1] == "no row is selected, nothing was learned"

    with pytest.raises(ValueError, match=r"rounds=2 draws more .*'grpo' does not say.*select=lab\.not_flat\(\)"):
        train(models, lab.RECIPES["grpo"], rounds=2)


@dataclass(frozen=True)
class Harder:
    """A user's own ten lines: more kinds of tasks once the last step went well."""

    above: float = 0.2
    state: dict = field(default_factory=lambda: {"kinds": 2}, compare=False)

    def __call__(self, env, n, split, seed):
        kinds = self.state["kinds"]
        return [task for task in env.tasks(8 * n, split, seed) if int(task.data["word"][1]) < kinds][:n]

    def after(self, report):
        return replace(self, state={"kinds": min(8, self.state["kinds"] + int(report.scored["return"] > self.above))})


def test_a_curriculum_learns_how_the_last_step_went_and_draws_the_next(models):
    curriculum, allowed = Harder(), 2
    for report in train(models, small.RECIPE, steps=4, turns=2, curriculum=curriculum):
        words = {int(prompt.split()[3][1]) for prompt in report.turns["prompt"]}
        assert max(words) < allowed
        allowed += report.scored["return"] > 0.2
    assert allowed > 2 and curriculum.state == {"kinds": 2}


def test_a_run_with_rounds_and_a_curriculum_goes_on_bit_for_bit(models, tmp_path):
    recipe = LIVELY.replace(by=("task", "agent"), once_per=None, center=lab.running_mean(), scale="none")
    asked = small.SETTINGS | {"tasks": 3, "rounds": 20, "minibatches": 1}
    for run, stops in (("straight", (2,)), ("cut", (1, 2))):
        for steps in stops:
            team, curriculum = small.make_team("shared", models), Harder(above=-1.0)
            training = lab.train(small.Relay(), team, recipe, steps, run=tmp_path / run, curriculum=curriculum, **asked)
            reports = list(training)
    assert small.bits(tmp_path / "cut") == small.bits(tmp_path / "straight")
    run = lab.load_run(tmp_path / "cut")
    assert run.config["curriculum"]["is"] == f"{__name__}.Harder"
    assert run.checkpoint().state["memory"]["curriculum"] == {"kinds": 2 + 2} and len(reports) == 1
    first = run.step_turns(0)  # the mean moved once, by all rounds as one batch
    means = first.groupby(["agent", "episode"])["credit"].first().groupby("agent").mean()
    assert first["center"].tolist() == pytest.approx(first["agent"].map(means).tolist(), abs=1e-12)
    with pytest.raises(lab.RunError, match=r"curriculum(\.is)? differs"):
        list(lab.train(small.Relay(), team, recipe, 3, run=tmp_path / "cut", **asked))


def few(env, n, split, seed):
    return env.tasks(n - 1, split, seed)


def twice(env, n, split, seed):
    return env.tasks(1, split, seed) * n


@pytest.mark.parametrize(("few", "words"), [(few, "3 tasks with 3 different ids, and n is 4"), (twice, "4 .* 1 diff")])
def test_what_a_curriculum_may_not_give_is_refused_and_the_run_stays_whole(models, tmp_path, few, words):
    with pytest.raises(ValueError, match=f"gave {words}"):
        list(train(models, curriculum=few, run=tmp_path / "run"))
    assert lab.load_run(tmp_path / "run").checkpoint().step == 0

"""Centers of one's own, and those that learn: by hand, against the formula, and what may not be answered."""

import json
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
from small import Relay, make_team
from tables import episodes_table, shuffled

import mas_lab as lab
from mas_lab.cells import centers


def table(**columns):
    return pd.DataFrame(columns)


def batch(*credits, agent="x"):
    """A grouped table: an episode a row."""
    return table(group="g", agent=agent, episode=range(len(credits)), credit=[float(credit) for credit in credits])


def learned(center, *batches):
    """The baselines of each batch, and the center after the last."""
    found = []
    for turns in batches:
        found.append(lab.normalize(turns, center=center, scale="none")["center"].tolist())
        center = center.after(turns)
    return found, center


def test_the_running_mean_by_hand():
    """b: 2 from the first batch, then 0.75 * 2 + 0.25 * 6 = 3, then 0.75 * 3 + 0.25 * 0; read before it moves."""
    found, _ = learned(lab.running_mean(decay=0.75), batch(1, 3), batch(6, 6), batch(0), batch(5))
    assert found == [[2.0, 2.0], [2.0, 2.0], [3.0], [2.25]]


def test_each_role_has_a_mean_of_its_own_and_a_new_one_starts_with_its_first_batch():
    center = lab.running_mean(by=("agent",), decay=0.5)
    first, second = batch(1, 3, agent=["x", "y"]), batch(5, 7, 9, 11, agent=["x", "y", "z", "z"])
    found, after = learned(center, first, second)
    again = replace(after, state=json.loads(json.dumps(after.state)))  # it goes on from plain data
    assert learned(again, second, first)[0] == learned(after, second, first)[0]
    assert found == [[1.0, 3.0], [1.0, 3.0, 10.0, 10.0]]
    assert after.state == {"means": [[["x"], 3.0], [["y"], 5.0], [["z"], 10.0]]} and center.state == {"means": []}


def test_an_episode_counts_once_however_often_its_agent_spoke():
    turns = table(group="g", agent="x", episode=list("aaab"), credit=[0.0, 0.0, 0.0, 1.0])
    assert lab.running_mean()(turns).tolist() == [0.5] * 4
    assert lab.running_mean(once_per=None)(turns).tolist() == [0.25] * 4


def test_continuations_that_value_a_candidate_do_not_move_it():
    center = lab.running_mean().after(batch(1, 3, 100).assign(probe=[False, False, True]))
    assert center.state == {"means": [[["x"], 2.0]]}


def test_shuffled_rows_have_the_same_baseline_to_the_last_bit():
    turns = episodes_table(1).assign(mark=range(len(episodes_table(1))))
    again = shuffled(turns, np.random.default_rng(1))
    found = []
    for rows in (turns, again):
        recipe = lab.RECIPES["dr_mas"].replace(center=lab.running_mean(), scale="none")
        recipe = recipe.after(recipe.advantages(turns.assign(team_reward=1.0)))
        found.append(recipe.advantages(rows).set_index("mark")["advantage"].sort_index())
    assert found[0].equals(found[1])


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match=r"decay=1\.0 must be from 0"):
        lab.running_mean(decay=1.0)
    with pytest.raises(ValueError, match=r"by=.* must be a tuple of columns, such as \('agent',\)"):
        lab.running_mean(by="agent")
    for center, options, words in (
        (lab.running_mean(by=("role",)), {}, "running_mean: column 'role' is missing"),
        (lab.running_mean(), {"once_per": "episode"}, "counts units of a center group, and running_mean.*scale"),
        (lambda turns: [0.0, 0.0], {}, r"normalize: center .* gave list for 2 rows; give a Series"),
        (lambda turns: pd.Series([0.0, float("nan")]), {}, r"column 'center' is .* \(nan\) at episode 1"),
    ):
        with pytest.raises(ValueError, match=words):
            lab.normalize(batch(1, 2), center=center, scale="none" if not options else None, **options)


def test_a_center_does_not_depend_on_what_its_own_episode_earned(monkeypatch):
    """Otherwise the expected gradient would change with the baseline. (The weight w alone looks at all rows.)"""
    turns = episodes_table(3).assign(credit=lambda rows: np.random.default_rng(0).random(len(rows)))
    turns = turns.assign(group=turns["task"])
    monkeypatch.setattr(centers, "share_of_own", lambda rows, others, values: pd.Series(0.5, rows.index))
    center = centers.shrunken_mean()
    before = center(turns)
    for episode in turns["episode"].unique():
        own = turns["episode"] == episode
        after = center(turns.assign(credit=turns["credit"] + 7.0 * own))
        compared = turns.groupby(["task", "agent"])["episode"].transform("nunique") > 1
        assert after[own & compared].tolist() == pytest.approx(before[own & compared].tolist())


@dataclass(frozen=True)
class half_of_team:
    """A center of one's own that needs the team."""

    calls: list
    needs_team = True

    def __call__(self, turns, team):
        self.calls.append(team)
        return turns["credit"] / 2


def test_a_center_or_scale_that_needs_the_team_gets_it(models):
    calls, team = [], make_team("per_agent", models)
    played = lab.rollout(Relay(), team, Relay().tasks(3, "train", 0), lab.episodes(3))
    recipe = lab.RECIPES["grpo"].replace(once_per=None, center=half_of_team(calls), scale=half_of_team(calls))
    recipe.advantages(played, team)
    list(lab.train(Relay(), team, recipe.replace(plan=lab.episodes(3)), 1, tasks=2))
    assert len(calls) == 4 and all(one is team for one in calls)
    with pytest.raises(ValueError, match=r"normalize: half_of_team\(.* needs the team that played the turns; pass it"):
        recipe.advantages(played)

    def weighted(turns, team):
        return turns["agent"].isin(team.frozen).astype(float)

    weighted.needs_team = True  # a function may need it, too
    assert (lab.group(played, "task", weighted, team=team)["credit"] == 0).all()

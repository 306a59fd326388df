"""Centers of one's own, and those that learn: by hand, against the formula, and what may not be answered."""

import json
from dataclasses import dataclass, field, replace

import numpy as np
import pandas as pd
import pytest
from tables import episodes_table, shuffled

import mas_lab as lab
from mas_lab.describe import describe
from mas_lab.recipes import from_data


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
    assert found == [[1.0, 3.0], [1.0, 3.0, 10.0, 10.0]]
    assert after.state == {"means": [[["x"], 3.0], [["y"], 5.0], [["z"], 10.0]]} and center.state == {"means": []}


def test_an_episode_counts_once_however_often_its_agent_spoke():
    turns = table(group="g", agent="x", episode=list("aaab"), credit=[0.0, 0.0, 0.0, 1.0])
    assert lab.running_mean()(turns).tolist() == [0.5] * 4
    assert lab.running_mean(once_per=None)(turns).tolist() == [0.25] * 4


def test_continuations_that_value_a_candidate_do_not_move_it():
    center = lab.running_mean().after(batch(1, 3, 100).assign(probe=[False, False, True]))
    assert center.state == {"means": [[["x"], 2.0]]}


def test_it_goes_on_from_plain_data():
    turns = batch(1, 3).assign(turn=np.arange(2))
    one = lab.running_mean(by=("agent", "turn")).after(turns)
    other = replace(one, state=json.loads(json.dumps(one.state)))
    assert one.state == other.state
    assert learned(one, turns + turns, turns) == learned(other, turns + turns, turns)


@pytest.mark.parametrize("seed", range(3))
def test_shuffled_rows_have_the_same_baseline_to_the_last_bit(seed):
    turns = episodes_table(seed).assign(mark=range(len(episodes_table(seed))))
    again = shuffled(turns, np.random.default_rng(seed))
    found = []
    for rows in (turns, again):
        recipe = lab.RECIPES["dr_mas"].replace(center=lab.running_mean(), scale="none")
        recipe = recipe.after(recipe.advantages(turns.assign(team_reward=1.0)))
        found.append(recipe.advantages(rows).set_index("mark")["advantage"].sort_index())
    assert found[0].equals(found[1])


def test_it_prints_compares_and_saves_without_its_state():
    used = lab.running_mean(("agent", "turn"), 0.9, state={"means": [[["x", 0], 1.0]]})
    recipe = lab.RECIPES["dr_mas"].replace(center=used)
    fresh = from_data(json.loads(json.dumps(describe(recipe))))
    assert fresh == recipe and fresh.center.state == {"means": []}
    assert eval(repr(used), vars(lab)) == used and hash(used) == hash(fresh.center)


def test_nonsense_is_refused():
    with pytest.raises(ValueError, match=r"decay=1\.0 must be from 0"):
        lab.running_mean(decay=1.0)
    for by in ("agent", ()):
        with pytest.raises(ValueError, match=r"by=.* must be a tuple of columns, such as \('agent',\)"):
            lab.running_mean(by=by)
    for center, options, words in (
        (lab.running_mean(by=("role",)), {}, "running_mean: column 'role' is missing"),
        (lab.running_mean(), {"once_per": "episode"}, "counts units of a center group, and running_mean.*scale"),
        (lab.running_mean(), {"lone": "lend"}, "lone='lend' is about groups"),
        (lambda turns: [0.0, 0.0], {}, r"normalize: center .* gave list for 2 rows; give a Series"),
        (lambda turns: pd.Series([0.0, float("nan")]), {}, r"column 'center' is .* \(nan\) at episode 1"),
    ):
        with pytest.raises(ValueError, match=words):
            lab.normalize(batch(1, 2), center=center, scale="none" if not options else None, **options)


@dataclass(frozen=True)
class critic:
    """What a user may write: a value of each row by ridge regression on what is known before it was said."""

    ridge: float = 1.0
    state: dict = field(default_factory=lambda: {"square": [[0.0] * 3] * 3, "cross": [0.0] * 3}, compare=False)

    def features(self, turns):
        return np.stack([np.ones(len(turns)), turns["turn"], turns["agent"] == "doer"], 1).astype(float)

    def __call__(self, turns):
        square, cross = (np.array(self.state[name]) for name in ("square", "cross"))
        weight_F = np.linalg.solve(square + self.ridge * np.eye(3), cross)
        return pd.Series(self.features(turns) @ weight_F, turns.index)

    def after(self, turns):
        features_RF = self.features(turns)
        square = features_RF.T @ features_RF + self.state["square"]
        cross = features_RF.T @ turns["credit"].to_numpy() + self.state["cross"]
        return replace(self, state={"square": square.tolist(), "cross": cross.tolist()})


def test_a_critic_of_ones_own_learns_what_a_row_is_worth():
    rng, values = np.random.default_rng(0), []
    center = critic()
    for _ in range(20):
        turns = table(group="g", turn=rng.integers(0, 3, 50), agent=rng.choice(["asker", "doer"], 50))
        worth = 0.5 + 0.25 * turns["turn"] - (turns["agent"] == "doer")
        turns["credit"] = worth + rng.normal(0, 0.1, 50)
        values.append((lab.normalize(turns, center=center, scale="none")["center"] - worth).abs().max())
        center = center.after(turns)
    assert values[0] > 0.4 and values[-1] < 0.05

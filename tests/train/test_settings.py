"""Settings: what reaches the optimizer."""

import itertools

import pytest
import small
from backends.drawn import same, weights

import mas_lab as lab


def test_settings_reach_the_optimizer(models):
    """The learning rate falls linearly to 0 in four steps, and stays there."""
    team, seen = small.make_team("unlike", models, lr=0.01), []
    asked = {"tasks": 2, "schedule": 4, "epochs": 2, "minibatches": 2, "max_norm": 0.01, "score_every": 6,
             "score_tasks": 2}  # fmt: skip
    for report in lab.train(small.Relay(max_turns=3), team, small.RECIPE, 6, max_turns=1, check=False, **asked):
        rates = report.stats.groupby("agent")["lr"].first()
        left = max(0, 1 - report.step / 4)
        assert rates.to_dict() == pytest.approx({"asker": 0.01 * left, "doer": 0.005 * left})
        assert sorted(report.stats["optimizer_step"].unique()) == [0, 1, 2, 3]
        assert report.stats["turns"].sum() == 2 * len(report.turns) and set(report.turns["turn"]) == {0}
        assert report.stats["policy_norm_clipped"].max() == pytest.approx(0.01, rel=1e-4)
        seen.append(weights(team["asker"]))
    assert [same(one, two) for one, two in itertools.pairwise(seen)] == [False, False, False, True, True]
    assert report.held_out["turns"].max() == 1  # the bound holds in scores, too
    assert team["asker"].lr == 0.01

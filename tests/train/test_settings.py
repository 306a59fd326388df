"""Settings: schedules by hand, and what reaches the optimizer."""

import itertools
import math

import pytest
import small
from backends.drawn import same, weights

import mas_lab as lab
from mas_lab.train import Settings


def test_schedules_by_hand():
    linear = Settings(schedule="linear", horizon=4)
    assert [linear.lr_scale(step) for step in range(6)] == [1.0, 0.75, 0.5, 0.25, 0.0, 0.0]
    cosine = Settings(schedule="cosine", horizon=4)
    expected = [1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2, 0.0, 0.0]
    assert [cosine.lr_scale(step) for step in range(6)] == pytest.approx(expected, abs=1e-12)
    assert [Settings().lr_scale(step) for step in (0, 10**6)] == [1.0, 1.0]


def test_settings_reach_the_optimizer(models):
    team, seen = small.make_team("unlike", models, lr=0.01), []
    asked = {"tasks": 2, "schedule": "linear", "horizon": 4, "epochs": 2, "minibatches": 2, "max_norm": 0.01,
             "score_every": 5, "score_tasks": 2}  # fmt: skip
    for report in lab.train(small.Relay(max_turns=3), team, small.RECIPE, 5, max_turns=1, check=False, **asked):
        rates = report.stats.groupby("agent")["lr"].first()
        left = 1 - report.step / 4
        assert rates.to_dict() == pytest.approx({"asker": 0.01 * left, "doer": 0.005 * left})
        assert sorted(report.stats["optimizer_step"].unique()) == [0, 1, 2, 3]
        assert report.stats["turns"].sum() == 2 * len(report.turns) and set(report.turns["turn"]) == {0}
        assert report.stats["policy_norm_clipped"].max() == pytest.approx(0.01, rel=1e-4)
        seen.append(weights(team["asker"]))
    assert [same(one, two) for one, two in itertools.pairwise(seen)] == [False, False, False, True]
    assert report.held_out["turns"].max() == 1  # the bound holds in scores, too
    assert team["asker"].lr == 0.01

"""The spike rule on series made by hand, and the watch that opens a spike."""

import json
import math

import numpy as np
import pandas as pd
import pytest
from small import RECIPE, SETTINGS, Relay, make_team

import mas_lab as lab
from mas_lab.explain.moments import both_baselines
from mas_lab.explain.spike_rule import SpikeRule, spike_steps
from mas_lab.table import TableError


def statistics(norms, agent="a", policy="p", skipped=()):
    return pd.DataFrame({
        "step": range(len(norms)), "optimizer_step": 0, "policy": policy, "agent": agent, "grad_norm": norms,
        "policy_norm": norms, "skipped": [step in skipped for step in range(len(norms))],
    })  # fmt: skip


def steps_of(found, agent="a"):
    return found.loc[found["agent"] == agent, "step"].tolist()


WAVY = [1.0 + 0.1 * (-1) ** step for step in range(40)]


def test_one_high_norm_is_the_spike():
    norms = WAVY.copy()
    norms[25] = 3.0
    found = lab.spikes(statistics(norms))
    assert steps_of(found) == steps_of(found, "") == [25]
    # log norms before: half log 1.1, half log 0.9 (one of them the middle of 25); MAD = their distance to the median
    logs = np.log(norms[:25])
    spread = 1.4826 * np.median(np.abs(logs - np.median(logs)))
    assert found["score"].iloc[0] == pytest.approx((math.log(3.0) - np.median(logs)) / max(spread, 0.05))
    assert found["usual"].iloc[0] == pytest.approx(math.exp(np.median(logs)))
    assert all(math.isnan(value) for value in SpikeRule()([0.0] * 9, 5.0)), "the rule warms up"
    assert SpikeRule()([0.0] * 10, math.e) == pytest.approx((1.0, 20.0))


def test_warmup_window_and_threshold():
    norms = WAVY.copy()
    norms[4] = norms[30] = 3.0
    assert steps_of(lab.spikes(statistics(norms))) == [30]
    assert sorted(steps_of(lab.spikes(statistics(norms), warmup=4))) == [4, 30]
    assert steps_of(lab.spikes(statistics(norms), threshold=100.0)) == []
    risen = [1.0] * 20 + [2.0] * 20
    assert steps_of(lab.spikes(statistics(risen), warmup=2, window=4)) == [20, 21]  # then 2 is what is usual


def test_small_changes_zeros_and_skipped_steps_are_no_spikes():
    norms = [1.0] * 20 + [1.05] + [0.0] * 30 + [1.3]
    assert steps_of(lab.spikes(statistics(norms))) == [51]
    assert lab.spike_scores(statistics([0.0] * 30))["score"].isna().all()
    norms = [1.0] * 20 + [50.0] + [1.0] * 9
    assert lab.spikes(statistics(norms, skipped=[20])).empty and lab.spikes(statistics([])).empty


def test_each_agent_is_judged_by_its_own_past():
    loud, quiet = statistics([10.0] * 30), statistics([0.1] * 29 + [1.0], agent="b")
    found = lab.spikes(pd.concat([loud, quiet]))
    assert steps_of(found, "b") == [29] and steps_of(found) == []


@pytest.mark.parametrize("options", [{"warmup": 1}, {"warmup": 9, "window": 8}, {"threshold": 0}])
def test_numbers_that_make_no_rule_are_refused(options):
    with pytest.raises(ValueError, match="spikes: "):
        lab.spikes(statistics([1.0]), **options)
    with pytest.raises(TableError, match="'grad_norm' is missing"):
        lab.spikes(statistics([1.0]).drop(columns="grad_norm"))


def train(models, run, steps, watch):
    return lab.train(Relay(), make_team("shared", models), RECIPE, steps, run=run, watch=watch, **SETTINGS)


def watcher(**options):
    """A watch for which every second norm is a spike."""
    return lab.SpikeWatch(warmup=2, window=4, threshold=0.01, **options)


def test_the_watch_opens_the_spikes_that_the_statistics_show(models, tmp_path):
    watch = watcher()
    reports = list(train(models, None, 4, watch))
    stats = pd.concat([report.stats for report in reports])
    shown = lab.spikes(stats, warmup=2, window=4, threshold=0.01)
    opened = spike_steps(stats, watch.spikes)
    assert opened and {(s["step"], s["optimizer_step"]) for s in opened} == set(
        shown[["step", "optimizer_step"]].itertuples(index=False, name=None)
    )
    for spike in opened:
        here = stats[(stats["step"] == spike["step"]) & (stats["optimizer_step"] == spike["optimizer_step"])]
        assert spike["norms"][""] == pytest.approx(here["policy_norm"].iloc[0], rel=1e-5)
        assert sum(spike["rows"].values()) == pytest.approx(1, abs=1e-4)
        turns = reports[spike["step"]].turns
        for row, tokens in spike["tokens"].items():
            assert len(tokens) == len(turns["completion_ids"].iloc[int(row)])
            assert sum(tokens) == pytest.approx(spike["rows"][row])
        [(row, norm)] = spike["without"].items()
        assert norm != spike["norm"] and row == max(spike["rows"], key=lambda row: abs(spike["rows"][row]))
        assert set(spike["baselines"]) == set(spike["judged"]) == {"global", "agent"} and spike["exact"]
        advantages = both_baselines(turns)
        for name, judged in spike["judged"].items():
            assert judged == {row: pytest.approx(advantages[name][int(row)]) for row in spike["tokens"]}


def test_the_largest_norm_is_opened_although_it_is_no_spike(models, tmp_path):
    watch = lab.SpikeWatch()
    reports = list(train(models, tmp_path / "run", 3, watch))
    stats = pd.concat([report.stats for report in reports])
    tallest = stats.nlargest(1, "grad_norm").iloc[0]
    assert not watch.spikes and watch.tallest["agent"] == tallest["agent"] and watch.tallest["score"] is None
    assert watch.tallest["norm"] == pytest.approx(tallest["grad_norm"], rel=1e-5)
    assert sum(watch.tallest["rows"].values()) == pytest.approx(1, abs=1e-4)
    inspector = lab.SpikeInspector(tmp_path / "run")
    [opened] = inspector.opened
    assert opened["step"] == tallest["step"] and not inspector.spikes
    words = f"The tallest: {tallest['agent']}, step {tallest['step']}, norm {tallest['grad_norm']:.3g}."
    assert f"no norm is above it. {words}" in inspector.page() and words in inspector.static()
    unwatched = lab.SpikeInspector(stats)
    assert not unwatched.opened and "The tallest" not in unwatched.page()


def test_what_it_remembers_is_bounded_and_plain(models):
    watch = watcher(keep=2, samples=3)
    list(train(models, None, 4, watch))
    assert len(watch.spikes) == 2 and all(len(spike["tokens"]) <= 3 for spike in watch.spikes)
    assert watch.spikes[0]["score"] >= watch.spikes[1]["score"]
    assert json.loads(json.dumps(watch.state())) == watch.state()
    assert "2 spikes in 8 steps" in repr(watch)


def test_a_watch_changes_nothing_and_resumes_with_the_run(models, tmp_path):
    whole, first, second = watcher(), watcher(), watcher()
    seen, unseen = (list(train(models, run, 4, watch)) for run, watch in ((tmp_path / "whole", whole), (None, None)))
    for one, other in zip(seen, unseen, strict=True):
        pd.testing.assert_frame_equal(one.stats, other.stats)
    list(train(models, tmp_path / "parts", 2, first))
    list(train(models, tmp_path / "parts", 4, second))
    assert second.state() == whole.state() and whole.spikes


def test_records_of_another_run_are_refused():
    record = {"policy": "p", "call": 5}
    with pytest.raises(ValueError, match="another run"):
        spike_steps(statistics([1.0] * 5), [record])
    [dated] = spike_steps(statistics([1.0] * 7, skipped=[2]), [record])
    assert dated["step"] == 6

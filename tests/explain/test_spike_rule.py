"""The spike rule on series made by hand, and the watch that opens a spike."""

import inspect
import json
import math
import re
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
from small import RECIPE, SETTINGS, Relay, make_team
from tables import spikes

import mas_lab as lab
from mas_lab.explain.moments import both_baselines
from mas_lab.explain.spike_rule import SpikeRule, spike_scores, spike_steps
from mas_lab.paths import data_dir
from mas_lab.table import TableError


def statistics(norms, agent="a", policy="p"):
    return pd.DataFrame({
        "step": range(len(norms)), "optimizer_step": 0, "policy": policy, "agent": agent, "grad_norm": norms,
        "policy_norm": norms,
    })  # fmt: skip


def steps_of(found, agent="a"):
    return found.loc[found["agent"] == agent, "step"].tolist()


WAVY = [1.0 + 0.1 * (-1) ** step for step in range(40)]


def test_one_high_norm_is_the_spike():
    norms = WAVY.copy()
    norms[25] = 6.6
    found = spikes(statistics(norms))
    assert steps_of(found) == steps_of(found, "") == [25]
    # of the 25 norms before, 13 are 1.1
    assert found["usual"].tolist() == [1.1, 1.1] and found["score"].tolist() == pytest.approx([6.6 / 1.1] * 2)
    assert all(math.isnan(value) for value in SpikeRule()([1.0] * 3, 5.0)[:2]), "the rule warms up"
    assert SpikeRule()([1.0, 2.0, 3.0, 9.0], 10.0) == (2.5, 4.0, False)
    assert SpikeRule()([1.0, 2.0, 3.0, 10.0], 10.5) == (2.5, 4.2, True)
    assert SpikeRule()([1.0, 2.0, 3.0, 11.0], 10.5) == (2.5, 4.2, False), "it is no peak"


def test_warmup_window_and_threshold():
    norms = WAVY.copy()
    norms[3], norms[30] = 6.5, 6.6
    assert steps_of(spikes(statistics(norms))) == [30]
    assert sorted(steps_of(spikes(statistics(norms), warmup=3))) == [3, 30]
    assert steps_of(spikes(statistics(norms), threshold=7.4)) == [], "6.6 / 0.9 = 7.33"
    risen = [1.0] * 20 + [6.0] * 20
    assert steps_of(spikes(statistics(risen), warmup=2, window=4)) == [20]


def test_small_changes_and_zeros_are_no_spikes():
    norms = [1.0] * 20 + [3.9] + [0.0] * 30 + [4.1]
    assert steps_of(spikes(statistics(norms))) == [51]
    assert spike_scores(statistics([0.0] * 30))["score"].isna().all()
    assert spikes(statistics([])).empty


def test_an_agent_is_judged_by_the_past_of_its_team():
    """An agent whose norms were always tall is found, as late stages of the ladder are, at its peak."""
    calm = [statistics([1.0] * 6, agent) for agent in "ab"]
    late = statistics([0.0] * 3 + [8.0] * 3, agent="c", policy="late")
    stats = pd.concat([*calm, late]).sort_values("step", kind="stable")
    found = spikes(stats)
    assert steps_of(found, "c") == steps_of(found, "") == [3]
    assert found["score"].tolist() == [8.0] * len(found)
    assert spikes(stats[stats["policy"] == "late"]).empty, "by its own past it is as usual"
    one = spike_scores(stats).query("agent != ''").set_index(["step", "agent"])
    other = spike_scores(stats.query("step < 4")).query("agent != ''").set_index(["step", "agent"])
    pd.testing.assert_frame_equal(one.loc[:3], other)  # what comes later changes no judgement


def test_the_rule_has_one_set_of_defaults():
    for made in (spike_scores, lab.SpikeWatch):
        given = {name: one.default for name, one in inspect.signature(made).parameters.items()}
        assert asdict(SpikeRule()).items() <= given.items(), made


def test_numbers_that_make_no_rule_are_refused():
    with pytest.raises(ValueError, match="spikes: "):
        spikes(statistics([1.0]), warmup=9, window=8)
    updates = [statistics([norm]).drop(columns="step") for norm in (1.0, 2.0)]
    with pytest.raises(TableError, match="optimizer step 0 occurs twice for an agent; number what you join"):
        spikes(pd.concat(updates))


def train(models, run, steps, watch):
    return lab.train(Relay(), make_team("shared", models), RECIPE, steps, run=run, watch=watch, **SETTINGS)


def watcher(**options):
    """A watch for which about every second norm is a spike."""
    return lab.SpikeWatch(warmup=2, window=4, threshold=1, **options)


def test_the_watch_opens_the_spikes_that_the_statistics_show(models, tmp_path):
    watch = watcher()
    reports = list(train(models, None, 4, watch))
    stats = pd.concat([report.stats for report in reports])
    shown = spikes(stats, warmup=2, window=4, threshold=1)
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
    watch = lab.SpikeWatch(warmup=50)
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


def test_a_watch_changes_nothing_and_resumes_with_the_run(models, tmp_path):
    whole, first, second = watcher(), watcher(), watcher()
    seen, unseen = (list(train(models, run, 4, watch)) for run, watch in ((tmp_path / "whole", whole), (None, None)))
    for one, other in zip(seen, unseen, strict=True):
        pd.testing.assert_frame_equal(one.stats, other.stats)
    list(train(models, tmp_path / "parts", 2, first))
    list(train(models, tmp_path / "parts", 4, second))
    assert second.state() == whole.state() and whole.spikes
    bounded = watcher(keep=2, samples=3)
    list(train(models, None, 4, bounded))
    assert len(bounded.spikes) == 2 and all(len(spike["tokens"]) <= 3 for spike in bounded.spikes)
    assert bounded.spikes[0]["score"] >= bounded.spikes[1]["score"] and "2 spikes in 8 steps" in repr(bounded)
    assert json.loads(json.dumps(bounded.state())) == bounded.state()


RULES = data_dir() / "results" / "spike_rules"
PAGE = Path(__file__).parents[2] / "docs" / "instruments.md"


def test_the_default_marks_few_norms_and_the_tallest_as_the_page_says():
    """The table of docs/instruments.md, from the record of the benchmark."""
    rules, page = pd.read_csv(RULES / "rules.csv").query("norms_of == 'new'"), " ".join(PAGE.read_text("utf-8").split())
    late = (rules["env"] == "ladder") & (rules["recipe"] == "grpo")
    grpo, calm = (rules[which].groupby("rule").sum(numeric_only=True) for which in (late, ~late))
    rows = re.findall(r"\| ([\d.]+ (?:deviations|times),[^|]+) \| (\d+) \| (\d+) \| (\d+) \|", page.replace("**", ""))
    assert len(rows) == 5
    for name, *told in rows:
        assert [*map(int, told)] == [*grpo.loc[name, ["marked", "tallest"]], calm.loc[name, "marked"]], name
    norms, marked = pd.read_csv(RULES / "norms.csv").query("env == 'ladder' and recipe == 'grpo'"), 0
    for _, own in norms.groupby("seed"):
        same = {"policy": own["agent"], "grad_norm": own["norm"], "policy_norm": own["norm"]}
        scored = spike_scores(own.assign(optimizer_step=0, **same)).query("agent != ''")
        marked += scored["spike"].sum()
    told = f"**4 times, team past, warm-up 4, window 50, peaks** | {marked} |"
    assert told in page, "the package has the page's rule"

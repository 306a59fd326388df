"""PairedWatch: both norms are those of the update that would have been made, and watching changes nothing."""

import pandas as pd
import pytest
from small import Relay, make_team

import mas_lab as lab
from mas_lab.explain.moments import both_baselines

SETTINGS = {"seed": 3, "tasks": 3, "check": False}
GRPO = lab.RECIPES["grpo"].replace(plan=lab.episodes(4))


def test_both_norms_are_those_of_two_updates(models):
    watch = lab.PairedWatch()
    [report] = lab.train(Relay(), make_team("shared", models), GRPO, 1, watch=watch, **SETTINGS)
    pairs = watch.pairs.set_index("agent")
    assert list(pairs.index) == list(Relay.agents) and (pairs["call"] == 0).all()
    for name, advantages in both_baselines(report.turns).items():
        other = lab.update(make_team("shared", models), report.turns.assign(advantage=advantages)).set_index("agent")
        assert pairs[f"norm_{name}"].to_dict() == pytest.approx(other["grad_norm"].to_dict(), rel=1e-5)
    assert pairs["norm_global"].to_dict() == pytest.approx(report.stats.set_index("agent")["grad_norm"].to_dict())
    found = lab.inflation(report.turns)
    found = found[~found["flat"]]
    weighted = (found["F_k"] * found["n_k"]).groupby(found["agent"]).sum()
    assert (pairs["F"] * pairs["rows"]).to_dict() == pytest.approx(weighted.to_dict(), rel=1e-4)


def test_a_watch_resumes_with_the_run(models, tmp_path):
    whole, first, second = (lab.PairedWatch(warmup=2, window=4, threshold=1) for _ in range(3))
    for watch, steps, run in ((whole, 4, "whole"), (first, 2, "run"), (second, 4, "run")):
        team = make_team("shared", models)
        list(lab.train(Relay(), team, GRPO, steps, run=tmp_path / run, watch=watch, **SETTINGS))
    assert second.pairs.equals(whole.pairs) and second.spikes == whole.spikes


def test_a_call_is_dated_by_the_steps_in_which_its_policy_had_rows():
    pair = {"rows": 2, "F": 1.0, "V": 1.0, "norm_global": 0.5, "norm_agent": 0.5}
    watch = lab.PairedWatch()
    pairs = [{"call": call, "policy": name, "agent": name, **pair} for name, call in (("a", 0), ("a", 1), ("b", 0))]
    watch.load_state(watch.state() | {"pairs": pairs})
    steps = [("a", 0, False), ("a", 1, True), ("a", 2, False), ("b", 2, False)]  # b spoke late, a step was skipped
    stats = pd.DataFrame(steps, columns=["policy", "step", "skipped"]).assign(optimizer_step=0)
    dated = watch.dated(stats)
    assert dated[["policy", "call", "step"]].to_numpy().tolist() == [["a", 0, 0], ["a", 1, 2], ["b", 0, 2]]
    with pytest.raises(ValueError, match="another run"):
        watch.dated(stats[stats["policy"] == "a"].assign(policy="b").head(1).assign(skipped=True))
    assert list(lab.PairedWatch().dated(stats).columns) == list(dated.columns)

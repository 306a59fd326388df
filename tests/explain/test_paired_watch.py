"""PairedWatch: both norms are those of the update that would have been made, and watching changes nothing."""

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


def test_watching_changes_no_weight(models):
    def trained(watch):
        return [report.stats["grad_norm"].tolist() for report in
                lab.train(Relay(), make_team("per_agent", models), GRPO, 3, watch=watch, **SETTINGS)]  # fmt: skip

    assert trained(lab.PairedWatch()) == trained(None)


def test_what_it_saw_is_part_of_the_run(models, tmp_path):
    whole, first, second = (lab.PairedWatch(warmup=2, window=4, threshold=0.01) for _ in range(3))
    list(lab.train(Relay(), make_team("shared", models), GRPO, 4, watch=whole, **SETTINGS))
    for watch, steps in ((first, 2), (second, 4)):
        team = make_team("shared", models)
        list(lab.train(Relay(), team, GRPO, steps, run=tmp_path / "run", watch=watch, **SETTINGS))
    assert second.pairs.equals(whole.pairs) and second.spikes == whole.spikes

"""One advantage per token, from the table to the gradient, its statistics and shares, a run, and the instruments."""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest
import small
import torch
from backends.drawn import same, weights
from small import AGENTS, Relay, make_team

import mas_lab as lab
from mas_lab.policy import samples_of
from mas_lab.table import TableError

RELAY = Relay()


@pytest.fixture(scope="module")
def drawn(models):
    turns = small.judged(make_team("shared", models))
    assert (turns["advantage"] == 0).any() and turns["completion_ids"].map(len).nunique() > 1
    return turns


def spread(turns, of=lambda advantage, length: [advantage] * length):
    """A list in every row."""
    pairs = zip(turns["advantage"], turns["completion_ids"], strict=True)
    return turns.assign(advantage=pd.Series([of(a, len(ids)) for a, ids in pairs], turns.index, dtype=object))


@pytest.fixture(scope="module")
def judged(drawn):
    """Numbers of all signs, 0 in some places; a row's own number in every third row, an array in every other third."""
    rng = np.random.default_rng(1)
    turns = spread(drawn, lambda _, length: (rng.integers(-2, 3, length) / 2).tolist())
    kinds = zip(drawn["advantage"].map(float), turns["advantage"], turns["advantage"].map(np.array), strict=True)
    mixed = [kind[at % 3] for at, kind in enumerate(kinds)]
    return turns.assign(advantage=pd.Series(mixed, turns.index, dtype=object))


@pytest.mark.parametrize("loss, aggregate", [
    (lab.reinforce(), "sum"), (lab.clipped(0.2, ratio="sequence"), "turn"), (lab.clipped(0.2, tis=1.1), "agent"),
    (lab.clipped(0.2, kl=0.1, entropy=0.1), "token"),
], ids=str)  # fmt: skip
def test_a_list_of_equal_numbers_is_that_number(loss, aggregate, drawn, models):
    """Bit for bit, in weights, statistics and shares, be it a list, an array or the row's own number."""
    found = []
    for turns in (drawn, spread(drawn), spread(drawn, lambda a, n: np.full(n, a))):
        team, shares = make_team("shared", models), []
        stats = lab.update(team, turns, loss=loss, aggregate=aggregate, epochs=2,
                           watch=lambda batch, into=shares: into.append(batch.token_shares()))  # fmt: skip
        found.append((weights(team["asker"]), stats, pd.concat(shares)))
    for moved, stats, shares in found[1:]:
        assert same(moved, found[0][0])
        pd.testing.assert_frame_equal(stats.drop(columns="advantage_rms"), found[0][1].drop(columns="advantage_rms"))
        assert stats["advantage_rms"].tolist() == pytest.approx(found[0][1]["advantage_rms"].tolist())
        pd.testing.assert_frame_equal(shares, found[0][2])


@pytest.mark.parametrize("loss", [lab.reinforce(), lab.clipped(0.2)], ids=str)
def test_each_token_is_moved_by_its_own_advantage(loss, judged, models):
    """At ratio 1 the gradient is -sum of weight x advantage x grad log p, token by token."""
    team, seen = make_team("shared", models), []
    lab.update(team, judged, loss=loss, watch=lambda *_: seen.extend(g.clone() for _, g in team["asker"].gradients()))
    policy = make_team("shared", models)["asker"]
    lengths = judged["completion_ids"].map(len)
    each = [np.broadcast_to(a, n) for a, n in zip(judged["advantage"], lengths, strict=True)]
    advantages = torch.from_numpy(np.concatenate(each).astype(np.float32))
    mean = -(policy.logprobs(samples_of(judged, weight=0.0))[0] * advantages).sum() / lengths.sum()
    expected = torch.autograd.grad(mean, list(policy.parameters.values()))
    for gradient, other in zip(seen, expected, strict=True):
        torch.testing.assert_close(gradient, other, rtol=1e-4, atol=1e-6)


def by_hand(*advantages):
    lengths = [len(a) if isinstance(a, list) else 2 for a in advantages]
    return pd.DataFrame({
        "task": "t7", "agent": "asker", "turn": range(len(lengths)), "prompt_ids": [[3, 4]] * len(lengths),
        "completion_ids": [[5] * n for n in lengths], "logprobs": [[-2.0] * n for n in lengths], "temperature": 1.0,
        "advantage": pd.Series(advantages, dtype=object),
    })  # fmt: skip


def passed(team):
    """What reaches the model."""
    calls, policy = [], team["asker"]

    def forward_backward(samples, loss, call=policy.forward_backward):
        calls.extend(samples)
        return call(samples, loss)

    policy.forward_backward = forward_backward
    return calls


def test_rows_are_inert_where_every_token_is_0_and_stay_in_the_denominators(models):
    team = make_team("shared", models)
    calls = passed(team)
    turns = by_hand([0.0, 0.0], 0.0, [0.0, 1.0], 2.0, [-1.0])
    [stats] = lab.update(team, turns, off_policy=True).to_dict("records")
    assert [np.asarray(sample.advantage).tolist() for sample in calls] == [[0.0, 1.0], 2.0, [-1.0]]
    assert {sample.weight for sample in calls} == {1 / 9} and (stats["turns"], stats["tokens"]) == (5, 9)
    assert stats["advantage_rms"] == pytest.approx(math.sqrt((0 + 0 + 0.5 + 4 + 1) / 5))
    still = lab.update(team, by_hand([0.0, 0.0], 0.0))
    assert still["grad_norm"].tolist() == [0.0] and still["advantage_rms"].tolist() == [0.0]


def test_importance_weights_multiply_each_tokens_own(models):
    """p_trained / p_sampled is 2 for every token, bounded by 1.5."""
    team, turns = make_team("shared", models), by_hand([1.0, -2.0], 3.0)
    now = team["asker"].logprobs(samples_of(turns, weight=0.0))[0].detach().reshape(2, 2)
    calls = passed(team)
    lab.update(team, turns.assign(logprobs=(now - math.log(2)).tolist()), loss=lab.clipped(0.2, tis=1.5), epochs=2)
    assert [list(sample.advantage) for sample in calls[:2]] == [pytest.approx([1.5, -3.0]), pytest.approx([4.5, 4.5])]


@pytest.mark.parametrize("advantage, words", [
    ([1.0, 2.0, 3.0], r"the advantage of task 't7', agent 'asker', turn 1 is a list of 3, and .* has 2 tokens"),
    (np.array([0.0, math.nan]), r"neither a finite number nor a list of them.*\[0.0, nan\].* agent 'asker', turn 1"),
    (["1", "1"], r"neither a finite number .* turn 1"), ([[1.0], [2.0, 3.0]], r"neither a finite number .* turn 1"),
    (math.nan, r"advantage' is empty .* turn 1"),
], ids=str)  # fmt: skip
def test_what_is_no_number_per_token_is_refused_with_its_place(advantage, words, models):
    turns = by_hand([1.0, -1.0], 1.0, [0.5, 0.5])
    turns.at[1, "advantage"] = advantage
    with pytest.raises(TableError, match="update: .*" + words):
        lab.update(make_team("shared", models), turns)


def test_shares_follow(judged, models):
    shares = lab.attribute(make_team("lora", models), judged)
    assert shares["exact"].all()
    sums = shares.groupby("policy")["share"].sum().tolist()
    assert sums == pytest.approx([1.0] * len(sums), abs=1e-4)
    for row, own in shares.groupby("row"):
        advantage = np.broadcast_to(judged["advantage"].iloc[row], len(judged["completion_ids"].iloc[row]))
        assert np.array_equal(own["share"] == 0, advantage == 0)


@dataclass(frozen=True)
class Process(lab.Recipe):
    """The first token of every asker's row counts twice; in even steps nobody's does."""

    def normalize(self, turns, team=None):
        turns = super().normalize(turns, team)
        if turns["step"].iloc[0] % 2 == 0:
            return turns
        judged = [
            [2 * a, *[a] * (len(ids) - 1)] if agent == "asker" else a
            for a, ids, agent in zip(turns["advantage"], turns["completion_ids"], turns["agent"], strict=True)
        ]
        return turns.assign(advantage=pd.Series(judged, turns.index, dtype=object))


@pytest.fixture(scope="module")
def kept(models, tmp_path_factory):
    """A run of two steps with a watch that calls almost every second norm a spike, and what it reported."""
    run, watch = tmp_path_factory.mktemp("process") / "run", lab.SpikeWatch(warmup=2, window=4, threshold=1)
    recipe, team = Process(**vars(small.RECIPE)), make_team("shared", models)
    reports = list(lab.train(RELAY, team, recipe, 2, run=run, watch=watch, **small.SETTINGS))
    assert watch.spikes
    return run, reports, watch, team


def test_a_run_keeps_lists_and_resumes_bit_for_bit(kept, models, tmp_path):
    run, reports, *_ = kept
    turns = lab.load_run(run).turns
    for step, report in enumerate(reports):
        own, told = turns[turns["step"] == step], report.turns
        assert own["advantage"].map(lambda a: isinstance(a, list)).all() == (step == 1)
        for read, made, ids in zip(own["advantage"], told["advantage"], told["completion_ids"], strict=True):
            assert np.array_equal(np.broadcast_to(read, len(ids)), np.broadcast_to(made, len(ids)))
    recipe, again = Process(**vars(small.RECIPE)), tmp_path / "again"
    for steps in (1, 2):
        watch = lab.SpikeWatch(warmup=2, window=4, threshold=1)
        team = make_team("shared", models)
        list(lab.train(RELAY, team, recipe, steps, run=again, watch=watch, **small.SETTINGS))
    assert small.bits(again) == small.bits(run)
    zipped = lab.load_run(lab.export(run, tmp_path / "process.zip"))
    assert zipped.turns["advantage"].tolist() == turns["advantage"].tolist()
    lab.update(team, zipped.step_turns(1), off_policy=True)  # what was kept can be learned from


def test_the_pages_show_each_tokens_advantage(kept):
    _, reports, watch, team = kept
    viewer = lab.RolloutViewer(reports, team=team)
    shown = [one for episode in viewer.data()["episodes"] for node in episode["nodes"] for one in node["candidates"]]
    assert all(len(one["shades"]["advantage"]) == len(one["tokens"]) for one in shown)
    lists = [one for one in shown if isinstance(one["numbers"]["advantage"], str)]
    assert 0 < len(lists) < len(shown)
    turns = reports[1].turns
    row = turns[turns["action"] == lists[0]["action"]].iloc[0]
    assert lists[0]["shades"]["advantage"] == pytest.approx(row["advantage"], abs=1e-4)
    assert "per token, " in lab.RolloutViewer(reports[1]).static()
    spikes = lab.SpikeInspector(reports, watch=watch, team=team).data()["spikes"]
    askers = [one for spike in spikes if spike["step"] == 1 for one in spike["anatomy"] if one["agent"] == AGENTS[0]]
    samples = [one for agent in askers for group in agent["groups"] for one in group["samples"] if "tokens" in one]
    assert samples and all(len(one["advantages"]) == len(one["shares"]) for one in samples)

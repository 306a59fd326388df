"""One step of the optimizer against a textbook's, the losses by hand, and the traps that public code fell into."""

import math
from functools import partial

import numpy as np
import pandas as pd
import plain_torch
import pytest
import torch
from backends.drawn import weights
from small import AGENTS, Relay, judged, make_team

from mas_lab.backends.loading import load_policy
from mas_lab.backends.torch.policy import TorchPolicy
from mas_lab.cells.credits import mixed
from mas_lab.cells.plans import episodes, tree
from mas_lab.cells.rollout import rollout
from mas_lab.cells.update import UpdateError
from mas_lab.cells.update import update as update_fresh
from mas_lab.losses import clipped, k3, reinforce
from mas_lab.recipes import RECIPES
from mas_lab.table import TableError
from mas_lab.team import Sampling, Team
from mas_lab.train import Settings

RELAY = Relay()
update = partial(update_fresh, off_policy=True)
"""`update` for `sampled`, whose recorded log-probabilities are off by some noise."""


@pytest.fixture(scope="module")
def sampled(models):
    """A batch that all tests start from: candidates of both agents, with pad and EOS ids read in some prompts.

    The recorded log-probabilities are off by some noise, so that ratios are not 1 and some tokens are clipped.
    """
    turns = judged(make_team("shared", models))
    turns = turns[turns["depth"] < 3].reset_index(drop=True)  # the asker speaks more often than the doer
    rng = np.random.default_rng(0)
    noisy = [(np.array(row) + rng.normal(0, 0.3, len(row))).tolist() for row in turns["logprobs"]]
    pairs = zip(turns["prompt_ids"], turns["depth"], strict=True)
    prompts = [[0, 1, 0, *ids] if depth else ids for ids, depth in pairs]
    assert (turns["advantage"] == 0).any() and turns["completion_ids"].map(len).nunique() > 1
    return turns.assign(logprobs=noisy, prompt_ids=prompts)


def plain_model(directory):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(directory).eval()
    model.get_input_embeddings().padding_idx = None  # a pad id that is really read has a gradient
    return model


def moved(before, policy):
    return {name for name, value in before.items() if not torch.equal(value, policy.parameters[name])}


def clean(before, team):
    """Nothing moved, and no gradient is left."""
    left = any(gradient.any() for agent in AGENTS for _, gradient in team[agent].gradients())
    return not left and not any(moved(before[agent], team[agent]) for agent in AGENTS)


# The losses, by hand

ROWS = None  # these losses read a token at a time


def tensors(*columns):
    return [torch.tensor(column, dtype=torch.float64) for column in columns]


def test_losses_by_hand():
    """Ratios 1.5, 0.5, 1.1 under A = 2 and A = -1: -min(rho A, clip(rho, 0.8, 1.2) A)."""
    ratios = [1.5, 0.5, 1.1] * 2
    logprobs, old, advantages = tensors([math.log(r) - 1 for r in ratios], [-1.0] * 6, [2.0] * 3 + [-1.0] * 3)
    loss = clipped(0.2)
    assert loss(logprobs, old, advantages, ROWS).tolist() == pytest.approx([-2.4, -1.0, -2.2, 1.5, 0.8, 1.1])
    assert loss.clips(logprobs, old, advantages, ROWS).tolist() == [True, False, False, False, True, False]
    higher = clipped(0.2, high=0.6, dual=1.2)  # the dual clip bounds what costs more, at a negative advantage alone
    assert higher(logprobs, old, advantages, ROWS).tolist() == pytest.approx([-3.0, -1.0, -2.2, 1.2, 0.8, 1.1])

    logprobs, advantages, entropy, reference = tensors([-2.0, -1.0], [0.5, -2.0], [1.0, 3.0], [-1.0, -1.0])
    assert reinforce()(logprobs, None, advantages, ROWS).tolist() == [1.0, -2.0]
    assert not reinforce().clips(logprobs, logprobs + 7, advantages, ROWS).any()
    assert k3(logprobs, reference).tolist() == pytest.approx([math.e - 2, 0.0])
    full = reinforce(kl=0.5, entropy=0.1)(logprobs, None, advantages, ROWS, entropy, reference)
    assert full.tolist() == pytest.approx([1.0 + 0.5 * (math.e - 2) - 0.1, -2.0 - 0.3])


@pytest.mark.parametrize("make", [
    lambda: clipped(0.2, high=-1), lambda: clipped(dual=0.5), lambda: reinforce(tis=-1.0),
    lambda: clipped(0.2, ratio="turn"),
])  # fmt: skip
def test_losses_refuse_constants_without_meaning(make):
    with pytest.raises(ValueError, match=r"(clipped|reinforce): "):
        make()


# One step against a textbook's


@pytest.mark.parametrize("aggregate, loss, plain_loss", [
    *((aggregate, clipped(0.2), {"kind": "clipped"}) for aggregate in ("token", "turn", "agent", "sum")),
    ("token", clipped(0.1, high=0.3, dual=1.5), {"kind": "clipped", "low": 0.1, "high": 0.3, "dual": 1.5}),
    ("sum", reinforce(), {"kind": "reinforce"}), ("turn", reinforce(tis=2.0), {"kind": "reinforce", "tis": 2.0}),
    ("agent", clipped(0.2, kl=0.5, entropy=0.1), {"kind": "clipped", "kl": 0.5, "entropy": 0.1}),
    ("token", clipped(0.01, tis=1.1, kl=0.5), {"kind": "clipped", "low": 0.01, "high": 0.01, "tis": 1.1, "kl": 0.5}),
    ("turn", clipped(0.2, ratio="sequence", dual=1.1), {"kind": "clipped", "ratio": "sequence", "dual": 1.1}),
    ("agent", clipped(0.2, ratio="action", dual=1.1, kl=0.5, entropy=0.1),
     {"kind": "clipped", "ratio": "action", "dual": 1.1, "kl": 0.5, "entropy": 0.1}),
], ids=lambda value: value if isinstance(value, str) else repr(value))  # fmt: skip
def test_a_step_is_the_textbooks_step(aggregate, loss, plain_loss, sampled, models):
    """Two passes over the batch: the second has ratios of its own and AdamW's moments of the first.

    Norms per role are those of gradients computed apart. Trap 13: they are before clipping, or say that they are not.
    """
    team, seen, max_norm = make_team("shared", models, lr=1e-4), [], {"sum": None, "token": 0.1}.get(aggregate, 0.5)

    def watch(batch):
        seen.append({key: gradient.clone() for key, gradient in team.policies[batch.name].gradients()})

    stats = update(team, sampled, loss=loss, aggregate=aggregate, epochs=2, max_norm=max_norm, watch=watch)

    model, frozen, rows = plain_model(models / "a"), plain_model(models / "a"), sampled.to_dict("records")
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.0)
    for number in range(2):
        apart = [
            plain_torch.norm(plain_torch.gradients(model, rows, plain_loss, aggregate, only=agent, reference=frozen))
            for agent in AGENTS
        ]
        found = plain_torch.gradients(model, rows, plain_loss, aggregate, reference=frozen)
        before = plain_torch.norm(found)
        for key, gradient in found.items():
            torch.testing.assert_close(seen[number][key], gradient, rtol=1e-4, atol=1e-6 * before)
        torch.nn.utils.clip_grad_norm_(model.parameters(), max_norm or math.inf)
        step, left = stats[stats["optimizer_step"] == number], min(1.0, max_norm / before) if max_norm else 1.0
        assert left < 1 or aggregate != "token"
        assert step.set_index("agent")["grad_norm"][list(AGENTS)].tolist() == pytest.approx(apart, rel=1e-4)
        assert step["policy_norm"].tolist() == pytest.approx([before] * 2, rel=1e-4)
        assert step["policy_norm_clipped"].tolist() == pytest.approx([before * left] * 2, rel=1e-4)
        assert step["grad_norm_clipped"].tolist() == pytest.approx((step["grad_norm"] * left).tolist(), rel=1e-4)
        optimizer.step()
    for key, parameter in model.named_parameters():
        torch.testing.assert_close(team["asker"].parameters[key], parameter, rtol=0, atol=1e-6)


def test_an_adapters_step_is_its_own_gradient(sampled, models):
    """LoRA: each agent's gradient is autograd's through the same PEFT model; the base has none."""
    team, rows = make_team("lora", models), sampled.to_dict("records")
    seen = {}

    def watch(batch):
        seen[batch.name] = {key: gradient.clone() for key, gradient in team.policies[batch.name].gradients()}

    expected = {}
    for agent in AGENTS:
        policy = team[agent]
        policy.model.set_adapter(policy.adapter)
        own = [row for row in rows if row["agent"] == agent]
        policy.set_gradients(None)
        weight = plain_torch.weights(own, "token")
        (plain_torch.token_losses(policy.model, own, {"kind": "clipped"}) * weight).sum().backward()
        expected[agent] = {key: parameter.grad.clone() for key, parameter in policy.parameters.items()}
        policy.set_gradients(None)
    update(team, sampled, watch=watch)
    for agent in AGENTS:
        assert expected[agent].keys() == seen[agent].keys() and any(g.any() for g in expected[agent].values())
        for key, gradient in expected[agent].items():
            torch.testing.assert_close(seen[agent][key], gradient, rtol=0, atol=1e-6)


# What is averaged over what


def test_minibatches_split_by_node_and_epochs_repeat(sampled, models):
    team, seen = make_team("shared", models), []
    stats = update(team, sampled, epochs=2, minibatches=3, watch=lambda batch: seen.append(batch.rows))
    assert sorted(stats["optimizer_step"].unique()) == [0, 1, 2, 3, 4, 5]
    for epoch in (seen[:3], seen[3:]):  # no node is in two minibatches of an epoch
        assert sorted(row for rows in epoch for row in rows.index) == sampled.index.tolist()
        assert sum(rows["node"].nunique() for rows in epoch) == sampled["node"].nunique()
    assert [rows.index.tolist() for rows in seen[:3]] != [rows.index.tolist() for rows in seen[3:]]
    assert stats["mismatch"].notna().tolist() == (stats["optimizer_step"] == 0).tolist()


# Who learns, and how fast


@pytest.mark.parametrize("kind", ["shared", "lora", "unlike"])
def test_trap_9_everything_that_an_agent_trains_moves_and_nothing_else(kind, models):
    """Every parameter of every policy, adapters included, is in an optimizer and moves; an adapter's base does not."""
    team = make_team(kind, models)
    turns = judged(team)
    base = {key: value.detach().clone() for key, value in team["asker"].model.named_parameters()}
    before = {name: weights(policy) for name, policy in team.policies.items()}
    for _ in range(2):  # LoRA's A matrices have a gradient once its B is not 0
        update(team, turns)
    for name, policy in team.policies.items():
        assert moved(before[name], policy) == set(before[name])
    if kind == "lora":
        still = {key for key, value in team["asker"].model.named_parameters() if torch.equal(value, base[key])}
        assert still == {key for key in base if "lora_" not in key}
        groups = [group for policy in team.policies.values() for group in policy.optimizer.param_groups]
        trained = [id(p) for group in groups for p in group["params"]]
        assert sorted(trained) == sorted(id(p) for key, p in team["asker"].model.named_parameters() if "lora_" in key)


def test_two_models_two_tokenizers_two_rates(models):
    """The first AdamW step moves each weight by its policy's rate, times `lr_scale`."""
    team = make_team("unlike", models, lr=1e-2)
    turns = judged(team)
    assert len(team["asker"].tokenizer) != len(team["doer"].tokenizer)
    before = {agent: weights(team[agent]) for agent in AGENTS}
    stats = update(team, turns, lr_scale=0.5).set_index("agent")
    for agent, rate in {"asker": 0.5e-2, "doer": 0.25e-2}.items():
        steps = [(team[agent].parameters[key] - value).abs().max().item() for key, value in before[agent].items()]
        assert max(steps) == pytest.approx(rate, rel=1e-3)
        assert stats.loc[agent, "lr"] == rate and stats.loc[agent, "policy"] == agent
        assert stats.loc[agent, "mismatch"] < 1e-4
    assert stats.loc["asker", "turns"] == (turns["agent"] == "asker").sum()


def test_a_flat_batch_moves_nothing(sampled, models):
    team = make_team("shared", models)
    update(team, sampled)  # AdamW has moments now
    before, seen = weights(team["asker"]), []
    stats = update(team, sampled.assign(advantage=0.0), watch=lambda batch: seen.append(batch.token_shares()))
    assert not moved(before, team["asker"])
    assert stats["grad_norm"].tolist() == [0.0, 0.0]
    assert len(seen) == 1 and seen[0].empty


# What is reported


@pytest.mark.parametrize("kind, temperature", [("shared", 0.7), ("per_agent", 1.3), ("lora", 0.7), ("unlike", 1.3)])
def test_traps_5_and_6_the_trained_distribution_is_the_sampled_one(kind, temperature, models):
    team = make_team(kind, models).with_sampling(Sampling(temperature=temperature))
    stats = update(team, judged(team))
    assert (stats["mismatch"] < 1e-4).all() and (stats["max_ratio"] - 1).abs().max() < 1e-4
    assert (stats["clip_fraction"] == 0).all()


def test_stats_by_hand(models):
    """Ratios are exactly 1.5: every token with a positive advantage is clipped, none with a negative or zero one."""
    team = make_team("shared", models)
    turns = rollout(RELAY, team, RELAY.tasks(4, "train", 0), tree(2))
    advantages = np.tile([1.0, -2.0, 0.0, 1.0], len(turns) // 4 + 1)[: len(turns)]
    logprobs = turns["logprobs"].map(lambda row: [value - math.log(1.5) for value in row])
    turns = turns.assign(logprobs=logprobs, advantage=advantages, credit=np.arange(len(turns), dtype=float))
    stats = update(team, turns).set_index("agent")
    for agent, rows in turns.groupby("agent"):
        row, length = stats.loc[agent], rows["completion_ids"].map(len)
        assert (row["turns"], row["tokens"]) == (len(rows), length.sum())
        assert row["clip_fraction"] == pytest.approx(length[rows["advantage"] > 0].sum() / length.sum())
        assert row["max_ratio"] == pytest.approx(1.5, abs=1e-4) and row["mismatch"] == pytest.approx(0.5, abs=1e-4)
        assert row["reward_mean"] == rows["credit"].mean() and row["reward_std"] == rows["credit"].std(ddof=0)
        assert row["advantage_rms"] == pytest.approx(math.sqrt((rows["advantage"] ** 2).mean()))
        assert row["entropy"] == pytest.approx(-sum(map(sum, rows["logprobs"])) / length.sum())
        assert row["truncated"] == pytest.approx((rows["finish"] == "length").mean())
    assert stats["kl"].isna().all()


@pytest.mark.parametrize("kind", ["shared", "lora"])
def test_rows_that_other_weights_sampled_are_refused_and_nothing_changes(kind, models):
    team = make_team(kind, models, lr=0.1)
    turns = judged(team)
    update_fresh(team, turns, epochs=2, minibatches=2)  # later optimizer steps of one call are meant
    before, watched = {agent: weights(team[agent]) for agent in AGENTS}, []
    words = rf"agent 'asker' of policy '{team.name_of('asker')}': .* is [0-9.e+]+, more than 0.01: these rows were "
    words += r"sampled before the last update; roll out again, or pass off_policy=True"
    with pytest.raises(UpdateError, match=words):
        update_fresh(team, turns, watch=lambda batch: watched.append(batch.name))
    assert not watched and clean(before, team)
    update_fresh(team, turns.assign(advantage=0.0))  # these rows teach nothing
    update_fresh(team, turns, loss=clipped(0.2, tis=2.0), lr_scale=0.0)
    update_fresh(team, turns, lr_scale=0.0, off_policy=True)
    both = pd.concat([judged(team, step=1).assign(selected=True), turns.assign(selected=False)])
    update_fresh(team, both)  # the old rows are not selected


def test_the_only_step_of_an_update_needs_no_pass_for_its_importance_weights(sampled, models, monkeypatch):
    """The pass that computes the gradient knows the weights before the step: several steps need one pass before.

    The mismatch is the sampler's, whatever the ratios are taken to.
    """
    plain = update(make_team("shared", models), sampled, clipped(0.2), epochs=2)
    passes, forward = [], TorchPolicy.forward
    monkeypatch.setattr(TorchPolicy, "forward", lambda self, rows: passes.append(len(rows)) or forward(self, rows))
    found = {}
    for epochs in (1, 2):
        watched = lambda batch, epochs=epochs: found.setdefault(epochs, (batch.norms, batch.token_shares()))  # noqa: E731
        stats = update(
            make_team("shared", models), sampled, clipped(0.2, tis=1.1, kl=0.1), epochs=epochs, watch=watched
        )
        assert bool(passes) == (epochs == 2) and (stats["clip_fraction"].iloc[:2] == 0).all()
        assert stats["max_ratio"].iloc[:2].tolist() == pytest.approx([1.0, 1.0], abs=1e-5)
        assert stats["mismatch"].iloc[:2].tolist() == pytest.approx(plain["mismatch"].iloc[:2].tolist(), rel=1e-5)
    assert plain["mismatch"].iloc[:2].min() > 0.3 < plain["max_ratio"].iloc[:2].min() - 1
    assert found[1][0] == pytest.approx(found[2][0], rel=1e-5)
    assert found[1][1]["share"].tolist() == pytest.approx(found[2][1]["share"].tolist(), abs=1e-5)


def test_half_precision_takes_ratios_to_its_own_pass_and_refuses_old_rows(models):
    team = Team.shared(load_policy(models / "a", lr=0.1, dtype="bfloat16"), AGENTS)
    turns = judged(team)
    noise = np.random.default_rng(0).normal(0, 0.1, sum(map(len, turns["logprobs"])))
    ends = np.cumsum(turns["logprobs"].map(len))
    parts = np.split(noise, ends[:-1])
    noisy = turns.assign(logprobs=[np.add(*pair).tolist() for pair in zip(turns["logprobs"], parts, strict=True)])
    still = partial(update_fresh, team, noisy, lr_scale=0.0)
    default, bounded, off = still(), still(clipped(0.2, tis=2.0)), still(clipped(0.2, tis=0.0))
    assert (default["max_ratio"] == 1).all() and (default["mismatch"] > default["mismatch_p99"]).all()
    pd.testing.assert_frame_equal(default, bounded)
    assert off["max_ratio"].min() > 1.1 and off["grad_norm"].iloc[0] != default["grad_norm"].iloc[0]
    young, aged = (noisy.assign(step=1, policy_version=version) for version in (1, 0))
    for rows, loss, alike in ((young, clipped(0.2), default), (aged, clipped(0.2), off),  # the loss clips old rows
                              (aged, clipped(0.2, tis=2.0), bounded)):  # fmt: skip
        found = update_fresh(team, rows, loss, lr_scale=0.0)
        pd.testing.assert_frame_equal(found.drop(columns="age"), alike)
    assert off["clip_fraction"].max() > 0 == bounded["clip_fraction"].max()
    update_fresh(team, turns)
    update_fresh(team, turns, lr_scale=0.0)  # too few tokens to tell
    old = RECIPES["at_grpo"].advantages(rollout(RELAY, team, RELAY.tasks(32, "train", 0), tree(4)))
    update_fresh(team, old)
    with pytest.raises(UpdateError, match=r"of the mean token is [0-9.e+]+, more than 0\.2: these rows were sampled"):
        update_fresh(team, old)


def test_kl_is_to_the_start_and_grows_from_0(models):
    team = make_team("per_agent", models)
    turns = judged(team)
    first, second = (update(team, turns, loss=clipped(0.2, kl=0.1))["kl"] for _ in range(2))
    assert first.abs().max() < 1e-6 and second.min() > 1e-5


# The watcher


@pytest.mark.parametrize("kind", ["shared", "lora"])
def test_the_watcher_comes_before_clipping_and_shares_add_up(kind, models):
    """Once per policy and optimizer step, with gradients unclipped and weights unmoved; shares sum to 1."""
    team = make_team(kind, models)
    turns = judged(team)
    before, seen = {name: weights(policy) for name, policy in team.policies.items()}, []

    def watch(batch):
        name, norms, policy = batch.name, batch.norms, batch.policy
        gradients = {key: gradient.clone() for key, gradient in policy.gradients()}
        shares = batch.token_shares()
        assert not moved(before[name], policy)
        assert all(torch.equal(gradient, gradients[key]) for key, gradient in policy.gradients())
        assert shares["share"].sum() == pytest.approx(1.0, abs=1e-4)
        assert set(shares["agent"]) == set(norms) == set(team.learners(name))
        seen.append((name, plain_torch.norm(gradients)))

    stats = update(team, turns, watch=watch, max_norm=1e-3).drop_duplicates("policy").set_index("policy")
    assert [name for name, _ in seen] == list(team.policies)
    for name, norm in seen:
        assert stats.loc[name, "policy_norm"] == pytest.approx(norm, rel=1e-5)
        assert stats.loc[name, "policy_norm_clipped"] == pytest.approx(1e-3, rel=1e-4)


def test_a_tokens_share_is_its_gradient_along_the_whole(sampled, models):
    """<grad of its weighted loss, G> / |G|^2, token by token with plain autograd; rows by their place in the table."""
    team, model = make_team("shared", models), plain_model(models / "a")
    rows, found = sampled.to_dict("records"), []
    probes = sampled.head(3).assign(probe=True, node=["x", "y", "z"])
    table = pd.concat([probes, sampled.assign(probe=False)])  # rows that are not trained on come first
    update(team, table, watch=lambda batch: found.append(batch.token_shares()))
    [shares] = found
    whole = plain_torch.gradients(model, rows, {"kind": "clipped"}, "token")
    whole = torch.cat([gradient.flatten().clone() for gradient in whole.values()])
    losses = plain_torch.token_losses(model, rows, {"kind": "clipped"}) * plain_torch.weights(rows, "token")
    starts = np.cumsum([0] + [len(row["completion_ids"]) for row in rows])
    for share in shares.sample(12, random_state=0).itertuples():
        place = starts[share.row - 3] + share.token
        own = torch.autograd.grad(losses[place], list(model.parameters()), retain_graph=True)
        own = torch.cat([gradient.flatten() for gradient in own])
        assert share.share == pytest.approx((own @ whole / (whole @ whole)).item(), rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("where", ["in the watch", "between two policies"])
def test_an_interrupt_leaves_no_gradient(where, sampled, models, monkeypatch):
    """What the second policy had gathered would be added to its next gradient."""
    team = make_team("per_agent", models)
    norms = update(make_team("per_agent", models), sampled).set_index("agent")["policy_norm"]
    before = {agent: weights(team[agent]) for agent in AGENTS}

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        if where == "between two policies":
            patch.setattr(team["doer"], "optim_step", stop)
        update(team, sampled, watch=lambda batch: where == "in the watch" and batch.name == "doer" and stop())
    assert clean(before, team) == (where == "in the watch")
    assert not any(gradient.any() for agent in AGENTS for _, gradient in team[agent].gradients())
    assert update(team, sampled).set_index("agent")["policy_norm"]["doer"] == norms["doer"]


# What must not reach the optimizer


@pytest.mark.parametrize("max_norm, give", [(-1.0, "a norm above 0 to clip at, or None"), ("1", "a number or None")])
def test_a_bound_that_turns_the_gradient_around_is_refused(sampled, models, max_norm, give):
    with pytest.raises(ValueError, match=rf"update: max_norm=.*; give {give}"):
        update(make_team("shared", models), sampled, max_norm=max_norm)
    with pytest.raises(ValueError, match="train: max_norm="):
        Settings(max_norm=max_norm)


def broken(sampled):
    """One row of the doer, with a recorded log-probability that makes its ratio infinite."""
    [row] = np.flatnonzero((sampled["agent"] == "doer") & (sampled["advantage"] < 0))[:1]
    logprobs = sampled["logprobs"].tolist()
    logprobs[row] = [-float("inf")] * len(logprobs[row])
    return sampled.assign(logprobs=logprobs), sampled.iloc[row]


@pytest.mark.parametrize("kind", ["shared", "per_agent"])
def test_trap_8_a_loss_that_is_not_finite_is_raised_and_nothing_steps(kind, sampled, models):
    team, (turns, culprit) = make_team(kind, models), broken(sampled)
    before, watched = {agent: weights(team[agent]) for agent in AGENTS}, []
    where = f"policy '{team.name_of('doer')}' is not finite; 1 rows .*task '{culprit['task']}'.*agent 'doer', turn 0"
    with pytest.raises(UpdateError, match=where):
        update(team, turns, watch=lambda batch: watched.append(batch.name))
    assert clean(before, team) and watched == (["asker"] if kind == "per_agent" else [])


def test_a_gradient_that_is_not_finite_names_every_row_of_its_agent(sampled, models):
    """A finite loss may have a gradient that is not: then all rows of the agent are suspects."""
    team = make_team("shared", models)
    huge = sampled.assign(advantage=sampled["advantage"].where(sampled["agent"] != "doer", 3e38))
    with pytest.raises(UpdateError, match="policy 'shared' is not finite"):
        update(team, huge, loss=reinforce(), aggregate="sum")


EMPTY = r"the completion of .*task '.*agent 'asker', turn 0, candidate 0 is empty"
ELSEWHERE = r"of .*agent 'asker', turn 0.* has a token that policy 'shared'"


@pytest.mark.parametrize("change, error, words", [
    (lambda rows: {"advantage": rows["advantage"].where(rows["candidate"] != 2, math.nan)}, TableError,
     "update: column 'advantage' is .*task '.*agent 'asker', turn 0, candidate 2"),
    (lambda rows: {"temperature": rows["temperature"].where(rows["candidate"] != 2, math.inf)}, TableError,
     "update: column 'temperature' is .*task '.*agent 'asker', turn 0, candidate 2"),
    (lambda rows: {"prompt_ids": rows["prompt_ids"].map(lambda ids: [10**6, *ids])}, UpdateError,
     f"'prompt_ids' {ELSEWHERE}"),
    (lambda rows: {"completion_ids": rows["completion_ids"].map(lambda ids: [-1, *ids[1:]])}, UpdateError,
     f"'completion_ids' {ELSEWHERE}"),
    (lambda rows: {"step": 0, "policy_version": 9}, TableError,
     r"update: policy_version 9 is above the step, at step 0, .*agent 'asker'"),
    (lambda rows: {"completion_ids": [[], *rows["completion_ids"][1:]]}, UpdateError, EMPTY),
    (lambda rows: {"temperature": 0.0}, UpdateError, EMPTY),
    (lambda rows: {"logprobs": [row[:-1] for row in rows["logprobs"]]}, UpdateError, EMPTY),
    (lambda rows: {"agent": "stranger"}, KeyError, "agent 'stranger' has no policy; the team has"),
])  # fmt: skip
def test_rows_that_cannot_be_learned_from_are_refused_with_their_place(change, error, words, sampled, models):
    with pytest.raises(error, match=words):
        update(make_team("shared", models), sampled.assign(**change(sampled)))


def test_bad_calls_say_what_is_known(sampled, models):
    team = make_team("shared", models)
    with pytest.raises(ValueError, match="aggregate='mean'; known are token, turn, agent, sum"):
        update(team, sampled, aggregate="mean")
    with pytest.raises(TableError, match="update: column 'advantage' is missing; it is added by `normalize`"):
        update(team, sampled.drop(columns="advantage"))


def test_traps_3_and_4_padding_after_eos_teaches_nothing_and_eos_does(models):
    """A row's gradient is the same beside a longer row as alone; that of its EOS is part of it. pad = eos here."""
    policy = load_policy(models / "a")
    policy.tokenizer.pad_token = policy.tokenizer.eos_token
    turns = rollout(RELAY, Team.shared(policy, AGENTS), RELAY.tasks(8, "train", 1), episodes(4))
    turns = turns.assign(advantage=1.0, credit=0.0)
    ended = turns[(turns["finish"] == "eos") & (turns["completion_ids"].map(len) == 2)].head(1)
    longer = turns[(turns["agent"] == ended["agent"].iloc[0]) & (turns["finish"] == "length")].head(1)
    longer = longer.assign(advantage=0.0)
    found = []

    def watch(batch):
        found.append(({key: gradient.clone() for key, gradient in policy.gradients()}, batch.token_shares()))

    for rows in (ended, pd.concat([ended, longer], ignore_index=True)):
        policy.model.load_state_dict(load_policy(models / "a").model.state_dict())
        update(Team.shared(policy, AGENTS), rows, loss=reinforce(entropy=1e-9), aggregate="sum", watch=watch)
    (alone, shares), (beside, _) = found
    for key, gradient in alone.items():
        torch.testing.assert_close(2 * beside[key], gradient, rtol=1e-5, atol=1e-6)
    assert shares["token"].tolist() == [0, 1]
    assert (shares["share"].abs() > 1e-3).all()  # the EOS, token 1, is trained on


def test_the_loop_learns(models):
    """The cells together, in a few steps: the share of right words rises well above where it started."""
    team = make_team("shared", models, lr=2e-2)
    rewards = []
    for step in range(12):
        turns = rollout(RELAY, team, RELAY.tasks(8, "train", step), tree(6), step=step)
        rewards.append(turns["local_reward"].mean())
        update(team, RECIPES["at_grpo"].replace(credit=mixed(0.0)).advantages(turns))
    assert np.mean(rewards[-3:]) > np.mean(rewards[:3]) + 0.15

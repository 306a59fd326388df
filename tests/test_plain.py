"""The cells compute what `mas_lab.plain` computes: advantages, gradient norms and weights, from the same table."""

import ast
import copy
from pathlib import Path

import numpy as np
import pytest
import torch

import mas_lab as lab
from mas_lab import plain

LR = 1e-3
METHODS = {
    "grpo": ("math", lab.episodes(4), plain.episode_return, plain.clipped),
    "dr_mas": ("math", lab.episodes(4), plain.episode_return, plain.clipped),
    "at_grpo": ("plan_path", lab.tree(4), plain.mixed, plain.clipped),
    "magrpo": ("tldr", lab.joint(4), plain.return_to_go, plain.reinforce),
}


def make_team(env, shared):
    def load(agent=None):
        return lab.load_policy(env.pocket, lr=LR)

    return lab.Team.shared(load(), env.agents) if shared else lab.Team.per_agent(load, env.agents)


def plain_players(team):
    """Return a copy of every policy as a `plain.Policy`, by agent; shared weights stay shared."""
    copies = {}
    for policy in team.policies.values():
        model = copy.deepcopy(policy.model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.0)
        copies[id(policy)] = plain.Policy(model, policy.tokenizer, optimizer)
    return {agent: copies[id(team[agent])] for agent in team}


@pytest.mark.parametrize("shared", [True, False], ids=["shared", "separate"])
@pytest.mark.parametrize("name", METHODS)
def test_same_table_gives_same_advantages_norms_and_weights(name, shared):
    env_name, plan, credit, loss = METHODS[name]
    recipe = lab.RECIPES[name]
    env = lab.make_env(env_name)
    team = make_team(env, shared)
    turns = lab.rollout(env, team, env.tasks(3, "train", seed=0), plan=plan, seed=0)

    judged = recipe.advantages(turns)
    divide = recipe.scale != "none"
    plainly = plain.normalize(plain.group(turns, recipe.by, credit), recipe.once_per, divide)
    np.testing.assert_allclose(plainly["advantage"], judged["advantage"], rtol=0, atol=1e-12)
    assert judged["advantage"].any()

    players = plain_players(team)
    norms = lab.update(team, judged, loss=recipe.loss, aggregate=recipe.aggregate).set_index("agent")["grad_norm"]
    mean_over = {"token": "tokens", "sum": "rows"}[recipe.aggregate]
    assert plain.update(players, plainly, loss, mean_over) == pytest.approx(norms.to_dict(), rel=1e-5)

    for agent in env.agents:
        weights = zip(team[agent].model.parameters(), players[agent].model.parameters(), strict=True)
        apart = torch.cat([(weight - plain_weight).detach().abs().flatten() for weight, plain_weight in weights])
        moments = [players[agent].optimizer.state[weight]["exp_avg"] for weight in players[agent].model.parameters()]
        # Adam divides by the gradient's size: a gradient of rounding errors moves its weight anywhere within the rate.
        clear = torch.cat([moment.abs().flatten() for moment in moments]) > 1e-7
        assert clear.float().mean() > 0.99 and apart[clear].max() < 1e-3 * LR
        assert apart.max() < LR


@pytest.mark.parametrize(("env_name", "asked"), [("math", {"episodes": 4}), ("plan_path", {"candidates": 4})])
def test_cells_train_on_a_table_that_plain_played(env_name, asked):
    env = lab.make_env(env_name)
    team = make_team(env, shared=True)
    players = plain_players(team)
    turns = plain.rollout(env, players, env.tasks(8, "train", seed=0), torch.Generator().manual_seed(0), **asked)

    groups = turns.groupby(["episode", "agent", "turn"]) if "candidates" in asked else turns.groupby("task")["episode"]
    assert (groups.size() == 4).all() if "candidates" in asked else (groups.nunique() == 4).all()
    assert turns["success"].any() and not turns["success"].all()
    stats = lab.update(team, lab.RECIPES["at_grpo" if "candidates" in asked else "grpo"].advantages(turns))
    assert (stats["mismatch"] < 1e-4).all(), "the recorded log-probabilities are those of the weights"


def test_plain_imports_torch_and_pandas_and_nothing_of_ours():
    text = Path(plain.__file__).read_text(encoding="utf-8")
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {alias.name for node in nodes for alias in node.names if isinstance(node, ast.Import)}
    names |= {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    assert names == {"dataclasses", "pandas", "torch"} and len(text.splitlines()) <= 180


def test_an_agent_that_never_spoke_leaves_its_weights_alone_and_rounding_is_flat():
    env = lab.make_env("math")
    team = make_team(env, shared=False)
    turns = lab.rollout(env, team, env.tasks(2, "train", seed=0), lab.episodes(2), seed=0)
    spoke = turns[turns["agent"] == env.agents[0]].assign(advantage=1.0)
    assert list(plain.update(plain_players(team), spoke)) == [env.agents[0]]
    rounded = turns.assign(group=0, credit=np.float32(0.1) + 1e-9 * np.arange(len(turns)))
    assert (plain.normalize(rounded)["advantage"] == 0).all()
    assert (lab.normalize(rounded.assign(group="g"))["advantage"] == 0).all()

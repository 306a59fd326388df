"""A step of the real SmolLM2 on an engine: two adapters play `paid_help` in words, and learn from it."""

import mas_lab as lab


def learns(backend: str, **options):
    """Train one step with a back end, and test it; `make test-vllm` and `make test-unsloth` install the model."""
    env = lab.make_env("paid_help", size="words")
    base = lab.load_base("smollm2-135m", backend, adapters=2, rank=8, start="words", **options)
    team = lab.Team.per_agent(base.adapter, env.agents)
    before = {agent: team[agent].version for agent in env.agents}
    [report] = lab.train(env, team, "dr_mas", steps=1, seed=0, tasks=8)
    turns, stats = report.turns, report.stats
    solver = turns[turns["agent"] == "solver"]
    assert solver["completion"].str.contains(r"\d").mean() > 0.9, "after the warm start it answers with numbers"
    assert 0.05 < solver["local_reward"].mean() < 0.9
    moved = turns.loc[turns["advantage"] != 0, "agent"].unique()
    assert "solver" in moved and all(team[agent].version > before[agent] for agent in moved)
    assert (stats.set_index("agent").loc[moved, "grad_norm"] > 0).all()
    # In half precision the update compares the mean with its tolerance. One unlikely token can differ by half.
    assert (stats["mismatch_p99"] < 1.5).all() and (stats["max_ratio"] - 1 < 1e-3).all()

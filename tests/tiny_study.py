"""The study that several test files ask for: two baselines on a ladder of two stages, in seconds."""

TINY = {
    "name": "tiny", "env": {"name": "ladder", "n_agents": 2}, "team": {"weights": "per_agent", "lr": 3e-4},
    "settings": {"tasks": 2}, "budget": {"episodes": 32}, "seeds": 2,
    "arms": {"global": {"recipe": "grpo"}, "own": {"recipe": "dr_mas"}},
}  # fmt: skip

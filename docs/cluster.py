"""Writes the memory table of `docs/cluster.md` by the placement's own arithmetic: `python docs/cluster.py`.

Leaves out: time, which follows from no config; `benchmarks/gpu.py` measures it on a card.
"""

import re
from pathlib import Path

import mas_lab as lab
from mas_lab.backends.placement import PlacementError, known_shapes

PAGE = Path(__file__).parent / "cluster.md"
BLOCK = re.compile(r"<!-- memory -->\n.*?<!-- /memory -->", re.DOTALL)
CARDS = {"T4, 16 GB": 14.5, "24 GB": 22.0, "80 GB": 79.0}
"""GiB that are counted on: somewhat less than what the cards are sold as."""
TOKENS = {"65,536 and 4,096": {}, "2,048": {"sample_tokens": 2048, "train_tokens": 2048}}
"""`sample_tokens` and `train_tokens`: as they are by themselves, and small."""
HEAD = (
    "| model | what learns | agents | GiB, usual tokens | GiB, 2,048 tokens | T4, 16 GB | 24 GB | 80 GB |\n"
    "|---|---|---|---|---|---|---|---|"
)


def models() -> dict:
    """Sizes as the Qwen3 report (arXiv 2505.09388, table 1) and the models' own configs give them."""
    from transformers import Qwen3Config

    four = Qwen3Config(
        vocab_size=151936, hidden_size=2560, intermediate_size=9728, num_hidden_layers=36, num_attention_heads=32,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=40960, tie_word_embeddings=True,
    )  # fmt: skip
    return known_shapes() | {"Qwen3-4B": four}


def teams(config) -> dict[str, dict[int, dict[str, dict]]]:
    """Return, by what learns and number of agents, the policies as arguments of `lab.ModelSpec`."""
    per_agent = lambda how: {n: {f"agent {i}": how for i in range(n)} for n in (2, 3)}  # noqa: E731
    adapters = lambda **how: {n: {"team": {"lora": 16, "adapters": n, **how}} for n in (2, 3)}  # noqa: E731
    return {
        "an adapter each, 4-bit base": adapters(bits=4, backend="unsloth"),
        "an adapter each, 16-bit base": adapters(),
        "all weights, shared": {"2 or 3": {"team": {}}},
        "all weights, of each": per_agent({}),
    }


def plan(config, policies: dict[str, dict], gib: float, **tokens) -> lab.Placement:
    """The team on one card. Raises PlacementError where it does not fit."""
    wishes = {name: lab.ModelSpec(config, **how, **tokens) for name, how in policies.items()}
    return lab.Placement(wishes, {"cuda:0": gib})


def fits(config, policies: dict[str, dict], gib: float) -> str:
    """With how many tokens at once."""
    for told, tokens in TOKENS.items():
        try:
            plan(config, policies, gib, **tokens)
        except PlacementError:
            continue
        return "yes" if not tokens else f"{told} tokens"
    return "no"


def rows() -> list[str]:
    lines = []
    for model, config in models().items():
        for learns, by_agents in teams(config).items():
            for agents, policies in by_agents.items():
                needs = [
                    plan(config, policies, 1e6, **tokens).devices_table["used"].iloc[0] for tokens in TOKENS.values()
                ]
                cards = [fits(config, policies, gib) for gib in CARDS.values()]
                cells = [model, learns, str(agents), *(f"{one:.1f}" for one in needs), *cards]
                lines.append(f"| {' | '.join(cells)} |")
    return lines


def filled(text: str) -> str:
    """The page with its table made anew."""
    table = "\n".join([HEAD, *rows()])
    return BLOCK.sub(lambda _: f"<!-- memory -->\n{table}\n<!-- /memory -->", text)


if __name__ == "__main__":
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8")), encoding="utf-8")

"""List the designs of the shipped pocket models: forms of an env, stages of a warm start, sizes.

This module holds data only. Leaves out: how a model is made from it (`build`).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Stage:
    """One supervised pass: `steps` batches of `batch` demonstrations, from the env with `options` changed."""

    steps: int
    lr: float
    options: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 64


@dataclass(frozen=True, kw_only=True)
class Design:
    """The design of one pocket model, whatever it plays."""

    stages: tuple[Stage, ...]
    layers: int = 3
    hidden: int = 96
    heads: int = 4
    spread: float = 0.08
    """Standard deviation of fresh weights. The usual 0.02 is meant for wide models; most families need more."""
    by_length: bool = False
    """Batch rows of similar length. This saves padding if forms differ much, but a batch is no random sample."""
    marks: tuple[str, ...] = ("<user>", "<assistant>")
    """The words that open a message, in the order of `words.MARKED`. Messages of a role without one are not shown.
    Other marks make another tokenizer, with other ids for every word."""
    context: int = 256
    """Longest prompt plus completion, in tokens."""
    episodes: int = 256
    """Tasks that are drawn at a time for demonstrations."""
    held_out: int = 200
    """Number of tasks of the `test` split on which a build is scored."""
    repeats: int = 1
    """Episodes per held-out task."""


@dataclass(frozen=True, kw_only=True)
class Family(Design):
    """The design of a shipped pocket model."""

    env: str
    forms: tuple[tuple[float, Mapping[str, Any]], ...]
    """(share of the demonstrations, options of `make_env`) for each form of the env that the model should play."""


MATH_FORMS = (
    (0.34, {}),
    (0.33, {"fixer": True}),
    (0.15, {"single_agent": True}),
    (0.06, {"n_agents": 4}),
    (0.04, {"n_agents": 16}),
    (0.03, {"size": 3}),
    (0.05, {"size": 7}),
)
FAMILIES: dict[str, Family] = {
    "plan_path": Family(
        env="plan_path",  # with a spread of 0.02 it needed 200 more steps for the same loss
        forms=((0.45, {}), (0.4, {"single_agent": True}), (0.1, {"n_agents": 4}), (0.05, {"n_agents": 16})),
        stages=(Stage(1200, 3e-3, {"mistakes": 0.0}), Stage(100, 1e-3, {"mistakes": 0.4})),
        by_length=True,
    ),
    # The fixer was still right in every third case after 120 steps of the second stage, in every sixth after 300.
    "math": Family(
        env="math",
        forms=MATH_FORMS,
        stages=(Stage(600, 3e-3, {"mistakes": 0.15}, batch=96), Stage(300, 1e-3)),
        spread=0.02,
    ),
    "math_small": Family(
        env="math",
        forms=MATH_FORMS,
        stages=(Stage(900, 3e-3, {"mistakes": 0.15}, batch=96), Stage(120, 1e-3)),
        spread=0.02,
        layers=2,
        hidden=64,
        marks=("<ask>", "<say>"),
    ),
    # With batches of similar length the tool user could not copy a chain after 600 steps; with mixed ones after 100.
    "math_tool": Family(
        env="math_tool",
        forms=((0.85, {}), (0.1, {"single_agent": True}), (0.05, {"size": 3})),
        stages=(Stage(600, 3e-3, {"mistakes": 0.1}, batch=96), Stage(200, 1e-3)),
    ),
    "tldr": Family(
        env="tldr",
        forms=((0.65, {}), (0.35, {"single_agent": True})),
        stages=(Stage(1000, 3e-3, {"mistakes": 0.0}), Stage(60, 5e-4)),
    ),
    "arxiv_intro": Family(
        env="arxiv_intro",
        forms=((0.4, {}), (0.4, {"max_turns": 2}), (0.2, {"single_agent": True})),
        stages=(Stage(1000, 3e-3, {"mistakes": 0.0}), Stage(100, 5e-4, {"mistakes": 0.6})),
    ),
    "code_pair": Family(
        env="code_pair",
        forms=(
            (0.5, {}),
            (0.2, {"max_turns": 2}),
            (0.1, {"single_agent": True}),
            (0.1, {"teamwork": "in_turn"}),
            (0.1, {"teamwork": "concatenated"}),
        ),
        stages=(Stage(400, 3e-3, {"mistakes": 0.1}, batch=48), Stage(40, 5e-4, batch=48)),
    ),
    "code_tests": Family(
        env="code_tests",
        forms=((0.8, {}), (0.2, {"single_agent": True})),
        # Not by length, which separates coders from testers: after 800 such steps each began an answer like the other.
        stages=(Stage(400, 3e-3, {"mistakes": 0.0}), Stage(150, 1e-3, {"mistakes": 0.6})),
    ),
    "search": Family(
        env="search",
        forms=((0.65, {}), (0.25, {"single_agent": True}), (0.1, {"size": 3})),
        stages=(Stage(1000, 3e-3, {"mistakes": 0.1}), Stage(100, 1e-3)),
    ),
    "sokoban": Family(
        env="sokoban",
        forms=((0.6, {}), (0.4, {"single_agent": True})),
        stages=(Stage(1800, 3e-3, {"mistakes": 0.0}), Stage(100, 1e-3)),
        by_length=True,
    ),
    "sudoku": Family(
        env="sudoku",
        forms=((0.6, {}), (0.4, {"single_agent": True})),
        stages=(Stage(900, 3e-3, {"mistakes": 0.0}), Stage(100, 1e-3)),
        by_length=True,
    ),
}

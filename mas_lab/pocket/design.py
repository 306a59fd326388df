"""Describe the design of a pocket model: stages of a warm start, and sizes.

The design of a shipped model stands in its folder, `data/pocket/<family>/provenance.json`, under `recipe`. Leaves out:
how a model is made from it (`build`).
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
    """Standard deviation of fresh weights. The usual 0.02 is meant for wide models; with it plan_path needed 200 more
    steps for the same loss."""
    by_length: bool = False
    """Batch rows of similar length. This saves padding if forms differ much, but a batch is no random sample: so the
    tool user of math_tool could not copy a chain after 600 steps, and with mixed batches it could after 100."""
    marks: tuple[str, ...] = ("<user>", "<assistant>")
    """The words that open a message, in the order of `words.MARKED`. Messages of a role without one are not shown.
    Other marks make another tokenizer, with other ids for every word."""
    tools: bool = False
    """Write messages, tools and calls with the marks of Qwen3, and read JSON in parts; `marks` are not used."""
    context: int = 256
    """Longest prompt plus completion, in tokens."""
    episodes: int = 256
    """Tasks that are drawn at a time for demonstrations."""
    held_out: int = 200
    """Number of tasks of the `test` split on which a build is scored."""
    repeats: int = 1
    """Episodes per held-out task."""

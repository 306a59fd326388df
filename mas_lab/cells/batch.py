"""One optimizer step of one policy: its gradient, agent by agent, and what that gradient is made of.

Leaves out: which rows make a step and when it is taken (`update`), and what is read from the shares (`diagnostics`).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mas_lab.cells.advantages import importance_weighted, live
from mas_lab.cells.losses import Loss
from mas_lab.cells.statistics import UNSEEN, compared, described
from mas_lab.policy import Policy, Sample, Tokens
from mas_lab.table import place

if TYPE_CHECKING:
    from torch import Tensor

ROW = ["agent", "prompt_ids", "completion_ids", "logprobs", "temperature", "advantage"]


class UpdateError(RuntimeError):
    """A loss or gradient that must not reach the optimizer: names policy, agent, task and turn."""


@dataclass
class Batch:
    """One optimizer step of one policy. Called, it attributes the gradient (`attribute`)."""

    name: str
    policy: Policy
    rows: pd.DataFrame
    """What this step learns from."""
    loss: Loss
    aggregate: str
    table: pd.DataFrame
    """All rows of the batch, of every policy and minibatch, selected or not: what statistics of groups need."""
    norms: dict[str, float] = field(default_factory=dict)
    tokens: dict[str, Tokens] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    used: dict[str, pd.DataFrame] = field(default_factory=dict)
    """The rows behind each agent's samples, in the same order."""
    broken: list[int] = field(default_factory=list)
    reported: dict[str, dict[str, float]] = field(default_factory=dict)
    """What the weights say of each agent's tokens (`statistics.compared`), once the step was checked."""
    weights: pd.Series = field(init=False)
    """Of the loss of each token of a row."""

    def __post_init__(self):
        lengths = self.rows["completion_ids"].map(len)
        bad = (lengths == 0) | (lengths != self.rows["logprobs"].map(len)) | (self.rows["temperature"] <= 0)
        if bad.any():
            raise UpdateError(
                f"update: the completion of {place(self.rows[bad].iloc[0])} is empty, has not one log-probability per "
                "token, or was drawn at temperature 0: there is nothing to learn from"
            )
        self.weights = _token_weights(self.rows["agent"], lengths, self.aggregate)
        for agent, own in self.rows.assign(weight=self.weights).groupby("agent", sort=False):
            used = self.used[agent] = own[live(own["advantage"])] if self.loss.still_at_0 else own
            if self.loss.tis is not None and len(used):
                used = importance_weighted(used, self.loss.tis)
            self.samples[agent] = [
                Sample(*row) for row in used[[*ROW[1:], "weight"]].itertuples(index=False, name=None)
            ]

    def accumulate(self) -> None:
        """Leave the policy's gradient in place, and each agent's norm in `norms`."""
        if not self.sees_gradients:
            self._accumulate_out_of_sight()
            return
        total: list[Tensor] | None = None
        for agent, samples in self.samples.items():
            if not samples:
                self.norms[agent] = 0.0
                continue
            self.tokens[agent] = self.policy.accumulate(samples, self.loss)
            gradients = [gradient for _, gradient in self.policy.gradients()]
            self.norms[agent] = _norm(gradients)
            if len(self.samples) > 1:
                total = [gradient.clone() for gradient in gradients] if total is None else _add(total, gradients)
                self.policy.clear_gradients()
        if total is not None:
            self.policy.set_gradients(total)

    @property
    def sees_gradients(self) -> bool:
        """Are the policy's gradients here? Those of a server are seen by the norm that it tells when it has stepped."""
        return getattr(self.policy, "sees_gradients", True)

    def _accumulate_out_of_sight(self) -> None:
        """Each agent's norm is known after the step, where the policy plays no other."""
        self.policy.expect(sum(map(len, self.samples.values())))
        for agent, samples in self.samples.items():
            self.norms[agent] = np.nan if samples else 0.0
            if samples:
                self.tokens[agent] = self.policy.accumulate(samples, self.loss)

    def check(self, nonfinite: str) -> None:
        """Find the rows whose loss, or whose agent's gradient, is not finite, and what is reported of the others.

        Whatever a loss of one's own raises it raises here, before any policy has stepped.
        """
        for agent, tokens in self.tokens.items():
            finite_N = tokens.losses_N.isfinite().cpu().numpy()
            if finite_N.all() and (np.isfinite(self.norms[agent]) or not self.sees_gradients):
                continue
            owner_N = np.repeat(
                np.arange(len(self.samples[agent])), [len(s.completion_ids) for s in self.samples[agent]]
            )
            culprits = np.unique(owner_N[~finite_N]) if not finite_N.all() else np.arange(len(self.samples[agent]))
            self.broken += self.used[agent].index[culprits].tolist()
        if self.broken:
            self.policy.clear_gradients()
        if self.broken and nonfinite == "raise":
            first = self.rows.loc[self.broken[0]]
            raise UpdateError(
                f"update: the loss or gradient of policy {self.name!r} is not finite; {len(self.broken)} rows caused "
                f"it, first {place(first)}. No policy made this step; look at their rewards and log-probabilities, or "
                "pass nonfinite='skip' to record and skip such steps"
            )
        self.reported = {agent: self._compared(agent) for agent in self.samples}

    def attribute(self) -> pd.DataFrame:
        """Each token's share of the policy's gradient G before clipping, <what it adds to G, G> / |G|^2: exact.

        Columns: `row` (of the table that `update` got, from 0), `agent`, `token` (position), `share`; the shares may be
        negative and sum to 1; there are none where G is 0. One forward-mode derivative, about the cost of one forward
        and backward.
        """
        gradient = [gradient.clone() for _, gradient in self.policy.gradients()]
        square = _norm(gradient) ** 2
        parts = [pd.DataFrame({"row": [], "agent": [], "token": [], "share": []})]
        for agent, samples in self.samples.items():
            if samples and square:
                lengths = [len(sample.completion_ids) for sample in samples]
                slopes_N = self.policy.slopes(samples, self.loss, gradient).double().cpu().numpy()
                row_N = np.repeat(self.used[agent].index, lengths)
                token_N = np.concatenate([np.arange(length) for length in lengths])
                parts.append(pd.DataFrame({"row": row_N, "agent": agent, "token": token_N, "share": slopes_N / square}))
        return pd.concat(parts[1:] or parts, ignore_index=True)

    __call__ = attribute

    @property
    def norm(self) -> float:
        """The norm of the policy's accumulated gradient, before clipping."""
        return _norm([gradient for _, gradient in self.policy.gradients()])

    def norm_without(self, row: int) -> float:
        """What `norm` would be had this row's loss been left out of the sum; denominators stay. One pass of one row."""
        agent = self.rows.loc[row, "agent"]
        used = self.used[agent].index
        if row not in used:
            return self.norm
        whole = [gradient.clone() for _, gradient in self.policy.gradients()]
        with self.gradients_kept():
            self.policy.accumulate([self.samples[agent][used.get_loc(row)]], self.loss)
            own = [gradient for _, gradient in self.policy.gradients()]
            return _norm([gradient - part for gradient, part in zip(whole, own, strict=True)])

    def norms_with(self, advantages: pd.Series) -> tuple[float, dict[str, float]]:
        """The policy's and the agents' norms under other advantages (indexed as `table`). Costs one `accumulate`."""
        rows = self.rows.assign(advantage=advantages)
        other = replace(self, rows=rows, norms={}, tokens={}, samples={}, used={}, broken=[])
        with self.gradients_kept():
            other.accumulate()
            return other.norm, other.norms

    @contextmanager
    def gradients_kept(self) -> Iterator[None]:
        """Empty gradients inside, and the policy's own again afterwards."""
        before = [gradient.clone() for _, gradient in self.policy.gradients()]
        self.policy.clear_gradients()
        try:
            yield
        finally:
            self.policy.clear_gradients()
            if any(gradient.any() for gradient in before):
                self.policy.set_gradients(before)

    def step(self, number: int, max_norm: float | None, lr_scale: float) -> list[dict[str, Any]]:
        """Clip, step, and report a row per agent."""
        before = after = 0.0
        if self.tokens and not self.broken:
            before, after = self.policy.apply(max_norm, lr_scale)
            if not self.sees_gradients and len(self.tokens) == 1:
                self.norms |= dict.fromkeys(self.tokens, before)
        left = after / before if before else 1.0
        return [
            {
                "policy": self.name,
                "agent": agent,
                "optimizer_step": number,
                **described(self.rows[self.rows["agent"] == agent]),
                "grad_norm": self.norms[agent],
                "grad_norm_clipped": self.norms[agent] * left,
                "policy_norm": before,
                "policy_norm_clipped": after,
                **self.reported[agent],
                "mismatch": np.nan if number else self.reported[agent]["mismatch"],
                "lr": self.policy.lr * lr_scale,
                "skipped": bool(self.broken),
                "culprits": "; ".join(place(self.rows.loc[row]) for row in self.broken),
            }
            for agent in self.samples
        ]

    def _compared(self, agent: str) -> dict[str, float]:
        if agent not in self.tokens:
            return UNSEEN
        said = int(self.rows.loc[self.rows["agent"] == agent, "completion_ids"].map(len).sum())
        return compared(self.loss, self.tokens[agent], self.samples[agent], self.used[agent]["logprobs"], said)


def _token_weights(agents: pd.Series, lengths: pd.Series, aggregate: str) -> pd.Series:
    """The weight of each token of a row, so that the weighted sum of all token losses is the aggregate."""
    if aggregate == "token":
        return pd.Series(1.0 / lengths.sum(), index=agents.index)
    if aggregate == "sum":
        return pd.Series(1.0 / len(agents), index=agents.index)
    if aggregate == "turn":
        return 1.0 / (len(agents) * lengths)
    spoke = agents.groupby(agents).transform("size")
    return 1.0 / (agents.nunique() * spoke * lengths)


def _norm(gradients: list["Tensor"]) -> float:
    squares = [gradient.detach().double().square().sum() for gradient in gradients]
    # A gradient that is cut over several ranks (DTensor) has only its own part in `item()`.
    return float(np.sqrt(sum((s.full_tensor() if hasattr(s, "full_tensor") else s).item() for s in squares)))


def _add(total: list["Tensor"], more: list["Tensor"]) -> list["Tensor"]:
    return [sum_.add_(gradient) for sum_, gradient in zip(total, more, strict=True)]

"""Cell 4, `update`: optimizer steps on the advantages.

Every policy learns from the rows of the agents that it plays. The gradient is computed agent by agent, so each agent
has a gradient norm of its own under shared weights too. Leaves out: the loss of a token (`losses`), and how
log-probabilities and gradients are computed (the back end).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.arguments import check_arguments
from mas_lab.locks import training
from mas_lab.losses import Loss, clipped, k3, look, one_per_token, reinforce, require_loss, token_losses
from mas_lab.policy import Policy, PolicyError, Sample, Tokens
from mas_lab.table import column, place, refuse_copies, require, require_advantage_per_token, selected, trained
from mas_lab.team import Team

if TYPE_CHECKING:
    from torch import Tensor

ROW = ["agent", "prompt_ids", "completion_ids", "logprobs", "temperature", "advantage"]
STATS = (
    "policy agent optimizer_step turns tokens reward_mean reward_std advantage_rms entropy truncated grad_norm "
    "grad_norm_clipped policy_norm policy_norm_clipped kl clip_fraction max_ratio mismatch lr skipped culprits"
)
"""Columns of the table that `update` returns, also if no row was selected."""
UpdateCallback = Callable[[str, dict[str, float], "PolicyStep"], None]


class UpdateError(RuntimeError):
    """A loss or gradient that must not reach the optimizer: names policy, agent, task and turn."""


def update(
    team: Team,
    turns: pd.DataFrame,
    loss: Loss = clipped(0.2),  # noqa: B008 - a frozen value
    aggregate: str = "token",
    epochs: int = 1,
    minibatches: int = 1,
    max_norm: float | None = 1.0,
    lr_scale: float = 1.0,
    nonfinite: str = "raise",
    watch: UpdateCallback | None = None,
    seed: int = 0,
    off_policy: bool = False,
) -> pd.DataFrame:
    """Train every policy of the team on the `advantage` of its rows.

    Only rows that `select` marked are trained on and counted in the means; without `selected`, all are. Rows with
    advantage 0 are counted. No other thread uses these models until the update is done.

    Args:
        team: The team; its frozen agents do not learn.
        turns: The table. `advantage` is a number per row, or a list with a number per token of the completion.
        loss: The loss of a token: `clipped(0.2)`, `reinforce()`, or your own.
        aggregate: The mean over the token losses of a policy's rows. "token": over all tokens. "turn": over rows, each
            the mean of its tokens. "agent": within each agent as "turn", then over agents. "sum": over rows, each the
            sum of its tokens (MAGRPO). A loss with one ratio per row needs "turn" or "agent"; `clipped(ratio="action")`
            with "agent" is equation 3 of Dr. MAS (arXiv 2602.08847), whose code takes ratios and means over tokens.
        epochs: Passes over the rows.
        minibatches: Optimizer steps per pass. The candidates of one node stay together, or the groups of a loss over
            groups (`Loss.unit`).
        max_norm: Clips the gradient norm of each policy. None: no clipping.
        lr_scale: Multiplies the learning rate of each policy.
        nonfinite: "raise", or "skip" a step whose loss or gradient is not finite and record it (`skipped`).
        watch: Called with (policy name, norms by agent, the `PolicyStep`) between backward pass and clipping. Call the
            step to get each token's share of the gradient.
        seed: Decides the minibatches.
        off_policy: Train on rows that other weights sampled. False: if `mismatch` is larger than the `tolerance` in the
            policy's capabilities, raise; a loss with `tis` corrects for it, and is not checked.

    Returns:
        A row per policy, agent and optimizer step: `turns`, `tokens`; mean and standard deviation of `credit`
        (`reward_mean`, `reward_std`); `advantage_rms`; the norm of the agent's gradient before and after clipping
        (`grad_norm`, `grad_norm_clipped`), and that of its policy (`policy_norm`, `policy_norm_clipped`); `entropy` in
        nats per token, estimated as the mean of -log p of the sampled tokens; `kl` to the reference, NaN if off;
        `clip_fraction`, the share of clipped tokens; `max_ratio` of the loss; `truncated`, the share of completions
        that ran out of tokens; `mismatch`, max |p_trained / p_sampled - 1| over tokens before the first step; `lr`;
        `skipped`, and `culprits`, the rows that caused it. With a critic also `explained_variance`, the share of the
        variance of `target` that `value` explains.

    Raises:
        UpdateError: A loss or gradient is not finite, or a row cannot be trained on; names policy, agent, task, turn.
            Or other weights sampled the rows; names policy and agent. No weight has changed then.
        PolicyError: A step made weights NaN or infinite, another thread trains the model, or a back end cannot do it.
    """
    check_arguments(update, locals(), epochs=1, minibatches=1, lr_scale=0)
    check_update(team, loss, aggregate, max_norm, watch)
    if nonfinite not in ("raise", "skip"):
        raise ValueError(f"update: nonfinite={nonfinite!r}; known are raise, skip")
    stats: list[dict[str, Any]] = []
    with training(learners(team)) as each:
        rows, together = trained_rows(team, turns, loss, aggregate), "group" if loss.unit == "group" else "node"
        for number, parts in enumerate(_minibatches(team, rows, epochs, minibatches, seed, together)):
            steps = [PolicyStep(name, team.policies[name], part, loss, aggregate, rows) for name, part in parts.items()]
            with _clean_gradients(steps):
                list(each(PolicyStep.backward, steps))
                for step in steps:
                    step.check_finite(nonfinite)
                    if number == 0 and not off_policy:
                        step.check_fresh()
                    if watch is not None and not step.broken:
                        watch(step.name, dict(step.norms), step)
                for step in steps:
                    stats += step.optim_step(number, max_norm, lr_scale)
        for policy in learners(team):
            policy.sync_weights()
    return pd.DataFrame(stats, columns=None if stats else STATS.split())


@dataclass
class PolicyStep:
    """One optimizer step of one policy. Call it to get each token's share of the gradient."""

    name: str
    policy: Policy
    rows: pd.DataFrame
    """The rows that this step learns from."""
    loss: Loss
    aggregate: str
    table: pd.DataFrame
    """All rows of the batch, of every policy and minibatch: statistics of groups need them."""
    norms: dict[str, float] = field(default_factory=dict)
    """Gradient norm of each agent. NaN if the back end knows that of the policy alone."""
    tokens: dict[str, Tokens] = field(default_factory=dict)
    samples: dict[str, list[Sample]] = field(default_factory=dict)
    linear: dict[str, list[Sample]] = field(default_factory=dict)
    """For a loss over groups: samples whose advantages are its slopes, see `_of_groups`."""
    used: dict[str, pd.DataFrame] = field(default_factory=dict)
    """The rows behind each agent's samples, in the same order."""
    broken: list[int] = field(default_factory=list)
    """Rows whose loss, or whose agent's gradient, is not finite."""
    reported: dict[str, dict[str, float]] = field(default_factory=dict)
    weights: pd.Series = field(init=False)
    """Weight of the loss of each token of a row."""

    def __post_init__(self):
        lengths = self.rows["completion_ids"].map(len)
        bad = (lengths == 0) | (lengths != self.rows["logprobs"].map(len)) | (self.rows["temperature"] <= 0)
        if bad.any():
            raise UpdateError(
                f"update: the completion of {place(self.rows[bad].iloc[0])} is empty, has not one log-probability per "
                "token, or was drawn at temperature 0: there is nothing to learn from"
            )
        if self.loss.unit == "group":
            self._require_whole_groups()
        self.weights = token_weights(self.rows["agent"], lengths, self.aggregate)
        for agent, own in self.rows.assign(weight=self.weights).groupby("agent", sort=False):
            used = self.used[agent] = own[nonzero(own["advantage"])] if self.loss.skips_zero_advantage else own
            if self.loss.tis is not None and len(used):
                used = _importance_weighted(used, self.loss.tis)
            self.samples[agent] = [
                Sample(*row) for row in used[[*ROW[1:], "weight"]].itertuples(index=False, name=None)
            ]

    def _require_whole_groups(self) -> None:
        groups = self.rows.groupby("group")["agent"]
        bad = (groups.transform("size") < 2) | (groups.transform("nunique") > 1)
        if bad.any():
            row = self.rows[bad].iloc[0]
            raise UpdateError(
                f"update: {type(self.loss).__name__} compares the rows of a group, and group {row['group']!r} has a "
                f"single row or several agents, at {place(row)}; sample more candidates, or group by agent too"
            )

    @property
    def norm(self) -> float:
        """Return the norm of the policy's gradient before clipping."""
        return self.policy.gradient_norm()

    def backward(self) -> None:
        """Compute the gradient agent by agent. It stays at the policy, and each agent's norm in `norms`."""
        if not self.policy.capabilities.gradients:
            return self._backward_unseen()
        total: list[Tensor] | None = None
        for agent, samples in self.samples.items():
            self.norms[agent] = 0.0
            if samples:
                by_group = self.loss.unit == "group"
                self.tokens[agent] = (
                    self._of_groups(agent) if by_group else self.policy.forward_backward(samples, self.loss)
                )
                self.norms[agent] = self.policy.gradient_norm()
                if len(self.samples) > 1:
                    own = [gradient for _, gradient in self.policy.gradients()]
                    total = [a.add_(b) for a, b in zip(total, own, strict=True)] if total else [a.clone() for a in own]
                    self.policy.set_gradients(None)
        if total is not None:
            self.policy.set_gradients(total)

    def _of_groups(self, agent: str) -> Tokens:
        """Add the gradient of a loss that sees whole groups, by the chain rule.

            dL/dw = sum over tokens t of dL/dlog p_t * dlog p_t/dw

        The first pass computes log p, and the loss its slopes dL/dlog p. The second pass is that of `reinforce`, with
        the negative slope, over the weight, as the advantage of each token. So micro-batches never cut a group.
        """
        samples = self.samples[agent]
        seen = self.policy.forward_backward(samples, look(reference=self.loss.needs_reference))
        lengths = [len(sample.completion_ids) for sample in samples]
        row_N = np.repeat(np.arange(len(samples)), lengths)
        logprobs_N = seen.logprobs_N.detach().requires_grad_()
        old_N = logprobs_N.new_tensor(np.concatenate([sample.logprobs for sample in samples]))
        advantages_N = logprobs_N.new_tensor(np.concatenate([sample.advantages_T for sample in samples]))
        weights_N = logprobs_N.new_tensor(np.repeat([sample.weight for sample in samples], lengths))
        losses_N = logprobs_N.new_zeros(len(row_N))
        for rows in self.used[agent].reset_index(drop=True).groupby("group").indices.values():
            at = np.flatnonzero(np.isin(row_N, rows))
            own_N = logprobs_N.new_tensor(np.unique(row_N[at], return_inverse=True)[1]).long()
            reference_N = None if seen.reference_N is None else seen.reference_N[at]
            own = token_losses(self.loss, logprobs_N[at], old_N[at], advantages_N[at], own_N, None, reference_N)
            (own * weights_N[at]).sum().backward()
            losses_N[at] = own.detach()
        slopes = np.split(-logprobs_N.grad.double().cpu().numpy(), np.cumsum(lengths)[:-1])
        self.linear[agent] = [
            replace(sample, advantage=slope_T / sample.weight) for sample, slope_T in zip(samples, slopes, strict=True)
        ]
        self.policy.forward_backward(*self.passed(agent))
        return replace(seen, losses_N=losses_N)

    def passed(self, agent: str) -> tuple[list[Sample], Loss]:
        """Return the samples and the loss of the pass that made an agent's gradient."""
        return (self.linear[agent], reinforce()) if agent in self.linear else (self.samples[agent], self.loss)

    def _backward_unseen(self) -> None:
        """Compute the gradient with all agents in one request, if it cannot be read; then agents have no norms."""
        samples = [sample for own in self.samples.values() for sample in own]
        self.norms = {agent: np.nan if own else 0.0 for agent, own in self.samples.items()}
        if samples:
            parts = self.policy.forward_backward(samples, self.loss).split(list(self.samples.values()))
            self.tokens = {agent: part for agent, part in zip(self.samples, parts, strict=True) if self.samples[agent]}

    def check_finite(self, nonfinite: str) -> None:
        """Find the rows whose loss or gradient is not finite, and compute what the others report."""
        for agent, tokens in self.tokens.items():
            finite_N = tokens.losses_N.isfinite().cpu().numpy()
            if finite_N.all() and (np.isfinite(self.norms[agent]) or not self.policy.capabilities.gradients):
                continue
            owner_N = np.repeat(
                np.arange(len(self.samples[agent])), [len(s.completion_ids) for s in self.samples[agent]]
            )
            culprits = np.unique(owner_N[~finite_N]) if not finite_N.all() else np.arange(len(self.samples[agent]))
            self.broken += self.used[agent].index[culprits].tolist()
        if self.broken:
            self.policy.set_gradients(None)
        if self.broken and nonfinite == "raise":
            first = self.rows.loc[self.broken[0]]
            raise UpdateError(
                f"update: the loss or gradient of policy {self.name!r} is not finite; {len(self.broken)} rows caused "
                f"it, first {place(first)}. No policy made this step; look at their rewards and log-probabilities, or "
                "pass nonfinite='skip' to record and skip such steps"
            )
        self.reported = {agent: self._compared(agent) for agent in self.samples}

    def check_fresh(self) -> None:
        """Raise UpdateError if other weights than the present ones sampled the rows."""
        tolerance = self.policy.capabilities.tolerance
        if tolerance is None or self.loss.tis is not None or self.broken:
            return
        for agent in self.tokens:
            if not (gap := self.reported[agent]["mismatch"]) <= tolerance:
                raise UpdateError(
                    f"update: agent {agent!r} of policy {self.name!r}: |p_trained / p_sampled - 1| of a token is "
                    f"{gap:.2g}, more than {tolerance:.2g}: these rows were sampled before the last update; roll out "
                    "again, or pass off_policy=True. If they were not, the sampler computes other numbers than the "
                    "training: compare with load_policy(..., plain=True), or pass a loss with tis=2.0"
                )

    def optim_step(self, number: int, max_norm: float | None, lr_scale: float) -> list[dict[str, Any]]:
        """Clip the gradient, make the step, and return a row of statistics per agent."""
        before = after = 0.0
        if self.tokens and not self.broken:
            before, after = self.policy.optim_step(max_norm, lr_scale)
            if not self.policy.capabilities.gradients and len(self.tokens) == 1:
                self.norms |= dict.fromkeys(self.tokens, before)
        left = after / before if before else 1.0
        return [
            {
                "policy": self.name,
                "agent": agent,
                "optimizer_step": number,
                **_described(self.rows[self.rows["agent"] == agent]),
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

    def __call__(self) -> pd.DataFrame:
        """Return each token's share of the policy's gradient G before clipping: <what it adds to G, G> / |G|^2.

        Exact, by one forward-mode derivative, which costs about one forward and backward pass.

        Returns:
            Columns `row` (of the table that `update` got, from 0), `agent`, `token` (position) and `share`. Shares may
            be negative and sum to 1; there are none if G is 0.
        """
        gradient = [part.clone() for _, part in self.policy.gradients()]
        square = self.norm**2
        parts = [pd.DataFrame({"row": [], "agent": [], "token": [], "share": []})]
        for agent, samples in self.samples.items():
            if samples and square:
                lengths = [len(sample.completion_ids) for sample in samples]
                moved_N = self.policy.directional_derivatives(*self.passed(agent), gradient).double().cpu().numpy()
                row_N = np.repeat(self.used[agent].index, lengths)
                token_N = np.concatenate([np.arange(length) for length in lengths])
                parts.append(pd.DataFrame({"row": row_N, "agent": agent, "token": token_N, "share": moved_N / square}))
        return pd.concat(parts[1:] or parts, ignore_index=True)

    def _compared(self, agent: str) -> dict[str, float]:
        """Return the statistics that compare the weights with the recorded log-probabilities."""
        if agent not in self.tokens:
            return {"kl": np.nan, "clip_fraction": 0.0, "max_ratio": np.nan, "mismatch": np.nan}
        samples, tokens, loss = self.samples[agent], self.tokens[agent], self.loss
        new_N, lengths = tokens.logprobs_N, [len(sample.completion_ids) for sample in samples]
        old_N = new_N.new_tensor([logprob for sample in samples for logprob in sample.logprobs])
        sampled_N = new_N.new_tensor([logprob for row in self.used[agent]["logprobs"] for logprob in row])
        advantages_N = new_N.new_tensor(np.concatenate([sample.advantages_T for sample in samples]))
        row_N = new_N.new_tensor(np.repeat(np.arange(len(samples)), lengths)).long()
        clips_N = one_per_token(loss.clips(new_N, old_N, advantages_N, row_N), new_N, f"clips of loss {loss!r}")
        ratios_N = one_per_token(loss.ratios(new_N, old_N, row_N), new_N, f"ratios of loss {loss!r}")
        said = int(self.rows.loc[self.rows["agent"] == agent, "completion_ids"].map(len).sum())
        return {
            "kl": k3(new_N, tokens.reference_N).mean().item() if tokens.reference_N is not None else np.nan,
            "clip_fraction": clips_N.sum().item() / said,
            "max_ratio": ratios_N.max().item(),
            "mismatch": ((new_N - sampled_N).exp() - 1).abs().max().item(),
        }


def learners(team: Team) -> list[Policy]:
    """Return the policies that an update changes."""
    return [policy for name, policy in team.policies.items() if team.learners(name)]


def check_update(team: Team, loss: Loss, aggregate: str, max_norm: Any, watch: Any, cell: str = "update") -> None:
    """Raise an error if the arguments, or the back end of a policy that learns, do not allow this update."""
    require_loss(loss, aggregate, cell)
    require_max_norm(max_norm, cell)
    for policy in learners(team):
        if watch is not None and not policy.capabilities.gradients:
            raise PolicyError(
                f"policy {policy.name!r}: {type(watch).__name__} looks at the gradient, which its back end keeps; "
                "leave out watch=. SpikeInspector still marks spikes by the norms"
            )
        if max_norm is not None and not policy.capabilities.clipping:
            raise PolicyError(f"policy {policy.name!r}: max_norm={max_norm}, and {policy.capabilities.no_clipping}")
        policy.forward_backward([], loss)  # an empty batch checks the loss


def require_max_norm(max_norm: float | None, cell: str) -> None:
    """Raise ValueError, naming the `cell`, for a bound that would turn the gradient around or stop it."""
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"{cell}: max_norm={max_norm!r}; give a norm above 0 to clip at, or None for no clipping")


def policy_steps(team: Team, turns: pd.DataFrame, loss: Loss, aggregate: str) -> list[PolicyStep]:
    """Return the table as one optimizer step per policy that would learn from it, with no gradient yet."""
    rows = trained_rows(team, turns, loss, aggregate)
    own = {name: _own(team, rows, name) for name in team.policies}
    return [
        PolicyStep(name, team.policies[name], part, loss, aggregate, rows) for name, part in own.items() if len(part)
    ]


def trained_rows(team: Team, turns: pd.DataFrame, loss: Loss, aggregate: str) -> pd.DataFrame:
    """Return the rows that can be trained on, numbered from 0 by their place in `turns`."""
    require_loss(loss, aggregate, "update")
    require(turns, [*ROW, *(["group"] if loss.unit == "group" else [])], "update", optional=["selected"])
    refuse_copies(turns, "update")
    rows = turns.reset_index(drop=True)
    rows = rows[trained(rows)]
    require_advantage_per_token(rows, "update")
    for agent in rows["agent"].unique():
        team[agent]  # raises if an agent has no policy
    return rows if loss.tis is None else rows.assign(before=_logprobs_before(team, rows))


def token_weights(agents: pd.Series, lengths: pd.Series, aggregate: str) -> pd.Series:
    """Return the weight of each token of a row: the weighted sum of all token losses is the aggregate."""
    if aggregate == "token":
        return pd.Series(1.0 / lengths.sum(), index=agents.index)
    if aggregate == "sum":
        return pd.Series(1.0 / len(agents), index=agents.index)
    if aggregate == "turn":
        return 1.0 / (len(agents) * lengths)
    spoke = agents.groupby(agents).transform("size")
    return 1.0 / (agents.nunique() * spoke * lengths)


def nonzero(advantages: pd.Series) -> pd.Series:
    """Return which rows have an advantage other than 0, at any token."""
    return advantages != 0 if is_numeric_dtype(advantages) else advantages.map(np.any).astype(bool)


@contextmanager
def _clean_gradients(steps: Sequence[PolicyStep]) -> Iterator[None]:
    """Start without gradients, and leave none if the step is broken off."""
    for step in steps:
        step.policy.set_gradients(None)
    try:
        yield
    except BaseException:
        for step in steps:
            step.policy.set_gradients(None)
        raise


def _own(team: Team, rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the rows that one policy learns from."""
    return rows[rows["agent"].isin(team.learners(name)) & selected(rows)]


def _logprobs_before(team: Team, rows: pd.DataFrame) -> pd.Series:
    """Return, per row, the log-probabilities of its tokens under the weights before this update."""
    found = pd.Series(None, rows.index, dtype=object)
    for name, policy in team.policies.items():
        own = _own(team, rows[rows["completion_ids"].map(len) > 0], name)
        if len(own):
            samples = [Sample(*row, weight=0.0) for row in own[ROW[1:]].itertuples(index=False, name=None)]
            lengths = own["completion_ids"].map(len).tolist()
            found[own.index] = [part.tolist() for part in policy.forward(samples).logprobs_N.split(lengths)]
    return found


def _importance_weighted(rows: pd.DataFrame, bound: float) -> pd.DataFrame:
    """Take ratios to `before`, and multiply each token's advantage by min(p_before / p_sampled, bound)."""
    ratios = [np.exp(np.subtract(*pair)) for pair in zip(rows["before"], rows["logprobs"], strict=True)]
    pairs = zip(rows["advantage"], ratios, strict=True)
    advantages = [np.asarray(advantage, float) * np.minimum(ratio_T, bound) for advantage, ratio_T in pairs]
    return rows.assign(logprobs=rows["before"], advantage=pd.Series(advantages, rows.index, dtype=object))


def _minibatches(
    team: Team, rows: pd.DataFrame, epochs: int, minibatches: int, seed: int, together: str
) -> Iterator[dict[str, pd.DataFrame]]:
    """Yield the rows of each policy per optimizer step. Rows that are equal in the column `together` stay together."""
    learning = {name: _own(team, rows, name) for name in team.policies}
    for epoch in range(epochs):
        parts: list[dict[str, pd.DataFrame]] = [{} for _ in range(minibatches)]
        for name, own in learning.items():
            nodes = column(own, together) if minibatches > 1 else pd.Series("", index=own.index)
            order = sorted(nodes.unique())
            random.Random(f"{seed} {epoch} {name}").shuffle(order)
            part_of = {node: position % minibatches for position, node in enumerate(order)}
            for part, chosen in own.groupby(nodes.map(part_of)):
                parts[part][name] = chosen
        yield from (part for part in parts if part)


def _described(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the statistics of an agent's rows that need no model."""
    tokens = rows["completion_ids"].map(len).sum()
    credit = rows["credit"] if "credit" in rows.columns else pd.Series(np.nan, index=rows.index)
    finish = rows["finish"] if "finish" in rows.columns else pd.Series("", index=rows.index)
    advantage = rows["advantage"]
    squares = advantage**2 if is_numeric_dtype(advantage) else advantage.map(
        lambda one: float(np.mean(np.square(np.asarray(one, float))))
    )  # fmt: skip
    critic = {}
    if {"value", "target"} <= set(rows.columns):
        spread, left = rows["target"].var(ddof=0), (rows["target"] - rows["value"]).var(ddof=0)
        critic["explained_variance"] = 1 - left / spread if spread else np.nan
    return critic | {
        "turns": len(rows),
        "tokens": int(tokens),
        "reward_mean": credit.mean(),
        "reward_std": credit.std(ddof=0),
        "advantage_rms": np.sqrt(squares.mean()),
        "entropy": -sum(map(sum, rows["logprobs"])) / tokens,
        "truncated": (finish == "length").mean(),
    }

"""Cell 4, `update`: optimizer steps on the advantages.

Every policy learns from the rows of the agents that it plays. The gradient is computed agent by agent, so each agent
has a gradient norm of its own under shared weights too. Leaves out: the loss of a token (`losses`), and how
log-probabilities and gradients are computed (the back end).
"""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import chain
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from pandas.api.types import is_numeric_dtype

from mas_lab.arguments import check_arguments
from mas_lab.locks import training
from mas_lab.losses import Loss, UpdateError, clipped, corrected, k3, reported, require_loss
from mas_lab.policy import SAMPLED, Policy, PolicyError, Sample, Tokens, samples_of
from mas_lab.table import ages, column, in_batch, place, refuse_copies, require, require_advantage_per_token, selected
from mas_lab.team import Team

if TYPE_CHECKING:
    from torch import Tensor

ROW = ["agent", *SAMPLED, "advantage"]
STATS = (
    "policy agent optimizer_step turns tokens reward_mean reward_std advantage_rms entropy truncated grad_norm "
    "grad_norm_clipped policy_norm policy_norm_clipped kl clip_fraction max_ratio mismatch mismatch_p99 lr"
)
"""Columns of the table that `update` returns, also if no row was selected."""
MISMATCH = "mismatch", "mismatch_p99"
"""Statistics of the first optimizer step alone."""
MANY = 100
"""Number of tokens from which the mean of their mismatch says whether rows are old."""
UpdateCallback = Callable[["PolicyBatch"], None]


def update(
    team: Team,
    turns: pd.DataFrame,
    loss: Loss = clipped(0.2),  # noqa: B008 - a frozen value
    aggregate: str = "token",
    epochs: int = 1,
    minibatches: int = 1,
    max_norm: float | None = 1.0,
    lr_scale: float = 1.0,
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
        minibatches: Optimizer steps per pass. The candidates of one node stay together.
        max_norm: Clips the gradient norm of each policy. None: no clipping.
        lr_scale: Multiplies the learning rate of each policy.
        watch: Called with each `PolicyBatch` between backward pass and clipping, such as `SpikeWatch`. The batch has
            the `name` of the policy, the `norms` of its agents, and each token's share of the gradient
            (`token_shares()`).
        seed: Decides the minibatches.
        off_policy: Train on rows that other weights sampled. False: if `mismatch` (in half precision the mean in its
            place) is larger than the `tolerance` in the policy's capabilities, raise; a loss with `tis` is not checked.
            Rows with a `policy_version` that the policy keeps are not checked (`staleness`).

    Returns:
        A row per policy, agent and optimizer step: `turns`, `tokens`; mean and standard deviation of `credit`
        (`reward_mean`, `reward_std`); `advantage_rms`; the norm of the agent's gradient before and after clipping
        (`grad_norm`, `grad_norm_clipped`), and that of its policy (`policy_norm`, `policy_norm_clipped`); `entropy` in
        nats per token, estimated as the mean of -log p of the sampled tokens; `kl` to the reference, NaN if off;
        `clip_fraction`, the share of clipped tokens; `max_ratio` of the loss; `truncated`, the share of completions
        that ran out of tokens; `mismatch` and `mismatch_p99`, the maximum and the 99th percentile of |p_trained /
        p_sampled - 1| over tokens before the first step; `lr`. With a column `policy_version` also `age`, the mean over
        rows of `step` - `policy_version`.

    Raises:
        UpdateError: A loss or gradient is not finite, or a row cannot be trained on; names policy, agent, task, turn.
            Or other weights sampled the rows; names policy and agent. No weight has changed then.
        PolicyError: A step made weights NaN or infinite, another thread trains the model, or a back end cannot do it.
    """
    check_arguments(update, locals(), epochs=1, minibatches=1, lr_scale=0)
    check_update(team, loss, aggregate, max_norm, watch)
    stats: list[dict[str, Any]] = []
    with training(learners(team)) as each:
        for number, batches in enumerate(policy_batches(team, turns, loss, aggregate, epochs, minibatches, seed)):
            with _no_gradients_left(batches):
                batches = each(compute_gradients, batches)
                for batch in batches:
                    require_finite(batch)
                    if number == 0 and not (off_policy or loss.tis):
                        require_fresh(batch)
                    if watch is not None:
                        watch(batch)
                compared = [{agent: compared_with_sampling(own, batch.loss) for agent, own in batch.agents.items()}
                            for batch in batches]  # before any weights change  # fmt: skip
                for batch, by_agent in zip(batches, compared, strict=True):
                    norm, clipped_norm = clip_and_step(batch, max_norm, lr_scale)
                    stats += statistics(batch, by_agent, number, norm, clipped_norm, lr_scale)
        for policy in learners(team):
            policy.sync_weights()
    return pd.DataFrame(stats, columns=None if stats else STATS.split())


@dataclass(frozen=True)
class AgentBatch:
    """The rows of one agent in an optimizer step, and what the pass over them returned."""

    rows: pd.DataFrame
    used: pd.DataFrame
    """The rows that pass through the model: without those that add nothing to the gradient."""
    samples: list[Sample]
    """`used` as samples. With `tis` and several steps, log-probabilities and advantages are the corrected ones."""
    tokens: Tokens | None = None
    """What the pass returned per token of `samples`. `None`: no pass was made."""
    norm: float = 0.0
    """Norm of the agent's gradient before clipping. NaN if the back end only knows that of the policy."""

    @property
    def row_N(self) -> np.ndarray:
        """Return the place in `samples` of each token's row."""
        return np.repeat(np.arange(len(self.samples)), [len(sample.completion_ids) for sample in self.samples])

    @property
    def gaps_N(self) -> "Tensor":
        """Return |p_trained / p_sampled - 1| of each token."""
        logprobs_N = self.tokens.logprobs_N
        return ((logprobs_N - logprobs_N.new_tensor(np.concatenate(self.used["logprobs"].tolist()))).exp() - 1).abs()

    def broken(self, has_gradients: bool) -> list[int]:
        """Return the rows whose loss is not finite, or all if the gradient is not."""
        if self.tokens is None:
            return []
        finite_N = self.tokens.losses_N.isfinite().cpu().numpy()
        if finite_N.all():
            return [] if not has_gradients or np.isfinite(self.norm) else self.used.index.tolist()
        return self.used.index[np.unique(self.row_N[~finite_N])].tolist()


@dataclass(frozen=True)
class PolicyBatch:
    """The rows from which one policy learns in one optimizer step."""

    name: str
    policy: Policy
    rows: pd.DataFrame
    """The rows of this step, with `weight`, the weight of the loss of each of their tokens."""
    loss: Loss
    aggregate: str
    table: pd.DataFrame
    """All rows of the update, of every policy and minibatch: statistics of groups need them."""
    agents: dict[str, AgentBatch]

    @property
    def norm(self) -> float:
        """Return the norm of the policy's gradient before clipping."""
        return self.policy.gradient_norm()

    @property
    def norms(self) -> dict[str, float]:
        """Return the norm of each agent's gradient before clipping."""
        return {agent: own.norm for agent, own in self.agents.items()}

    def token_shares(self) -> pd.DataFrame:
        """Return each token's share of the policy's gradient G before clipping: <what it adds to G, G> / |G|^2.

        Exact, by one forward-mode derivative, which costs about one forward and backward pass.

        Returns:
            Columns `row` (of the table that `update` got, from 0), `agent`, `token` (position) and `share`. Shares may
            be negative and sum to 1; there are none if G is 0.
        """
        gradient, square = [part.clone() for _, part in self.policy.gradients()], self.norm**2
        agents = [own for own in self.agents.values() if own.samples and square]
        slopes = [self.policy.directional_derivatives(own.samples, self.loss, gradient) for own in agents]
        return share_table([own.used for own in agents], [part_N.double().cpu().numpy() / square for part_N in slopes])


def policy_batches(
    team: Team, turns: pd.DataFrame, loss: Loss, aggregate: str, epochs: int = 1, minibatches: int = 1, seed: int = 0
) -> Iterator[list[PolicyBatch]]:
    """Yield the batches of each optimizer step, one per policy. Minibatches cut no node."""
    table, several, parts = trained_rows(team, turns), epochs * minibatches > 1, {}
    for name, policy in team.policies.items():
        rows = _learned_rows(team, table, name)
        own_loss = _with_default_tis(loss, policy, rows)
        if several and own_loss.tis and len(rows):
            rows, own_loss = rows.assign(**_importance_weights(policy, rows, own_loss.tis)), replace(own_loss, tis=0.0)
        parts[name] = rows, own_loss
    for epoch in range(epochs):
        steps: list[list[PolicyBatch]] = [[] for _ in range(minibatches)]
        for name, policy in team.policies.items():
            rows, own_loss = parts[name]
            nodes = column(rows, "node") if minibatches > 1 else pd.Series("", index=rows.index)
            order = sorted(nodes.unique())
            random.Random(f"{seed} {epoch} {name}").shuffle(order)
            step_of = {node: position % minibatches for position, node in enumerate(order)}
            for step, part in rows.groupby(nodes.map(step_of)):
                steps[step].append(policy_batch(name, policy, part, own_loss, aggregate, table))
        yield from filter(None, steps)


def policy_batch(
    name: str, policy: Policy, rows: pd.DataFrame, loss: Loss, aggregate: str, table: pd.DataFrame
) -> PolicyBatch:
    """Return the rows of a policy, agent by agent, ready for a pass."""
    rows = rows.assign(weight=token_weights(rows["agent"], rows["completion_ids"].map(len), aggregate))
    agents = {}
    for agent, own in rows.groupby("agent", sort=False):
        used = own[nonzero(own["advantage"])] if loss.skips_zero_advantage else own
        if "importance" in used:
            weighted = used["importance"] * used["advantage"].map(np.asarray)
            samples = samples_of(used.assign(logprobs=used["old_logprobs"], advantage=weighted))
        else:
            samples = samples_of(used)
        agents[agent] = AgentBatch(own, used, samples)
    return PolicyBatch(name, policy, rows, loss, aggregate, table, agents)


def compute_gradients(batch: PolicyBatch) -> PolicyBatch:
    """Return the batch with what the passes gave, agent by agent. The sum of the gradients stays at the policy."""
    policy, loss = batch.policy, batch.loss
    if not policy.capabilities.gradients:
        return _computed_jointly(batch)
    agents, total = dict(batch.agents), None
    learning = [agent for agent, own in agents.items() if own.samples]
    for agent in learning:
        tokens = policy.forward_backward(agents[agent].samples, loss)
        agents[agent] = replace(agents[agent], tokens=tokens, norm=policy.gradient_norm())
        if len(learning) > 1:
            parts = [gradient for _, gradient in policy.gradients()]
            total = [a.add_(b) for a, b in zip(total, parts, strict=True)] if total else [a.clone() for a in parts]
            policy.set_gradients(None)
    if total is not None:
        policy.set_gradients(total)
    return replace(batch, agents=agents)


def _computed_jointly(batch: PolicyBatch) -> PolicyBatch:
    """Compute the gradient in one request, if the back end does not return it; then agents have no norms."""
    learning = {agent: own for agent, own in batch.agents.items() if own.samples}
    if not learning:
        return batch
    samples = [own.samples for own in learning.values()]
    tokens = batch.policy.forward_backward([*chain(*samples)], batch.loss).split(samples)
    found = {agent: replace(learning[agent], tokens=part, norm=np.nan)
             for agent, part in zip(learning, tokens, strict=True)}  # fmt: skip
    return replace(batch, agents=batch.agents | found)


def require_finite(batch: PolicyBatch) -> None:
    """Raise UpdateError if a loss or gradient is not finite."""
    has_gradients = batch.policy.capabilities.gradients
    if broken := [row for own in batch.agents.values() for row in own.broken(has_gradients)]:
        raise UpdateError(
            f"update: the loss or gradient of policy {batch.name!r} is not finite; {len(broken)} rows caused it, first "
            f"{place(batch.rows.loc[broken[0]])}. No policy made this step; look at their rewards and log-probabilities"
        )


def compared_with_sampling(own: AgentBatch, loss: Loss) -> dict[str, float]:
    """Return the statistics that compare the weights before the step with the recorded log-probabilities."""
    if own.tokens is None:
        return dict.fromkeys(("kl", "max_ratio", *MISMATCH), np.nan) | {"clip_fraction": 0.0}
    new_N, reference_N = own.tokens.logprobs_N, own.tokens.reference_N
    old_N = new_N.new_tensor(np.concatenate([sample.logprobs for sample in own.samples]))
    advantages_N = new_N.new_tensor(np.concatenate([sample.advantages_T for sample in own.samples]))
    old_N, advantages_N = corrected(loss, new_N, old_N, advantages_N)
    row_N, gaps_N = new_N.new_tensor(own.row_N).long(), own.gaps_N
    clips_N = reported(loss, "clips", new_N, old_N, advantages_N, row_N)
    return {
        "kl": k3(new_N, reference_N).mean().item() if reference_N is not None else np.nan,
        "clip_fraction": clips_N.sum().item() / int(own.rows["completion_ids"].map(len).sum()),
        "max_ratio": reported(loss, "ratios", new_N, old_N, row_N).max().item(),
        "mismatch": gaps_N.max().item(),
        "mismatch_p99": float(np.quantile(gaps_N.float().cpu().numpy(), 0.99)),
    }


def require_fresh(batch: PolicyBatch) -> None:
    """Raise UpdateError if other weights than the present ones sampled the rows.

    Rounding in half precision moves single tokens far: there the mean is compared, of `MANY` tokens or more. Rows that
    name an earlier version, which the policy keeps, are not compared.
    """
    tolerance, rough = batch.policy.capabilities.tolerance, batch.policy.capabilities.tis is not None
    if tolerance is None:
        return
    for agent, own in batch.agents.items():
        if own.tokens is None:
            continue
        is_old = own.used.get("policy_version", pd.Series(-1, own.used.index)).isin(getattr(batch.policy, "kept", {}))
        gaps_N = own.gaps_N[np.flatnonzero(~is_old.to_numpy()[own.row_N])]
        if len(gaps_N) < (MANY if rough else 1):
            continue
        if (gap := (gaps_N.mean() if rough else gaps_N.max()).item()) > tolerance:
            raise UpdateError(
                f"update: agent {agent!r} of policy {batch.name!r}: |p_trained / p_sampled - 1| of "
                f"{'the mean' if rough else 'a'} token is {gap:.2g}, more than {tolerance:.2g}: these rows were "
                "sampled before the last update; roll out again, or pass off_policy=True. If they were not, the "
                "sampler computes other numbers than the training: compare with load_policy(..., plain=True), or pass "
                "a loss with tis=2.0"
            )


def clip_and_step(batch: PolicyBatch, max_norm: float | None, lr_scale: float) -> tuple[float, float]:
    """Clip the gradient, make the step, and return the policy's norm before and after clipping; 0 without a step."""
    if all(own.tokens is None for own in batch.agents.values()):
        return 0.0, 0.0
    return batch.policy.optim_step(max_norm, lr_scale)


def statistics(
    batch: PolicyBatch, compared: dict, number: int, norm: float, clipped_norm: float, lr_scale: float
) -> list[dict[str, Any]]:
    """Return the rows of the table that `update` returns for one optimizer step of a policy, one per agent."""
    left = clipped_norm / norm if norm else 1.0
    norms = batch.norms
    if not batch.policy.capabilities.gradients and sum(own.tokens is not None for own in batch.agents.values()) == 1:
        norms = {agent: norm if np.isnan(own) else own for agent, own in norms.items()}  # the policy's is the agent's
    return [
        {
            "policy": batch.name, "agent": agent, "optimizer_step": number, **_row_statistics(own.rows),
            "grad_norm": norms[agent], "grad_norm_clipped": norms[agent] * left,
            "policy_norm": norm, "policy_norm_clipped": clipped_norm,
            **compared[agent], **(dict.fromkeys(MISMATCH, np.nan) if number else {}),
            "lr": batch.policy.lr * lr_scale,
        }
        for agent, own in batch.agents.items()
    ]  # fmt: skip


def share_table(parts: Sequence[pd.DataFrame], shares: Sequence[np.ndarray]) -> pd.DataFrame:
    """Return the table of `token_shares` from some rows of each agent, and the shares of their tokens."""
    tables = [pd.DataFrame({"row": [], "agent": [], "token": [], "share": []})]
    for rows, share_N in zip(parts, shares, strict=True):
        lengths = rows["completion_ids"].map(len)
        token_N = np.concatenate([np.arange(length) for length in lengths])
        row_N, agent = np.repeat(rows.index, lengths), rows["agent"].iloc[0]
        tables.append(pd.DataFrame({"row": row_N, "agent": agent, "token": token_N, "share": share_N}))
    return pd.concat(tables[1:] or tables, ignore_index=True)


@contextmanager
def _no_gradients_left(batches: Sequence[PolicyBatch]) -> Iterator[None]:
    """Start without gradients, and leave none if the step is broken off."""
    for batch in batches:
        batch.policy.set_gradients(None)
    try:
        yield
    except BaseException:
        for batch in batches:
            batch.policy.set_gradients(None)
        raise


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


def trained_rows(team: Team, turns: pd.DataFrame) -> pd.DataFrame:
    """Return the rows that can be trained on, numbered from 0 by their place in `turns`."""
    require(turns, ROW, "update", optional=["selected"])
    refuse_copies(turns, "update")
    ages(turns, "update")  # raises if a version is later than its step
    rows = turns.reset_index(drop=True)
    rows = rows.astype(dict.fromkeys(rows.select_dtypes("category"), object))  # no group of an agent without rows
    rows = rows[in_batch(rows)]
    require_advantage_per_token(rows, "update")
    for agent in rows["agent"].unique():
        team[agent]  # raises if an agent has no policy
    return rows


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


def _with_default_tis(loss: Loss, policy: Policy, rows: pd.DataFrame) -> Loss:
    """Return the loss with the policy's own bound of the importance weights, if it names none and no row is old."""
    bound, age = policy.capabilities.tis, ages(rows, "update")
    is_fresh = age is None or not age.any()
    return replace(loss, tis=bound) if bound and loss.tis is None and is_fresh else loss


def _learned_rows(team: Team, rows: pd.DataFrame, name: str) -> pd.DataFrame:
    """Return the rows that one policy learns from; raise UpdateError if one cannot be trained on."""
    rows = rows[rows["agent"].isin(team.learners(name)) & selected(rows)]
    lengths = rows["completion_ids"].map(len)
    bad = (lengths == 0) | (lengths != rows["logprobs"].map(len)) | (rows["temperature"] <= 0)
    if bad.any():
        raise UpdateError(
            f"update: the completion of {place(rows[bad].iloc[0])} is empty, has not one log-probability per token, or "
            "was drawn at temperature 0: there is nothing to learn from"
        )
    size = team.policies[name].capabilities.vocabulary or inf
    for ids in ("prompt_ids", "completion_ids"):
        bad = rows[ids].map(lambda row: len(row) > 0 and not 0 <= min(row) <= max(row) < size).astype(bool)
        if bad.any():
            raise UpdateError(
                f"update: '{ids}' of {place(rows[bad].iloc[0])} has a token that policy {name!r} lacks; its ids are 0 "
                f"to {size - 1}: another tokenizer made this row"
            )
    return rows


def _importance_weights(policy: Policy, rows: pd.DataFrame, bound: float) -> dict[str, pd.Series]:
    """Return columns with the old log-probability of each token and its importance weight.

    `old_logprobs` are those of the weights before this update, and `importance` is min(p_old / p_sampled, bound).
    """
    old_N = policy.forward(samples_of(rows, weight=0.0)).logprobs_N
    old = [old_T.tolist() for old_T in old_N.split(rows["completion_ids"].map(len).tolist())]
    pairs = zip(old, rows["logprobs"], strict=True)
    columns = {"old_logprobs": old, "importance": [np.minimum(np.exp(np.subtract(*pair)), bound) for pair in pairs]}
    return {name: pd.Series(values, rows.index, dtype=object) for name, values in columns.items()}


def _row_statistics(rows: pd.DataFrame) -> dict[str, Any]:
    """Return the statistics of an agent's rows that need no model."""
    tokens = rows["completion_ids"].map(len).sum()
    credit, finish = (rows.get(name, pd.Series(np.nan, rows.index)) for name in ("credit", "finish"))
    advantage = rows["advantage"]
    squares = advantage**2 if is_numeric_dtype(advantage) else advantage.map(lambda a: np.mean(np.square(a)))
    age = ages(rows, "update")
    return ({} if age is None else {"age": age.mean()}) | {
        "turns": len(rows), "tokens": int(tokens), "reward_mean": credit.mean(), "reward_std": credit.std(ddof=0),
        "advantage_rms": np.sqrt(squares.mean()), "entropy": -sum(map(sum, rows["logprobs"])) / tokens,
        "truncated": (finish == "length").mean(),
    }  # fmt: skip

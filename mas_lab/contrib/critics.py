"""Critics: credits that learn the value of a situation, and credit a turn with what it adds.

V(h) is a linear head on the policy's last hidden state at the end of a prompt, which is not trained by it. Leaves out:
a critic with a trunk of its own, and clipping of the value loss.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.credits import joint_steps
from mas_lab.cells.plans import episodes
from mas_lab.locks import locked
from mas_lab.losses import reinforce
from mas_lab.policy import SAMPLED, PolicyError, samples_of
from mas_lab.recipes import Recipe
from mas_lab.table import column, require
from mas_lab.team import Team

if TYPE_CHECKING:
    from torch import Tensor


class Head:
    """A linear value head with an Adam optimizer of its own; it starts at 0."""

    def __init__(self, size: int, lr: float):
        import torch

        self.linear = torch.nn.Linear(size, 1)
        torch.nn.init.zeros_(self.linear.weight)
        torch.nn.init.zeros_(self.linear.bias)
        self.optimizer = torch.optim.Adam(self.linear.parameters(), lr=lr)

    def __call__(self, hidden_Mh: "Tensor") -> "Tensor":
        """Return the values (M,) of M situations."""
        return self.linear(hidden_Mh)[:, 0]

    def fit(self, hidden_Mh: "Tensor", target_M: "Tensor", steps: int) -> None:
        """Make steps of gradient descent on the mean of (target - V)^2."""
        for _ in range(steps):
            self.optimizer.zero_grad()
            (target_M - self(hidden_Mh)).square().mean().backward()
            self.optimizer.step()

    def state(self) -> list[Any]:
        """Return weights and optimizer state as plain data."""
        adam = self.optimizer.state
        return [[p.tolist(), *(adam[p][name].tolist() for name in ("step", "exp_avg", "exp_avg_sq") if p in adam)]
                for p in self.linear.parameters()]  # fmt: skip

    @classmethod
    def of(cls, state: list[Any], lr: float) -> "Head":
        """Return the head of a state."""
        import torch

        head = cls(len(state[0][0][0]), lr)
        for p, (values, *adam) in zip(head.linear.parameters(), state, strict=True):
            p.data = torch.tensor(values)
            if adam:
                names = ("step", "exp_avg", "exp_avg_sq")
                head.optimizer.state[p] = {name: torch.tensor(one) for name, one in zip(names, adam, strict=True)}
        return head


@dataclass(frozen=True)
class critic:
    """Credit of IAC and MAAC: the generalised advantage of a turn, by a value that is learned meanwhile.

        delta_t = r_t + gamma V(h_{t+1}) - V(h_t)
        A_t = sum over l of (gamma lam)^l delta_{t+l},    y_t = A_t + V(h_t)

    GAE, arXiv 1506.02438. With `lam` = 0, y_t = r_t + gamma V(h_{t+1}) is the target of CoMLRL 1.4.3 (IAC and MAAC of
    arXiv 2601.21972). After the last turn V is 0. `after` makes `steps` steps of each head on the mean of (y - V)^2.
    """

    needs_team = True

    central: bool = False
    """False: V of an agent on its own prompt; t counts its own turns, and r_t is what the team earned until its next
    one. True: one V on the prompts that all agents saw last; t counts steps of the environment, and agents that act
    together get one A."""
    gamma: float = 1.0
    """Discount from one t to the next."""
    lam: float = 0.0
    """0: one-step TD. 1: Monte Carlo returns minus V."""
    lr: float = 3e-3
    """Learning rate of the heads."""
    steps: int = 10
    """Optimizer steps of a head per batch."""
    state: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """Weights and optimizer states of the heads, by agent, or under "all"."""

    def __post_init__(self):
        check_arguments(critic, vars(self), gamma=0, lam=0, lr=0, steps=1)

    def __call__(self, turns: pd.DataFrame, team: Team) -> pd.DataFrame:
        """Return A, V and y of each row.

        Args:
            turns: Table of `episodes(n)`.
            team: The team that played `turns`, with the same weights.

        Returns:
            A table on the index of `turns` with the columns `credit` (A), `value` (V) and `target` (y).

        Raises:
            TableError: A column is missing, or an episode branches.
            PolicyError: The back end of a policy shows no hidden states.
        """
        *_, values_M, targets_M, moment_R = self._measured(turns, team)
        found = {"credit": (targets_M - values_M)[moment_R], "value": values_M[moment_R], "target": targets_M[moment_R]}
        return pd.DataFrame(found, index=turns.index)

    def after(self, turns: pd.DataFrame, team: Team) -> "critic":
        """Return the critic whose heads were fitted to the targets of the call.

        Args:
            turns: The table of the call.
            team: The team that played `turns`, with the same weights.
        """
        import torch

        heads, places, hidden_Mh, _, targets_M, _ = self._measured(turns, team)
        for name, of in places.items():
            heads[name].fit(hidden_Mh[of], torch.tensor(targets_M[of], dtype=torch.float32), self.steps)
        return replace(self, state={name: head.state() for name, head in heads.items()})

    def _measured(self, turns: pd.DataFrame, team: Team) -> tuple:
        """Return the heads, the places of their moments, hidden states, V and y of the moments, each row's moment."""
        import torch

        require(turns, ["episode", "depth", "agent", "team_reward", *SAMPLED], "critic")
        rows = turns.reset_index(drop=True)
        hidden_Rh = _hidden(team, rows)
        if self.central:
            moments, hidden_Mh, moment_R = _joint_moments(rows, hidden_Rh, list(team))
        else:
            moments, hidden_Mh, moment_R = _own_moments(rows, hidden_Rh)
        values_M, targets_M = np.zeros(len(moments)), np.zeros(len(moments))
        heads = {name: Head.of(state, self.lr) for name, state in self.state.items()}
        places = moments.groupby("head").indices
        for name, of in places.items():
            head = heads.setdefault(name, Head(hidden_Mh.shape[1], self.lr))
            if head.linear.in_features != hidden_Mh.shape[1]:
                raise ValueError(f"critic: its value head {name!r} belongs to another team; make a new critic(...)")
            with torch.no_grad():
                values_M[of] = head(hidden_Mh[of]).double().numpy()
            targets_M[of] = values_M[of] + self._advantages(moments.iloc[of], values_M[of])
        return heads, places, hidden_Mh, values_M, targets_M, moment_R

    def _advantages(self, moments: pd.DataFrame, values_M: np.ndarray) -> np.ndarray:
        """Return A of the moments of one head, which are sorted by episode and time."""
        found_M, episodes = np.zeros(len(moments)), moments["episode"].to_numpy()
        for t in reversed(range(len(moments))):
            goes_on = t + 1 < len(moments) and episodes[t + 1] == episodes[t]
            after, later = (values_M[t + 1], found_M[t + 1]) if goes_on else (0.0, 0.0)
            found_M[t] = moments["reward"].iloc[t] + self.gamma * (after + self.lam * later) - values_M[t]
        return found_M


def _hidden(team: Team, rows: pd.DataFrame) -> "Tensor":
    """Return the hidden state (R, h) at the end of each row's prompt, divided by the square root of its size.

    h is the size of the team's largest model; the states of a smaller one end with zeros.
    """
    import torch

    for name, policy in team.policies.items():
        if not policy.capabilities.features:
            raise PolicyError(f"policy {name!r}: a critic reads hidden states, which its back end keeps; use torch")
    sizes = [policy.model.config.get_text_config().hidden_size for policy in team.policies.values()]
    hidden_Rh = torch.zeros(len(rows), max(sizes))
    with locked(team.policies.values()):
        for (name, policy), size in zip(team.policies.items(), sizes, strict=True):
            own = rows[[team.name_of(agent) == name for agent in rows["agent"]]]
            samples = [  # one token of the completion is enough: the prompt's states do not depend on it
                replace(one, completion_ids=one.completion_ids[:1], logprobs=one.logprobs[:1])
                for one in samples_of(own, advantage=0.0, weight=0.0)
            ]
            if samples:
                hidden_Rh[own.index, :size] = policy.features(samples).cpu() / size**0.5
    return hidden_Rh


def _own_moments(rows: pd.DataFrame, hidden_Rh: "Tensor"):
    """Return a moment per row: head, episode and the team's reward until the agent's next turn; with hidden states."""
    steps = joint_steps(rows[column(rows, "kept").astype(bool)], "critic")
    before = (steps["team_reward"].groupby(steps["episode"]).cumsum() - steps["team_reward"]).to_numpy()
    rewards = pd.Series(before, pd.MultiIndex.from_frame(steps[["episode", "depth"]]))
    total = steps.groupby("episode")["team_reward"].sum()
    order = rows.sort_values(["agent", "episode", "depth"]).index
    moments = rows.loc[order, ["agent", "episode", "depth"]].rename(columns={"agent": "head"})
    start = rewards.reindex(pd.MultiIndex.from_frame(moments[["episode", "depth"]])).to_numpy()
    chains = [moments["head"], moments["episode"]]
    end = pd.Series(start, moments.index).groupby(chains).shift(-1).fillna(moments["episode"].map(total))
    moment_R = np.empty(len(rows), int)
    moment_R[order] = np.arange(len(rows))
    return moments.assign(reward=end.to_numpy() - start).reset_index(drop=True), hidden_Rh[order.to_list()], moment_R


def _joint_moments(rows: pd.DataFrame, hidden_Rh: "Tensor", agents: Sequence[str]):
    """Return a moment per step of the environment, with the hidden states of the prompts that all agents saw last.

    An agent that has seen none yet has the hidden state 0.
    """
    import torch

    steps = joint_steps(rows[column(rows, "kept").astype(bool)], "critic").reset_index(drop=True)
    at = {key: place for place, key in enumerate(zip(steps["episode"], steps["depth"], strict=True))}
    seats = {agent: seat for seat, agent in enumerate(agents)}
    hidden_Mah = torch.zeros(len(steps), len(seats), hidden_Rh.shape[1])
    moment_R = np.array([at[key] for key in zip(rows["episode"], rows["depth"], strict=True)])
    ends = {episode: places[-1] + 1 for episode, places in steps.groupby("episode").indices.items()}
    for row in rows.sort_values(["episode", "depth"]).index:
        agent, episode = rows.loc[row, ["agent", "episode"]]
        hidden_Mah[moment_R[row] : ends[episode], seats[agent]] = hidden_Rh[row]
    moments = steps[["episode", "depth"]].assign(head="all", reward=steps["team_reward"])
    return moments, hidden_Mah.flatten(1), moment_R


# IAC and MAAC, arXiv 2601.21972: a turn against a learned value, of its agent's prompt or of all prompts.
IAC = Recipe("iac", episodes(8), ("agent",), critic(), loss=reinforce(), aggregate="sum")
MAAC = Recipe("maac", episodes(8), ("agent",), critic(central=True), loss=reinforce(), aggregate="sum")

"""Credit a turn with what it adds to a learned value: IAC and MAAC (arXiv 2601.21972).

A critic V(h) predicts what the team will still earn in a situation h. The credit of turn t is its advantage A_t:

    delta_t = r_t + gamma * V(h_{t+1}) - V(h_t)              V is 0 after the last turn
    A_t     = delta_t + gamma * lam * A_{t+1}                GAE, arXiv 1506.02438

IAC has a critic for each agent, which reads the agent's own prompt. MAAC has one critic, which reads the last prompt of
every agent. V is linear in the policy's last hidden state at the end of a prompt. It never trains the policy.

Seam of the kit: a credit that reads the team's weights (`needs_team`) and learns (`state`, `after`).
Run it: python examples/critic.py
Leaves out: a critic with layers of its own, models of different widths, and episodes that branch.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd
import torch

import mas_lab as lab


def gae(rewards_T: Sequence[float], values_T: Sequence[float], gamma: float, lam: float) -> np.ndarray:
    """Return the advantage (T,) of each turn of one chain."""
    advantages_T, next_value, next_advantage = np.zeros(len(rewards_T)), 0.0, 0.0
    for t in reversed(range(len(rewards_T))):
        delta = rewards_T[t] + gamma * next_value - values_T[t]
        advantages_T[t] = delta + gamma * lam * next_advantage
        next_value, next_advantage = values_T[t], advantages_T[t]
    return advantages_T


@torch.no_grad()
def hidden_states(policy: Any, prompts: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the last hidden state (R, h) at the end of each prompt of token ids."""
    policy.activate()  # its adapter, if it is one of several on one base
    ids_RL = torch.nn.utils.rnn.pad_sequence([torch.tensor(prompt) for prompt in prompts], batch_first=True)
    lengths_R = torch.tensor([len(prompt) for prompt in prompts])
    mask_RL = (torch.arange(ids_RL.shape[1]) < lengths_R[:, None]).long()
    model = policy.model
    found = model(ids_RL.to(model.device), attention_mask=mask_RL.to(model.device), output_hidden_states=True)
    return found.hidden_states[-1][range(len(prompts)), lengths_R - 1].double().cpu().numpy()


Chain = tuple[str, list[list[int]], np.ndarray, list[float]]
"""The turns of an episode that one critic judges: its name, the rows of each turn, features (T, h) and rewards (T,)."""


def own_chains(episode: pd.DataFrame, seen: Mapping[int, np.ndarray]) -> Iterator[Chain]:
    """Yield a chain per agent (IAC): a turn earns what the team earns until the agent's next turn."""
    earned = episode.groupby("depth")["team_reward"].first()  # agents that act together share one reward
    for agent, own in episode.sort_values("depth").groupby("agent"):
        turn_of_step = np.searchsorted(own["depth"], earned.index, side="right") - 1  # -1: before its first turn
        rewards_T = [earned[turn_of_step == turn].sum() for turn in range(len(own))]
        yield agent, [[row] for row in own.index], np.array([[*seen[row], 1.0] for row in own.index]), rewards_T


def team_chain(episode: pd.DataFrame, seen: Mapping[int, np.ndarray], agents: Sequence[str]) -> Chain:
    """Return the chain of the team (MAAC): a turn is a step of the env, its features are what each agent saw last."""
    latest = dict.fromkeys(agents, np.zeros_like(seen[0]))
    turn_rows, features, rewards_T = [], [], []
    for _, acting in episode.groupby("depth"):
        latest |= {agent: seen[row] for row, agent in acting["agent"].items()}
        turn_rows.append([*acting.index])
        features.append([*np.concatenate([*latest.values()]), 1.0])
        rewards_T.append(acting["team_reward"].iloc[0])
    return "all", turn_rows, np.array(features), rewards_T


def chains(turns: pd.DataFrame, team: lab.Team, central: bool) -> Iterator[Chain]:
    """Yield the chains of a table of whole episodes; rows are counted from 0."""
    rows, seen = turns.reset_index(drop=True), {}
    for agent, own in rows.groupby("agent"):
        hidden_Rh = hidden_states(team[agent], own["prompt_ids"].tolist())
        seen |= dict(zip(own.index, hidden_Rh / hidden_Rh.shape[1] ** 0.5, strict=True))
    for _, episode in rows.groupby("episode", sort=False):
        yield from [team_chain(episode, seen, list(team))] if central else own_chains(episode, seen)


@dataclass(frozen=True)
class critic:
    """Credit: the advantage of a turn over the value that a critic predicts."""

    needs_team = True

    central: bool = False
    """False: a critic per agent; its reward is what the team earns until the agent's next turn. True: one critic."""
    gamma: float = 1.0
    """Discount from one turn to the next."""
    lam: float = 0.0
    """0: one-step TD errors. 1: returns minus values."""
    ridge: float = 1.0
    """How strongly a critic stays with its former weights."""
    state: Mapping[str, list[float]] = field(default_factory=dict, repr=False, compare=False)
    """The weights of each critic; the last one is its bias."""

    def __call__(self, turns: pd.DataFrame, team: lab.Team) -> pd.Series:
        """Return A of each row of a table of `lab.episodes(n)`."""
        lab.require(turns, ["episode", "depth", "agent", "team_reward", "prompt_ids"], "critic")
        credit_R = np.zeros(len(turns))
        for name, turn_rows, features_Th, rewards_T in chains(turns, team, self.central):
            advantages_T = gae(rewards_T, self.values(name, features_Th), self.gamma, self.lam)
            for rows, advantage in zip(turn_rows, advantages_T, strict=True):
                credit_R[rows] = advantage
        return pd.Series(credit_R, turns.index)

    def values(self, name: str, features_Th: np.ndarray) -> np.ndarray:
        """Return V (T,); it is 0 before a critic has learned."""
        return features_Th @ np.array(self.state.get(name, np.zeros(features_Th.shape[1])))

    def targets(self, turns: pd.DataFrame, team: lab.Team) -> dict[str, tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Return features (M, h), values V (M,) and targets V + A (M,) of all turns, by critic."""
        found: dict[str, list] = {}
        for name, _, features_Th, rewards_T in chains(turns, team, self.central):
            values_T = self.values(name, features_Th)
            target_T = values_T + gae(rewards_T, values_T, self.gamma, self.lam)
            found.setdefault(name, []).append((features_Th, values_T, target_T))
        return {name: tuple(map(np.concatenate, zip(*parts, strict=True))) for name, parts in found.items()}

    def after(self, turns: pd.DataFrame, team: lab.Team) -> "critic":
        """Return the critic that has learned: ridge regression of the targets around its former weights."""
        state = dict(self.state)
        for name, (features_Mh, values_M, targets_M) in self.targets(turns, team).items():
            square_hh = features_Mh.T @ features_Mh + self.ridge * np.eye(features_Mh.shape[1])
            step_h = np.linalg.solve(square_hh, features_Mh.T @ (targets_M - values_M))
            state[name] = (np.array(state.get(name, np.zeros_like(step_h))) + step_h).tolist()
        return replace(self, state=state)


IAC = lab.Recipe("iac", lab.episodes(8), ("agent",), critic(), loss=lab.reinforce(), aggregate="sum")
MAAC = IAC.replace(name="maac", credit=critic(central=True))


def main(steps: int = 5, tasks: int = 16) -> None:
    """Train a team with each method, and print how much of the targets' variance its critics explain."""
    env = lab.make_env("plan_path", size=5)
    for recipe in (IAC, MAAC):
        team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket), env.agents)
        for step in range(steps):
            turns = lab.rollout(env, team, env.tasks(tasks, "train", step), recipe.plan, seed=step)
            turns = recipe.advantages(turns, team)
            explained = {
                name: f"{1 - np.var(targets_M - values_M) / np.var(targets_M):.2f}"
                for name, (_, values_M, targets_M) in recipe.credit.targets(turns, team).items()
            }
            recipe = recipe.after(turns, team)  # before the update: it reads the weights that played
            lab.update(team, turns, recipe.loss, recipe.aggregate)
            success = turns.groupby("episode")["success"].last().mean()
            print(f"{recipe.name}, step {step}: success {success:.2f}, variance explained: {explained}")


if __name__ == "__main__":
    main()

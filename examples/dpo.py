"""Learn from pairs of a better and a worse joint action: MADPO of CoMLRL 1.4.3, and DPO (arXiv 2305.18290).

    L = mean over pairs (w, l) of -log sigmoid(beta * (S_w - S_l))

S is the log-probability of a joint action: the sum over the tokens of all agents that act together. In DPO it is
relative to a frozen reference, in MADPO it is not. One joint action is better than another if its return is higher.

The policy gradient of sum over K joint actions of R * S is that of -L if R = -dL/dS. So R is a credit, and the
recipe is that of MAGRPO, without a center: the kit needs no loss over several agents.

Seam of the kit: a credit, in a recipe made of another one by `replace`.
Run it: python examples/dpo.py
Leaves out: `joint(mode="cross")`, where a completion is part of several joint actions, and a choice among the pairs.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import pandas as pd
import torch

import mas_lab as lab


def slopes(logprob_K: np.ndarray, return_K: np.ndarray, beta: float) -> np.ndarray:
    """Return -K dL/dS (K,) for the K joint actions of one node; the update averages over K again."""
    better_KK = return_K[:, None] > return_K
    doubt_KK = beta / (1 + np.exp(beta * (logprob_K[:, None] - logprob_K))) * better_KK
    return len(return_K) * (doubt_KK.sum(1) - doubt_KK.sum(0)) / max(better_KK.sum(), 1)


@lru_cache
def frozen(name: str) -> Any:
    """Return the model of a policy that never learns."""
    return lab.load_policy(name).model


@torch.no_grad()
def reference_logprob(row: pd.Series, name: str) -> float:
    """Return the log-probability of a row's completion under the model `name`."""
    prompt, said = list(row["prompt_ids"]), torch.tensor(row["completion_ids"])
    logits_TV = frozen(name)(torch.tensor([[*prompt, *row["completion_ids"]]])).logits[0, len(prompt) - 1 : -1]
    return (logits_TV / row["temperature"]).log_softmax(-1).gather(1, said[:, None]).sum().item()


@dataclass(frozen=True)
class preference:
    """Credit: how much a step of DPO on the joint actions of a node moves this row's log-probability."""

    beta: float = 0.1
    """Inverse temperature of the preference."""
    reference: str | None = None
    """Name or folder of the model from which the training began, as in DPO. None: no reference, as in MADPO."""

    def __call__(self, turns: pd.DataFrame) -> pd.Series:
        """Return R of each row of a table of `lab.joint(g)`."""
        lab.require(turns, ["node", "candidate", "logprobs", "team_reward"], "preference")
        logprob = turns["logprobs"].map(sum)
        if self.reference:
            logprob = logprob - turns.apply(reference_logprob, axis=1, name=self.reference)
        rows = turns[["node", "candidate"]].assign(logprob=logprob, earned=lab.return_to_go()(turns))
        credit = pd.Series(0.0, turns.index)
        for _, node in rows.groupby("node"):
            actions = node.groupby("candidate").agg(logprob=("logprob", "sum"), earned=("earned", "first"))
            own = pd.Series(
                slopes(actions["logprob"].to_numpy(), actions["earned"].to_numpy(), self.beta), actions.index
            )
            credit[node.index] = node["candidate"].map(own)
        return credit


MADPO = lab.RECIPES["magrpo"].replace(name="madpo", credit=preference(), center="none")


def main(steps: int = 6, tasks: int = 8) -> None:
    """Train two writers without and with a reference, and print the mean return of each step's joint actions."""
    env = lab.make_env("tldr")
    dpo = MADPO.replace(name="dpo", credit=preference(reference=env.pocket))
    for recipe in (MADPO, dpo):
        team = lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket), env.agents)
        reports = lab.train(env, team, recipe, steps=steps, seed=0, tasks=tasks)
        earned = [report.turns["team_reward"].mean() for report in reports]
        print(f"{recipe.name}: {' '.join(f'{reward:.2f}' for reward in earned)}")


if __name__ == "__main__":
    main()

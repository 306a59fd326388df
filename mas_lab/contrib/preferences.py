"""Preferences: the credit of MADPO, which compares the joint actions of a node in pairs.

Leaves out: a loss over the pairs of one agent's own candidates, which is a `Loss` with `unit = "group"`.
"""

import math
from dataclasses import dataclass

import numpy as np
import pandas as pd

from mas_lab.arguments import check_arguments
from mas_lab.cells.credits import return_to_go
from mas_lab.cells.update import restored_gradients
from mas_lab.locks import locked
from mas_lab.losses import look
from mas_lab.policy import SAMPLED, PolicyError, samples_of
from mas_lab.recipes import JOINT, Recipe
from mas_lab.table import TableError, place, require
from mas_lab.team import Team


@dataclass(frozen=True)
class preference:
    """Credit of MADPO: how strongly a step of DPO on the joint actions of a node moves this row.

        L = mean over pairs (w, l), w better than l, of -log sigmoid(beta * (S_w - S_l))
        R = -K dL/dS

    S is the log-probability of a joint action, summed over the tokens of all agents, and K the number of joint actions
    at the node. One is better than another if its return-to-go is higher. The first optimizer step with `reinforce()`
    and `aggregate="sum"` is then that of L, averaged over nodes. MADPO of CoMLRL 1.4.3 has no reference, and trains on
    the pairs with the largest difference; here all pairs of a node count. In the loss of one agent the others'
    log-probabilities are constants, so all agents of a joint action have one R.
    """

    beta: float = 0.1
    """Inverse temperature of the preference."""
    reference: bool = True
    """True: S is relative to the frozen reference, as in DPO (arXiv 2305.18290, equation 7). It costs a pass per row.
    False: as in CoMLRL, which also pulls towards likely and unlikely answers that are equally good."""

    def __post_init__(self):
        check_arguments(preference, vars(self), beta=0)

    @property
    def needs_team(self) -> bool:
        """Return whether the call needs the team, whose policies compute the reference."""
        return self.reference

    def __call__(self, turns: pd.DataFrame, team: Team | None = None) -> pd.Series:
        """Return R for each row.

        Args:
            turns: Table of `joint(g)`, with `logprobs`.
            team: The team that played `turns`. Only a `reference` needs it.

        Returns:
            R, which is 0 if all joint actions of a node earn the same.

        Raises:
            TableError: A node has a single joint action, or a completion is part of several.
            PolicyError: The back end of a policy has no frozen reference.
        """
        require(turns, ["node", "candidate", "action", "logprobs", "team_reward"], "preference")
        keys = ["node", "candidate"]
        logprob = turns["logprobs"].map(math.fsum) - (self._reference(turns, team) if self.reference else 0.0)
        rows = turns[keys].assign(logprob=logprob, reward=return_to_go()(turns))
        actions = rows.groupby(keys).agg(logprob=("logprob", math.fsum), reward=("reward", "first"))
        alone = actions.groupby("node")["logprob"].transform("size") < 2
        several = turns["action"].str.contains("*", regex=False)
        if alone.any() or several.any():
            bad = turns[several] if several.any() else turns[turns["node"].isin(alone[alone].index.get_level_values(0))]
            why = "is part of several joint actions" if several.any() else "has no other to be compared with"
            raise TableError(
                f"preference: the joint action at {place(bad.iloc[0])} {why}; roll out with joint(g), g > 1"
            )
        slopes = pd.concat([self._slopes(own) for _, own in actions.groupby("node")])
        return pd.Series(slopes.reindex(pd.MultiIndex.from_frame(turns[keys])).to_numpy(float), turns.index)

    def _slopes(self, actions: pd.DataFrame) -> pd.Series:
        """Return R of each joint action of one node."""
        logprob_K, reward_K = (actions[name].to_numpy(float) for name in ("logprob", "reward"))
        better_KK = reward_K[:, None] > reward_K[None, :]
        doubt_KK = self.beta / (1 + np.exp(self.beta * (logprob_K[:, None] - logprob_K[None, :]))) * better_KK
        return pd.Series(len(actions) * (doubt_KK.sum(1) - doubt_KK.sum(0)) / max(better_KK.sum(), 1), actions.index)

    def _reference(self, turns: pd.DataFrame, team: Team | None) -> np.ndarray:
        """Return the log-probability of each row's completion under the frozen reference of its policy."""
        if team is None:
            raise ValueError("preference: the reference needs the team; recipe.advantages(turns, team)")
        require(turns, ["agent", *SAMPLED], "preference")
        found_R = np.zeros(len(turns))
        with locked(team.policies.values()):
            for name, policy in team.policies.items():
                if not policy.capabilities.gradients:
                    raise PolicyError(f"policy {name!r}: it has no reference; use preference(reference=False)")
                own = np.flatnonzero([team.name_of(agent) == name for agent in turns["agent"]])
                samples = samples_of(turns.iloc[own], advantage=0.0, weight=0.0)
                with restored_gradients(policy):
                    tokens = policy.forward_backward(samples, look(needs_reference=True))
                parts = tokens.split([[sample] for sample in samples])
                found_R[own] = [part.reference_N.sum().item() for part in parts]
        return found_R


# MADPO of CoMLRL 1.4.3: joint actions of one node as pairs of a better and a worse one.
MADPO = Recipe("madpo", **JOINT | {"credit": preference()}, center="none")

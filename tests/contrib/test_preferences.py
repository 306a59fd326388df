"""The credit of MADPO: by hand, as the gradient of its loss, and relative to the frozen reference."""

from functools import partial

import pandas as pd
import pytest
import small
import torch

import mas_lab as lab
from mas_lab import preference
from mas_lab.table import TableError

plain = partial(preference, reference=False)


def pairs(earned, said):
    """One node with two agents; `said` has the log-probabilities of each joint action's two completions."""
    rows = [("n", i, agent, f"n.{i}-{i}", [said[i][seat]], earned[i], "")
            for i in range(len(earned)) for seat, agent in enumerate("ab")]  # fmt: skip
    names = ["node", "candidate", "agent", "action", "logprobs", "team_reward", "parent"]
    return pd.DataFrame(rows, columns=names).assign(depth=0, kept=True)


def test_preference_by_hand():
    """Equal log-probabilities: sigmoid(0) = 1/2. Of three joint actions that earn 2, 1, 1 there are two pairs, so the
    best has 3 * beta / 2 and the others half of it; of two equal ones there is none."""
    assert plain(0.1)(pairs([2.0, 1.0, 1.0], [(-1, -1)] * 3)).tolist() == pytest.approx([0.15] * 2 + [-0.075] * 4)
    assert plain(0.1)(pairs([1.0, 1.0], [(-1, -2), (-3, -4)])).tolist() == [0.0] * 4


def test_preference_is_the_gradient_of_the_pairs_loss():
    earned, said = [3.0, 1.0, 2.0, 1.0], [(-1.0, -2.0), (-0.5, -0.25), (-3.0, -0.1), (-2.0, -2.0)]
    said_K2 = torch.tensor(said, dtype=torch.float64, requires_grad=True)
    sums_K = said_K2.sum(1)
    losses = [-torch.nn.functional.logsigmoid(0.5 * (sums_K[w] - sums_K[x]))
              for w in range(4) for x in range(4) if earned[w] > earned[x]]  # fmt: skip
    torch.stack(losses).mean().backward()
    assert plain(0.5)(pairs(earned, said)).tolist() == pytest.approx((-4 * said_K2.grad).flatten().tolist())


def test_preference_needs_another_joint_action_of_the_same_agents():
    with pytest.raises(TableError, match=r"preference: .*node 'n'.* has no other to be compared with; roll out with"):
        plain()(pairs([1.0], [(-1, -1)]))
    crossed = pairs([1.0, 2.0], [(-1, -1)] * 2).assign(action=["n.0-*", "n.*-0", "n.1-*", "n.*-1"])
    with pytest.raises(TableError, match=r"preference: .* is part of several joint actions"):
        plain()(crossed)


def test_a_reference_is_subtracted(models):
    """Where the weights are still those of the reference, every pair has the weight beta / 2."""
    team = small.make_team("per_agent", models)
    env = small.Relay(together=True)
    turns = lab.rollout(env, team, env.tasks(2, "train", 0), lab.joint(3))
    credit = preference(0.1)
    alike = plain(0.1)(turns.assign(logprobs=[[0.0]] * len(turns)))
    assert credit(turns, team).to_numpy() == pytest.approx(alike.to_numpy(), abs=1e-6) and alike.abs().max() > 0
    assert (credit(turns, team) - plain(0.1)(turns)).abs().max() > 1e-3
    assert team["asker"].gradient_norm() == 0
    with pytest.raises(ValueError, match=r"preference: the reference needs the team; recipe.advantages\("):
        credit(turns)

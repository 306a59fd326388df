"""Answer the cases with mas_lab: its cells `group`, `select`, `normalize` and `update`, on a model in a folder."""

import json
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd
from golden import Refused
from table_model import load_table, reference_table, save_model, table_gradient

import mas_lab as lab

PACKAGES = ("mas_lab", "torch", "transformers")
NOTES = {}
OWN = {
    "kl_in_the_reward", "kl_k1_in_the_loss", "kl_k2_in_the_loss", "kl_k3_times_the_ratio",
    "kl_k3_with_the_gradient_of_k2",
}  # fmt: skip
"""Cases that take a part of one's own: `shaped` or `with_penalty`."""
AGGREGATES = {"token": "token", "row": "turn", "agent": "agent", "sum": "sum"}
DESIGN = {}
"""Case -> why mas_lab answers something else on purpose."""


def shaped(turns):
    """Return the reward less 0.4 times the sum of log p - log p_reference over the row's tokens."""
    pairs = zip(turns["old_logprobs"], turns["reference_logprobs"], strict=True)
    return turns["team_reward"] - 0.4 * pd.Series([np.subtract(*pair).sum() for pair in pairs], turns.index)


def credit_of(settings):
    """Return the credit that the case compares."""
    kind = settings.get("credit", "reward")
    if kind == "return_to_go":
        return lab.return_to_go(settings["gamma"])
    if kind.startswith("reward - 0.1"):
        return lab.episode_return(invalid=0.1)
    if kind.startswith("reward - 0.4"):
        return shaped
    return lambda turns: turns["team_reward"]


def advantages(case):
    """Return the advantages of cells 2 and 3."""
    settings, rows = case["inputs"]["settings"], pd.DataFrame(case["inputs"]["rows"])
    turns = rows.rename(columns={"reward": "team_reward"}).assign(batch=0)
    if "node" in turns:
        joint = "-".join(["{1}"] * turns["agent"].nunique())  # agents acted at once: joint action 2 is "node.2-2"
        parents = [f"{{0}}.{joint}".format(*pair) if pair[0] else ""
                   for pair in zip(turns["parent"], turns["parent_action"], strict=True)]  # fmt: skip
        turns = turns.assign(depth=turns["turn"], kept=True, parent=parents)
    center, scale = settings["center"], settings["scale"] or {}
    words = {"others": "loo", "max": "max", "none": "none"}
    try:
        turns = lab.group(turns, by=tuple(center["by"]), credit=credit_of(settings))
        if "excluded" in turns:  # in no statistic, and not trained on
            turns = turns.assign(probe=turns["excluded"])
        turns = lab.normalize(
            turns, center=words.get(center["statistic"], tuple(center["by"])),
            scale=(tuple(scale["by"]) or ("batch",)) if scale else "none",
            once_per={"center": center.get("once_per"), "scale": scale.get("once_per")},
            ddof=scale.get("ddof", 0), eps=scale.get("eps", 0.0),
        )  # fmt: skip
    except lab.TableError as error:
        raise Refused(str(error)) from error
    return {"advantages": turns["advantage"].tolist()}


@dataclass(frozen=True)
class with_penalty(lab.clipped):
    """The clipped loss plus another penalty: a loss of one's own, as docs/extending.md describes it."""

    estimator: str = "k1"
    weight: float = 0.0
    gradient_of: str = ""
    times_ratio: bool = False

    needs_reference = True

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        gap_N = logprobs_N - reference_N
        known = {"k1": gap_N, "k2": gap_N**2 / 2, "k3": (-gap_N).exp() - 1 + gap_N}
        extra_N = known[self.estimator]
        if self.gradient_of:
            other_N = known[self.gradient_of]
            extra_N = other_N - other_N.detach() + extra_N.detach()
        if self.times_ratio:
            extra_N = extra_N * (logprobs_N - old_N).exp()
        return super().__call__(logprobs_N, old_N, advantages_N, row_N) + self.weight * extra_N

    def regularizer(self, *_):
        return 0.0


def loss_of(settings):
    """Return the loss that the case names."""
    if settings["loss"] == "policy_gradient":
        return lab.reinforce(tis=0.0)
    options = {"low": settings["clip_low"], "high": settings["clip_high"], "dual": settings.get("dual"),
               "ratio": settings["ratio"], "tis": settings.get("tis", 0.0)}  # fmt: skip
    kl = settings.get("kl", {"estimator": "k3", "weight": 0.0})
    if set(kl.values()) - {"k3", kl["weight"]}:
        return with_penalty(**options, **kl)
    return lab.clipped(**options, kl=kl["weight"], entropy=settings.get("entropy", 0.0))


@cache
def policy_of(start, small):
    """Return a policy that began with the table `start`. Its micro-batches hold one or two rows if they are small."""
    folder = save_model(Path(tempfile.mkdtemp(prefix="conformance")), json.loads(start))
    return lab.load_policy(folder, **({"train_tokens": 4} if small else {}))


def loss(case):
    """Return what `update` computes, on weights that are the case's table."""
    settings, rows = case["inputs"]["settings"], pd.DataFrame(case["inputs"]["rows"])
    logits = case["inputs"]["logits"]
    start = reference_table(case) if "kl" in settings else logits
    policy = policy_of(json.dumps(start), "micro_batches" in settings)
    load_table(policy.model, logits)
    turns = rows.rename(columns={"old_logprobs": "logprobs"})
    defaults = {"agent": "a", "task": "t", "turn": 0, "episode": [f"e{i}" for i in range(len(turns))]}
    turns = turns.assign(**{name: value for name, value in defaults.items() if name not in turns})
    if "trained" in turns:
        chosen = turns["trained"].map(lambda one: one is not False)
        turns = lab.select(turns, lambda table: chosen)
    found = {}

    def watch(batch):
        weight, losses, logprobs = batch.rows["weight"], {}, {}
        for own in batch.agents.values():
            lengths = own.used["completion_ids"].map(len).tolist()
            for row, losses_T, logprobs_T in zip(own.used.index, own.tokens.losses_N.split(lengths),
                                                 own.tokens.logprobs_N.split(lengths), strict=True):  # fmt: skip
                losses[row], logprobs[row] = losses_T.tolist(), logprobs_T.tolist()
        gradients = dict(batch.policy.gradients())
        policy.model.lm_head.weight.grad = next(g for name, g in gradients.items() if "lm_head" in name)
        found["gradient"] = table_gradient(policy.model)
        found["loss"] = sum(weight[row] * sum(own) for row, own in losses.items())
        if len(losses) == len(turns):
            found["token_losses"] = [losses[row] for row in sorted(losses)]
            found["logprobs"] = [logprobs[row] for row in sorted(logprobs)]

    team = lab.Team.shared(policy, sorted(turns["agent"].unique()))
    try:
        lab.update(team, turns, loss_of(settings), AGGREGATES[settings["aggregate"]], max_norm=None, watch=watch,
                   off_policy=True, lr_scale=0.0)  # fmt: skip
    except lab.TableError as error:
        raise Refused(str(error)) from error
    if settings["loss"] == "policy_gradient":
        found = {name: found[name] for name in ("gradient", "logprobs") if name in found}
    return found

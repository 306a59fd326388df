"""Exercises of notebook 04: when the clip acts, three losses, a step, and rows of earlier weights."""

import copy

import numpy as np

from mas_lab import plain
from mas_lab.backends.loading import load_policy
from mas_lab.course.compare import close, need, result_of, same, same_loss, same_names
from mas_lab.course.exercises import NotebookData, StudentCode, exercise
from mas_lab.losses import Loss, clipped, corrected, reinforce
from mas_lab.tasks import make_env

LOW, HIGH = 0.8, 1.2


@exercise("04.1")
def first_steps(steps, ratio):
    close(ratio, 1.0, "max_ratio in the first step", tolerance=1e-3)
    close(steps, 1, "the number of steps", tolerance=1e-9)


@exercise("04.2")
def no_gradient(tokens: NotebookData, answer):
    still = np.where(tokens["advantage"] > 0, tokens["ratio"] > HIGH, tokens["ratio"] < LOW).nonzero()[0]
    same_names(answer, range(len(tokens)), still, "look again at the token of this number".format)


@exercise("04.3")
def reinforce_by_hand(answer):
    same_loss(lambda now, old, advantages, row: result_of(answer, now, advantages), reinforce())


@exercise("04.4")
def clipped_by_hand(answer):
    same_loss(lambda now, old, advantages, row: result_of(answer, now, old, advantages), clipped(0.2))


@exercise("04.5")
def own_loss(answer: StudentCode):
    need(isinstance(answer, Loss), "give a `lab.Loss`, such as `cispo()`")

    def ours(now, old, advantages, row):
        return -(now - old).exp().clamp(max=HIGH).detach() * advantages * now

    same_loss(lambda *arguments: result_of(answer, *arguments), ours)


@exercise("04.6")
def step(answer: StudentCode):
    import torch

    policy, env = load_policy("math"), make_env("math")
    players = dict.fromkeys(env.agents, plain.Policy(policy.model, policy.tokenizer, None))
    turns = plain.rollout(env, players, env.tasks(2, "train", 0), torch.Generator().manual_seed(0), episodes=2)
    rng = np.random.default_rng(0)
    spread = [[one + move for one, move in zip(logprobs, rng.normal(0, 0.2, len(logprobs)), strict=True)]
              for logprobs in turns["logprobs"]]  # fmt: skip
    turns = turns.assign(logprobs=spread, advantage=rng.normal(0, 3, len(turns)), agent="one")
    found = []
    for by_hand in (True, False):
        model = copy.deepcopy(policy.model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.0)
        if by_hand:
            norm = result_of(answer, model, optimizer, turns)
        else:
            norm = plain.update({"one": plain.Policy(model, None, optimizer)}, turns)["one"]
        found.append((norm, torch.cat([weight.detach().flatten() for weight in model.parameters()])))
    (yours, changed), (ours, right) = found
    close(yours, ours, "the gradient norm", tolerance=1e-3)
    need(torch.allclose(changed, right, atol=1e-5), "the norm is right, but the weights after the step differ")


@exercise("04.7")
def old_rows(tokens: NotebookData, age, advantage):
    import torch

    same(age, tokens["step"] - tokens["policy_version"], "age", "token {}".format)
    now, sampled, before = (torch.tensor(tokens[name].to_numpy()) for name in ("now", "sampled", "advantage"))
    _, right = corrected(clipped(0.2, tis=2.0), now, sampled, before)
    same(advantage, right, "advantage", "token {}".format, tolerance=0.02)

"""Exercises of notebook 05: F and signal, advantages of wrong answers, rewards by hand, a token's norm."""

from functools import partial

import numpy as np

from mas_lab.backends.loading import load_policy
from mas_lab.course.compare import DDOF, agrees, critic_statistics, entries, need, result_of, same, same_names
from mas_lab.course.exercises import NotebookData, exercise

N = 8


@exercise("05.1")
def large_and_signal(answer):
    def right(rewards, own, ddof=0):
        offset, variance = (own.mean() - rewards.mean()) ** 2, own.var(ddof=ddof)
        return (variance + offset) / rewards.var(ddof=ddof), variance / (variance + offset)

    rng, cases = np.random.default_rng(5), []
    for size in (2, 3, 3, 4, 5, 6):
        rewards = rng.permutation([0, 0, 0.25, 0.25, 0.5, 0.75, 1, 1])
        cases.append((rewards, rewards[rng.choice(N, size, replace=False)]))
    agrees(answer, right, cases, {DDOF: partial(right, ddof=1)})


@exercise("05.2")
def praised_for_anything(judged: NotebookData, named):
    lowest = judged[~judged["right"].astype(bool)].groupby("agent")["global"].min()
    praised = lowest.index[lowest > 0]
    same_names(named, judged["agent"].unique(), praised, "look at the advantages of its wrong answers".format)
    return f"{len(praised)} of {judged['agent'].nunique()} agents"


@exercise("05.3")
def loud(rewards, called):
    critic = critic_statistics(rewards, called, N, least=2)
    need(critic["F_k"] > 3, f"F = {critic['F_k']:.2f}; it should be above 3")
    return f"F = {critic['F_k']:.2f}"


@exercise("05.4")
def quiet(rewards, called):
    critic = critic_statistics(rewards, called, N, least=2)
    values = f"F = {critic['F_k']:.2f}, signal = {critic['signal']:.2f}"
    need(critic["F_k"] <= 1 + 1e-9, f"{values}; F should be at most 1")
    need(critic["signal"] <= 0.1, f"{values}; F is right, but signal should be at most 0.1")
    return values


@exercise("05.5")
def token_norms(answer):
    import torch

    model = load_policy("math").model
    weights = list(model.parameters())
    for prompt, completion, advantage in (([5, 9, 4, 12, 7], [8, 3, 9], 2.5), ([6, 6, 3], [11, 5], -0.5)):
        ids = torch.tensor([[*prompt, *completion]])
        logprobs_TV = model(ids).logits[0, len(prompt) - 1 : -1].float().log_softmax(-1)
        losses_T = -advantage * logprobs_TV[range(len(completion)), completion]
        slopes = (torch.autograd.grad(loss, weights, retain_graph=True) for loss in losses_T)
        ours = [torch.nn.utils.get_total_norm(slope).item() for slope in slopes]
        yours = entries(result_of(answer, model, prompt, completion, advantage), len(completion), "the norms")
        same(yours, ours, "norm", "token {}".format, tolerance=1e-3)

"""Requests, samples and steps for the tests of policies, and log-probabilities by a model's own forward pass."""

import numpy as np
import torch

import mas_lab as lab
from mas_lab.policy import Request, Sample

KINDS = ("qwen3", "gpt2", "gemma2")


def requests(lengths=(4, 11, 6), each=4, max_tokens=7, temperatures=(1.0,), seed=0):
    """Return requests for prompts that begin alike and end in `lengths` tokens, `each` per temperature."""
    rng = np.random.default_rng(seed)
    common = rng.integers(4, 60, 13).tolist()
    prompts = [(*common, *rng.integers(4, 60, n).tolist()) for n in lengths]
    return [Request(prompt, max_tokens, temperature, int(rng.integers(2**62)))
            for prompt in prompts for temperature in temperatures for _ in range(each)]  # fmt: skip


def drawn(policy, asked=None, seed=0, **options):
    """Return samples that the policy draws, with made-up advantages and weights."""
    rng, asked = np.random.default_rng(seed), asked or requests(seed=seed, **options)
    return [
        Sample(r.prompt_ids, c.ids, c.logprobs, r.temperature, float(rng.normal()), float(rng.random()) / 50)
        for r, c in zip(asked, policy.sample(asked), strict=True)
    ]


def own_logprobs(policy, ids, count, temperature=1.0):
    """Return the log-probabilities of the last `count` ids: one row, no cache, no packing."""
    policy.activate()
    with torch.no_grad():
        logits = policy.model(input_ids=torch.tensor([list(ids)])).logits[0, -count - 1 : -1].double()
    logprobs = torch.log_softmax(logits / temperature, -1)
    return logprobs.gather(1, torch.tensor(ids[-count:])[:, None])[:, 0].numpy()


def gap(policy, asked, answers) -> float:
    """Return the largest difference between the sampler's log-probabilities and the model's own."""
    return max(
        np.abs(own_logprobs(policy, (*r.prompt_ids, *c.ids), len(c.ids), r.temperature) - c.logprobs).max()
        for r, c in zip(asked, answers, strict=True)
    )


def step(policy, seed=0, loss=None):
    """Make one optimizer step; return its norms and the log-probabilities of its samples."""
    samples = drawn(policy, seed=seed)
    policy.forward_backward(samples, loss or lab.reinforce())
    return policy.optim_step(max_norm=1.0), [sample.logprobs for sample in samples]


def weights(policy):
    return {name: parameter.detach().clone() for name, parameter in policy.parameters.items()}


def same(one, other) -> bool:
    """Return True if two `weights` are equal bit for bit."""
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def old_logprobs(samples):
    return torch.tensor([logprob for sample in samples for logprob in sample.logprobs])

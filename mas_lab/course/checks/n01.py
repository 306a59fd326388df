"""Exercises of notebook 01: calls, a log-probability, an episode's return, a pick without rewards, sampling."""

import numpy as np
import pandas as pd

from mas_lab.backends.loading import load_policy
from mas_lab.course.compare import agrees, close, close_by, entries, explored, need, result_of, same, same_rows, tables
from mas_lab.course.exercises import StudentCode, exercise

PLANS = ("episodes(8)", "tree(8)", "joint(2)", "joint(8), all three together")
COUNTS = (8 * 6, 8 * 6, sum(2**level for level in range(1, 7)), 8 * 3)


@exercise("01.1")
def calls(counts):
    for name, yours, ours in zip(PLANS, entries(counts, len(PLANS), "counts"), COUNTS, strict=True):
        close(yours, ours, name, tolerance=1e-9)


@exercise("01.2")
def logprob(answer):
    def right(logits, token, temperature):
        scaled = logits / temperature
        return scaled[token] - np.logaddexp.reduce(scaled)

    rng, drawn = np.random.default_rng(1), ((5, 1.0, 1), (5, 2.0, 1), (40, 0.5, 3), (40, 3.0, 5), (8, 0.7, 2000))
    agrees(answer, right, [(rng.normal(size=n) * spread, int(rng.integers(n)), heat) for n, heat, spread in drawn])


@exercise("01.3")
def returns(answer):
    for number, table in enumerate(tables(6)):
        table["team_reward"] = np.random.default_rng(number).integers(-1, 4, len(table)) / 4  # every step pays
        right = table.groupby("episode")["team_reward"].sum()
        close_by(result_of(answer, explored(table)), right, f"returns of table {number}")


@exercise("01.4")
def surest(answer):
    rng = np.random.default_rng(4)
    for _ in range(4):
        logprobs = [(-rng.exponential(size=int(rng.integers(1, 9)))).tolist() for _ in range(8)]
        table = pd.DataFrame({"agent": "planner", "candidate": range(8), "logprobs": logprobs, "temperature": 1.0})
        table = table.assign(local_reward=rng.random(8).round(2), team_reward=0.0, valid=True)
        same_rows(result_of(answer, table), table["logprobs"].map(np.mean), table, what="number")


@exercise("01.5")
def draw(answer: StudentCode):
    import torch

    model, prompt = load_policy("math").model, [5, 9, 4, 12, 7]
    for seed, temperature in ((0, 1.0), (1, 2.0), (2, 0.001)):
        counted, drawn = _Counted(model), torch.Generator().manual_seed(seed)
        ids, logprobs = entries(result_of(answer, counted, prompt, 12, temperature, drawn), 2, "the result")
        ids, logprobs = entries(ids, 12, "the ids"), entries(logprobs, 12, "the log-probabilities")
        with torch.no_grad():
            logits_TV = model(torch.tensor([[*prompt, *ids]])).logits[0, len(prompt) - 1 : -1].float() / temperature
        right_TV = logits_TV.log_softmax(-1)
        same(logprobs, right_TV[range(12), ids], f"log-probability at temperature {temperature:g}", "token {}".format)
        least = len(prompt) + 11
        need(counted.read == least, f"the model read {counted.read} tokens; with a cache it reads {least}")
    many = [result_of(answer, model, prompt, 1, 2.0, drawn)[0][0] for _ in range(300)]
    with torch.no_grad():
        p_V = model(torch.tensor([prompt])).logits[0, -1].float().div(2.0).softmax(-1)
    share, p = many.count(int(p_V.argmax())) / 300, float(p_V.max())
    near = abs(share - p) < 4 * (p * (1 - p) / 300) ** 0.5
    need(near, f"the likeliest token has {p:.2f}; you drew it in {share:.2f}")


class _Counted:
    """A model that counts the tokens that it reads."""

    def __init__(self, model):
        self.model, self.read = model, 0

    def __call__(self, input_ids, **options):
        self.read += input_ids.numel()
        return self.model(input_ids, **options)

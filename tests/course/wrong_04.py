from dataclasses import dataclass

import pandas as pd
import torch

import mas_lab as lab

TOKENS = pd.DataFrame(
    {"ratio": [1.0, 1.3, 1.3, 0.7, 0.7, 1.1, 0.1, 5.0], "advantage": [1.0, 1.0, -1.0, 1.0, -1.0, -2.0, 0.5, -0.1]}
)


def clipped(low=0.8, high=1.2, sign=-1.0, dual=False, turned=False, detached=False):
    def answer(logprobs, old, advantages):
        ratio = (old - logprobs).exp() if turned else (logprobs - old).exp()
        bounded = ratio.clamp(low, high)
        if detached:
            bounded = bounded.detach()
        both = torch.maximum if dual else torch.minimum
        return sign * both(ratio * advantages, bounded * advantages)

    return answer


def clamp_alone(logprobs, old, advantages):
    return -(logprobs - old).exp().clamp(0.8, 1.2) * advantages


def unclipped(logprobs, old, advantages):
    return -(logprobs - old).exp() * advantages


def no_gradient(logprobs, old, advantages):
    return clipped()(logprobs.detach(), old, advantages)


@dataclass(frozen=True)
class cispo(lab.Loss):
    high: float = 0.2
    stop: bool = True
    low: float | None = None
    sign: float = -1.0

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        weight_N = (logprobs_N - old_N).exp().clamp(self.low, 1 + self.high)
        return self.sign * (weight_N.detach() if self.stop else weight_N) * advantages_N * logprobs_N


@dataclass(frozen=True)
class empty(lab.Loss):
    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None): ...


RIGHT = {
    "04.1": [(1, 1.0), (1, 1)],
    "04.2": [(TOKENS, [1, 4]), (TOKENS, (4, 1))],
    "04.3": [(lambda logprobs, advantages: -advantages * logprobs,)],
    "04.4": [(clipped(),), (lambda now, old, A: lab.clipped(0.2)(now, old, A, torch.zeros(12, dtype=torch.long)),)],
    "04.5": [(cispo(),)],
}
WRONG = {
    "04.1": [(..., ...), (2, 1.0), (4, 1.0), (8, 1.0), (0, 1.0), (1, 0.0), (1, 1.2), (None, 1.0)],
    "04.2": [
        (TOKENS, ...),
        (TOKENS, [1, 2, 3, 4, 6, 7]),
        (TOKENS, [1, 3, 6]),
        (TOKENS, [1, 4, 6]),
        (TOKENS, [1, 4, 7]),
        (TOKENS, [2, 3]),
        (TOKENS, [1, 4, 8]),
        (TOKENS, 1),
    ],
    "04.3": [
        (lambda logprobs, advantages: advantages * logprobs,),
        (lambda logprobs, advantages: -logprobs,),
        (lambda logprobs, advantages: -advantages * logprobs.exp(),),
        (lambda logprobs, advantages: (-advantages * logprobs).mean(),),
        (lambda logprobs, advantages: -advantages * logprobs.detach(),),
        (lambda logprobs, advantages: None,),
        (lambda logprobs: -logprobs,),
    ],
    "04.4": [
        (clamp_alone,),
        (unclipped,),
        (no_gradient,),
        (clipped(sign=1.0),),
        (clipped(dual=True),),
        (clipped(turned=True),),
        (clipped(low=0.0),),
        (clipped(high=1.3),),
        (lambda logprobs, old, advantages: clipped()(logprobs, old, advantages).mean(),),
        (lambda logprobs, old, advantages: None,),
    ],
    "04.5": [
        (empty(),),
        (cispo(stop=False),),
        (cispo(low=0.8),),
        (cispo(high=10.0),),
        (cispo(sign=1.0),),
        (lab.clipped(0.2),),
        (lab.reinforce(),),
        ("cispo",),
    ],
}

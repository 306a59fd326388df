from dataclasses import dataclass

import pandas as pd
import torch

import mas_lab as lab

TOKENS = pd.DataFrame(
    {"ratio": [1.0, 1.3, 1.3, 0.7, 0.7, 1.1, 0.1, 5.0], "advantage": [1.0, 1.0, -1.0, 1.0, -1.0, -2.0, 0.5, -0.1]}
)


def clipped(low=0.8, high=1.2, sign=-1.0, both=torch.minimum):
    def answer(logprobs, old, advantages):
        ratio = (logprobs - old).exp()
        return sign * both(ratio * advantages, ratio.clamp(low, high) * advantages)

    return answer


@dataclass(frozen=True)
class cispo(lab.Loss):
    high: float = 0.2
    stop: bool = True
    low: float | None = None

    def __call__(self, logprobs_N, old_N, advantages_N, row_N, entropy_N=None, reference_N=None):
        weight_N = (logprobs_N - old_N).exp().clamp(self.low, 1 + self.high)
        return -(weight_N.detach() if self.stop else weight_N) * advantages_N * logprobs_N


RIGHT = {
    "04.1": [(1, 1.0)],
    "04.2": [(TOKENS, [1, 4]), (TOKENS, (4, 1))],
    "04.3": [(lambda logprobs, advantages: -advantages * logprobs,)],
    "04.4": [(clipped(),), (lambda now, old, A: lab.clipped(0.2)(now, old, A, torch.zeros(12, dtype=torch.long)),)],
    "04.5": [(cispo(),)],
}
WRONG = {
    "04.1": [(2, 1.0), (0, 1.0), (1, 1.2)],
    "04.2": [(TOKENS, places) for places in ([1, 2, 3, 4, 6, 7], [1, 3, 6], [1, 4, 7], [2, 3], [1, 4, 8], 1)],
    "04.3": [
        (lambda logprobs, advantages: advantages * logprobs,),
        (lambda logprobs, advantages: (-advantages * logprobs).mean(),),
        (lambda logprobs, advantages: -advantages * logprobs.detach(),),
        (lambda logprobs: -logprobs,),
    ],
    "04.4": [
        (clipped(sign=1.0),),
        (clipped(both=torch.maximum),),
        (clipped(both=lambda free, bounded: bounded),),
        (clipped(both=lambda free, bounded: free),),
        (clipped(low=0.0),),
        (clipped(high=1.3),),
        (lambda logprobs, old, advantages: clipped()(logprobs.detach(), old, advantages),),
    ],
    "04.5": [(cispo(stop=False),), (cispo(low=0.8),), (cispo(high=10.0),), (lab.clipped(0.2),), ("cispo",)],
}

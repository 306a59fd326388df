"""Exercises of notebook 14: importance weights of a rough sampler, and wrong answers that are reinforced."""

import numpy as np
import pandas as pd

from mas_lab.course.compare import agrees
from mas_lab.course.exercises import exercise


@exercise("14.1")
def importance_weights(answer):
    def right(trained, sampled, bound):
        return np.minimum(np.exp(trained - sampled), bound)

    rng = np.random.default_rng(0)
    drawn = [(-rng.exponential(size=12), rng.normal(scale=scale, size=12)) for scale in (0.02, 1.5, 0.02, 1.5)]
    agrees(answer, right, [(sampled + shift, sampled, 2.0 - 0.3 * k) for k, (sampled, shift) in enumerate(drawn)])


@exercise("14.2")
def reinforced(answer):
    def right(turns, agent):
        wrong = turns[(turns["agent"] == agent) & (turns["local_reward"] == 0)]
        return (wrong["advantage"] > 0).mean()

    rng = np.random.default_rng(1)
    for _ in range(4):
        agents, rewards = rng.choice(["solver", "helper"], 40), rng.integers(0, 2, 40).astype(float)
        advantages = rng.choice([-1.0, 0.0, 0.5], 40)
        table = pd.DataFrame({"agent": agents, "local_reward": rewards, "advantage": advantages})
        agrees(answer, right, [(table, "solver"), (table, "helper")])

import copy

import numpy as np

from mas_lab.study.intervals import iqm


def right(scores, samples, rng):
    return np.quantile(iqm(rng.choice(scores, size=(samples, len(scores)))), [0.025, 0.975])


def without_replacement(scores, samples, rng):
    return np.quantile([iqm(rng.permutation(scores)) for _ in range(samples)], [0.025, 0.975])


def of_the_mean(scores, samples, rng):
    return np.quantile(rng.choice(scores, size=(samples, len(scores))).mean(axis=1), [0.025, 0.975])


def of_ninety_percent(scores, samples, rng):
    return np.quantile(iqm(rng.choice(scores, size=(samples, len(scores)))), [0.05, 0.95])


def of_all_draws_at_once(scores, samples, rng):
    return np.quantile(rng.choice(scores, size=(samples, len(scores))), [0.025, 0.975])


def by_the_normal(scores, samples, rng):
    error = scores.std(ddof=1) / len(scores) ** 0.5
    return scores.mean() - 1.96 * error, scores.mean() + 1.96 * error


def wins(x, y):
    return ((x[:, None] > y) + (x[:, None] == y) / 2).mean()


def ties_lost(x, y):
    return (x[:, None] > y).mean()


def ties_won(x, y):
    return (x[:, None] >= y).mean()


def in_pairs(x, y):
    n = min(len(x), len(y))
    return ((x[:n] > y[:n]) + (x[:n] == y[:n]) / 2).mean()


def by_means(x, y):
    return float(x.mean() > y.mean())


STUDY = {
    "name": "own_scale",
    "env": {"name": "ladder", "n_agents": 4},
    "team": {"weights": "per_agent"},
    "settings": {"tasks": 16},
    "budget": {"tokens": 60000},
    "seeds": 5,
    "sweep": {"lr": [1e-4, 3e-4, 1e-3], "seeds": [10, 11]},
    "arms": {"own": {"recipe": "dr_mas"}, "own mean": {"recipe": "dr_mas_mean"}},
}


def study(**changed):
    return ({key: value for key, value in (copy.deepcopy(STUDY) | changed).items() if value is not None},)


OTHER_RATE = {"own": {"recipe": "dr_mas"}, "own mean": {"recipe": "dr_mas_mean", "settings": {"tasks": 32}}}
SPELLED_OUT = {
    "a": {"recipe": {"name": "dr_mas", "scale": ["task"], "once_per": {"scale": "episode"}}},
    "b": {"recipe": {"name": "grpo_turns", "by": ["task", "agent"]}},
}
RIGHT = {
    "12.1": [(right,)],
    "12.2": [(wins,)],
    "12.3": [({"rates tried", "sampled tokens", "score"},), (["score", "sampled tokens", "rates tried"],)],
    "12.4": [study(), study(seeds=list(range(8))), study(arms=SPELLED_OUT)],
}
WRONG = {
    "12.1": [
        (without_replacement,),
        (of_the_mean,),
        (of_ninety_percent,),
        (of_all_draws_at_once,),
        (by_the_normal,),
        (lambda scores, samples, rng: 0.5,),
        (lambda scores, samples, rng: None,),
    ],
    "12.2": [(ties_lost,), (ties_won,), (in_pairs,), (by_means,), (0.7,)],
    "12.3": [
        (set(),),
        ("score",),
        ({"rates tried", "score"},),
        ({"rates tried", "sampled tokens", "score", "success"},),
        ({"rates tried", "sampled tokens", "score", "recipe"},),
        ({"rates tried", "sampled tokens", "score", "episodes"},),
        ({"tokens"},),
    ],
    "12.4": [
        (...,),
        (5,),
        study(sweep=None),
        study(seeds=3),
        study(budget={"episodes": 3840}),
        study(env={"name": "ladder"}),
        study(team={"weights": "shared"}),
        study(sweep={"lr": [3e-4, 1e-3], "seeds": [10, 11]}),
        study(sweep={"lr": [1e-4, 3e-4, 1e-3], "seeds": [10]}),
        study(sweep={"lr": [1e-4, 3e-4, 1e-3], "seeds": [0, 1]}),
        study(arms={"global": {"recipe": "grpo"}, "own": {"recipe": "dr_mas"}}),
        study(arms={"own": {"recipe": "dr_mas"}, "own scale": {"recipe": "dr_mas_std"}}),
        study(arms=OTHER_RATE),
        study(arms={"own": {"recipe": "dr_mas"}, "own mean": {"recipe": "no_such"}}),
        study(arms=None),
    ],
}

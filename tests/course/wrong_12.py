import copy

import numpy as np

from mas_lab.study.intervals import iqm


def right(scores, samples, rng, of=iqm, ends=(0.025, 0.975), replace=True):
    drawn = rng.choice(scores, size=(samples, len(scores)))
    return np.quantile(of(drawn if replace else rng.permuted(np.tile(scores, (samples, 1)), axis=1)), ends)


def by_the_normal(scores, samples, rng):
    error = scores.std(ddof=1) / len(scores) ** 0.5
    return scores.mean() - 1.96 * error, scores.mean() + 1.96 * error


def wins(x, y, tie=0.5):
    return ((x[:, None] > y) + (x[:, None] == y) * tie).mean()


def in_pairs(x, y):
    n = min(len(x), len(y))
    return ((x[:n] > y[:n]) + (x[:n] == y[:n]) / 2).mean()


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
UNEQUAL = {"rates tried", "sampled tokens", "score"}
RIGHT = {
    "12.1": [(right,)],
    "12.2": [(wins,)],
    "12.3": [(UNEQUAL,), (list(UNEQUAL),)],
    "12.4": [study(), study(seeds=list(range(8))), study(arms=SPELLED_OUT)],
}
WRONG = {
    "12.1": [
        (lambda *given: right(*given, replace=False),),
        (lambda *given: right(*given, of=lambda drawn: drawn.mean(axis=1)),),
        (lambda *given: right(*given, ends=(0.05, 0.95)),),
        (by_the_normal,),
        (lambda scores, samples, rng: 0.5,),
    ],
    "12.2": [(lambda x, y: wins(x, y, tie=0),), (lambda x, y: wins(x, y, tie=1),), (in_pairs,)],
    "12.3": [
        ("score",),
        ({"rates tried", "score"},),
        (UNEQUAL | {"success"},),
        (UNEQUAL | {"recipe"},),
        (UNEQUAL | {"episodes"},),
        ({"tokens"},),
    ],
    "12.4": [
        (5,),
        study(sweep=None),
        study(seeds=3),
        study(budget={"episodes": 3840}),
        study(env={"name": "ladder"}),
        study(team={"weights": "shared"}),
        study(sweep={"lr": [3e-4, 1e-3], "seeds": [10, 11]}),
        study(sweep={"lr": [1e-4, 3e-4, 1e-3], "seeds": [10]}),
        study(arms={"own": {"recipe": "dr_mas"}, "own scale": {"recipe": "dr_mas_std"}}),
        study(arms=OTHER_RATE),
        study(arms={"own": {"recipe": "dr_mas"}, "own mean": {"recipe": "no_such"}}),
    ],
}

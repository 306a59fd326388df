import pandas as pd

import mas_lab as lab


def right_gain(n_k, N, signal):
    return ((1 - 1 / n_k) / (1 - 1 / N)) ** 2 / signal


BY_PAY = {
    "hard": (1, 1, 1, 0, "p", 0, "p", 0),
    "easy": (1, 1, 1, 1, 1, "p", 1, 0),
    "middle": (1, 1, 0, "p", "p", 0, 1, 1),
}


def batch():
    """Three tasks of eight episodes: 1 the solver was right, "p" the helper, 0 nobody."""
    rows = []
    for task, told in BY_PAY.items():
        for number, one in enumerate(told):
            episode = {"task": task, "episode": f"{task}-{number}", "turn": 0}
            alone = one == 1
            rows.append({**episode, "agent": "solver", "depth": 0, "team_reward": float(alone), "success": alone})
            if not alone:
                paid = 0.2 * (one == "p")
                rows.append({**episode, "agent": "helper", "depth": 1, "team_reward": paid, "success": one == "p"})
    return lab.RECIPES["grpo"].advantages(pd.DataFrame(rows))


def gain_at(pay):
    turns = batch().drop(columns=["credit", "group", "center", "scale", "advantage"])
    paid = turns.assign(team_reward=turns["team_reward"].mask((turns["agent"] == "helper") & turns["success"], pay))
    told = lab.advise(lab.group(paid, "task", lab.episode_return())).set_index("agent")
    return told.loc["helper", "gain"]


PAY = min((percent / 100 for percent in range(20, 101)), key=lambda pay: abs(gain_at(pay) - 1))


def by_episode(turns, ddof=0, once=True, zero=True, by=("task", "agent"), scale=True):
    keys = list(by)
    units = turns.groupby([*keys, "episode"])["credit"].mean() if once else turns.set_index(keys)["credit"]
    split = units.groupby(level=keys)
    told = pd.DataFrame({"mean": split.mean(), "std": split.std(ddof=ddof), "n": split.size()})
    told["spread"] = split.max() - split.min()
    row = turns[keys].merge(told, left_on=keys, right_index=True, how="left")
    advantage = (turns["credit"] - row["mean"]) / ((row["std"] if scale else 1.0) + 1e-6)
    return advantage.mask((row["n"] < 2) | (row["spread"] < 1e-12), 0.0) if zero else advantage


def raw_where_lone(turns):
    alone = turns.groupby(["task", "agent"])["episode"].transform("nunique") < 2
    return by_episode(turns).mask(alone, turns["credit"])


WEIGHTS = {"math": 335_184, "math_small": 100_160}


class Model:
    """What is asked of a policy here, without the seconds that it takes to load one."""

    def __init__(self, name, lr=1e-3):
        self.lr, self.model, self._count = lr, self, WEIGHTS[name]

    def parameters(self):
        return [self]

    def numel(self):
        return self._count


def team(frozen=("solver", "verifier"), fixer=("math", 1e-4), verifier="math_small", said=None, shared=False):
    solver = Model("math", 1e-4) if shared else Model("math")
    players = {"solver": solver, "verifier": Model(verifier), "fixer": solver if shared else Model(*fixer)}
    said = said or {"verifier": lab.Sampling(temperature=0.5), "fixer": lab.Sampling(max_tokens=7)}
    return lab.Team(players, sampling=said, frozen=frozen)


RIGHT = {
    "07.1": [(right_gain,), (lambda n_k, N, signal: ((n_k - 1) * N / (n_k * (N - 1))) ** 2 / signal,)],
    "07.2": [(batch(), PAY)],
    "07.3": [(["stage_2", "stage_3", "stage_4", "stage_5"],), (("stage_5", "stage_4", "stage_3", "stage_2"),)],
    "07.4": [(by_episode,), (lambda turns: by_episode(turns).sort_index(ascending=False),)],
    "07.5": [(team(),)],
}
WRONG = {
    "07.1": [
        (...,),
        (lambda n_k, N, signal: (1 - 1 / n_k) / (1 - 1 / N) / signal,),
        (lambda n_k, N, signal: (1 - 1 / n_k) / signal,),
        (lambda n_k, N, signal: ((1 - 1 / N) / (1 - 1 / n_k)) ** 2 / signal,),
        (lambda n_k, N, signal: 1 / signal,),
    ],
    "07.2": [(batch(), ...), (batch(), 0.2), (batch(), 1.5), (batch(), "all")],
    "07.3": [
        (...,),
        (["stage_6", "stage_7", "stage_8"],),
        ([f"stage_{number}" for number in range(1, 9)],),
        (["stage_2", "stage_3"],),
        (["helper"],),
        ("stage_2",),
    ],
    "07.4": [
        (...,),
        (lambda turns: by_episode(turns, ddof=1),),
        (lambda turns: by_episode(turns, once=False),),
        (lambda turns: by_episode(turns, zero=False),),
        (lambda turns: by_episode(turns, by=("task",)),),
        (lambda turns: by_episode(turns, scale=False),),
        (raw_where_lone,),
    ],
    "07.5": [
        (...,),
        (team(frozen="solver"),),
        (team(frozen=("solver", "verifier", "fixer")),),
        (team(fixer=("math", 3e-4)),),
        (team(fixer=("math_small", 1e-4)),),
        (team(verifier="math"),),
        (team(said={"verifier": lab.Sampling(temperature=0.5)}),),
        (team(said={"fixer": lab.Sampling(max_tokens=7)}),),
        (team(shared=True),),
        ({"solver": "math"},),
    ],
}

import pandas as pd

import mas_lab as lab

BY_PAY = {
    "hard": (1, 1, 1, 0, "p", 0, "p", 0),
    "easy": (1, 1, 1, 1, 1, "p", 1, 0),
    "middle": (1, 1, 0, "p", "p", 0, 1, 1),
}


def right_gain(n_k, N, signal):
    return ((1 - 1 / n_k) / (1 - 1 / N)) ** 2 / signal


def batch():
    """Three tasks of eight episodes: 1 the solver was right, "p" the helper, 0 nobody."""
    rows = []
    for task, told in BY_PAY.items():
        for number, one in enumerate(told):
            episode = {"task": task, "episode": f"{task}-{number}", "turn": 0}
            rows.append({**episode, "agent": "solver", "depth": 0, "team_reward": float(one == 1), "success": one == 1})
            if one != 1:
                paid = 0.2 * (one == "p")
                rows.append({**episode, "agent": "helper", "depth": 1, "team_reward": paid, "success": one == "p"})
    return lab.RECIPES["grpo"].advantages(pd.DataFrame(rows))


def gain_at(pay):
    turns = batch().drop(columns=["credit", "group", "center", "scale", "advantage"])
    paid = turns.assign(team_reward=turns["team_reward"].mask((turns["agent"] == "helper") & turns["success"], pay))
    told = lab.advise(lab.group(paid, "task", lab.episode_return())).set_index("agent")
    return told.loc["helper", "gain"]


def by_episode(turns, ddof=0, once=True, lone=0.0, by=("task", "agent")):
    keys = list(by)
    units = turns.groupby([*keys, "episode"])["credit"].mean() if once else turns.set_index(keys)["credit"]
    split = units.groupby(level=keys)
    told = pd.DataFrame({"mean": split.mean(), "std": split.std(ddof=ddof), "n": split.size()})
    told["spread"] = split.max() - split.min()
    row = turns[keys].merge(told, left_on=keys, right_index=True, how="left")
    advantage = (turns["credit"] - row["mean"]) / (row["std"] + 1e-6)
    return advantage.mask((row["n"] < 2) | (row["spread"] < 1e-12), turns["credit"] if lone == "raw" else lone)


class Model:
    """Has what is asked of a policy here, and loads at once."""

    def __init__(self, name="math", lr=1e-3):
        self.lr, self.model, self._count = lr, self, {"math": 335_184, "math_small": 100_160}[name]

    def parameters(self):
        return [self]

    def numel(self):
        return self._count


COOL, SHORT = lab.Sampling(temperature=0.5), lab.Sampling(max_tokens=7)


def team(frozen=("solver", "verifier"), sampling=None, **changed):
    players = {"solver": Model(), "verifier": Model("math_small"), "fixer": Model("math", 1e-4)} | changed
    return (lab.Team(players, sampling=sampling or {"verifier": COOL, "fixer": SHORT}, frozen=frozen),)


BOTH = Model("math", 1e-4)
RIGHT = {
    "07.1": [(right_gain,)],
    "07.2": [(batch(), min((percent / 100 for percent in range(20, 101)), key=lambda pay: abs(gain_at(pay) - 1)))],
    "07.3": [(["stage_2", "stage_3", "stage_4", "stage_5"],)],
    "07.4": [(by_episode,), (lambda turns: by_episode(turns).sort_index(ascending=False),)],
    "07.5": [team()],
}
WRONG = {
    "07.1": [
        (lambda n_k, N, signal: (1 - 1 / n_k) / (1 - 1 / N) / signal,),
        (lambda n_k, N, signal: right_gain(N, n_k, signal),),
        (lambda n_k, N, signal: 1 / signal,),
    ],
    "07.2": [(batch(), 0.2), (batch(), 1.5), (batch(), "all")],
    "07.3": [
        (["stage_6", "stage_7", "stage_8"],),
        ([f"stage_{number}" for number in range(1, 9)],),
        (["stage_2", "stage_3"],),
        (["helper"],),
        ("stage_2",),
    ],
    "07.4": [
        (lambda turns: by_episode(turns, ddof=1),),
        (lambda turns: by_episode(turns, once=False),),
        (lambda turns: by_episode(turns, by=("task",)),),
        (lambda turns: by_episode(turns, lone="raw"),),
    ],
    "07.5": [
        team(frozen="solver"),
        team(frozen=("solver", "verifier", "fixer")),
        team(fixer=Model("math", 3e-4)),
        team(fixer=Model("math_small", 1e-4)),
        team(verifier=Model()),
        team(sampling={"verifier": COOL}),
        team(sampling={"fixer": SHORT}),
        team(solver=BOTH, fixer=BOTH),
        ({"solver": "math"},),
    ],
}

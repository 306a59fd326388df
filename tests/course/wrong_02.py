from dataclasses import dataclass

import pandas as pd

import mas_lab as lab

LABELLED = pd.DataFrame({"task": ["t"] * 7, "agent": list("aabbbab"), "group": list("AABBAAC")})
BY = {
    "everyone": ("task",),
    "role": ("task", "agent"),
    "moment": ("task", "agent", "turn"),
    "weights": ("task", "policy"),
    "decision": ("node", "agent"),
}


@dataclass(frozen=True)
class thrifty:
    cost: float = 0.1

    def __call__(self, turns):
        return self.credit(turns) - self.cost * self.calls(turns)

    def credit(self, turns):
        return lab.episode_return()(turns)

    def calls(self, turns, of=("episode", "agent")):
        return turns.groupby(list(of))["agent"].transform("size")


@dataclass
class not_frozen:
    cost: float = 0.1
    __call__, credit, calls = thrifty.__call__, thrifty.credit, thrifty.calls


class everybodys_calls(thrifty):
    def calls(self, turns):
        return super().calls(turns, ("episode",))


class calls_in_the_task(thrifty):
    def calls(self, turns):
        return super().calls(turns, ("task", "agent"))


class own_reward_alone(thrifty):
    def credit(self, turns):
        return turns["team_reward"]


class fixed(thrifty):
    def __call__(self, turns):
        return self.credit(turns) - 0.25 * self.calls(turns)


REWARDS = [1.0, 0.8, 1.0, 0.0, 0.0, 0.0]
RIGHT = {
    "02.1": [(LABELLED, [4, 6]), (LABELLED, {6, 4})],
    "02.2": [(BY,), (BY | {"decision": ("episode", "agent", "turn"), "everyone": "task", "role": ["agent", "task"]},)],
    "02.3": [(thrifty,)],
    "02.4": [(REWARDS, [0, 1, 2]), ([1, 0.9, 0, 0, 0, 0], (0, 1))],
}
WRONG = {
    "02.1": [(LABELLED, rows) for rows in ([..., ...], [4], [4, 5], [4, 4], [4, 60], 4)],
    "02.2": [
        ({"everyone": ("task",)},),
        (BY | {"everyone": ()},),
        (BY | {"role": ("agent",)},),
        (BY | {"role": ("episode", "agent")},),
        (BY | {"moment": ("task", "agent", "depth")},),
        (BY | {"weights": ("task", "agent")},),
        (BY | {"decision": ("node",)},),
        (BY | {"decision": ("node", "agent", "candidate")},),
        (BY | {"decision": ("nodes", "agent")},),
    ],
    "02.3": [(one,) for one in (thrifty(), not_frozen, everybodys_calls, calls_in_the_task, own_reward_alone, fixed)],
    "02.4": [
        ([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], [0, 3]),
        (REWARDS, [0, 1, 2, 3, 4, 5]),
        ([1.0, 0.8, 2.0, 0.0, 0.0, 0.0], [0, 1, 2]),
        ([1.0, 0.8, 1.0], [0, 1, 2]),
        (REWARDS, [0, 0, 1]),
        (REWARDS, []),
    ],
}

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


def spent(turns, columns):
    return turns.groupby(columns)["agent"].transform("size")


@dataclass(frozen=True)
class thrifty:
    cost: float = 0.1

    def __call__(self, turns):
        return lab.episode_return()(turns) - self.cost * spent(turns, ["episode", "agent"])


@dataclass(frozen=True)
class by_hand(thrifty):
    def __call__(self, turns):
        said = [
            ((turns["episode"] == row["episode"]) & (turns["agent"] == row["agent"])).sum()
            for _, row in turns.iterrows()
        ]
        return (lab.episode_return()(turns) - self.cost * pd.Series(said, index=turns.index)).tolist()


@dataclass
class not_frozen:
    cost: float = 0.1

    __call__ = thrifty.__call__


@dataclass(frozen=True)
class everybodys_calls(thrifty):
    def __call__(self, turns):
        return lab.episode_return()(turns) - self.cost * spent(turns, ["episode"])


@dataclass(frozen=True)
class calls_in_the_task(thrifty):
    def __call__(self, turns):
        return lab.episode_return()(turns) - self.cost * spent(turns, ["task", "agent"])


@dataclass(frozen=True)
class once(thrifty):
    def __call__(self, turns):
        return lab.episode_return()(turns) - self.cost


@dataclass(frozen=True)
class turns_before(thrifty):
    def __call__(self, turns):
        return lab.episode_return()(turns) - self.cost * turns["turn"]


@dataclass(frozen=True)
class own_reward_alone(thrifty):
    def __call__(self, turns):
        return turns["team_reward"] - self.cost * spent(turns, ["episode", "agent"])


@dataclass(frozen=True)
class fixed_price(thrifty):
    def __call__(self, turns):
        return lab.episode_return()(turns) - 0.25 * spent(turns, ["episode", "agent"])


@dataclass(frozen=True)
class unanswered(thrifty):
    def __call__(self, turns):
        pass


RIGHT = {
    "02.1": [(LABELLED, [4, 6]), (LABELLED, {6, 4})],
    "02.2": [(BY,), (BY | {"decision": ("episode", "agent", "turn"), "everyone": "task", "role": ["agent", "task"]},)],
    "02.3": [(thrifty,), (by_hand,)],
    "02.4": [([1.0, 0.8, 1.0, 0.0, 0.0, 0.0], [0, 1, 2]), ([1, 0.9, 0, 0, 0, 0], (0, 1))],
}
WRONG = {
    "02.1": [
        (LABELLED, [..., ...]),
        (LABELLED, [4]),
        (LABELLED, [4, 5]),
        (LABELLED, [4, 4]),
        (LABELLED, [4, 60]),
        (LABELLED, 4),
    ],
    "02.2": [
        ({"everyone": ("task",)},),
        (BY | {"everyone": ()},),
        (BY | {"everyone": ("episode",)},),
        (BY | {"role": ("agent",)},),
        (BY | {"role": ("episode", "agent")},),
        (BY | {"moment": ("task", "agent", "depth")},),
        (BY | {"moment": ("episode", "agent", "turn")},),
        (BY | {"weights": ("policy",)},),
        (BY | {"weights": ("task", "agent")},),
        (BY | {"decision": ("node",)},),
        (BY | {"decision": ("task", "agent", "turn")},),
        (BY | {"decision": ("node", "agent", "candidate")},),
        (BY | {"decision": ("nodes", "agent")},),
        (("task",),),
    ],
    "02.3": [
        (thrifty(),),
        (not_frozen,),
        (everybodys_calls,),
        (calls_in_the_task,),
        (once,),
        (turns_before,),
        (own_reward_alone,),
        (fixed_price,),
        (unanswered,),
    ],
    "02.4": [
        ([1.0, 1.0, 1.0, 0.0, 0.0, 0.0], [0, 3]),
        ([1.0, 0.8, 1.0, 0.0, 0.0, 0.0], [1]),
        ([1.0, 0.8, 1.0, 0.0, 0.0, 0.0], [0, 1, 2, 3, 4, 5]),
        ([1.0, 0.8, 2.0, 0.0, 0.0, 0.0], [0, 1, 2]),
        ([1.0, 0.8, 1.0], [0, 1, 2]),
        ([1.0, 0.8, 1.0, 0.0, 0.0, 0.0], [0, 0, 1]),
        ([1.0, 0.8, 1.0, 0.0, 0.0, 0.0], []),
    ],
}

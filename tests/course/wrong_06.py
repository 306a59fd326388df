import numpy as np
import pandas as pd

FINALS = {"team return": 0.71, "own reward": 0.87, "by agent and turn": 0.85, "tree": 0.91, "tree, outcome only": 0.79}


def right_pick(candidates):
    credit = candidates["team_reward"] + candidates["local_reward"]
    return credit.where(candidates["valid"], credit.min() - 1)


def fined(candidates):
    return candidates["team_reward"] + candidates["local_reward"] - 100.0 * ~candidates["valid"]


def plain(candidates):
    return candidates["team_reward"] + candidates["local_reward"]


def zero_where_unread(candidates):
    return plain(candidates).where(candidates["valid"], 0.0)


def never(candidates):
    return plain(candidates).where(candidates["valid"], -np.inf)


def dropped(candidates):
    return plain(candidates[candidates["valid"]])


def local_alone(candidates):
    return candidates["local_reward"].where(candidates["valid"], -1.0)


def last_of_equals(candidates):
    return right_pick(candidates) + 1e-9 * candidates["candidate"]


def shares(final):
    low, high = final["team return"], final["tree"]
    return {arm: (one - low) / (high - low) for arm, one in final.items() if arm not in ("team return", "tree")}


RIGHT = {
    "06.1": [(("episode", "agent", "turn"),), (["agent", "turn", "episode"],), (("task", "episode", "agent", "turn"),)],
    "06.2": [(right_pick,), (fined,)],
    "06.3": [(lambda a, b, c, d: (d - b) / (a - c),), (lambda a, b, c, d: (b - d) / (c - a),)],
    "06.4": [(lambda k, agents, turns: (k * agents * turns, agents * turns, 1 + k * (agents * turns - 1)),)],
    "06.5": [(shares, FINALS), (lambda final: pd.Series(shares(final)), FINALS)],
}
WRONG = {
    "06.1": [
        (...,),
        (("episode", "agent"),),
        (("task", "agent", "turn"),),
        (("agent", "turn"),),
        (("episode", "turn"),),
        ("prompt",),
        (("episode", "agent", "turn", "candidate"),),
        (("node",),),
        (3,),
    ],
    "06.2": [(...,), (plain,), (zero_where_unread,), (never,), (dropped,), (local_alone,), (last_of_equals,)],
    "06.3": [
        (lambda a, b, c, d: (b - d) / (a - c),),
        (lambda a, b, c, d: (a - c) / (d - b),),
        (lambda a, b, c, d: 1.0,),
        (lambda a, b, c, d: None,),
    ],
    "06.4": [
        (lambda k, agents, turns: (k * agents * turns, agents * turns, k * agents * turns),),
        (lambda k, agents, turns: (agents * turns, agents * turns, 1 + k * (agents * turns - 1)),),
        (lambda k, agents, turns: (k * agents * turns, turns, 1 + k * (agents * turns - 1)),),
        (lambda k, agents, turns: (k ** (agents * turns), agents * turns, 1 + k * (agents * turns - 1)),),
        (lambda k, agents, turns: k * agents * turns,),
    ],
    "06.5": [
        (
            lambda final: {
                arm: one / final["tree"] for arm, one in final.items() if arm not in ("team return", "tree")
            },
            FINALS,
        ),
        (lambda final: {arm: one - final["team return"] for arm, one in final.items()}, FINALS),
        (lambda final: {arm: 1 - one for arm, one in shares(final).items()}, FINALS),
        (lambda final: 0.8, FINALS),
    ],
}

import numpy as np
import pandas as pd

FINALS = {"team return": 0.71, "own reward": 0.87, "by agent and turn": 0.85, "tree": 0.91, "tree, outcome only": 0.79}


def plain(candidates):
    return candidates["team_reward"] + candidates["local_reward"]


def right_pick(candidates):
    return plain(candidates).where(candidates["valid"], plain(candidates).min() - 1)


def counts(k, agents, turns):
    return k * agents * turns, agents * turns, 1 + k * (agents * turns - 1)


def shares(final):
    return {
        arm: (one - final["team return"]) / (final["tree"] - final["team return"])
        for arm, one in final.items()
        if arm not in ("team return", "tree")
    }


RIGHT = {
    "06.1": [(("episode", "agent", "turn"),), (["agent", "turn", "episode"],), (("task", "episode", "agent", "turn"),)],
    "06.2": [(right_pick,), (lambda candidates: plain(candidates) - 100.0 * ~candidates["valid"],)],
    "06.3": [(lambda a, b, c, d: (d - b) / (a - c),)],
    "06.4": [(counts,)],
    "06.5": [(shares, FINALS), (lambda final: pd.Series(shares(final)), FINALS)],
}
WRONG = {
    "06.1": [
        (("episode", "agent"),),
        (("task", "agent", "turn"),),
        (("episode", "turn"),),
        (("episode", "agent", "turn", "candidate"),),
        (("node",),),
    ],
    "06.2": [
        (plain,),
        (lambda candidates: plain(candidates).where(candidates["valid"], 0.0),),
        (lambda candidates: plain(candidates).where(candidates["valid"], -np.inf),),
        (lambda candidates: plain(candidates[candidates["valid"]]),),
        (lambda candidates: candidates["local_reward"].where(candidates["valid"], -1.0),),
        (lambda candidates: right_pick(candidates) + 1e-9 * candidates["candidate"],),
    ],
    "06.3": [(lambda a, b, c, d: (b - d) / (a - c),), (lambda a, b, c, d: 1.0,)],
    "06.4": [
        (lambda k, agents, turns: (*counts(k, agents, turns)[:2], k * agents * turns),),
        (lambda k, agents, turns: (agents * turns, *counts(k, agents, turns)[1:]),),
        (lambda k, agents, turns: k * agents * turns,),
    ],
    "06.5": [
        (lambda final: {arm: final[arm] / final["tree"] for arm in shares(final)}, FINALS),
        (lambda final: {arm: 1 - one for arm, one in shares(final).items()}, FINALS),
        (lambda final: 0.8, FINALS),
    ],
}

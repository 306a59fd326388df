import numpy as np


def stable(logits, token, temperature):
    scaled = logits / temperature - (logits / temperature).max()
    return scaled[token] - np.log(np.exp(scaled).sum())


def pairwise(logits, token, temperature):
    return -np.logaddexp.reduce((logits - logits[token]) / temperature)


def overflows(logits, token, temperature):
    with np.errstate(all="ignore"):
        weights = np.exp(logits / temperature)
        return np.log(weights[token] / weights.sum())


def without_temperature(logits, token, temperature):
    return stable(logits, token, 1.0)


def temperature_outside(logits, token, temperature):
    return stable(logits, token, 1.0) / temperature


def multiplied(logits, token, temperature):
    return stable(logits, token, 1 / temperature)


def probability(logits, token, temperature):
    return np.exp(stable(logits, token, temperature))


def all_tokens(logits, token, temperature):
    return np.array([stable(logits, one, temperature) for one in range(len(logits))])


def returns(turns):
    steps = turns[turns["kept"]].drop_duplicates(["episode", "depth"])
    return steps.groupby("episode")["team_reward"].sum()


def by_steps(turns):
    kept = turns[turns["kept"]]
    return kept.groupby(["episode", "depth"])["team_reward"].mean().groupby("episode").sum()


def with_all_candidates(turns):
    return turns.drop_duplicates(["episode", "depth"]).groupby("episode")["team_reward"].sum()


def every_row(turns):
    return turns.groupby("episode")["team_reward"].sum()


def joint_steps_twice(turns):
    return turns[turns["kept"]].groupby("episode")["team_reward"].sum()


def equal_rewards_once(turns):
    kept = turns[turns["kept"]].drop_duplicates(["episode", "team_reward"])
    return kept.groupby("episode")["team_reward"].sum()


def last_alone(turns):
    return turns[turns["kept"]].sort_values("depth").groupby("episode")["team_reward"].last()


def per_row(turns):
    return turns["episode"].map(returns(turns))


def surest(turns):
    return turns["logprobs"].map(np.mean)


def as_array(turns):
    return np.array([sum(each) / len(each) for each in turns["logprobs"]])


def says_least(turns):
    return turns["logprobs"].map(sum)


def least_sure(turns):
    return -turns["logprobs"].map(np.mean)


def first_token(turns):
    return turns["logprobs"].str[0]


def by_reward(turns):
    return turns["local_reward"]


def unanswered(*given): ...


RIGHT = {
    "01.1": [([48, 48, 126, 24],), ((48, 48, 126, 24),)],
    "01.2": [(stable,), (pairwise,)],
    "01.3": [(returns,), (by_steps,)],
    "01.4": [(surest,), (as_array,)],
}
WRONG = {
    "01.1": [
        ([..., ..., ..., ...],),
        ([48, 48, 126, 8],),
        ([48, 48, 64, 24],),
        ([16, 48, 126, 24],),
        ([48, 6, 126, 24],),
        ([24, 24, 14, 24],),
        (48,),
    ],
    "01.2": [
        (unanswered,),
        (overflows,),
        (without_temperature,),
        (temperature_outside,),
        (multiplied,),
        (probability,),
        (all_tokens,),
    ],
    "01.3": [
        (unanswered,),
        (every_row,),
        (joint_steps_twice,),
        (with_all_candidates,),
        (equal_rewards_once,),
        (last_alone,),
        (per_row,),
    ],
    "01.4": [(unanswered,), (says_least,), (least_sure,), (first_token,), (by_reward,)],
}

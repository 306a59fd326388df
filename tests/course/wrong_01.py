import numpy as np


def stable(logits, token, temperature):
    scaled = logits / temperature - (logits / temperature).max()
    return scaled[token] - np.log(np.exp(scaled).sum())


def overflows(logits, token, temperature):
    with np.errstate(all="ignore"):
        weights = np.exp(logits / temperature)
        return np.log(weights[token] / weights.sum())


def all_tokens(logits, token, temperature):
    return np.array([stable(logits, one, temperature) for one in range(len(logits))])


def returns(turns, once=("episode", "depth"), kept_alone=True):
    kept = turns[turns["kept"]] if kept_alone else turns
    return kept.drop_duplicates(list(once)).groupby("episode")["team_reward"].sum()


def joint_steps_twice(turns):
    return turns[turns["kept"]].groupby("episode")["team_reward"].sum()


def last_alone(turns):
    return turns[turns["kept"]].sort_values("depth").groupby("episode")["team_reward"].last()


def unanswered(*given): ...


RIGHT = {
    "01.1": [([48, 48, 126, 24],)],
    "01.2": [(stable,)],
    "01.3": [(returns,)],
    "01.4": [
        (lambda turns: turns["logprobs"].map(np.mean),),
        (lambda turns: np.array([sum(each) / len(each) for each in turns["logprobs"]]),),
    ],
}
WRONG = {
    "01.1": [([..., 48, 126, 24],), ([48, 48, 126, 8],), ([48, 48, 64, 24],), ([48, 6, 126, 24],), (48,)],
    "01.2": [
        (unanswered,),
        (overflows,),
        (all_tokens,),
        (lambda logits, token, temperature: stable(logits, token, 1.0) / temperature,),
        (lambda logits, token, temperature: stable(logits, token, 1 / temperature),),
        (lambda *given: np.exp(stable(*given)),),
    ],
    "01.3": [
        (joint_steps_twice,),
        (last_alone,),
        (lambda turns: returns(turns, kept_alone=False),),
        (lambda turns: returns(turns, once=("episode", "team_reward")),),
        (lambda turns: turns["episode"].map(returns(turns)),),
    ],
    "01.4": [
        (lambda turns: turns["logprobs"].map(sum),),
        (lambda turns: -turns["logprobs"].map(np.mean),),
        (lambda turns: turns["local_reward"],),
    ],
}

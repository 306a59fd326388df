import pandas as pd


def advantage(by=("task", "agent"), ddof=0, fill=0.0, once=False):
    def answer(turns):
        source = turns
        if once:
            each = turns.groupby([*by, "episode"])["credit"].transform("size")
            mean = turns.assign(c=turns["credit"] / each, w=1 / each).groupby(list(by))[["c", "w"]].transform("sum")
            center = mean["c"] / mean["w"]
        else:
            center = source.groupby(list(by))["credit"].transform("mean")
        scale = turns.groupby(list(by))["credit"].transform("std", ddof=ddof)
        found = (turns["credit"] - center) / (scale + 1e-6)
        return found.where(scale > 1e-9, turns["credit"] if fill == "raw" else fill)

    return answer


def centered_alone(turns):
    return turns["credit"] - turns.groupby(["task", "agent"])["credit"].transform("mean")


def right_signal(turns, agent, by_row=False, square=2, ddof=0):
    mu = turns["credit"].mean() if by_row else turns.groupby("episode")["credit"].mean().mean()
    own = turns.loc[turns["agent"] == agent, "credit"]
    var = own.var(ddof=ddof)
    return var / (var + abs(own.mean() - mu) ** square)


def share_of_all(turns, agent):
    own = turns.loc[turns["agent"] == agent, "credit"]
    return own.var(ddof=0) / turns["credit"].var(ddof=0)


def with_deviation(turns, agent):
    mu = turns.groupby("episode")["credit"].mean().mean()
    own = turns.loc[turns["agent"] == agent, "credit"]
    return own.std(ddof=0) / (own.std(ddof=0) + abs(own.mean() - mu))


CANDIDATES = pd.DataFrame(
    [("planner", 8.0, 0.0, 0.43), ("critic", 2.0, 0.2, 0.25), ("tester", 6.0, 0.2, 0.25), ("closer", 3.0, -0.3, 0.08),
     ("auditor", 1.2, -0.3, 0.15)],
    columns=["agent", "n_k", "b", "sigma_k"],
)  # fmt: skip
HALVES = [1, 1, 1, 1, 0.1, 0, 0.1, 0]
RIGHT = {
    "03.1": [(advantage(),), (lambda turns: advantage()(turns).to_numpy(),)],
    "03.2": [(right_signal,)],
    "03.3": [(CANDIDATES, ["tester", "closer"]), (CANDIDATES, {"closer", "tester"})],
    "03.4": [(HALVES, [4, 5, 6, 7]), ([0, 0, 0, 0, 0.95, 1, 1, 1], (4, 5, 6))],
}
WRONG = {
    "03.1": [
        (...,),
        (lambda turns: None,),
        (advantage(by=("task",)),),
        (advantage(by=("agent",)),),
        (advantage(ddof=1),),
        (advantage(fill="raw"),),
        (advantage(once=True),),
        (centered_alone,),
        ("mean",),
    ],
    "03.2": [
        (lambda turns, agent: right_signal(turns, agent, by_row=True),),
        (lambda turns, agent: right_signal(turns, agent, square=1),),
        (lambda turns, agent: right_signal(turns, agent, ddof=1),),
        (lambda turns, agent: 1 - right_signal(turns, agent),),
        (share_of_all,),
        (with_deviation,),
        (lambda turns, agent: None,),
    ],
    "03.3": [
        (CANDIDATES, ...),
        (CANDIDATES, ["critic", "tester", "closer", "auditor"]),
        (CANDIDATES, ["closer", "auditor"]),
        (CANDIDATES, ["closer"]),
        (CANDIDATES, []),
        (CANDIDATES, ["fixer"]),
        (CANDIDATES, 2),
    ],
    "03.4": [
        ([1, 1, 1, 1, 0, 0, 0, 0], [2, 3, 4, 5]),
        ([1, 1, 1, 1, 0, 0, 0, 0], [4, 5, 6, 7]),
        (HALVES, [4, 5]),
        (HALVES, [4, 5, 6, 9]),
        ([1, 1, 1, 1, 0.3, 0.2, 0.3, 0.2], [4, 5, 5, 6]),
        ([1, 1, 1, 1, 1, 1, 0.1, 0], [5, 6, 7]),
        ([2, 2, 2, 2, 0.1, 0, 0.1, 0], [4, 5, 6, 7]),
        (..., [4, 5, 6]),
        ("rewards", "called"),
    ],
}

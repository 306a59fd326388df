import pandas as pd


def advantage(by=("task", "agent"), ddof=0, raw=False, scaled=True):
    def answer(turns):
        own = turns.groupby(list(by))["credit"]
        scale = own.transform("std", ddof=ddof)
        found = (turns["credit"] - own.transform("mean")) / ((scale if scaled else 1) + 1e-6)
        return found.where(scale > 1e-9, turns["credit"] if raw else 0.0)

    return answer


def right_signal(turns, agent, by_row=False, square=2, ddof=0):
    mu = turns["credit"].mean() if by_row else turns.groupby("episode")["credit"].mean().mean()
    own = turns.loc[turns["agent"] == agent, "credit"]
    var = own.var(ddof=ddof)
    return var / (var + abs(own.mean() - mu) ** square)


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
        (advantage(by=("task",)),),
        (advantage(by=("agent",)),),
        (advantage(ddof=1),),
        (advantage(raw=True),),
        (advantage(scaled=False),),
    ],
    "03.2": [
        (lambda turns, agent: right_signal(turns, agent, by_row=True),),
        (lambda turns, agent: right_signal(turns, agent, square=1),),
        (lambda turns, agent: right_signal(turns, agent, ddof=1),),
        (lambda turns, agent: 1 - right_signal(turns, agent),),
    ],
    "03.3": [(CANDIDATES, named) for named in (["critic", "tester", "closer", "auditor"], ["closer"], [], ["fixer"])],
    "03.4": [
        ([1, 1, 1, 1, 0, 0, 0, 0], [2, 3, 4, 5]),
        ([1, 1, 1, 1, 0, 0, 0, 0], [4, 5, 6, 7]),
        (HALVES, [4, 5]),
        (HALVES, [4, 5, 6, 9]),
        ([1, 1, 1, 1, 1, 1, 0.1, 0], [5, 6, 7]),
        ("rewards", "called"),
    ],
}

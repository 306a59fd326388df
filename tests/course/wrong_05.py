import pandas as pd


def right(rewards, own, ddof=0, power=2, part=None):
    offset = abs(own.mean() - rewards.mean()) ** power
    signal = own.var(ddof=ddof) / (own.var(ddof=ddof) + offset)
    large = (own.var() + (own.mean() - rewards.mean()) ** 2) / rewards.var()
    return large, signal if part is None else part(rewards, own)


JUDGED = pd.DataFrame(
    {
        "agent": ["stage_1", "stage_1", "stage_2", "stage_2", "stage_3", "stage_3", "stage_4"],
        "right": [True, False, False, False, False, True, True],
        "global": [1.0, -1.0, 0.4, -0.2, 0.9, 1.2, 2.0],
    }
)
HALF = [1, 1, 1, 1, 0.2, 0.2, 0.2, 0]
FAILED = [1, 1, 1, 1, 1, 1, 1, 0]
RIGHT = {
    "05.1": [(right,)],
    "05.2": [(JUDGED, {"stage_3"}), (JUDGED, ["stage_3"])],
    "05.3": [(FAILED, [6, 7])],
    "05.4": [([1, 1, 1, 0.2, 0.2, 0.2, 0.2, 0], [3, 4, 5, 6, 7])],
}
WRONG = {
    "05.1": [
        (lambda rewards, own: right(rewards, own, ddof=1),),
        (lambda rewards, own: right(rewards, own, power=1),),
        (lambda rewards, own: right(rewards, own, part=lambda rewards, own: own.var() / rewards.var()),),
        (lambda rewards, own: (own.var() / rewards.var(), right(rewards, own)[1]),),
        (lambda rewards, own: 1.0,),
    ],
    "05.2": [
        (JUDGED, {"stage_2", "stage_3"}),
        (JUDGED, {"stage_3", "stage_4"}),
        (JUDGED, set()),
        (JUDGED, "stage_3"),
        (JUDGED, {"stage_3", "stage_9"}),
    ],
    "05.3": [
        (FAILED, [7]),
        ([1] * 8, [0, 1]),
        ([1, 1, 1, 1, 0, 0, 0, 0], [0, 1, 2, 4, 5]),
        ([1, 1, 1, 1, 1, 1, 1, 2], [6, 7]),
        (FAILED, [6, 6]),
    ],
    "05.4": [(HALF, [4, 5, 6, 7]), ([1, 1, 1, 1, 0, 0, 0, 0], [4, 5, 6, 7]), (FAILED, [6, 7])],
}

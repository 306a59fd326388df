import pandas as pd


def right(rewards, own):
    offset = (own.mean() - rewards.mean()) ** 2
    return (own.var() + offset) / rewards.var(), own.var() / (own.var() + offset)


def unbiased(rewards, own):
    offset = (own.mean() - rewards.mean()) ** 2
    return (own.var(ddof=1) + offset) / rewards.var(ddof=1), own.var(ddof=1) / (own.var(ddof=1) + offset)


def without_the_offset(rewards, own):
    return own.var() / rewards.var(), own.var() / (own.var() + (own.mean() - rewards.mean()) ** 2)


def signal_of_all(rewards, own):
    large = (((own - rewards.mean()) / rewards.std()) ** 2).mean()
    return large, own.var() / rewards.var()


def offset_unsquared(rewards, own):
    large = (((own - rewards.mean()) / rewards.std()) ** 2).mean()
    return large, own.var() / (own.var() + abs(own.mean() - rewards.mean()))


JUDGED = pd.DataFrame(
    {
        "agent": ["stage_1", "stage_1", "stage_2", "stage_2", "stage_3", "stage_3", "stage_4"],
        "right": [True, False, False, False, False, True, True],
        "global": [1.0, -1.0, 0.4, -0.2, 0.9, 1.2, 2.0],
        "own": [1.0, -1.0, 0.5, -0.5, -1.0, 1.0, 0.0],
    }
)
HALF = [1, 1, 1, 1, 0.2, 0.2, 0.2, 0]
RIGHT = {
    "05.1": [(right,)],
    "05.2": [(JUDGED, {"stage_3"}), (JUDGED, ["stage_3"])],
    "05.3": [([1, 1, 1, 1, 1, 1, 1, 0], [6, 7])],
    "05.4": [([1, 1, 1, 0.2, 0.2, 0.2, 0.2, 0], [3, 4, 5, 6, 7])],
}
WRONG = {
    "05.1": [(unbiased,), (without_the_offset,), (signal_of_all,), (offset_unsquared,), (lambda rewards, own: 1.0,)],
    "05.2": [
        (JUDGED, {"stage_2", "stage_3"}),
        (JUDGED, {"stage_3", "stage_4"}),
        (JUDGED, set()),
        (JUDGED, "stage_3"),
        (JUDGED, {"stage_3", "stage_9"}),
        (JUDGED, ...),
    ],
    "05.3": [
        ([1, 1, 1, 1, 1, 1, 1, 0], [7]),
        ([1] * 8, [0, 1]),
        ([1, 1, 1, 1, 0, 0, 0, 0], [0, 1, 2, 4, 5]),
        ([1, 1, 1, 1, 1, 1, 0, 0], [6, 7]),
        ([1, 1, 1, 1, 1, 1, 1, 2], [6, 7]),
        ([1, 1, 1, 1, 1, 1, 1, 0], [6, 6]),
        ([1, 0], [0, 1]),
    ],
    "05.4": [
        (HALF, [4, 5, 6, 7]),
        (HALF, [5, 6, 7]),
        ([1, 1, 1, 1, 0, 0, 0, 0], [4, 5, 6, 7]),
        ([1, 1, 1, 1, 1, 1, 1, 0], [6, 7]),
        ([1, 1, 1, 1, 0.9, 0.2, 0.2, 0], [4, 5, 6, 7]),
    ],
}

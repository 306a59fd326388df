import pandas as pd

import mas_lab as lab


def table(*by):
    rows = [
        {"task": f"t{t}", "episode": f"t{t}e{e}", "agent": agent, "turn": 0, "team_reward": r, "local_reward": 0.0}
        for t in range(2)
        for e, r in enumerate((0.0, 0.5, 1.0))
        for agent in ("planner", "executor")
    ]
    return lab.normalize(lab.group(pd.DataFrame(rows), by=by, credit=lab.mixed(alpha=1.0)))


FRESH = pd.DataFrame({"agent": ["executor", "executor", "planner"], "kept": [True, False, False]})
RIGHT = {"00.1": [([-0.79, -0.79, -0.79, 0.79, 1.58],)], "00.2": [(FRESH, 1)], "00.3": [(table("task"),)]}
WRONG = {
    "00.1": [([-0.2, -0.2, -0.2, 0.2, 0.4],), ([-0.71, -0.71, -0.71, 0.71, 1.41],), ([1, 2],)],
    "00.2": [(FRESH, 2), (FRESH, None)],
    "00.3": [(table("task", "agent"),), (table("episode", "agent", "turn"),), (0.5,)],
}

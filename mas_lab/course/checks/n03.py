"""Exercises of notebook 03: an agent's own baseline, its signal, when it pays, and harm that no norm shows."""

from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.course.compare import asked, close, critic_statistics, need, same_names, same_rows, tables
from mas_lab.course.exercises import exercise
from mas_lab.explain.moments import inflation

EPISODES = 8


@exercise(
    "03.1",
    "`turns.groupby([...])['credit']` with the two columns that name an own baseline; then `.transform('mean')`.",
    "pandas divides by n - 1 unless told otherwise: `.transform('std', ddof=0)`.",
    "A lone row has no deviation; `.where(scale > 0, 0.0)` keeps what is compared and makes the rest 0.",
)
def own_advantage(answer):
    for table in tables():
        compared = normalize(group(table, ("task", "agent"), episode_return()))
        yours = asked(answer, compared[["task", "episode", "agent", "turn", "credit"]])
        same_rows(yours, compared["advantage"], compared)


@exercise(
    "03.2",
    "Three numbers are needed: the mean of all episodes, the mean of the agent's rows, and their variance.",
    "In the mean of all, an episode counts once, however many rows it has: mean by episode first, then mean of these.",
    "variance / (variance + (own mean - mean of all) ** 2), the variance with ddof=0.",
)
def signal(answer):
    for table in tables(seed=3):
        scored = group(table, ("task", "agent"), episode_return())[["task", "episode", "agent", "turn", "credit"]]
        for task, own in scored.groupby("task"):
            for agent, ours in inflation(own).set_index("agent")["signal"].dropna().items():
                close(asked(answer, own, agent), ours, f"task {task}, {agent}", tolerance=1e-4)


@exercise(
    "03.3",
    "For each agent two numbers: (b / sigma_k) ** 2, and 1 / (n_k - 1). The own mean pays where the first is larger.",
    "A large offset is not enough: with hardly more than one row a task there is little to compare.",
)
def pays(candidates, answer):
    offset = (candidates["b"] / candidates["sigma_k"]) ** 2
    threshold = (1 - candidates["n_k"] / EPISODES) / (candidates["n_k"] - 1)
    same_names(answer, list(candidates["agent"]), set(candidates.loc[offset > threshold, "agent"]), "look at {}".format)


@exercise(
    "03.4",
    "F near 1 means that the critic's mean lies about one standard deviation of all rewards from everybody's mean.",
    "Half of the episodes at 1 and half near 0 have a deviation of 0.5, and their means lie 0.5 from the mean of all.",
    "Call the critic in the episodes near 0, and let their rewards differ by very little.",
)
def hidden_harm(rewards, called):
    critic = critic_statistics(rewards, called, EPISODES, least=3)
    told = f"F = {critic['F_k']:.2f}, signal = {critic['signal']:.2f}"
    need(0.9 <= critic["F_k"] <= 1.1, f"{told}; F should lie between 0.9 and 1.1")
    need(critic["signal"] < 0.1, f"{told}; signal should be below 0.1")
    return f"{told}: no norm would tell, and {1 - critic['signal']:.0%} of what it is taught is noise"

"""Exercises of notebook 03: an agent's own baseline, its signal, mostly offset, hidden harm, cell 3."""

from itertools import product

from mas_lab import plain
from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.course.compare import DDOF, close, critic_statistics, need, result_of, same_advantages, same_names, tables
from mas_lab.course.exercises import NotebookData, exercise
from mas_lab.explain.moments import inflation


@exercise("03.1")
def own_advantage(answer):
    for table in tables():
        compared = group(table, ("task", "agent"), episode_return())
        yours = result_of(answer, compared[["task", "episode", "agent", "turn", "credit"]])
        same_advantages(yours, compared)


@exercise("03.2")
def signal(answer):
    for table in tables(seed=3):
        scored = group(table, ("task", "agent"), episode_return())[["task", "episode", "agent", "turn", "credit"]]
        for task, own in scored.groupby("task"):
            for agent, ours in inflation(own).set_index("agent")["signal"].dropna().items():
                mean, variance = own["credit"][own["agent"] == agent].agg(["mean", "var"])  # with n - 1
                off = (mean - own.groupby("episode")["credit"].mean().mean()) ** 2
                wrong = {DDOF: variance / (variance + off)}
                close(result_of(answer, own, agent), ours, f"task {task}, {agent}", 1e-4, wrong)


@exercise("03.3")
def mostly_offset(candidates: NotebookData, answer):
    chosen = (candidates["b"].abs() > candidates["sigma_k"]) & (candidates["n_k"] >= 2)
    same_names(answer, list(candidates["agent"]), set(candidates.loc[chosen, "agent"]), "look at {}".format)


@exercise("03.4")
def hidden_harm(rewards, called):
    critic = critic_statistics(rewards, called, 8, least=3)
    values = f"F = {critic['F_k']:.2f}, signal = {critic['signal']:.2f}"
    need(0.9 <= critic["F_k"] <= 1.1, f"{values}; F should be between 0.9 and 1.1")
    need(critic["signal"] < 0.1, f"{values}; signal should be below 0.1")
    return f"{values}: no norm shows it, but {1 - critic['signal']:.0%} of its squared advantages is noise"


@exercise("03.5")
def cell(answer):
    cases = product((("task",), ("task", "agent")), tables(4, seed=9), (None, "episode"), (True, False))
    for by, table, once_per, divide in cases:
        compared = plain.group(table, by, lambda turns: turns["local_reward"] + plain.episode_return(turns))
        what = f"advantage with by={by}, once_per={once_per!r}, divide={divide}"
        yours = result_of(answer, compared, once_per, divide)
        same_advantages(yours, compared, what, once_per=once_per, scale=None if divide else "none")

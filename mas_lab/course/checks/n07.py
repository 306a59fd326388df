"""Exercises of notebook 07: a gain, a reward at which it is 1, own means that pay, a team of two sizes."""

from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.course.compare import close, need, result_of, same_names, same_rows, tables
from mas_lab.course.exercises import NotebookData, StudentCode, exercise
from mas_lab.explain.advice import advise
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded

NEAR = 0.03
"""Tolerance around 1 for a gain."""


@exercise(
    "07.1",
    "Each bracket is the part of the signal that is left: 1 - 1/n_k with the own mean, 1 - 1/N with the global one.",
    "Square the ratio of the two brackets, and divide by the signal.",
)
def gain(answer):
    for table in tables():
        for row in advise(group(table, "task", episode_return())).itertuples():
            if row.n_k > 1 and row.signal > 0 and row.N > 1:
                found = result_of(answer, float(row.n_k), float(row.N), float(row.signal))
                close(found, row.gain, f"n_k {row.n_k:.3f}, N {row.N:.3f}, signal {row.signal:.3f}", tolerance=1e-6)


@exercise(
    "07.2",
    "Change the `team_reward` of the helper's right answers, group by task, and look at the gain of `lab.advise`.",
    "A higher pay makes the offset and the gain smaller. Halve the interval until the gain is near 1.",
    "First drop credit, group, center, scale and advantage, because no cell overwrites a column.",
)
def pay_for_a_gain_of_one(turns: NotebookData, pay):
    need(0 < pay <= 1, f"the pay must be above 0 and at most 1; it is {pay:g}")
    helped = (turns["agent"] == "helper") & turns["success"]
    rows = turns.drop(columns=["credit", "group", "center", "scale", "advantage"], errors="ignore")
    paid = rows.assign(team_reward=rows["team_reward"].mask(helped, pay))
    found = advise(group(paid, "task", episode_return())).set_index("agent").loc["helper", "gain"]
    message = f"at a pay of {pay:.2f} the helper's gain is {found:.2f}"
    need(abs(found - 1) <= NEAR, message)
    return message


@exercise(
    "07.3",
    "A small `signal` raises the gain. An `n_k` near 1 lowers it, because there is nothing to compare.",
    "gain = ((1 - 1/n_k) / (1 - 1/N))^2 / signal, and it pays above 1.25. What is the gain at n_k = 1?",
)
def whose_own_mean_pays(answer):
    agents = Recorded(data_dir() / "results" / "studies" / "ladder").agents
    start = agents.query("task == '8 agents' and arm == 'global' and window == 'start' and seed == 2")
    pays = start[start["own"] == "pays"]
    same_names(answer, start["agent"].tolist(), pays["agent"].tolist(), "look at n_k, N and signal of {}".format)
    return f"gains of {', '.join(pays['gain'].map('{:.1f}'.format))}"


@exercise(
    "07.4",
    "First take the mean credit of the agent's rows per (task, agent, episode). Then take mean and deviation of these "
    "numbers per (task, agent).",
    "`std(ddof=0)` divides by n. Bring both back to the rows with `merge` or `map`, and keep the rows' index.",
    "The advantage is 0 if the (task, agent) has fewer than two episodes, or if their numbers are all equal.",
)
def own_by_episode(answer):
    for table in tables():
        compared = normalize(group(table, ("task", "agent"), episode_return(invalid=0.1)), once_per="episode")
        rows = compared[["task", "episode", "agent", "turn", "credit"]]
        same_rows(result_of(answer, rows), compared["advantage"], rows)


@exercise(
    "07.5",
    "Use `lab.Team({agent: policy, ...}, sampling={agent: lab.Sampling(...)}, frozen=(...))` with three agents.",
    "Two calls of `lab.load_policy` give two sets of weights; one policy under two names is one set.",
    '"math" is large, "math_small" is small. A policy has the learning rate: `lab.load_policy(name, lr=...)`.',
)
def team_of_two_sizes(team: StudentCode):
    need(set(team) == {"solver", "verifier", "fixer"}, f"the team has {', '.join(team)}, not solver, verifier, fixer")
    weights = {agent: sum(part.numel() for part in team[agent].model.parameters()) for agent in team}
    right = weights["verifier"] < weights["solver"] == weights["fixer"]
    need(right, f"solver and fixer must be large and the verifier small; your numbers of weights are {weights}")
    need(set(team.frozen) == {"solver", "verifier"}, f"only the fixer may learn; frozen is {', '.join(team.frozen)}")
    apart = team["fixer"] is not team["solver"]
    need(apart, "fixer and solver share weights, so the fixer's updates would change the solver")
    close(team["fixer"].lr / 1e-4, 1.0, "the fixer's learning rate, divided by 1e-4")
    fixer, verifier = team.sampling["fixer"], team.sampling["verifier"]
    right = (fixer.temperature, verifier.temperature, fixer.max_tokens) == (1.0, 0.5, 7)
    need(right, f"a temperature or max_tokens is wrong: fixer {fixer}, verifier {verifier}")
    return "but what `advise` says about its fixer depends on the batch: most of its rows are lone or flat"

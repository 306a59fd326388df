"""Exercises of notebook 07: a gain, a reward at which it is 1, own means that pay, a team of two sizes."""

from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.cells.normalization import normalize
from mas_lab.course.compare import asked, close, need, same_names, same_rows, tables
from mas_lab.course.exercises import exercise
from mas_lab.explain.advice import advise
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded

NEAR = 0.03
"""Tolerance around 1 for a gain."""


@exercise(
    "07.1",
    "Both brackets are the part of the signal that is left: 1 - 1/n_k under its own mean, 1 - 1/N under the global.",
    "The ratio of the two brackets is squared; the whole is divided by the signal.",
)
def gain(answer):
    for table in tables():
        for row in advise(group(table, "task", episode_return())).itertuples():
            if row.n_k > 1 and row.signal > 0 and row.N > 1:
                found = asked(answer, float(row.n_k), float(row.N), float(row.signal))
                close(found, row.gain, f"n_k {row.n_k:.3f}, N {row.N:.3f}, signal {row.signal:.3f}", tolerance=1e-6)


@exercise(
    "07.2",
    "Give the helper's right answers another `team_reward`, group by task, and ask `lab.advise`: above 1, or below?",
    "The more help pays, the smaller the offset, and the smaller the gain: halve the interval until it is near 1.",
    "Drop credit, group, center, scale and advantage first: no cell overwrites what an earlier one wrote.",
)
def pay_for_a_gain_of_one(turns, pay):
    need(0 < pay <= 1, f"paid_help takes a pay above 0 and at most 1, not {pay:g}")
    helped = (turns["agent"] == "helper") & turns["success"]
    rows = turns.drop(columns=["credit", "group", "center", "scale", "advantage"], errors="ignore")
    paid = rows.assign(team_reward=rows["team_reward"].mask(helped, pay))
    found = advise(group(paid, "task", episode_return())).set_index("agent").loc["helper", "gain"]
    told = f"at a pay of {pay:.2f} the helper's gain is {found:.2f}"
    need(abs(found - 1) <= NEAR, told)
    return told


@exercise(
    "07.3",
    "Two numbers work against each other: a small `signal`, and an `n_k` near 1, which leaves nothing to compare.",
    "gain = ((1 - 1/n_k) / (1 - 1/N))^2 / signal, and the verdict wants more than 1.25. What is it at n_k = 1?",
)
def whose_own_mean_pays(answer):
    agents = Recorded(data_dir() / "results" / "studies" / "ladder").agents
    start = agents.query("task == '8 agents' and arm == 'global' and window == 'start' and seed == 2")
    pays = start[start["own"] == "pays"]
    same_names(answer, start["agent"].tolist(), pays["agent"].tolist(), "look at n_k, N and signal of {}".format)
    return f"gains of {', '.join(pays['gain'].map('{:.1f}'.format))}"


@exercise(
    "07.4",
    "First one number per (task, agent, episode), the mean credit of the agent's rows there; then mean and deviation "
    "of these per (task, agent).",
    "`std(ddof=0)` divides by n. Bring both back to the rows with `merge` or `map`, and keep the rows' own index.",
    "Advantage 0 where the (task, agent) has fewer than two episodes, or all of them have one number.",
)
def own_by_episode(answer):
    for table in tables():
        wanted = normalize(group(table, ("task", "agent"), episode_return(invalid=0.1)), once_per="episode")
        given = wanted[["task", "episode", "agent", "turn", "credit"]]
        same_rows(asked(answer, given), wanted["advantage"], given)


@exercise(
    "07.5",
    "`lab.Team({agent: policy, ...}, sampling={agent: lab.Sampling(...)}, frozen=(...))`, for solver, verifier, fixer.",
    "Two calls of `lab.load_policy` give two sets of weights; one policy under two names is one set.",
    'Large is "math", small is "math_small"; the learning rate belongs to the policy: `lab.load_policy(name, lr=...)`.',
)
def team_of_two_sizes(team):
    need(set(team) == {"solver", "verifier", "fixer"}, f"the team has {', '.join(team)}, not solver, verifier, fixer")
    weights = {agent: sum(part.numel() for part in team[agent].model.parameters()) for agent in team}
    right = weights["verifier"] < weights["solver"] == weights["fixer"]
    need(right, f"solver and fixer are large, the verifier is small; these have weights {weights}")
    need(set(team.frozen) == {"solver", "verifier"}, f"only the fixer learns; frozen is {', '.join(team.frozen)}")
    apart = team["fixer"] is not team["solver"]
    need(apart, "the fixer speaks with the solver's weights: what it learns would move the solver")
    close(team["fixer"].lr / 1e-4, 1.0, "the fixer's learning rate, over the one asked for")
    fixer, verifier = team.sampling["fixer"], team.sampling["verifier"]
    right = (fixer.temperature, verifier.temperature, fixer.max_tokens) == (1.0, 0.5, 7)
    need(right, f"look at the temperatures and at max_tokens: {fixer}, {verifier}")
    return "and what `advise` says of its fixer hangs on the batch: most of its rows are alone, or among equals"

"""Exercises of notebook 07: F, a reward at which half is signal, a prediction by cosines, a team of two sizes."""

import pandas as pd

from mas_lab.cells.credits import episode_return
from mas_lab.cells.grouping import group
from mas_lab.course.compare import close, need, result_of, same_advantages, same_names, tables
from mas_lab.course.exercises import NotebookData, StudentCode, exercise
from mas_lab.explain.moments import inflation, pooled_inflation
from mas_lab.paths import data_dir


@exercise("07.1")
def inflation_factor(answer):
    for table in tables():
        for row in inflation(group(table, "task", episode_return())).dropna().itertuples():
            moments = [float(one) for one in (row.mu, row.sigma, row.mu_k, row.sigma_k)]
            what = "mu {:.3f}, sigma {:.3f}, mu_k {:.3f}, sigma_k {:.3f}".format(*moments)
            close(result_of(answer, *moments), row.F_k, what, tolerance=1e-6)


@exercise("07.2")
def pay_for_half_signal(turns: NotebookData, pay):
    need(0 < pay <= 1, f"the pay must be above 0 and at most 1; it is {pay:g}")
    helped = (turns["agent"] == "helper") & turns["success"]
    rows = turns.drop(columns=["credit", "group", "center", "scale", "advantage"], errors="ignore")
    paid = rows.assign(team_reward=rows["team_reward"].mask(helped, pay))
    by_agent = pooled_inflation(inflation(group(paid, "task", episode_return()))).set_index("agent")
    found = by_agent.loc["helper", "signal"]
    message = f"at a pay of {pay:.2f} the helper's signal is {found:.2f}"
    need(abs(found - 0.5) <= 0.02, message)
    return message


@exercise("07.3")
def who_learns_more(answer):
    told = pd.read_csv(data_dir() / "results" / "uphill" / "predictions.csv").query("team in [114, 127]")
    cosines = told.assign(agent=told["team"].astype(str) + " " + told["agent"])
    cosines = cosines.pivot(index="agent", columns="recipe", values="cos_own")
    apart = cosines["own_robust"] - cosines["grpo"]
    right = apart.index[apart >= 0.1].tolist()
    same_names(answer, apart.index.tolist(), right, "subtract the two cosines of {}".format)


@exercise("07.4")
def own_by_episode(answer):
    for table in tables():
        compared = group(table, ("task", "agent"), episode_return(invalid=0.1))
        yours = result_of(answer, compared[["task", "episode", "agent", "turn", "credit"]])
        same_advantages(yours, compared, once_per="episode")


@exercise("07.5")
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

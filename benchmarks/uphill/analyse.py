"""Compare what the cosines foretold with what came of it; teams are the units.

    python benchmarks/uphill/analyse.py

Prints tables and writes `data/results/uphill/{agents,ranks}.csv`. Everything here was fixed before the first training;
`README.md` says it in words. Leaves out: the trainings (`run`).
"""

from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from mas_lab.study.intervals import t_test
from mas_lab.study.record import Recorded, is_record

OUT = Path("data/results/uphill")
CONTRASTS = (("own_robust", "grpo"), ("dr_mas", "grpo"))
TESTED = "own_robust - grpo"
SPEAKS, FEWEST, DRAWS = 0.1, 10, 1000
PREDICTORS = ("cos_own", "cos_team", "gain", "early")


def of_team(number: int, told: pd.DataFrame, early: pd.DataFrame) -> pd.DataFrame:
    """Return a row per agent and contrast of one team: predictors and outcomes."""
    record = Recorded(OUT / str(number))
    end = record.agents.query("window == 'end'").pivot(index=["agent", "seed"], columns="arm", values="own_after")
    team = record.table.pivot(index="seed", columns="arm", values="final")
    first = early.pivot(index=["agent", "seed"], columns="arm", values="early")
    said, rows = told.pivot(index="agent", columns="recipe"), []
    for arm, base in CONTRASTS:
        for agent in said.index:
            if min(said.loc[agent, ("rows", arm)], said.loc[agent, ("rows", base)]) < FEWEST:
                continue
            own = (end.loc[agent, arm] - end.loc[agent, base]).dropna()
            short = first.loc[agent, arm] - first.loc[agent, base]
            rows.append({
                "team": number, "agent": agent, "contrast": f"{arm} - {base}", "own": own.mean(), "p": t_test(own)[0],
                "return": (team[arm] - team[base]).mean(), "gain": said.loc[agent, ("gain", arm)],
                "cos_own": said.loc[agent, ("cos_own", arm)] - said.loc[agent, ("cos_own", base)],
                "cos_team": said.loc[agent, ("cos_team", arm)] - said.loc[agent, ("cos_team", base)],
                "early": short[short.index < 3].mean(), "own_of_other_seeds": own[own.index >= 3].mean(),
            })  # fmt: skip
    return pd.DataFrame(rows)


def rank(x: np.ndarray, y: np.ndarray) -> float:
    known = np.isfinite(x) & np.isfinite(y)
    if known.sum() < 3 or not np.ptp(x[known]) or not np.ptp(y[known]):
        return np.nan
    return float(spearmanr(x[known], y[known]).statistic)


def over_teams(table: pd.DataFrame, number) -> tuple[float, float, float]:
    """Return a number of a table and its 95 % bootstrap interval, drawing whole teams."""
    parts, rng = [own for _, own in table.groupby("team")], np.random.default_rng(0)
    drawn = [number(pd.concat([parts[i] for i in rng.integers(len(parts), size=len(parts))])) for _ in range(DRAWS)]
    return number(table), *np.nanquantile(drawn, [0.025, 0.975])


def correlation(name: str, outcome: str):
    return lambda table: rank(table[name].to_numpy(), table[outcome].to_numpy())


def ranks(agents: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for contrast, table in agents.groupby("contrast", sort=False):
        for name in PREDICTORS:
            outcome = "own_of_other_seeds" if name == "early" else "own"
            found = {"contrast": contrast, "predictor": name, "agents": len(table)}
            found |= dict(zip(("rank", "low", "high"), over_teams(table, correlation(name, outcome)), strict=True))
            found["rank with the return"] = rank(*table.groupby("team")[[name, "return"]].mean().to_numpy().T)
            if name != "gain":
                apart = over_teams(table, lambda t, name=name, outcome=outcome: correlation(name, outcome)(t)
                                   - correlation("gain", "own")(t))  # fmt: skip
                found |= dict(zip(("above gain", "above_low", "above_high"), apart, strict=True))
            rows.append(found)
    return pd.DataFrame(rows)


def regrets(teams: list[int]) -> pd.DataFrame:
    """Return for each arm how far the team's return ends below the best arm, over teams with five seeds or more."""
    finals = {number: Recorded(OUT / str(number)).table for number in teams}
    finals = {number: own.pivot(index="seed", columns="arm", values="final").dropna() for number, own in finals.items()}
    means = pd.DataFrame({number: own.mean() for number, own in finals.items() if len(own) >= 5}).T
    below = -means.sub(means.max(axis=1), axis=0)
    return pd.DataFrame(
        {"teams": below.count(), "return": means.mean(), "mean regret": below.mean(), "largest": below.max()}
    )


def halfway() -> str:
    """Return what the cosines in the middle of a training foretold of its second half."""
    told = pd.read_csv(OUT / "halfway.csv")
    told = told[told["left_out"].isna()]
    by_seed = told.pivot(index=["team", "agent", "seed"], columns="recipe", values=["cos_own", "own", "rows"])
    enough = by_seed["rows"][["grpo", "own_robust"]].min(axis=1) >= FEWEST
    apart = pd.DataFrame({name: by_seed[name]["own_robust"] - by_seed[name]["grpo"] for name in ("cos_own", "own")})
    table = apart[enough].groupby(["team", "agent"]).mean().reset_index()
    found, low, high = over_teams(table, correlation("cos_own", "own"))
    return f"half-way, {TESTED}: rank correlation {found:.2f} ({low:.2f} to {high:.2f}), {len(table)} agents"


def signs(agents: pd.DataFrame) -> str:
    told = agents[(agents["contrast"] == TESTED) & (agents["cos_own"].abs() >= SPEAKS)]
    decided = told[told["p"] < 0.05]
    right = (np.sign(decided["cos_own"]) == np.sign(decided["own"])).sum()
    return f"{TESTED}: it speaks of {len(told)} agents, {len(decided)} are decided, {right} of them have the right sign"


def main() -> None:
    told = pd.read_csv(OUT / "predictions.csv")
    early = pd.read_csv(OUT / "early.csv")
    teams = [int(number) for number in told["team"].unique() if is_record(OUT / str(number))]
    agents = pd.concat([
        of_team(number, told[told["team"] == number], early[early["team"] == number]) for number in teams
    ])  # fmt: skip
    table = ranks(agents)
    agents.to_csv(OUT / "agents.csv", index=False, float_format="%.4g")
    table.to_csv(OUT / "ranks.csv", index=False, float_format="%.4g")
    print(table.round(2).to_string(index=False), signs(agents), sep="\n\n")
    print(regrets(teams).round(3).to_string())
    if (OUT / "halfway.csv").is_file():
        print(halfway())


if __name__ == "__main__":
    main()

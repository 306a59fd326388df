"""Compare what was foretold with what came of it; settings are the units.

    python benchmarks/foretold/analyse.py

Prints tables and writes `data/results/foretold/{agents,hits,returns}.csv`. All but `returns` was fixed before the first
training; `README.md` says it in words. Leaves out: the trainings (`run`).
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import rankdata

sys.path.insert(0, str(Path(__file__).parent))
from run import OUT, SETTINGS, env_of, slug

from mas_lab.study.intervals import t_test
from mas_lab.study.record import Recorded

MARGIN = 0.03
PAYS, COSTS, MOSTLY = 1.25, 0.8, 0.5
"""A ratio above the first says "pays", below the second "costs". Above this `peerless` most rows have no peer."""
CONTRASTS = {"dr_mas - grpo": ("dr_mas", "grpo"), "dr_mas - grpo_masked": ("dr_mas", "grpo_masked"),
             "own_robust - grpo": ("own_robust", "grpo"), "own_robust - dr_mas": ("own_robust", "dr_mas")}  # fmt: skip
TOLD = "dr_mas - grpo"
"""The contrast that is foretold."""
FEWEST = 10
"""Rows of an agent in a rollout, below which nothing is foretold."""
BOUNDS = {
    "progress": (PAYS, COSTS), "weighted_gain": (PAYS, COSTS), "gain": (PAYS, COSTS), "F": (PAYS, COSTS),
    "norm_ratio": (PAYS, COSTS), "signal": (1 / PAYS, None), "spoke": (0.5, None), "constant": (PAYS, COSTS),
}  # fmt: skip
"""Predictor -> where "pays" begins, where "costs" begins; `signal` and `spoke` say "pays" below their bound.
`constant` says "hardly matters" of everybody: a control."""


def said(predictor: str, value: float) -> str:
    """Return what a predictor foretells: pays, hardly matters, costs, or nothing."""
    pays, costs = BOUNDS[predictor]
    if np.isnan(value):
        return "untold"
    if costs is None:
        return "pays" if value < pays else "hardly matters"
    return "pays" if value > pays else "costs" if value < costs else "hardly matters"


def came(differences: np.ndarray) -> str:
    """Return better, worse, the same or not sure, from differences by seed."""
    if len(differences) < 3:
        return "not sure"
    _, low, high = t_test(differences)
    mean = float(np.mean(differences))
    if low > 0 and mean > MARGIN:
        return "better"
    if high < 0 and mean < -MARGIN:
        return "worse"
    _, low, high = t_test(differences, level=0.90)  # two one-sided tests of 5 %
    return "the same" if low > -MARGIN and high < MARGIN else "not sure"


RIGHT = {"pays": "better", "hardly matters": "the same", "costs": "worse"}


def verdict(told: str, outcome: str) -> str:
    """Return hit, miss or untold; an outcome that is not sure decides nothing."""
    if told == "untold" or outcome == "not sure":
        return "untold"
    return "hit" if RIGHT[told] == outcome else "miss"


def outcomes(name: str) -> pd.DataFrame:
    """Return a row per agent and seed of a setting, with the outcome under each arm."""
    record, team = Recorded(OUT / slug(name)), SETTINGS[name]["outcome"] == "team"
    agents = record.agents.query("window == 'end'")
    if team:
        best = env_of(name).max_return
        agents = agents.merge(record.table[["arm", "seed", "final"]], on=["arm", "seed"])
        agents = agents.assign(own_after=agents["final"] / best)
    return agents.pivot_table(index=["agent", "seed"], columns="arm", values="own_after").reset_index()


def of_setting(name: str) -> pd.DataFrame:
    """Return a row per agent: its predictors, the mean difference of each contrast, and what came of it."""
    looks = pd.read_csv(OUT / "predictions" / f"{slug(name)}.csv").assign(constant=1.0)
    known = looks.groupby("agent")[[*BOUNDS, "rows", "peerless", "sigma_ratio", "snr"]].median()
    known.loc[known["rows"] < FEWEST, list(BOUNDS)] = np.nan
    rows = []
    for agent, own in outcomes(name).groupby("agent"):
        told = {"setting": name, "agent": agent, **known.loc[agent]}
        for contrast, (one, other) in CONTRASTS.items():
            by_seed = (own[one] - own[other]).dropna().to_numpy()
            told |= {contrast: by_seed.mean() if len(by_seed) else np.nan, f"{contrast}, came": came(by_seed)}
        rows.append(told)
    return pd.DataFrame(rows)


def hits(agents: pd.DataFrame) -> pd.DataFrame:
    """Return a row per predictor: hits, misses and untold cases, and intervals over settings."""
    rows = []
    groups = {"all agents": agents, "with peers": agents[~(agents["peerless"] > MOSTLY)],
              "called on a condition": agents[agents["spoke"] < 1]}  # fmt: skip
    for which, chosen in groups.items():
        for predictor, (_, costs) in BOUNDS.items():
            told = [said(predictor, value) for value in chosen[predictor]]
            found = np.array(list(map(verdict, told, chosen[f"{TOLD}, came"])), dtype=object)
            counts = {word: int((found == word).sum()) for word in ("hit", "miss", "untold")}
            known = chosen[[predictor, TOLD]].notna().all(axis=1).to_numpy()
            x, y = chosen.loc[known, predictor] * (-1 if costs is None else 1), chosen.loc[known, TOLD]
            settings, decided = chosen["setting"].to_numpy(), found != "untold"
            share = over_settings(settings[decided], np.mean, (found == "hit")[decided])
            rank = over_settings(settings[known], _rank, x.to_numpy(), y.to_numpy())
            names = [f"{number}{end}" for number in ("share", "rank") for end in ("", "_low", "_high")]
            told = dict(zip(names, (*share, *rank), strict=True))
            rows.append({"agents": which, "predictor": predictor, **counts, **told})
    return pd.DataFrame(rows)


def over_settings(settings: np.ndarray, number, *columns: np.ndarray, samples: int = 1000) -> tuple[float, ...]:
    """Return a number of some columns, and its 95 % bootstrap interval, drawing whole settings."""
    if not len(settings):
        return np.nan, np.nan, np.nan
    parts, rng = [np.flatnonzero(settings == name) for name in np.unique(settings)], np.random.default_rng(0)
    drawn = []
    for _ in range(samples):
        places = np.concatenate([parts[i] for i in rng.integers(len(parts), size=len(parts))])
        drawn.append(number(*(column[places] for column in columns)))
    return float(number(*columns)), *np.nanquantile(drawn, [0.025, 0.975]).tolist()


def _rank(x: np.ndarray, y: np.ndarray) -> float:
    """Return the rank correlation; NaN if one of them does not vary."""
    if min(len(np.unique(x)), len(np.unique(y))) < 2:
        return np.nan
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def of_return(name: str) -> dict[str, object]:
    """Return the team's mean return at the end under each arm, which all arms train, and what came of pairs."""
    curves = Recorded(OUT / slug(name)).curves.sort_values("step")
    last = curves.groupby(["arm", "seed"])["return"].last().unstack("arm")
    pairs = {"dr_mas - grpo": ("dr_mas", "grpo"), "own_pooled - own_robust": ("own_pooled", "own_robust"),
             "own_pooled - grpo": ("own_pooled", "grpo")}  # fmt: skip
    told = {pair: came((last[one] - last[other]).to_numpy()) for pair, (one, other) in pairs.items()}
    return {"setting": name, **last.mean(), "best": last.mean().max(), **told}


def main() -> None:
    names = [name for name in SETTINGS if (OUT / slug(name) / "runs.csv").is_file()]
    if not names:
        raise SystemExit(f"{OUT} holds no record yet; run.py makes them")
    agents = pd.concat([of_setting(name) for name in names], ignore_index=True)
    table = hits(agents)
    returns = pd.DataFrame(map(of_return, names))
    for name, part in (("agents", agents), ("hits", table), ("returns", returns)):
        part.to_csv(OUT / f"{name}.csv", index=False, float_format="%.5g")
    print(agents.round(2).to_string(index=False), table.round(2).to_string(index=False), sep="\n\n")
    print(returns.round(3).to_string(index=False))
    for contrast in CONTRASTS:
        print(f"{contrast}: {agents.groupby(f'{contrast}, came')['setting'].count().to_dict()} agents")


if __name__ == "__main__":
    main()

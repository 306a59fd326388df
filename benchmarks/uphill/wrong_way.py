"""Ask afterwards whether the share of advantage that goes the wrong way foretells as well as the cosine does.

    MAS_LAB_THREADS=1 python benchmarks/uphill/wrong_way.py

The predictor is `wrong_way` under `grpo` minus that under the other recipe, over three rollouts of the untrained team.
It needs no gradient. It was picked after the outcomes were known, so it is a lead and no test. Writes
`data/results/uphill/wrong_way.csv`.
"""

import pandas as pd
from analyse import OUT, correlation, over_teams
from run import RECIPES, TASKS, Drawn, team_of

import mas_lab as lab

LOOKS, APART = 3, 0.2
MEASURES = ("wrong_way", "reinforced")


def looked_at(number: int) -> pd.DataFrame:
    """Return for each agent of a team both measures under each recipe, averaged over the rollouts."""
    env = Drawn(number=number)
    team, played = team_of(env), []
    for look in range(LOOKS):
        tasks = env.tasks(TASKS, "train", 1000 + look)
        played.append(lab.rollout(env, team, tasks, lab.episodes(8), seed=1000 + look, step=look))
    found = lab.wrong_way(pd.concat(played, ignore_index=True), RECIPES)
    found = found.groupby(["agent", "recipe"])[list(MEASURES)].mean().unstack()
    found.columns = [f"{measure} {recipe}" for measure, recipe in found.columns]
    return found.reset_index().assign(team=number)


def main() -> None:
    agents = pd.read_csv(OUT / "agents.csv")
    looks = pd.concat([looked_at(int(number)) for number in agents["team"].unique()])
    looks.to_csv(OUT / "wrong_way.csv", index=False, float_format="%.4g")
    for contrast, own in agents.merge(looks, on=["team", "agent"]).groupby("contrast", sort=False):
        arm, base = contrast.split(" - ")
        for measure in MEASURES:
            table = own.assign(predictor=own[f"{measure} {base}"] - own[f"{measure} {arm}"])
            rank, low, high = over_teams(table, correlation("predictor", "own"))
            high_ones = table["predictor"] > APART
            means = [table.loc[which, "own"].mean() for which in (high_ones, ~high_ones)]
            with_cosine = correlation("predictor", "cos_own")(table)
            print(
                f"{contrast}, {measure}: rank {rank:.2f} ({low:.2f} to {high:.2f}), with cos_own {with_cosine:.2f}; "
                f"{high_ones.sum()} agents above {APART} gain {means[0]:+.3f}, the others {means[1]:+.3f}"
            )


if __name__ == "__main__":
    main()

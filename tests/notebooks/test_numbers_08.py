"""What notebook 08 says of recorded runs stands in the records, and what it says of rewards the code pays."""

import re

import pandas as pd
import pytest

import mas_lab as lab
from mas_lab.paths import data_dir, notebooks_dir
from mas_lab.study.record import Recorded
from mas_lab.tasks.shared.pair_code import LEVELS
from mas_lab.tasks.shared.pair_reward import BEST
from mas_lab.tasks.tldr import POCKET

TEXT = (notebooks_dir() / "08_magrpo.ipynb").read_text(encoding="utf-8").replace("\\\\", "\\")
RESULTS = data_dir() / "results"
TOLD = {
    "joint": "2.10", "own format alone": "1.33", "joint and own format": "2.22", "crossed": "2.35", "one agent": "2.35"
}  # fmt: skip
"""Final returns on `tldr` as the text has them."""


def listed(numbers) -> str:
    """`0.79, 0.80 and 0.80`."""
    *first, last = (f"{number:.2f}" for number in numbers)
    return f"{', '.join(first)} and {last}"


def curves(task):
    return pd.read_csv(RESULTS / task / "curves.csv").set_index(["step", "seed"])["return"]


@pytest.fixture(scope="module")
def studies():
    return {name: lab.AblationBoard(RESULTS / "studies" / name) for name in ("magrpo", "siblings")}


def row(board, env, arm):
    return board.table[(board.table["env"] == env) & (board.table["recipe"] == arm)].iloc[0]


def seeds(board, env, arm):
    return board.runs[(board.runs["env"] == env) & (board.runs["recipe"] == arm)]["final"]


def test_the_writers_curve_is_the_recorded_one():
    share = curves("tldr") / BEST
    assert share[0].mean() == pytest.approx(0.30, abs=0.005) and "starts near 0.30" in TEXT
    assert f"{share[10].min():.2f} to {share[10].max():.2f} after 10 steps" in TEXT
    assert f"at {listed(share[40])} after 40" in TEXT and f"at {listed(share[80])} (`data/results/tldr`)" in TEXT


def test_the_coders_curve_is_the_recorded_one():
    worth = curves("code_pair")
    assert worth[0].mean() == pytest.approx(1.9, abs=0.05) and "from about 1.9 of 4" in TEXT
    assert f"had {listed(sorted(worth[10]))} after ten steps" in TEXT and f"and {listed(worth[40])} after forty" in TEXT
    two, one = (curves(task).groupby("step").mean() for task in ("code_pair_reviewed", "code_pair"))
    assert two[0] < one[0] and two.max() < one.max(), "a second turn starts lower and stays behind"


def test_what_is_said_of_the_study_of_magrpo(studies):
    board = studies["magrpo"]
    finals = {arm: f"{row(board, 'tldr', arm)['final']:.2f}" for arm in board.runs["recipe"].unique() if arm in TOLD}
    assert finals == TOLD
    assert "a writer ends at 1.33; by the joint reward at 2.10; by both at 2.22" in TEXT
    assert "*one* agent that writes both texts ends at 2.35" in TEXT and "0.90 before training" in TEXT
    crossed = board.differences.query("env == 'tldr' and recipe == 'crossed'").iloc[0]
    low, high = f"{crossed['final_low']:.2f}".replace("-", "−"), f"{crossed['final_high']:.2f}"
    assert f"a difference of +{crossed['final']:.2f} ({low} to +{high})" in TEXT
    for arm, told in (("joint", "{} at one turn"), ("two turns", "{} over two")):
        assert told.format(listed(seeds(board, "arxiv_intro", arm))) in TEXT
    coded = {"together": "joint", "concatenated": "one helps the other", "single_agent=True": "one agent"}
    for name, arm in coded.items():
        three = ", ".join(f"{one:.2f}" for one in seeds(board, "code_pair", arm))
        assert re.search(rf"{name}.*\| {three} \|", TEXT)
    arms = ("joint", "one agent", coded["concatenated"])
    joint, alone, apart = (seeds(board, "code_pair", arm).to_numpy() for arm in arms)
    assert (joint > alone).all() and (joint > apart).all()


def test_what_is_said_of_its_siblings(studies):
    board = studies["siblings"]
    assert f"`magrpo` ends at {row(board, 'tldr', 'magrpo')['final']:.2f}" in TEXT and "it ended at 2.23 on" in TEXT
    pairs = board.pairs.set_index(["recipe", "seed"])["final"]
    assert (pairs["marloo"] == 0).sum() == 2 and "in two of the five seeds to the last digit" in TEXT
    lower = {arm: -board.differences.set_index("recipe").loc[arm, "final"] for arm in ("maremax", "mareinforce")}
    assert (
        "`maremax` ends {maremax:.2f} lower and `mareinforce` {mareinforce:.2f}, in every seed".format(**lower) in TEXT
    )
    assert all((pairs[arm] < 0).all() for arm in lower)
    rates = pd.read_csv(RESULTS / "studies" / "siblings" / "rates.csv").query("arm == 'mareinforce'")
    assert rates.loc[rates["chosen"], "lr"].item() == rates["lr"].min()
    assert rates.loc[rates["lr"].idxmax(), "mean"] < 0.90, "at the highest it fell below where it had begun"
    norms = Recorded(RESULTS / "studies" / "siblings").agents.query("window == 'start' and phase == 'compare'")
    median = norms.groupby(["arm", "agent"])["median_norm"].mean()
    assert (median["mareinforce"] / median["magrpo"]).between(4, 5.5).all()
    joint = Recorded(RESULTS / "studies" / "magrpo").rates.query("task == 'tldr' and arm == 'joint' and chosen")
    assert joint["lr"].item() == 0.003


def test_the_reward_rules_are_those_of_the_tasks():
    ramps = [f"\\\\rho;\\\\, {POCKET.ratio[0]}", f"u;\\\\, {POCKET.unique[0]},\\\\, {POCKET.unique[1]}"]
    assert all(ramp.replace("\\\\", "\\") in TEXT for ramp in ramps)
    assert (POCKET.least, POCKET.most, POCKET.overlap) == (4, 32, 0.2) and "both have 4 to 32 words" in TEXT
    assert POCKET.ratio == (1.1, 1.6, 3.2, 5.0) and (POCKET.precise, POCKET.dense) == (1.0, 0.4)
    assert list(LEVELS.values()) == [0.4, 0.6, 0.5, 1.0, 0.5, 1.0]


@pytest.mark.parametrize("mode, branches", [("aligned", 2), ("cross", 4)])
def test_the_count_of_exercise_3_is_what_a_rollout_samples(mode, branches):
    env = lab.make_env("arxiv_intro", max_turns=2)
    team = lab.Team.shared(lab.load_policy(env.pocket), env.agents)
    turns = lab.rollout(env, team, env.tasks(1, "train", 0), lab.joint(2, mode=mode))
    assert len(turns) == 2 * 2 * (1 + branches)

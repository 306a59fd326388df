"""What the notebooks say of recorded runs stands in the records; what they ask to be counted is what plans do."""

import ast
import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import yaml
from notebooks.records import (
    MASTERS,
    RESULTS,
    TEXTS,
    agents,
    between,
    board,
    csv,
    difference,
    finals,
    listed,
    runs,
    says,
    study,
)  # fmt: skip
from scripted import Duet, Ladder, Scripted

import mas_lab as lab
from mas_lab import plain
from mas_lab.course import games
from mas_lab.course.checks import n01
from mas_lab.study.intervals import bootstrap_interval, iqm, probability_of_improvement
from mas_lab.tasks.shared.pair_reward import BEST
from mas_lab.tasks.tldr import POCKET

ROOT = Path(__file__).resolve().parents[2]
CREDIT = (RESULTS / "studies" / "credit" / "README.md").read_text(encoding="utf-8")
ARMS = ["global", "own"]


def test_each_takes_as_long_as_it_says():
    """The recorded processor time is at most a quarter longer than promised, and not below two fifths of it."""
    spent = json.loads((ROOT / "data" / "results" / "benchmark_notebooks.json").read_text(encoding="utf-8"))
    minutes = {"a few seconds": 0.2, "half a minute": 0.5} | {f"{n} minute{'s' * (n > 1)}": n for n in range(1, 10)}
    for name, text in ((path.stem, TEXTS[number]) for number, path in MASTERS.items()):
        told = re.search(r"Compute: (?:about |\d to )?([\w ]+? (?:minutes?|seconds))", text)[1]
        assert 0.4 * minutes[told] < spent[name]["processor"] / 60 < 1.25 * minutes[told], name


def test_00_the_recorded_curves_start_and_end_as_told():
    at = csv("quickstart/curves.csv").query("recipe == 'at_grpo'").pivot(index="seed", columns="step", values="success")
    says("00", "from {:.2f} to {:.2f}, {:.2f} and {:.2f}", at[0].mean(), *at[20])


def test_01_costs_and_picks_are_as_told():
    table = csv("plans/cost.csv").set_index(["max_turns", "plan"])
    cost = table.div(table["episodes"], axis=0).drop(columns="episodes")
    plain, tree, followed = (cost.loc[4, plan] for plan in ("episodes(8)", "tree(8)", "tree(8, follow=1)"))
    tokens = plain["sampled_tokens"], tree["sampled_tokens"]
    says("01", "samples {:.0f} tokens and a tree of eight {:.0f}:", *tokens)
    assert round(tokens[1] / tokens[0]) == 4 and round(plain["calls"]) == 7 and tree["calls"] / 8 < 4
    says("01", "{:.0f} calls are less than four decisions", tree["calls"])
    read = tree["distinct_prompt_tokens"], plain["distinct_prompt_tokens"]
    says("01", "for an episode ({:.0f}) than a plain one does ({:.0f})", *read)
    says("01", "needs: {:.0f} sampled tokens", followed["sampled_tokens"])
    joint = cost.loc[1, "joint(4)"]["calls"], cost.loc[1, "tree(4)"]["calls"]
    says("01", "`joint(4)` takes {:.0f} calls, 4 + 16; a tree takes {:.0f}", *joint)
    picks = csv("plans/picks.csv").set_index(["pick", "k", "seed"])["success"]
    first, best = picks["first"].unstack("k"), picks["reward"].unstack("k")
    assert (first.nunique(axis=1) == 1).all(), "the candidate that is drawn first is the same for every K"
    says("01", "Drawn first: {:.2f} for every K", first.loc[0, 8])
    says("01", "Earned most: {}.", listed(best.loc[0, [2, 4, 8]]))
    alone, surest = picks["alone"], picks["surest"].unstack("k")[8]
    says("01", "Over five seeds, {:.2f} to {:.2f} at K = 8, where the team alone solves {:.2f} to {:.2f}",
         best[8].min(), best[8].max(), alone.min(), alone.max())  # fmt: skip
    says("01", "{:.2f} for eight whole episodes", picks["pass@8", 8, 0])
    says("01", "arrives in {:.2f} to {:.2f} of the mazes (five seeds)", surest.min(), surest.max())


def test_01_the_calls_to_be_counted_are_those_that_are_made():
    turns, together = Ladder(("a", "b", "c"), max_turns=2), Duet(("a", "b", "c"), max_turns=1)
    plans = (turns, lab.episodes(8)), (turns, lab.tree(8)), (turns, lab.joint(2)), (together, lab.joint(8))
    for (env, plan), ours in zip(plans, n01.COUNTS, strict=True):
        team = lab.Team.shared(Scripted(lambda prompt, nth, seed: "1"), env.agents)
        assert len(lab.rollout(env, team, env.tasks(1, "train", 0), plan)) == ours


def test_the_lines_of_plain_are_as_told():
    source = Path(plain.__file__).read_text(encoding="utf-8")
    lines = len(source.splitlines())
    says("01", "in one file of {} lines", lines)
    says("02", "in one file of {} lines", lines)
    assert f"the whole method in {lines} lines" in (ROOT / "README.md").read_text(encoding="utf-8")
    [cell] = [one for one in ast.parse(source).body if getattr(one, "name", "") == "normalize"]
    assert len(cell.body) == 8  # the docstring and seven statements of a line each; `def` is the eighth line
    says("03", "has eight lines for cell 3")


def grouping(name):
    return pd.read_csv(RESULTS / "grouping" / f"{name}.csv", keep_default_na=False)


def test_02_groups_are_as_told():
    stats = lab.group_stats(lab.group(grouping("fixer"), ("task", "agent"), lab.episode_return()))
    own = dict(list(stats.groupby("agent")))
    assert set(own["solver"]["size"]) == {8} and own["verifier"]["size"].max() > 8
    fixer = own["fixer"]
    says("02", "called in {} of the turns, on five of the six problems", fixer["size"].sum())
    failed = fixer[fixer["flat"] & ~fixer["lone"]]
    assert (len(fixer), fixer["lone"].sum(), failed["mean"].tolist()) == (5, 2, [0])
    says("02", "Two groups with {} rows", fixer.loc[~fixer["flat"], "size"].sum())
    left = grouping("tree").drop(index=5).reset_index(drop=True)
    columns = lab.normalize(lab.group(left, ("episode", "agent", "turn"), lab.mixed()))
    place = columns.drop(columns=["center", "scale", "advantage"]).assign(group=[row // 4 for row in range(len(left))])
    place = lab.normalize(place)
    says("02", "*Explain.* {} of {}.", ((place["advantage"] - columns["advantage"]).abs() > 1e-6).sum(), len(left))
    both = [table.loc[[8, 10], "advantage"].round(2).unique().tolist() for table in (columns, place)]
    assert both == [[0.58], [-0.06]]
    says("02", "go from +0.58 to −0.06")
    whole = grouping("whole").query("turn == 0")
    lab.group(whole[whole["agent"] == "planner"], ("task", "agent", "turn"), lab.mixed(), same_prompt=True)
    with pytest.raises(lab.TableError, match="answer different prompts"):
        lab.group(whole[whole["agent"] == "executor"], ("task", "agent", "turn"), lab.mixed(), same_prompt=True)
    turns = grouping("tree").groupby("prompt")["turn"].nunique()
    assert (turns == 2).sum() == 1 and turns.idxmax().endswith("planner")
    ends = dict(re.findall(r"\| (return, global|counterfactual) \| [^|]+ \| ([\d.]+) \(.+?\), 10 seeds", CREDIT))
    says("02", "ended at {} with it and at {} with the plain return", ends["counterfactual"], ends["return, global"])


def test_03_trainings_are_as_told():
    curves = csv("whose_mean/curves.csv")
    final = {key: own["success"] for key, own in curves[curves["step"] == 30].groupby(["setting", "recipe"])}
    (own, other), (same, paid), (high, low), two = (
        (final[setting, "dr_mas"], final[setting, "grpo"])
        for setting in ("paid_help, pay 0.2", "paid_help, pay 1.0", "ladder of 8", "ladder of 2")
    )
    says("03", "At a pay of 0.2, `grpo` ends {} and `dr_mas` {}.", between(other), between(own))
    says("03", "At 1.0, `grpo` ends {} and `dr_mas` {}.", between(paid), between(same))
    says("03", "It is not {:.2f}: a lower rate", own.mean() - other.mean())
    says("03", "Two agents end {} under either.", between(pd.concat(two)))
    says("03", "Eight end {} under `dr_mas`, {} under `grpo`", between(high), between(low))
    played = csv("whose_mean/agents.csv").set_index(["setting", "recipe", "seed", "agent"])
    tall = played["largest_norm"].groupby(["setting", "recipe", "seed"]).max()
    own, other = tall["ladder of 8", "dr_mas"], tall["ladder of 8", "grpo"]
    told = "The largest norm of a run is {:.1f} to {:.1f} under `dr_mas`, {:.0f} to {:.0f} under `grpo`"
    says("03", told, own.min(), own.max(), other.min(), other.max())
    start = played.xs("helper", level="agent").groupby(["setting", "recipe"])["right_before"].median()
    assert set(start.round(2)) == {0.44}
    says("03", "It starts at 0.44")
    halves = csv("whose_mean/halves.csv")
    cosine = halves.pivot_table(index="pay", columns="recipe", values="cosine")
    says("03", "rises from {:.2f} at a pay of 0.1 to {:.2f} at 1.0", cosine["grpo"][0.1], cosine["grpo"][1.0])
    says("03", "it is {:.2f} whatever the pay", cosine["dr_mas"].mean())


@pytest.mark.slow
def test_03_studies_are_as_told():
    row = difference("paid_help", "pay 0.2", "own")
    says("03", "loses {final:.2f} at a pay of 0.2 (95 % interval {final_low:.2f} to {final_high:.2f}", **row)
    shared = [", ".join(f"{x:.2f}" for x in runs("ladder", "8 agents, one set of weights", arm)[:2]) for arm in ARMS]
    last = [runs("ladder", "8 agents, one set of weights", arm)[2] for arm in ARMS]
    says("03", "three seeds: {} and {:.2f}, own {} and {:.2f}", shared[0], last[0], shared[1], last[1])
    ends = finals("baselines", "ladder of 8")
    says("03", "`grpo` ends at {grpo:.2f}, `grpo_masked` at {grpo_masked:.2f}, `dr_mas` at {dr_mas:.2f}.", **ends)
    masked, both = (difference("baselines", "ladder of 8", arm) for arm in ("grpo_masked", "dr_mas"))
    says("03", "gains {final:+.2f} (95 % interval {final_low:+.2f} to {final_high:+.2f})", **masked)
    says("03", "together {final:+.2f} ({final_low:+.2f} to {final_high:+.2f}).", **both)
    gain = {arm: difference("baselines", "ladder of 8", arm)["final"]
            for arm in ("own scale", "own scale, lent", "own mean", "own_pooled")}  # fmt: skip
    says("03", "The own scale gains {:+.2f}", gain["own scale"])
    says("03", "and {:+.2f} is left", gain["own scale, lent"])
    says("03", "own mean {:+.2f}, `own_pooled` {:+.2f}", gain["own mean"], gain["own_pooled"])
    helper = agents("baselines").query("task == 'stakes' and agent == 'helper' and window == 'end'")
    after, before = helper.groupby("arm")["quiz_after"].mean(), helper["quiz_before"].mean()
    says("03", "it *falls*, from {:.2f} to {:.2f}.", before, after["dr_mas"])
    says("03", "`grpo` comes to {:.2f}", after["grpo"])
    says("03", "with the task's scale to {:.2f}, and `own_pooled`", after["own mean"])
    says("03", "with one scale, to {:.2f}.", after["own_pooled"])


def test_04_recorded_trainings_are_as_told():
    math = csv("math/results.csv")
    before, after = (", ".join(f"{one:.2f}" for one in math[name]) for name in ("success_before", "success"))
    says("04", "three recorded seeds: {} before, {} after", before, after)


def test_06_studies_are_as_told():
    maze = finals("at_grpo", "maze")
    says("06", "takes {:.2f} to {:.2f}: that is 0.16 of the 0.19", maze["team return"], maze["own reward"])
    gain = maze - maze["team return"]
    assert (round(gain["own reward"], 2), round(gain["tree"], 2)) == (0.16, 0.19)
    says("06", "adds nothing to it: {:.2f}", maze["by agent and turn"])
    says("06", "takes it to {:.2f}", maze["tree"])
    says("06", "it keeps less than half: {:.2f}", maze["tree, outcome only"])
    says("06", "K = 2, 4 and 16 end at {}", listed(finals("at_grpo", f"maze, K = {k}")["tree"] for k in (2, 4, 16)))
    ends = board("follow").table.set_index("recipe")["final"]
    says("06", "falls back to {:.2f}", ends["the first moves on"])
    [row] = board("follow").differences.to_dict("records")
    assert row["lower"] == 9
    says("06", "by {:.2f} (95 % interval {:.2f} to {:.2f})", -row["final"], -row["final_high"], -row["final_low"])
    steps = study("follow").table.groupby("arm")["optimizer_steps"].mean()
    told = "makes {:.0f} optimizer steps where the other makes {:.0f}"
    says("06", told, steps["the best moves on"], steps["the first moves on"])
    says("06", "with shared weights: {:.2f}, {:.2f}, {:.2f}", *csv("plan_path/results.csv")["success"])
    says("06", "about the same ({:.2f}, {:.2f}, {:.2f})", *runs("at_grpo", "maze, weights of their own", "tree"))
    roles = csv("roles/results.csv").query("team == 'together'").groupby("swapped")["success"].agg(["min", "max"])
    says("06", "{:.2f} to {:.2f} in their roles", *roles.loc[False])
    says("06", "{:.2f} to {:.2f} in each other's", *roles.loc[True])
    sokoban = board("sokoban").runs
    tree, rest = (sokoban.loc[(sokoban["recipe"] == "tree") == is_tree, "final"] for is_tree in (True, False))
    says("06", "{:.2f} to {:.2f}, where the three others lie {}", tree.min(), tree.max(), between(rest))
    curves = csv("sokoban/curves.csv")
    start = curves.query("step == 0")["success"].mean()
    says("06", "starts at {:.2f} and takes {} steps", start, curves["step"].max())


def tried(arm, lr):
    """Success at the end and at the start of the sweep's three seeds."""
    own = study("paid_help").table.query("phase == 'sweep' and task == 'pay 0.2' and arm == @arm and lr == @lr")
    assert len(own) == 3
    return own.sort_values("seed")["final"], own.sort_values("seed")["start"]


def test_07_studies_are_as_told():
    (ends, starts), (own, _), (high, before) = tried("global", 3e-4), tried("own", 3e-4), tried("global", 1e-3)
    told = "At the rate of notebook 03, 3e-4, the global baseline ended at {}, and the own one at {}"
    says("07", told, listed(ends), listed(own))
    says("07", "before training they were at {:.2f} to {:.2f}", starts.min(), starts.max())
    assert (high < before).all() and (high - 0.5).abs().max() < 0.01
    says("07", "At 1e-3 the global baseline ended at 0.50 in all three")
    ends, row = finals("paid_help", "pay 0.2"), difference("paid_help", "pay 0.2", "own")
    says("07", "ended at {:.2f} over ten seeds, and the own one at {:.2f}", ends["global"], ends["own"])
    says("07", "seed by seed is +{final:.2f} (95 % interval {final_low:.2f} to {final_high:.2f})", **row)
    assert row["higher"] == 10
    higher = board("paid_help").differences.query("recipe == 'own'").set_index("env")["final"]
    says("07", "ends higher by {:.2f} at pay 0.2, and by {:.2f}, {:.2f} and {:.2f} at 0.4, 0.6 and 0.8",
         *higher[[f"pay {pay}" for pay in (0.2, 0.4, 0.6, 0.8)]])  # fmt: skip
    helper = agents("paid_help").query("agent == 'helper' and window == 'start' and arm == 'global'")
    signal = helper.groupby("task")["signal"].median()
    says("07", "At 0.4 only {:.2f} of the helper's squared advantages is signal", signal["pay 0.4"])
    assert set(finals("search", "search").round(2)) == {0.96}
    says("07", "all four end at 0.96")
    for folder in ("search", "search_grpo"):
        calls = csv(f"{folder}/calls.csv").query("agent == 'searcher'").groupby("step")["calls"].mean()
        says("07", "from {:.1f} searches per episode to {:.1f}", calls[1], calls[50])
    ends = finals("sizes", "math")
    says("07", "({:.2f} against {:.2f})", ends["small verifier"], ends["both large"])
    tall = agents("ladder").query("task == '8 agents'")
    start = tall.query("agent == 'stage_5' and window == 'start' and arm == 'global'")["signal"].median()
    says("07", "begins at `stage_5`, where the signal is {:.2f}", start)


def test_07_tests_of_the_predictors_are_as_told():
    ranks = csv("uphill/ranks.csv").query("contrast == 'own_robust - grpo'").set_index("predictor")
    assert (ranks["agents"] == 153).all()
    says("07", "correlation of {rank:.2f} (95 % interval {low:.2f} to {high:.2f})", **ranks.loc["cos_own"])
    first = csv("foretold/hits.csv").query("agents == 'all agents' and predictor == 'gain'").iloc[0]
    ends = [ranks.loc["gain", name] for name in ("rank", "low", "high")]
    ends += [first[name] for name in ("rank", "rank_low", "rank_high")]
    told = "failed twice: {:+.2f} ({:+.2f} to {:+.2f}) in this test, {:+.2f} ({:+.2f} to {:+.2f}) in an earlier one"
    says("07", told.format(*ends).replace("-", "−"))
    changed = csv("uphill/agents.csv").query("contrast == 'own_robust - grpo'")
    spoken = changed[changed["cos_own"].abs() >= 0.1]
    says("07", "{} of {} signs are right", (spoken["cos_own"] * spoken["own"] > 0).sum(), len(spoken))
    sure = spoken[spoken["p"] < 0.05]
    assert sure["team"].nunique() == 6
    says("07", "Only {} of these differences are sure over six seeds, and they come from six teams", len(sure))


def test_08_trainings_and_studies_are_as_told():
    share, worth = (csv(f"{task}/curves.csv").set_index(["step", "seed"])["return"] for task in ("tldr", "code_pair"))
    share = share / BEST
    assert share[0].mean() == pytest.approx(0.30, abs=0.005) and worth[0].mean() == pytest.approx(1.9, abs=0.05)
    says("08", "{:.2f} to {:.2f} after 10 steps", share[10].min(), share[10].max())
    says("08", "and {} after 40", listed(share[40]))
    says("08", "they reached {} (`data/results/tldr`)", listed(share[80]))
    says("08", "had {} after ten steps", listed(sorted(worth[10])))
    says("08", "and {} after forty", listed(worth[40]))
    ends = finals("magrpo", "tldr")
    told = "their own length end at {:.2f}. With the joint reward they end at {:.2f}, and with both at {:.2f}"
    says("08", told, ends["own format alone"], ends["joint"], ends["joint and own format"])
    says("08", "*one* agent that writes both texts ends at {:.2f}", ends["one agent"])
    crossed = difference("magrpo", "tldr", "crossed")
    low = f"{crossed['final_low']:.2f}".replace("-", "−")
    says("08", "difference of +{:.2f} ({} to +{:.2f})", crossed["final"], low, crossed["final_high"])
    says("08", "{} with one turn", listed(runs("magrpo", "arxiv_intro", "joint")))
    says("08", "{} with two", listed(runs("magrpo", "arxiv_intro", "two turns")))
    coded = {"together": "joint", "concatenated": "one helps the other", "single_agent=True": "one agent"}
    three = {name: runs("magrpo", "code_pair", arm) for name, arm in coded.items()}
    for name, own in three.items():
        assert re.search(rf"{name}.*\| {', '.join(f'{one:.2f}' for one in own)} \|", TEXTS["08"])
    assert np.greater(three["together"], three["concatenated"]).all()
    assert np.greater(three["together"], three["single_agent=True"]).all()
    says("08", "`magrpo` ends at {:.2f}", finals("siblings", "tldr")["magrpo"])
    pairs = board("siblings").pairs.set_index(["recipe", "seed"])["final"]
    assert (pairs["marloo"] == 0).sum() == 2
    lower = [-difference("siblings", "tldr", arm)["final"] for arm in ("maremax", "mareinforce")]
    says("08", "`maremax` ends {:.2f} lower and `mareinforce` {:.2f} lower, in every seed", *lower)
    assert (pairs[["maremax", "mareinforce"]] < 0).all()
    says("08", "\\rho;\\, {}", str(POCKET.ratio[0]))
    says("08", "u;\\, {},\\, {}", *POCKET.unique)
    says("08", "both have {} to {} words", POCKET.least, POCKET.most)


def test_09_the_curves_are_as_told():
    success = csv("own_team/curves.csv").set_index(["recipe", "step"])["success"]
    says("09", "starts at {:.2f}", success["grpo", 0].mean())
    said = (listed(success["grpo", step]) for step in (10, 40))
    says("09", "reached {} after 10 steps, and {} after 40", *said)
    says("09", "With an entropy bonus of 0.02 the seeds ended at {}", listed(success["grpo, entropy 0.02", 40]))
    says("09", "`mine` ended at {}", listed(success["mine", 40]))
    by_hand = csv("own_team/by_hand.csv").set_index("play")["success"]
    says("09", "about {:.1f}.", by_hand["accept or draw"])
    says("09", "to about {:.2f}", by_hand["accept or new"])


def test_10_four_bits_cost_as_told():
    success = csv("four_bits.csv").groupby("base")["success"]
    told = "{:.2f} to {:.2f} in float32 and {:.2f} to {:.2f} in 4 bits"
    says("10", told, *(end for base in ("float32", "4 bits") for end in success.agg(["min", "max"]).loc[base]))


def compared(name, task, arms, **asked):
    curves = study(name).curves.query("task == @task and arm in @arms").rename(columns={"task": "env", "arm": "recipe"})
    return lab.AblationBoard(curves, **{"over": study(name).held_equal, **asked})


def after(name, task):
    """Success after the last step: a column per arm, a row per seed."""
    own = study(name).table.query("task == @task and phase == 'compare'")
    return own.pivot(index="seed", columns="arm", values="final")


def row_of(name):
    return [float(one) for one in re.search(rf"^# \| {name} \| (.*) \|$", TEXTS["12"], flags=re.M)[1].split(" | ")]


def test_12_seeds_and_intervals_are_as_told():
    five = after("ladder", "8 agents").loc[range(5)]
    own, other = (np.array(row_of(f"`{arm}`")) for arm in ("own", "global"))
    for arm in ARMS:
        assert row_of(f"`{arm}`") == pytest.approx(five[arm].round(2).tolist())
    assert row_of("`own` minus `global`") == pytest.approx((five["own"] - five["global"]).tolist(), abs=0.011)
    assert (round(iqm(own), 2), round(own.mean(), 2), round(iqm(other), 2)) == (0.41, 0.36, 0.05)
    says("12", "(4 + 4 + ½ + 5 + 4) / 25 = {:.2f}", probability_of_improvement([own], [other]))
    drawn = iqm(np.random.default_rng(0).choice(own, size=(5000, 5)))
    says("12", "{:.2f} to {:.2f}. That is wide", *np.quantile(drawn, [0.025, 0.975]))
    both = compared("ladder", "8 agents", ARMS)
    ends = both.table.set_index("recipe").loc[ARMS, ["final_low", "final_high"]].to_numpy().ravel()
    says("12", "the arms' intervals overlap: {:.2f} to {:.2f} and {:.2f} to {:.2f}", *ends)
    [row] = both.differences.to_dict("records")
    says("12", "{final:+.2f}, 95 % interval {final_low:+.2f} to {final_high:+.2f}, with", **row)
    assert (row["higher"], row["lower"]) == (9, 0)
    [row] = both.improvements.to_dict("records")
    told = "it is {final:.2f}, and the 95 % interval, {final_low:.2f} to {final_high:.2f}, contains one half"
    says("12", told, **row)


@pytest.mark.slow
def test_12_intervals_hold_the_truth_as_often_as_told():
    held = []
    for size in (3, 5, 10):
        scores = np.random.default_rng(size).normal(size=(2000, size))
        ends = [bootstrap_interval([one], samples=2000) for one in scores]
        held.append(np.mean([low <= 0 <= high for low, high in ends]))
    says("12", "about {:.2f}, {:.2f} and {:.2f}, where 0.95 was promised", *held)


@pytest.mark.slow
def test_12_comparisons_are_as_told():
    arms, gain = ["team return", "own reward", "tree, outcome only"], {}
    for over in ("tokens", "episodes", "optimizer_steps"):
        table = compared("at_grpo", "maze", arms, over=over, baseline="team return").differences.set_index("recipe")
        assert table.loc["own reward", "final_low"] > 0
        gain[over] = table.loc["tree, outcome only", "final"]
    says("12", "gains {tokens:+.2f} at equal tokens and {episodes:+.2f} at equal episodes.", **gain)
    says("12", "At equal optimizer steps it gains {optimizer_steps:+.2f}, and the interval contains 0.", **gain)
    assert table.loc["tree, outcome only", "final_low"] < 0 < table.loc["tree, outcome only", "final_high"]
    rates = study("paid_help").rates.query("task == 'pay 0.2' and arm in @ARMS")
    means = rates.pivot(index="lr", columns="arm", values="mean")
    gap, best = means["own"] - means["global"], rates[rates["chosen"]].set_index("arm")["mean"]
    says("12", "{:+.2f} at 3e-4, and {:+.2f} at 1e-3", gap[3e-4], gap[1e-3])
    says("12", "unlearns* ({:.2f} from {:.2f})", means.loc[1e-3, "global"], tried("global", 1e-3)[1].mean())
    fresh = compared("paid_help", "pay 0.2", ARMS).differences["final"].iloc[0]
    says("12", "at its best rate it is {:+.2f}, and {:+.2f} over ten fresh seeds", best["own"] - best["global"], fresh)
    shared = compared("ladder", "8 agents, one set of weights", ARMS).differences.iloc[0]
    says("12", "three seeds differ by {:+.2f} on average", shared["final"])
    math = compared("math", "with a fixer", ARMS).differences.iloc[0]
    assert math["final_low"] < 0 and math["pairs"] == 10
    says("12", "on `math` at most {:.2f}", math["final_high"])
    gain = compared("ladder", "8 agents", [*ARMS, "own mean", "own scale"]).differences.set_index("recipe")["final"]
    says("12", 'the arm "own mean" gains as much as both together ({:+.2f})', gain["own mean"])
    says("12", '"own scale" gains three quarters of it ({:+.2f})', gain["own scale"])
    lent = compared("ladder", "8 agents", ["global", "own scale, lent"]).differences.iloc[0]
    says("12", "it gains {:+.2f}, which is not distinguishable from 0", lent["final"])
    assert lent["final_low"] < 0 < lent["final_high"]
    gain = compared("baselines", "ladder of 8", ["grpo", "grpo_masked", "dr_mas"]).differences.set_index("recipe")
    says("12", "`grpo_masked` gains {grpo_masked:+.2f} of the {dr_mas:+.2f} of `dr_mas`", **gain["final"])


def test_12_the_study_of_the_notebook_is_the_recorded_one():
    ends = after("first_study", "ladder")
    numbers = [f"{one:.2f}" for arm in ARMS for one in ends[arm]]
    says("12", "`global` reaches {}, {} and {}, and `own` reaches {}, {} and {}", *numbers)
    cell = TEXTS["12"][TEXTS["12"].index("design = {") :]
    written = {}
    exec(cell[: cell.index("\n}") + 2], {"SMOKE": False}, written)
    source = ROOT / "benchmarks" / "studies" / "first_study.yaml"
    assert yaml.safe_load(source.read_text(encoding="utf-8")) == written["design"]
    assert study("first_study").provenance["design"] == written["design"]


LADDER = RESULTS / "ladder_spikes"


def test_05_norms_and_success_are_as_told():
    norms = csv("ladder_spikes/norms.csv")
    norms["ratio"] = norms["norm_global"] / norms["norm_agent"].where(norms["norm_agent"] > 0)
    norms["norm"] = norms["norm_global"].where(norms["recipe"] == "grpo", norms["norm_agent"])
    tallest = norms.groupby(["recipe", "seed", "step"])["norm"].max().unstack("step")
    early, late = tallest.loc["grpo"].loc[:, :4].max(axis=1), tallest.loc["grpo"].loc[:, 25:].max(axis=1)
    assert early.equals(tallest.loc["grpo"].max(axis=1)), "the tallest come first"
    says("05", "{:.1f}, {:.1f} and {:.1f} within the first five steps", *early)
    says("05", "In the last five none passes {:.1f}, {:.1f} and {:.1f}", *late)
    says("05", "Under `dr_mas` no norm passes {:.1f}", tallest.loc["dr_mas"].max(axis=None))
    ends = csv("ladder_spikes/scores.csv").groupby(["recipe", "seed"])["success"].last().unstack()
    says("05", "climb to {}", listed(ends.loc["dr_mas"]))
    says("05", "The teams end at {}", listed(ends.loc["grpo"]))
    used = norms[norms["recipe"] == "grpo"]
    by = used.groupby("agent")
    ratio, silent = by["ratio"].median(), (used["norm_agent"] == 0).groupby(used["agent"]).mean()
    assert norms.loc[norms["agent"] == "stage_1", "ratio"].to_numpy() == pytest.approx(1, abs=1e-3)
    middle = ratio[[f"stage_{stage}" for stage in (2, 3, 4, 5)]]
    says("05", "*smaller* norms under the global one, {:.2f} to {:.2f} times", middle.min(), middle.max())
    says("05", "{:.2f} and {:.2f} times in the median", *ratio[["stage_7", "stage_8"]])
    says("05", "in {:.0f} and in {:.0f} of 100 steps", *100 * silent[["stage_7", "stage_8"]])
    last = norms[norms["agent"] == "stage_8"].groupby("recipe")[["norm", "rows"]].median()
    says("05", "a median norm of {:.1f} under `grpo`, and of {:.2f}", *last.loc[["grpo", "dr_mas"], "norm"])
    says("05", "The rest is `rows`: {:.0f} against {:.0f}", *last.loc[["grpo", "dr_mas"], "rows"])


def test_05_studies_and_predictions_are_as_told():
    tall = agents("ladder").query("task == '8 agents' and window == 'end' and arm in ['global', 'own']")
    most = tall.groupby(["arm", "seed"])["largest_norm"].max().groupby("arm").agg(["min", "max"])
    told = "{:.0f} to {:.0f} under the global baseline and {:.0f} to {:.0f} under their own"
    says("05", told, *most.to_numpy().ravel())
    said = csv("ladder_spikes/said.csv").query("agent == 'stage_8'")

    def share(recipe, first, name):
        own = said[(said["recipe"] == recipe) & said["step"].between(first, first + 4)]
        return np.average(own[name], weights=own["rows"])

    says("05", "from {:.2f} to {:.2f}", *(share("dr_mas", first, "guessed") for first in (0, 25)))
    says("05", "is right in {:.2f} of its answers", share("dr_mas", 25, "right"))
    told = "*learns to guess*: {:.2f} of its answers, and {:.2f} are right"
    says("05", told, *(share("grpo", 25, name) for name in ("guessed", "right")))
    ratios = csv("ladder_spikes/ratios.csv").drop_duplicates(["agent", "norm_global"])
    known = ratios[ratios["V"] > 0]
    says("05", "{} of the {} batches are missing", len(ratios) - len(known), len(ratios))
    off = [np.exp(np.abs(np.log(one / known["measured"]))) for one in (known["F"] / known["V"], known["predicted"])]
    middle = [one[known["agent"] == "stage_8"].median() for one in off]
    says("05", "for stage 8 by a factor of {:.1f} in the median", middle[0])
    says("05", "the factor is {:.1f}: it matters", middle[1])
    says("05", "at worst it is off by a factor of {}", int(off[1].max()))

    def median(name, task, agent, window, what):
        own = agents(name).query("task == @task and agent == @agent and window == @window")
        return own.groupby("arm")[what].median()[["global", "own"]]

    fixer, helper = ("math", "with a fixer", "fixer"), ("paid_help", "pay 0.2", "helper")
    told = "its norm reaches {:.1f} under the global baseline, {:.1f} under its own"
    says("05", told, *median(*fixer, "end", "largest_norm"))
    says("05", "({:.1f} against {:.1f})", *median(*helper, "end", "largest_norm"))
    told = "({final:.2f}, {final_low:+.2f} to {final_high:+.2f})".format(**difference("math", "with a fixer", "own"))
    says("05", told.replace("-", "−"))
    says("05", "But the team loses {:.2f}", difference("paid_help", "pay 0.2", "own")["final"])
    says("05", "F is {:.1f}. Its norms", median(*helper, "start", "F")["global"])
    says("05", "`signal` is {:.2f}", median(*helper, "start", "signal")["global"])


def test_the_shipped_spike_is_one_guess():
    watch = lab.SpikeWatch()
    watch.load_state(json.loads((LADDER / "spikes.json").read_text(encoding="utf-8")))
    tables = [pd.read_parquet(LADDER / f"spike_{name}.parquet") for name in ("turns", "stats")]
    inspector = lab.SpikeInspector(tables, watch=watch)
    [spike] = inspector.spikes
    [(row, share)] = spike["rows"].items()
    said = tables[0].query("step == @spike['step']").iloc[int(row)]
    assert said["agent"] == "stage_8" and said["completion"] == "answer 4"
    assert share == pytest.approx(1, abs=1e-4) and said["local_reward"] == 0 and said["team_reward"] == 7 / 8
    says("05", "has an advantage of {:+.2f}, and the norm is {:.1f}", said["advantage"], spike["norm"])
    assert spike["baselines"]["agent"][""] == 0 and said["center"] == 2 / 8


def test_15_the_circle_and_what_the_bonus_does_are_as_told():
    table, throws = csv("self_play/shares.csv"), list(games.THROWS)
    table["unreadable"] = 1 - table[throws].sum(axis=1)
    table[throws] = table[throws].div(table[throws].sum(axis=1), axis=0)
    table["exploitability"] = list(map(games.exploitability, table[throws].to_numpy()))
    plain = dict(list(table[table["entropy"] == 0].groupby("seed")))
    says("15", "starts with {:.2f} rock, {:.2f} paper and {:.2f} scissors", *plain[0][throws].iloc[0])
    leads = {seed: own[throws].idxmax(axis=1) for seed, own in plain.items()}
    leads = [lead[lead != lead.shift()].tolist() for lead in leads.values()]
    assert len(leads) == 5 and all(lead[:3] == throws for lead in leads) and sum(len(lead) == 3 for lead in leads) == 3
    for own in plain.values():
        players = own[throws].to_numpy()
        assert min(games.winnings(players[-1], other) for other in players) < -0.1, "it loses to an older player"
    last = table[table["step"] >= 20].groupby(["entropy", "seed"])[["exploitability", "unreadable"]].mean()
    low, high = (last.groupby("entropy")[["exploitability", "unreadable"]].agg(end) for end in ("min", "max"))
    told = "with an exploitability of {:.2f} to {:.2f}, with a weight of 0.1 with {:.2f} to {:.2f}"
    says("15", told, *(end["exploitability"][bonus] for bonus in (0.0, 0.1) for end in (low, high)))
    told = "With 0.1 they are {:.2f} to {:.2f} of all answers, with 0.3 they are {:.2f} to {:.2f}"
    says("15", told, *(end["unreadable"][bonus] for bonus in (0.1, 0.3) for end in (low, high)))
    ends = [[games.exploitability(one) for one in (own[throws].iloc[-1], own[throws].mean())] for own in plain.values()]
    told = "the last player has {:.2f} to {:.2f}, and the average of all 30 has {:.2f} to {:.2f}"
    says("15", told, *(end(each) for each in zip(*ends, strict=True) for end in (min, max)))


def test_16_the_calls_become_well_formed_as_told():
    malformed = csv("calculator/malformed.csv").pivot(index="step", columns="seed", values="malformed")
    success = csv("calculator/curves.csv").pivot(index="step", columns="seed", values="success")
    says("16", "was {} in the first step. In the last ten steps it was {}", listed(malformed.iloc[0]),
         listed(malformed.tail(10).mean()))  # fmt: skip
    says("16", "rose from {} to {}. This took about a minute", listed(success.loc[0]), listed(success.loc[60]))


def test_16_a_penalty_changes_as_little_as_told():
    table = csv("tool_calls/curves.csv")
    ends = table[table["step"] >= 8].groupby(["invalid", "seed"])[["malformed", "calls"]].mean()
    ends["held_out"] = table.groupby(["invalid", "seed"])["held_out"].first()
    low, high = (ends.groupby("invalid").agg(end) for end in ("min", "max"))
    for column, told in (
        ("malformed", "malformed calls is {:.2f} to {:.2f}, with a penalty of 5 it is {:.2f} to {:.2f}"),
        ("held_out", "held-out chains is {:.2f} to {:.2f} and {:.2f} to {:.2f}"),
    ):
        says("16", told, *(end[column][invalid] for invalid in (0.0, 5.0) for end in (low, high)))
    assert set(ends["calls"].groupby("invalid").mean().round(2)) == {1.96}
    says("16", "there are 1.96 calls in an episode")

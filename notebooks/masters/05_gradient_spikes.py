# %% [markdown]
# # Gradient spikes: what a global baseline does to an agent
#
# *Level: you have seen the quickstart, and know mean and standard deviation. Reading: 20 minutes. Compute: 2 to 3 minutes on two CPU cores (10 more with `RECORDED = False`).*
#
# A team earns one reward. GRPO judges every agent of a problem by the same baseline: the mean of *all* trajectories. Dr. MAS (arXiv 2602.08847) says that this is where the gradient spikes of multi-agent training come from, and judges each agent by the mean and deviation of *its own* rows.
#
# The claim has a formula, and a formula can be checked. We do it three times: by hand on eight numbers, on a controlled team whose rewards we set ourselves, and in real training runs. Then we take one spike apart, down to its tokens. Not everything will come out as the formula says, and that is the most useful part.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs
RECORDED = True  # False: train here instead of loading the six recorded runs

# %%
import json
from functools import partial

import pandas as pd

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.widgets.baselines import controlled_curves, paired_norms, ratio_dots, theory_against_measurement
from mas_lab.widgets.figures import dialogue, learning_curves
from mas_lab.widgets.rewards import two_baselines

RECORDS = data_dir() / "results" / "gradient_spikes"

# %% [markdown]
# ## By hand: eight trajectories
#
# A **solver** answers a problem, in each of N = 8 trajectories. A **fixer** is called in three of them, because a verifier sent the answer back. Six of the eight end well, but only one of the fixer's three:
#
# | trajectory | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
# |---|---|---|---|---|---|---|---|---|
# | reward | 1 | 1 | 1 | 1 | 1 | 1 | 0 | 0 |
# | fixer speaks | | | | | | yes | yes | yes |
#
# *By hand.* All trajectories: mean μ = 3/4, standard deviation σ = √(3/16) ≈ 0.43. The fixer's three rewards 1, 0, 0: mean μ_k = 1/3, deviation σ_k ≈ 0.47. Under the global baseline its advantages are (1 − 0.75)/0.43 ≈ 0.58, and twice (0 − 0.75)/0.43 ≈ −1.73. The mean of their squares is
#
# $$F_k = \frac{\sigma_k^2}{\sigma^2} + \Big(\frac{\mu_k-\mu}{\sigma}\Big)^2 = v_k + b_k^2 \approx 1.19 + 0.93 = 2.11 .$$
#
# Under its own baseline that mean is 1, always. So the global baseline hands the fixer squared advantages that are twice as large, only because it is called when things go badly. `lab.inflation` computes this for every task and agent.

# %%
rewards = [1, 1, 1, 1, 1, 1, 0, 0]
rows = [{"task": "by hand", "episode": e, "agent": "solver", "credit": r} for e, r in enumerate(rewards)]
rows += [{"task": "by hand", "episode": e, "agent": "fixer", "credit": rewards[e]} for e in (5, 6, 7)]
found = lab.inflation(pd.DataFrame(rows))
fixer = found.set_index("agent").loc["fixer"]
assert abs(fixer["F_k"] - 19 / 9) < 1e-9 and round(fixer["signal"], 2) == 0.56
found[["agent", "n_k", "mu", "sigma", "mu_k", "sigma_k", "b_k", "v_k", "F_k", "signal"]].round(2)


# %% [markdown]
# *Explain:* the solver speaks exactly once in every trajectory, so its own statistics *are* the global ones and F = 1. For such an agent GRPO and Dr. MAS are the same algorithm. Whatever happens, it happens to agents that are called sometimes.
#
# *Predict:* how large can F get with eight trajectories? Think of the worst case before you run the next cell.


# %%
def worst_case(n):
    """A fixer that is called once, in the only trajectory of n that failed."""
    rows = [{"task": "t", "episode": e, "agent": "solver", "credit": float(e > 0)} for e in range(n)]
    found = lab.inflation(pd.DataFrame([*rows, {"task": "t", "episode": 0, "agent": "fixer", "credit": 0.0}]))
    return found.set_index("agent").loc["fixer", ["F_k", "flat_k"]].to_dict()


pd.DataFrame({n: worst_case(n) for n in (4, 8, 16)}).T.rename_axis("N")

# %% [markdown]
# N − 1, and not more: however far the fixer's mean lies from the others', it pulls σ with it. With N = 8 the squared norm can grow sevenfold by this, the norm √7 ≈ 2.6-fold. Keep that number. And mind `flat_k`: a single row has no deviation, so the fixer's own baseline says nothing at all about it and gives it advantage 0.
#
# **How large is not how useful.** F says how large the global advantages are, not what they are made of. The offset μ_k − μ is the same in all of the fixer's rows: it praises or blames the fixer for being called, whatever it says. Information is only what varies among its own rows. The last column is the share of that, signal = σ_k² / (σ_k² + (μ_k − μ)²): 0.56 for this fixer. An own mean takes the offset away and pays with one of its n_k rows, so it is worth it, roughly, where signal < 1 − 1/n_k. F alone cannot tell: with graded rewards and a small stake for the fixer F may stand at 0.9 and signal at 0.05.

# %% [markdown]
# ## A controlled team
#
# Theory speaks of expectations over rows. What moves the weights is *one* vector, the gradient of a whole batch. Do the two agree? We need a team in which we know the rewards' statistics, so we make the rewards up and keep everything else real: real completions of the pocket model, real log-probabilities, real gradients.
#
# Solver and verifier answer 16 problems, 8 trajectories each. `lab.controlled` leaves the verifier in only `called` of the 8, and pays every trajectory random noise, minus `shift` where the verifier spoke. With p = called/8 and σ² = 1 + shift² p (1 − p) the theory says
#
# $$F = \frac{1 + \mathrm{shift}^2 (1-p)^2}{\sigma^2}.$$
#
# *Predict:* the shift goes from 0 to 8 standard deviations. What happens to the verifier's gradient if it is called in 2 of 8 trajectories, in 4, in 6?

# %%
env = lab.make_env("math", max_turns=1)
team = lab.Team({agent: lab.load_policy(env.pocket) for agent in env.agents}, frozen=["solver"])
turns = lab.rollout(env, team, env.tasks(2 if SMOKE else 16, "train", seed=0), lab.episodes(8), seed=0)
SHIFTS = (0, 4) if SMOKE else (0, 1, 2, 4, 8)

reward = partial(lab.controlled, turns, "verifier")
measure = partial(lab.controlled_inflation, team, turns, "verifier", draws=1 if SMOKE else 4)
points = pd.DataFrame([measure(called, shift) for called in (2, 4, 6) for shift in SHIFTS])
points.round(2)

# %%
controlled_curves(points)

# %% [markdown]
# *Explain.* Filled dots are measured: the squared norm of the verifier's whole gradient under the global baseline, over that under its own, each averaged over four draws of the noise. Hollow dots add the theory's covariance terms Δ, estimated from the same rows; credits that are drawn without looking at the completions have none but by chance:
#
# $$\frac{\mathbb E\|g_{\text{global}}\|^2}{\mathbb E\|g_{\text{agent}}\|^2} = \frac{\mathbb E\|z\|^2\,F_k + \Delta_k^g}{\mathbb E\|z\|^2 + \Delta_k^a}, \qquad z = \nabla\log\pi .$$
#
# - Called rarely (2 of 8), the verifier's gradient grows with the shift, and stops growing near 3 = (8 − 2)/2: a rare agent's mean pulls σ along.
# - Called in half of the trajectories, it does not grow at all, however large the shift: p = 1/2 makes F = 1 exactly.
# - Called often (6 of 8), the global baseline makes its gradient *smaller*.
#
# The filled dots follow, and stray more the larger the shift: the formula adds up rows one by one, and the rows of one batch also pull together or cancel. With more problems in the batch they stray less.
#
# So a distant mean is not enough. It takes a distant mean **and** a rare call. Move the slider and look at what the two baselines do to the same rewards.

# %%
from IPython.display import display

from mas_lab.doctor import front_end


def look(shift, called):
    print("predicted F {F:.2f}, with deltas {predicted:.2f}; measured {measured:.2f}".format(**measure(called, shift)))
    display(two_baselines(reward(called, shift), ("solver", "verifier")))


if front_end() in ("jupyter", "vscode", "kaggle"):
    import ipywidgets

    choices = {"options": [0, 0.5, 1, 2, 4, 8], "value": 4, "continuous_update": False}
    slider = ipywidgets.SelectionSlider(description="shift", **choices)
    ipywidgets.interact(look, shift=slider, called=ipywidgets.Dropdown(options=[2, 4, 6], description="called"))
else:  # no live widgets here: two values instead of the slider
    for shift in (0, 8):
        print(f"shift {shift}, called in 2 of 8 trajectories")
        look(shift, called=2)

# %% [markdown]
# ## The real thing: solver, verifier, fixer
#
# Now the task itself earns the rewards. `math` with `fixer=True`: the solver answers, the verifier approves or rejects, and only after a rejection the fixer is called. Each has weights of its own, so that each has a gradient of its own. First one batch of the untrained team.
#
# *Predict:* whose norm will the global baseline inflate?

# %%
env = lab.make_env("math", fixer=True)


def fresh_team():
    return lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=1e-4), env.agents)


team = fresh_team()
turns = lab.rollout(env, team, env.tasks(4 if SMOKE else 32, "train", seed=0), lab.episodes(8), seed=0)
turns = lab.RECIPES["grpo"].advantages(turns)
batch = lab.baseline_ratio(team, turns, rows=8 if SMOKE else 64)
batch[["agent", "n", "F", "V", "predicted", "measured", "norm_global", "norm_agent"]].round(2)

# %% [markdown]
# `F` is the mean squared advantage over *all* of the agent's rows under the global baseline, `V` the same under its own; a row of a flat group has advantage 0 and counts as 0 in either. V is below 1 because some groups are *flat*: if all of an agent's rows in a problem earned the same, its own baseline gives them advantage 0. Look at the fixer's V.
#
# Now train: the same team twice, once by `grpo` and once by `dr_mas`, on the same seeds, so that step t of both runs meets the same problems. A `PairedWatch` stands between backward pass and optimizer step and measures each agent's norm under *both* baselines on the very batch of that step; the step itself is taken as the recipe says.

# %%
RECIPES = ("grpo", "dr_mas")


def learn(recipe, seed, steps):
    """One run, with the same records as those that are shipped."""
    team, watch, tokens = fresh_team(), lab.PairedWatch(threshold=2.5), 0
    held_out, count = env.tasks(8 if SMOKE else 128, "test", seed=0), 4 if SMOKE else 32
    scores = [(0, lab.evaluate(env, team, held_out, k=4)["success"].mean())]
    for report in lab.train(env, team, recipe, steps, seed=seed, watch=watch, tasks=count):
        reports.setdefault((recipe, seed), []).append(report)
        tokens += report.tokens
        if (report.step + 1) % 10 == 0 or report.step + 1 == steps:
            scores.append((tokens, lab.evaluate(env, team, held_out, k=4)["success"].mean()))
    batch = lab.rollout(env, team, env.tasks(count, "train", seed=1), lab.episodes(8), seed=1)
    ratios = lab.baseline_ratio(team, lab.RECIPES["grpo"].advantages(batch), rows=8 if SMOKE else 64)
    norms = watch.pairs.rename(columns={"call": "step"})
    scores = pd.DataFrame(scores, columns=["tokens", "success"])
    tables = (norms, ratios, scores, pd.DataFrame(watch.spikes, columns=["policy", "norm", "usual", "score"]))
    return *(table.assign(recipe=recipe, seed=seed) for table in tables), watch


reports = {}
if RECORDED:
    names = ("norms", "ratios", "scores", "spikes")
    norms, ratios, scores, spikes = (pd.read_csv(RECORDS / f"{name}.csv").query("form == 'fixer'") for name in names)
    print(json.loads((RECORDS / "provenance.json").read_text())["command"])
else:
    *tables, watches = zip(*(learn(recipe, 0, 2 if SMOKE else 40) for recipe in RECIPES), strict=True)
    norms, ratios, scores, spikes = (pd.concat(parts, ignore_index=True) for parts in tables)
norms.groupby("recipe")[["seed", "step"]].nunique()

# %% [markdown]
# ### Norms, under both baselines

# %%
paired_norms(norms.query("recipe == 'grpo' and seed == 0"), env.agents)

# %%
ratio_dots(norms, env.agents)


# %%
def summary(norms):
    """Per recipe and agent: the ratio of its norms where it has one, and how often its own baseline is silent."""
    ratio = norms["norm_global"] / norms["norm_agent"].where(norms["norm_agent"] > 0)
    by = norms.assign(ratio=ratio, silent=norms["norm_agent"] == 0).groupby(["recipe", "agent"])
    told = by.agg(median_ratio=("ratio", "median"), largest_ratio=("ratio", "max"), silent=("silent", "mean"))
    return told.join(by[["rows", "F", "V"]].median()).round(2)


summary(norms)

# %% [markdown]
# *Explain* (the recorded runs; yours will differ). One dot is one step of one run. The **solver** speaks once in every trajectory: both baselines are the same for it, at every single step. The **verifier** speaks a little more often than once, and more often where things go wrong: its ratio is 1.1 to 1.2 in the median, at worst 1.6. The **fixer** is called in few trajectories, mostly in failing ones: where there is a ratio at all, it is 3.2 in the median under `grpo` and 4.3 under `dr_mas`, at worst 16.
#
# Now read the columns `silent`, `F` and `V`, which say where that comes from. F, what the global baseline does, is 1.6 and 3.4 in the median. V, what the own baseline leaves, is 0.15 and 0: in most problems the fixer's one or two rows all earned the same, the group is flat, and the own baseline says nothing. In a third of the steps under `grpo`, and in more than half under `dr_mas`, it says nothing at all. So this ratio is at least as much the agent-wise baseline's silence as the global baseline's noise. Both are in the formula, F/V; the usual story tells one of them.
#
# And one thing is in neither: compare the fixer's norms in the first figure with the solver's, and look at `rows`. The fixer's gradient is a mean over some 15 rows, the solver's over 256. A mean over few rows has a large norm under any baseline.

# %% [markdown]
# ### Does the theory explain the measured ratio?

# %%
theory_against_measurement(ratios.drop_duplicates(["agent", "norm_global"]), env.agents)

# %% [markdown]
# *Explain.* A dot is one fresh batch that no run trained on (the first, of the untrained team, is the same for all runs and counts once). Look at the fixer first. By the rewards alone (left) the direction is right, and the size is off by a factor of 1.8 in the median, at worst 7.4: it matters *which* rows get the large advantages, since rows with unlikely tokens have much larger gradients. With the covariances (right) its dots come close to the line, from ratios of 1.4 to ratios above 50: a factor of 1.2 in the median, at worst 2.2.
#
# Do not be too impressed. On the moments of single rows the lemma is an identity: it holds for any table. What is predicted here is only that the *batch's* norm follows its rows' moments, so that rows neither pull together nor cancel. With a dozen rows, a few of which do almost everything, that is nearly given. The verifier has some 270 rows, its ratio lies between 1 and 2, and there the covariances (from 64 of its rows) predict no better than the rewards alone. And 17 of the fixer's 37 batches are missing on both sides: its own baseline gave exactly 0, and no theory of ratios says anything about them.

# %% [markdown]
# ### Did it matter?

# %%
learning_curves(scores)

# %%
scores.groupby(["recipe", "seed"])["success"].agg(before="first", after="last").round(3)

# %% [markdown]
# *Explain.* From 0.43, `grpo` ended at 0.92, 0.94 and 0.94, `dr_mas` at 0.92, 0.93 and 0.91. Per-agent normalisation did not help here; if anything it was a little behind, by an amount that three seeds cannot tell from nothing. Each policy's norm is clipped at 1, and an AdamW step depends on a gradient's size only relative to the gradients before it: an agent whose norm is high all the time moves hardly further than one whose norm is low. On this task inflated norms are visible, and harmless. Whether per-agent normalisation *helps* needs a harder setting than this one, and more seeds.

# %% [markdown]
# ### A control: the same task without the fixer
#
# Take the fixer away, and a rejected answer goes back to the solver. Now solver and verifier speak equally often, both at least once and once more after a rejection, so more often where things go badly. Six more recorded runs, with everything else as before.
#
# *Predict:* whose norm will the global baseline inflate, and will the team learn less?

# %%
pair, ends = (pd.read_csv(RECORDS / f"{name}.csv").query("form == 'pair'") for name in ("norms", "scores"))
display(ends.groupby(["recipe", "seed"])["success"].agg(before="first", after="last").round(3))
summary(pair)

# %% [markdown]
# *Explain* (these runs are always the recorded ones). Nobody's. The ratio is 1.0 in the median for the solver, and for the verifier 1.02 under `grpo` and 1.06 under `dr_mas`; at worst it is 1.6, and in four steps of ten it is below 1. Some 340 calls in 256 trajectories make a distant mean, but no rare call: F is hardly above V. So it is neither the team nor its shared reward that inflates a norm. It is being called seldom, when things go badly.
#
# From 0.53, the pair ended at 0.98, 0.98 and 0.98 under `grpo`, at 0.98, 0.97 and 0.98 under `dr_mas`: no difference either. (That the pair starts and ends above the team with the fixer is another matter, and not one of baselines.)

# %% [markdown]
# ## A spike, opened to its tokens
#
# A norm is called a *spike* if its logarithm lies more than 2.5 robust standard deviations above the median of the 50 norms before it. At that moment, before the optimizer moves, the watch takes the gradient apart: the share of a token is the projection of its own gradient on the whole one, so shares sum to 1 and may be negative.

# %%
spikes.groupby(["recipe", "policy"])["norm"].agg(spikes="size", largest="max").round(2)

# %% [markdown]
# *Explain.* Both recipes have spikes, for the verifier about as many. The fixer has 7 under `grpo`, up to a norm of 10, and 3 under `dr_mas`, up to 2.3. A rule that compares a norm with its own past does not see that the fixer's norm is high *all the time* under `grpo`: that was the first figure.
#
# Now one run, `grpo` with seed 0. Click a filled circle; open agent, group, sample; then read the strip of tokens. The switch shows the same step's norms under the other baseline, the line below it what the norm would have been without the largest sample.

# %%
if RECORDED:
    shown = [pd.read_parquet(RECORDS / f"spike_{name}.parquet") for name in ("turns", "stats")]
    watch = lab.SpikeWatch(threshold=2.5)
    watch.load_state(json.loads((RECORDS / "spikes.json").read_text()))
else:
    watch, shown = watches[0], reports["grpo", 0]
inspector = lab.SpikeInspector(shown, watch=watch, agents=env.agents, team=team)
inspector

# %%
opened = pd.DataFrame(
    [
        {
            "step": spike["step"],
            "agent": spike["policy"],
            "norm": spike["norm"],
            "usual": spike["usual"],
            "score": spike["score"],
            "rows": len(spike["rows"]),
            "largest share": max(spike["rows"].values()),
            "norm, global": spike["baselines"]["global"][""],
            "norm, own": spike["baselines"]["agent"][""],
        }
        for spike in inspector.spikes
    ]
)
opened.round(2)

# %% [markdown]
# *Explain.* Three spikes, two stories.
#
# The **verifier's** are the highest by the rule. But under its own baseline its norm at step 12 would still have been 0.74, where 0.46 was usual; and in the `dr_mas` run of the same seed, which meets the same problems at step 12, it spikes as well (0.80, where 0.42 was usual). That is a batch, not a baseline.
#
# The **fixer's** at step 12 is what Dr. MAS talks about: norm 3.0, and 0.86 under its own baseline. It has 34 rows, and *one* of them holds three quarters of the gradient; without it the norm would have been 1.4.

# %%
places = [place for place, spike in enumerate(inspector.spikes) if spike["policy"] == "fixer"]
inspector.shares(places[0]) if places else "no spike of the fixer in these runs"

# %% [markdown]
# One of its rows, in the episode in which it stands:

# %%
if places:
    spike = inspector.spikes[places[0]]
    turns = inspector.source.turns(spike["step"])
    row = turns.iloc[int(max(spike["rows"], key=lambda row: spike["rows"][row]))]
    print(f"share {max(spike['rows'].values()):.0%}, advantage {row['advantage']:.2f} under grpo")
    display(dialogue(turns, row["episode"]))

# %% [markdown]
# ## What the theory explains, and what it does not
#
# - **It explains who.** An agent that speaks exactly once per trajectory has F = 1 and no inflation, whatever its rewards; an agent that is called rarely, and when things go badly, is the one to watch. That much came out at every step of every run.
# - **It explains some of how much.** F ≤ N − 1, so with eight trajectories a distant mean can inflate a norm by √7 ≈ 2.6 and no more. The published collapse (norms above 80, then NaN) cannot come from F alone. The larger ratios here, up to 16, come from the other side of the fraction: flat groups, where the agent's own baseline is silent.
# - **It does not count rows.** A rare agent's gradient is a mean over few rows, and one unlikely completion in it can be most of the norm, as the opened spike was. That is so under any baseline.
# - **It says nothing about benefit.** Norms that are high all the time do little harm under Adam and clipping; an offset in every advantage does, and that is `signal`, not F. At this size success did not differ. The row that made the fixer's spike deserves a look before it is called noise: a right answer had been sent back, by a verdict that could not be read, and the fixer broke it. The global baseline gave that row a squared advantage of 7, the most that eight trajectories allow; its own baseline, with one row in the group, did not notice it.
# - **What we did not look at:** shared weights, other optimizers, clipping off, models above 0.3 million parameters.

# %% [markdown]
# ## Your turn
#
# Design a problem of eight trajectories in which the F of a **critic** is above 3, while its own baseline still says something (its rewards are not all the same). Change the two lines, and nothing else.

# %%
rewards = [1, 1, 1, 1, 0, 0, 0, 0]  # <- of the eight trajectories, each from 0 to 1
called = [0, 1, 2, 4, 5]  # <- the trajectories in which the critic speaks


# %%
def check(rewards, called):
    """F of the critic above 3, by rewards that differ among its own rows."""
    if len(rewards) != 8 or not all(0 <= reward <= 1 for reward in rewards) or len(set(called)) != len(called):
        return "not yet: eight rewards from 0 to 1, and each trajectory at most once"
    rows = [{"task": "t", "episode": e, "agent": "solver", "credit": float(r)} for e, r in enumerate(rewards)]
    rows += [{"task": "t", "episode": e, "agent": "critic", "credit": float(rewards[e])} for e in called]
    critic = lab.inflation(pd.DataFrame(rows)).set_index("agent").loc["critic"]
    if critic["flat"] or critic["flat_k"]:
        return "not yet: all of these rewards are the same, so a baseline says nothing"
    return f"right: F = {critic['F_k']:.2f}" if critic["F_k"] > 3 else f"not yet: F = {critic['F_k']:.2f}"


print(check(rewards, called))
assert check([1, 1, 1, 1, 1, 1, 1, 0], [6, 7]).startswith("right") and check([1] * 8, [0, 1]).startswith("not yet")

# %% [markdown]
# How far can you go? The squared global advantages of all eight trajectories sum to 8, so two calls can share at most 8 between them: F ≤ N/n = 4, and three calls can never pass 8/3. You can even reach 4 with the critic's mean exactly *at* the global one. Then all of F is v, not b: the others' rewards hardly vary and the critic's do.
#
# Next: `python benchmarks/gradient_spikes.py` makes the recorded runs anew; `lab.train(..., watch=lab.PairedWatch())` measures both baselines in a run of yours.

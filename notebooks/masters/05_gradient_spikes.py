# %% [markdown]
# # Gradient spikes: what a global baseline does to an agent
#
# *Level: you have done the notebooks on grouping and normalization. Reading: 20 minutes. Compute: about 1 minute on two CPU cores (2 more with `RECORDED = False`).*
#
# A team earns one reward. GRPO judges every agent of a problem by the same baseline: the mean of *all* trajectories. Dr. MAS (arXiv 2602.08847) says that this causes the gradient spikes of multi-agent training. It judges each agent by the mean and deviation of *its own* rows.
#
# Afterwards you can predict and measure how large a baseline makes an agent's gradient. You can trace a spike to its tokens, and tell a *large* norm from a *harmful* one. You will see all four combinations.

# %% tags=["install"]

# %% tags=["parameters"]
SMOKE = False  # True: a few steps only, to see that everything runs
RECORDED = True  # False: train here, one seed, instead of loading the six recorded runs

# %%
import json

import numpy as np
import pandas as pd
import torch
from IPython.display import display
from plotly import express as px

import mas_lab as lab
from mas_lab.paths import data_dir
from mas_lab.study.record import Recorded
from mas_lab.widgets.figures import LAYOUT, PALETTE, colors, dialogue, learning_curves, norm_lines

RESULTS = data_dir() / "results"
RECORDS = RESULTS / "ladder_spikes"

# %% [markdown]
# ## By hand: eight trajectories
#
# A **solver** answers a problem in each of N = 8 trajectories. A **fixer** is called in three of them, because a verifier sent the answer back. Six of the eight trajectories end well, but only one of the fixer's three:
#
# | trajectory | 0 | 1 | 2 | 3 | 4 | 5 | 6 | 7 |
# |---|---|---|---|---|---|---|---|---|
# | reward | 1 | 1 | 1 | 1 | 1 | 1 | 0 | 0 |
# | fixer speaks | | | | | | yes | yes | yes |
#
# *By hand.* All trajectories have mean μ = 3/4 and standard deviation σ = √(3/16) ≈ 0.43. The fixer's three rewards are 1, 0, 0, with mean μ_k = 1/3 and deviation σ_k ≈ 0.47. Under the global baseline its advantages are (1 − 0.75)/0.43 ≈ 0.58, and twice (0 − 0.75)/0.43 ≈ −1.73. The mean of their squares is (Dr. MAS, its lemma on gradient norms)
#
# $$F_k = \frac{\sigma_k^2 + (\mu_k-\mu)^2}{\sigma^2} \approx 1.19 + 0.93 = 2.11 .$$
#
# Under its own baseline that mean is always 1. So the global baseline makes the fixer's squared advantages twice as large, only because it is called when things go badly.
#
# **Large is not the same as useful.** The offset μ_k − μ is the same in all of the fixer's rows. It punishes the fixer for being called, whatever it says. Only the differences among its own rows carry information,
#
# $$\text{signal} = \frac{\sigma_k^2}{\sigma_k^2 + (\mu_k - \mu)^2} \approx 0.56 .$$
#
# An own mean removes the offset, at the cost of one of the agent's n_k rows.
#
# **05.1** (8 minutes, medium) Write both quantities. `rewards` are those of all trajectories, `own` those of the trajectories in which the agent spoke. Return `(F, signal)`.


# %%
def large_and_signal(rewards, own):
    """F_k and the share of it that is information."""
    ### BEGIN SOLUTION
    offset = (own.mean() - rewards.mean()) ** 2
    return (own.var() + offset) / rewards.var(), own.var() / (own.var() + offset)
    ### END SOLUTION


lab.course.check("05.1", large_and_signal)

# %% [markdown]
# *Predict:* how large can F be with eight trajectories? Think of the worst case.


# %%
def worst_case(n):
    """A fixer that is called once, in the only trajectory of n that failed."""
    rows = [{"task": "t", "episode": e, "agent": "solver", "credit": float(e > 0)} for e in range(n)]
    found = lab.inflation(pd.DataFrame([*rows, {"task": "t", "episode": 0, "agent": "fixer", "credit": 0.0}]))
    return found.set_index("agent").loc["fixer", ["F_k", "flat_k"]].to_dict()


pd.DataFrame({n: worst_case(n) for n in (4, 8, 16)}).T.rename_axis("N")

# %% [markdown]
# *Explain:* F is at most N − 1. The further the fixer's mean is from the others', the more it enlarges σ. With N = 8 this can make the norm larger by √7 ≈ 2.6. Remember that number. Also look at `flat_k`: a single row has no deviation, so the fixer's own baseline gives it advantage 0.
#
# An agent that speaks exactly once in *every* trajectory, such as the solver, has F = 1: its own statistics are the global ones. For such an agent GRPO and Dr. MAS are the same algorithm.

# %% [markdown]
# ## A controlled team
#
# The theory is about expectations over rows, but *one* vector moves the weights: the gradient of a batch. Do the two agree? We invent the rewards and keep everything else real: completions of the pocket model, log-probabilities, gradients.
#
# Solver and verifier answer 16 problems, with 8 trajectories each. `paid` leaves the verifier in only `called` of the 8. It pays every trajectory random noise, minus `shift` where the verifier spoke. With p = called/8 the theory says
#
# $$F = \frac{1 + \mathrm{shift}^2 (1-p)^2}{1 + \mathrm{shift}^2\, p\, (1 - p)} .$$

# %% [markdown]
# *Predict:* the shift goes from 0 to 8 standard deviations. What happens to the verifier's gradient if it is called in 2, in 4 or in 6 of 8 trajectories?

# %%
env = lab.make_env("math", max_turns=1)
team = lab.Team({agent: lab.load_policy(env.pocket) for agent in env.agents}, frozen=["solver"])
turns = lab.rollout(env, team, env.tasks(2 if SMOKE else 16, "train", seed=0), lab.episodes(8), seed=0)
SHIFTS = (0, 4) if SMOKE else (0, 1, 2, 4, 8)


def noise(rng, n):
    drawn = rng.normal(size=n)
    return (drawn - drawn.mean()) / drawn.std()  # mean 0 and deviation 1, whatever is drawn


def paid(called, shift, seed):
    """The same completions, with the verifier in `called` trajectories of each problem, and made-up rewards."""
    rng, reward = np.random.default_rng(seed), {}
    for _, episodes in turns.groupby("task")["episode"].unique().items():
        reward |= dict(zip(episodes[:called], noise(rng, called) - shift, strict=True))
        reward |= dict(zip(episodes[called:], noise(rng, 8 - called), strict=True))
    heard = turns.groupby("task")["episode"].transform(lambda names: names.isin(names.unique()[:called]))
    kept = turns[(turns["agent"] != "verifier") | heard]
    return kept.assign(reward=kept["episode"].map(reward))


def squared_norm(table, recipe):
    """Of the verifier's gradient under a recipe; a learning rate of 0 moves nothing."""
    compared = lab.RECIPES[recipe].replace(credit=lambda rows: rows["reward"]).advantages(table)
    return lab.update(team, compared, lr_scale=0.0).set_index("agent").loc["verifier", "grad_norm"] ** 2


def measured(called, shift):
    tables = [paid(called, shift, seed) for seed in range(1 if SMOKE else 4)]
    by_rewards = lab.inflation(tables[0].assign(credit=tables[0]["reward"])).set_index("agent").loc["verifier", "F_k"]
    both = [sum(squared_norm(table, recipe) for table in tables) for recipe in ("grpo", "dr_mas")]
    return {"called": called, "shift": shift, "F": by_rewards.mean(), "measured": both[0] / both[1]}


points = pd.DataFrame([measured(called, shift) for called in (2, 4, 6) for shift in SHIFTS]).astype({"called": str})
looks = {"x": "shift", "color": "called", "log_y": True, "color_discrete_sequence": PALETTE}
figure = px.line(points, y="F", **looks).add_traces(
    px.scatter(points, y="measured", **looks).update_traces(showlegend=False).data
)
figure.update_layout(**LAYOUT, height=480, xaxis_title="shift of the verifier's mean reward (deviations of the noise)")
figure.update_yaxes(title="|G|² under the global over the own baseline", tickvals=[0.2, 0.5, 1, 2, 3, 5])

# %% [markdown]
# *Explain.* Lines are F. Dots are measured: the squared norm of the verifier's gradient under the global baseline, divided by the one under its own, over four draws of the noise.
#
# - If it is called rarely (2 of 8), the gradient grows with the shift. It stops growing near 3 = (8 − 2)/2, because a rare agent's mean also enlarges σ.
# - If it is called in half of the trajectories, it does not grow at all: p = 1/2 makes F = 1 exactly.
# - If it is called often (6 of 8), the global baseline makes it *smaller*.
#
# The dots follow the theory, but they deviate more for larger shifts. The formula leaves out which rows get the large advantages, and treats rows one by one; in one batch, the gradients of rows also align or cancel. So a large gradient takes a distant mean **and** rare calls.

# %% [markdown]
# ## The ladder: eight agents, each called more rarely
#
# Stage *j* + 1 is asked only if stage *j* was right. The team earns the share of stages passed. Each of the eight agents answers a chain of digits with its own weights, so each has its own gradient. First comes one batch of the untrained team: 16 ladders, 8 trajectories each.
#
# The rule of chains: from left to right, and only the last digit of each step counts. So `3 + 4 * 2` is 7, then 14, so 4: `7 4 answer 4` is right. `8 1 answer 1`, which multiplies first, is wrong.

# %% [markdown]
# *Predict:* which stage has the largest norm under the global baseline? How much of it can F explain?

# %%
env = lab.make_env("ladder")


def fresh_team():
    return lab.Team.per_agent(lambda agent: lab.load_policy(env.pocket, lr=3e-4), env.agents)


team = fresh_team()
turns = lab.rollout(env, team, env.tasks(2 if SMOKE else 16, "train", seed=0), lab.episodes(8), seed=0)
compared = {name: lab.RECIPES[recipe].advantages(turns) for name, recipe in (("global", "grpo"), ("own", "dr_mas"))}
facts = lab.RewardInspector(compared["global"], agents=env.agents).table.set_index("agent")[["rows", "F"]]
for name, table in compared.items():
    stats = lab.update(fresh_team(), table, lr_scale=0.0)  # the norms, without a step
    facts[f"norm_{name}"] = stats.set_index("agent")["grad_norm"]
facts.round(2)

# %% [markdown]
# *Explain.* `F` is the mean squared advantage of the agent's `rows` under the global baseline. `norm_global` and `norm_own` are the norms of the whole gradient under each baseline, before clipping.
#
# From stage 2 on, the higher a stage, the larger its norm, up to some twenty times the norm of stage 1. But √F is at most 2.6, so the baseline is not the only cause. Look at `rows`. A gradient is a mean over rows: 128 rows for stage 1, and a few for the last stage. A mean over few rows has a large norm under any baseline. The own baseline gives these stages 0, because a task has only one or two of their rows. **So the measured ratio has two causes: the offset of the global baseline, and the missing gradient of the own baseline.**

# %% [markdown]
# ### What those gradients say
#
# A norm has no direction. So look at which answers the advantages reinforce. The next cell plays more ladders and shows the mean advantage of right and of wrong answers under each baseline.

# %% [markdown]
# *Predict:* stage 6 gives a wrong answer. Is its advantage below 0 under the global baseline? And under its own?

# %%
more = lab.rollout(env, team, env.tasks(4 if SMOKE else 128, "train", seed=1), lab.episodes(8), seed=1)
advantages = {name: lab.RECIPES[recipe].advantages(more)["advantage"] for name, recipe in
              (("global", "grpo"), ("own", "dr_mas"))}  # fmt: skip
judged = pd.DataFrame({"agent": more["agent"], "right": more["local_reward"] == 1} | advantages)
judged.pivot_table(index="agent", columns="right", values=["global", "own"], observed=True).round(2)

# %% [markdown]
# *Explain:* under the global baseline, a stage 5 that answers wrong still earns 4/8, while the mean of its task is perhaps 2/8. So it is reinforced, nearly as much as for a right answer. The rows of such a stage push the *same* way, towards whatever it said. Under its own baseline a wrong answer gets a negative advantage and a right answer a positive one, if there is anything to compare.
#
# **05.2** (4 minutes, easy) Look at `judged`. Which agents have a positive advantage for *each* of their wrong answers under the global baseline? Give a set of names.

# %%
### BEGIN SOLUTION
wrong = judged[~judged["right"]]
lowest = wrong.groupby("agent")["global"].min()
praised = set(lowest.index[lowest > 0])
### STARTER
# praised = ...
### END SOLUTION
lab.course.check("05.2", judged, praised)

# %% [markdown]
# ## Thirty steps
#
# The same team is trained twice, by `grpo` and by `dr_mas`, on the same seeds. Step t of both runs draws the same ladders. Three seeds are recorded (`python benchmarks/gradient_spikes.py --forms ladder`), with each agent's norm under *both* baselines on the batch of each step. With `RECORDED = False` you train seed 0 here, and see the norm under its own recipe.


# %%
def said_of(reports):
    """Of each step and agent: its rows, how many answers were right, and how many began with "answer"."""
    turns = pd.concat([report.turns.assign(step=report.step) for report in reports])
    by = turns.assign(guessed=turns["completion"].str.startswith("answer")).groupby(["step", "agent"])
    return by.agg(rows=("agent", "size"), right=("local_reward", "mean"), guessed=("guessed", "mean")).reset_index()


def learn(recipe, seed, steps):
    """One run, with the same tables as those that are shipped."""
    team, watch, tokens = fresh_team(), lab.SpikeWatch(), 0
    held_out = env.tasks(8 if SMOKE else 128, "test", seed=0)
    scores = [(0, lab.evaluate(env, team, held_out, k=4)["success"].mean())]
    for report in lab.train(env, team, recipe, steps, seed=seed, watch=watch, tasks=4 if SMOKE else 16):
        reports.setdefault(recipe, []).append(report)
        tokens += report.tokens
        if (report.step + 1) % 5 == 0 or report.step + 1 == steps:
            scores.append((tokens, lab.evaluate(env, team, held_out, k=4)["success"].mean()))
    norms = pd.concat([report.stats for report in reports[recipe]]).rename(columns={"grad_norm": "norm"})
    tables = norms, pd.DataFrame(scores, columns=["tokens", "success"]), said_of(reports[recipe])
    return *(table.assign(recipe=recipe, seed=seed) for table in tables), watch


reports = {}
pairs, ratios = (pd.read_csv(RECORDS / f"{name}.csv") for name in ("norms", "ratios"))
if RECORDED:
    scores, said = (pd.read_csv(RECORDS / f"{name}.csv") for name in ("scores", "said"))
    norms = pairs.assign(norm=pairs["norm_global"].where(pairs["recipe"] == "grpo", pairs["norm_agent"]))
else:
    *tables, watches = zip(*(learn(recipe, 0, 2 if SMOKE else 30) for recipe in ("grpo", "dr_mas")), strict=True)
    norms, scores, said = (pd.concat(parts, ignore_index=True) for parts in tables)

# %% [markdown]
# *Predict:* there are two figures. The first shows the largest norm of the eight agents at each step, under the baseline of the run's own recipe. Where does `grpo` spike, early or late? The second shows success on held-out ladders. Which team climbs?

# %%
by = norms.assign(policy_norm=norms["norm"]).groupby(["recipe", "seed", "step"], as_index=False, sort=False)
norm_lines(by["policy_norm"].max())

# %%
learning_curves(scores)

# %% [markdown]
# *Explain* (the recorded runs). Under `dr_mas` no norm passes 2.7, and the three teams climb to 0.55, 0.53 and 0.56. They do not reach 1: eight stages, each right in 93 of 100 cases, make 0.56. Under `grpo` the largest norms come first: 15.8, 21.9 and 13.6 within the first five steps. In the last five none passes 3.0, 7.0 and 0.8. The teams end at 0.01, 0.03 and 0.06: the norms fall, but success does not rise.
#
# Now look at single agents, in the recorded runs. A dot is one step of one `grpo` run: the agent's norm under the global baseline divided by the one under its own, *on the same batch*.

# %%
TICKS = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100]
looks = {"color": "agent", "color_discrete_map": colors(env.agents), "category_orders": {"agent": env.agents}}
dots = pairs[(pairs["recipe"] == "grpo") & (pairs["norm_agent"] > 0)]  # where the own norm is 0, there is no ratio
dots = dots.assign(ratio=dots["norm_global"] / dots["norm_agent"])
figure = px.strip(dots, x="agent", y="ratio", log_y=True, **looks)
figure.update_layout(**LAYOUT | {"showlegend": False}, yaxis_title="norm: global over own baseline")
figure.update_yaxes(tickvals=TICKS).add_hline(y=1, line={"color": "gray", "dash": "dot"})


# %%
def summary(norms):
    """Per agent: its rows, its norms under the baseline that was used, their ratio, and how often its own is silent."""
    ratio = norms["norm_global"] / norms["norm_agent"].where(norms["norm_agent"] > 0)
    used = norms["norm_global"].where(norms["recipe"] == "grpo", norms["norm_agent"])
    by = norms.assign(ratio=ratio, silent=norms["norm_agent"] == 0, norm=used).groupby(["recipe", "agent"])
    told = by.agg(rows=("rows", "median"), median_norm=("norm", "median"), largest_norm=("norm", "max"))
    return told.join(by.agg(median_ratio=("ratio", "median"), silent=("silent", "mean"))).round(2)


summary(pairs)

# %% [markdown]
# *Explain.* `rows` is the median number of the agent's rows in a step. `silent` is the share of steps in which its own baseline gives it no gradient at all. Stage 1 speaks once in every trajectory, so it has the same norm under both baselines, at every step. Stages 2 to 5 have *smaller* norms under the global one, 0.71 to 0.86 times. They are called often. Only stages 7 and 8 have larger ones, 1.27 and 1.90 times in the median, where there is a ratio. Their own baseline is silent in 30 and in 60 of 100 steps.
#
# So on the same batch the baseline makes about a factor of two. Yet stage 8 has a median norm of 3.0 under `grpo`, and of 0.69 under `dr_mas`. The rest is `rows`: 6 against 53. If the team does not climb, its last stages are rarely asked, and a mean over six rows has a large norm. **Large norms are as much a symptom of the failure as its cause.**
#
# ### Is it the size?

# %% [markdown]
# *Predict:* clip the gradients at 0.1 instead of 1, do not clip, or use plain SGD. If large norms break `grpo`, which of these should save it?

# %%
ladder = Recorded(RESULTS / "studies" / "ladder")
tasks = ["8 agents", "8 agents, clipped at 0.1", "8 agents, no clipping", "8 agents, SGD"]
ends = ladder.table.query("phase == 'compare' and task in @tasks and arm in ['global', 'own'] and seed in [0, 1, 2]")
ends.pivot(index=["task", "arm"], columns="seed", values="final").loc[tasks].round(2)

# %% [markdown]
# *Explain:* none of them saves it. (This is the study `ladder`, with different first weights for each seed. Those of seed 2 hardly learn under any baseline. Over ten such seeds the largest norm of a run is 8 to 65 under the global baseline and 2 to 17 under their own. A team ends 0.20 higher under its own, 95 % interval 0.03 to 0.40.) An AdamW step depends on a gradient's size only relative to the gradients before it, and clipping removes the rest. The direction remains. `signal` estimates how much of it is information, from the first rewards alone:

# %%
start = ladder.agents.query("task == '8 agents' and arm == 'global' and window == 'start'")
start.groupby("agent")[["spoke", "F", "signal"]].median().round(2)

# %% [markdown]
# *`spoke`* is the share of episodes in which the agent spoke. (A `signal` of 0 means that its credits never differed within a task.) All numbers are medians of ten seeds over the first five steps.
#
# ## A spike, opened to its tokens
#
# A norm is called a *spike* if it is more than four times the usual norm, the median of the 50 norms before it, of all agents, and taller than each of these. Then, before the optimizer moves, the watch takes the gradient apart. The share of a token is the projection of its own gradient on the whole gradient,
#
# $$\mathrm{share}_t = \langle \nabla \ell_t,\, G\rangle \,/\, \|G\|^2 , \qquad G = \textstyle\sum_t \nabla \ell_t ,$$
#
# so that shares sum to 1 and may be negative. Click a filled diamond, open agent, group and sample, and then read the strip of tokens. A link below it opens the sample's whole episode. The switch shows the same step's norms under the other baseline.

# %%
if RECORDED:
    shown = [pd.read_parquet(RECORDS / f"spike_{name}.parquet") for name in ("turns", "stats")]
    watch = lab.SpikeWatch()
    watch.load_state(json.loads((RECORDS / "spikes.json").read_text(encoding="utf-8")))
else:
    watch, shown = watches[0], reports["grpo"]
inspector = lab.SpikeInspector(shown, watch=watch, agents=env.agents, team=team)
inspector

# %%
for spike in inspector.spikes[:1]:
    turns = inspector.source.turns(spike["step"])
    row = turns.iloc[int(max(spike["rows"], key=lambda row: spike["rows"][row]))]
    print(
        f"step {spike['step']}, {spike['policy']}: norm {spike['norm']:.1f}, {len(spike['rows'])} row(s) with a share"
    )
    print(f"its largest row: advantage {row['advantage']:+.2f} under grpo; under its own baseline the whole norm is "
          f"{spike['baselines']['agent']['']:.2f}")  # fmt: skip
    display(dialogue(turns, row["episode"]))

# %% [markdown]
# *Explain* (the recorded run). Seven stages worked their chains out, `5 7 1 7 answer 7`, and were right. Stage 8 says `answer 4`: it guesses without working, and it is wrong (6 is right). Only this one of 128 trajectories came so far, so it is the whole gradient of this agent. The team had passed 7 of 8 stages, and the mean of the task is 2. So the guess has an advantage of +2.36, and the norm is 15.8. More than half of the strip belongs to the word `answer`, the decision not to work. Under its own baseline there is nothing to compare, and no gradient.
#
# One such step does little, because it is clipped to 1. But every visit to stage 8 is reinforced, so the most probable answer becomes even more probable.

# %% [markdown]
# *Predict:* at first stage 8 guesses in about every second answer. How often does it guess after 30 steps, under each baseline? And how often is it right?

# %%
first, last = said["step"] < 5, said["step"] >= max(5, said["step"].max() - 4)
ends = pd.concat([said[first].assign(steps="first five"), said[last].assign(steps="last five")])
sums = ends.assign(**{name: ends[name] * ends["rows"] for name in ("guessed", "right")})
sums = sums.groupby(["agent", "recipe", "steps"])[["rows", "guessed", "right"]].sum()
shares = sums[["guessed", "right"]].div(sums["rows"], axis=0).unstack("steps").round(2)
shares.loc[["stage_1", "stage_6", "stage_7", "stage_8"] if RECORDED else shares.index.levels[0]]

# %% [markdown]
# *Explain* (three recorded runs of each). Under `dr_mas` stage 8 stops guessing, from 0.44 to 0.01, and is right in 0.88 of its answers in the end. Under `grpo` it *learns to guess*: 0.94 of its answers, and 0.14 are right. This is the failure itself, and no norm shows it. No offset shifts the rewards of stage 1, and it learns the same under both baselines.
#
# ## Does the theory explain the measured ratio?

# %%
batches = ratios.drop_duplicates(["agent", "norm_global"])
batches = batches[(batches[["V", "predicted", "measured"]] > 0).all(axis=1)]
ways = {"by rewards alone: F / V": batches["F"] / batches["V"], "with the covariances": batches["predicted"]}
both = pd.concat([batches.assign(way=way, expected=expected) for way, expected in ways.items()])
ends = [0.8 * both[["measured", "expected"]].min(axis=None), 1.2 * both[["measured", "expected"]].max(axis=None)]
looks |= {"facet_col": "way", "log_x": True, "log_y": True, "range_x": ends, "range_y": ends}
figure = px.scatter(both, x="expected", y="measured", **looks)
figure.add_shape(
    type="line", x0=ends[0], y0=ends[0], x1=ends[1], y1=ends[1], line={"dash": "dot"}, row="all", col="all"
)
figure.update_layout(**LAYOUT | {"margin": {"l": 60, "r": 20, "t": 80, "b": 50}}, height=420).update_layout(
    legend_y=1.12
)
figure.update_xaxes(title="predicted ratio of |G|²", tickvals=TICKS).update_yaxes(tickvals=TICKS)
figure.for_each_annotation(lambda note: note.update(text=note.text.partition("=")[2]))

# %% [markdown]
# *Explain.* A dot is one fresh batch that no run trained on. From the rewards alone (left) the direction is right, but the size is wrong, for stage 8 by a factor of 3.4 in the median. With the covariances (right) the factor is 1.4: it matters *which* rows get the large advantages. The reason is that unlikely tokens have much larger gradients, such as `answer 4` above.
#
# This is less than it seems. On the moments of single rows the lemma is an identity: it holds for any table. It only predicts that the *batch's* norm follows the moments of its rows, so that the gradients of rows neither align nor cancel. With a few rows that is nearly certain, and still at worst it is off by a factor of 17. Moreover, 13 of the 295 batches are missing on both sides: the own baseline gave exactly 0, so there is no ratio.
#
# ## High and harmless, low and harmful
#
# Here are five recorded settings with ten seeds each. Each shows the agent whose largest norm the global baseline raises most.

# %% [markdown]
# *Predict:* the fixer of `math` is called rarely, after a rejection. The helper of `paid_help` is called where a solver was wrong, and its rewards differ little. Which of them has large norms under the global baseline? Which team is worse off?


# %%
def norms_and_harm(name, task):
    """An agent's largest norm (the median over seeds) under either baseline, and what its team gains by its own."""
    study = Recorded(RESULTS / "studies" / name)
    agents = study.agents.query("task == @task and arm in ['global', 'own'] and window == 'end'")
    largest = agents.groupby(["agent", "arm"])["largest_norm"].median().unstack().dropna()
    agent = (largest["global"] / largest["own"]).idxmax()
    board = lab.AblationBoard(study, baseline="global").differences.set_index(["env", "recipe"]).loc[(task, "own")]
    norms = {f"largest norm, {arm}": largest.loc[agent, arm] for arm in ("global", "own")}
    return {"task": f"{name}, {task}", "agent": agent} | norms | {"own gains": board["final"]} | {
        "from": board["final_low"], "to": board["final_high"]}  # fmt: skip


settings = (("ladder", "8 agents"), ("math", "with a fixer"), ("paid_help", "pay 0.2"), ("finisher", "low 0.8"),
            ("math", "without one"))  # fmt: skip
pd.DataFrame([norms_and_harm(*one) for one in settings]).round(2)

# %% [markdown]
# *Explain.* All four combinations occur:
#
# | | norms large | norms similar |
# |---|---|---|
# | **harm** | the ladder | `paid_help`, `finisher` |
# | **no harm** | `math` with a fixer | `math` without one |
#
# *`math` with a fixer*: its norm reaches 12.5 under the global baseline, 3.7 under its own, and the teams end alike (0.01, −0.01 to +0.03). The norms are visible, but harmless: a third of its squared advantages is signal. That is enough to learn from, and AdamW divides the size out.
#
# *`paid_help`*: the helper's rewards are all far below the others', and differ little among themselves. F is 0.9. Its norms are, if anything, *smaller* under the global baseline (1.4 against 1.8). But the team loses 0.06. No count of norms will ever show it; `signal` is 0.04.
#
# ## What the theory explains, and what it does not
#
# - **It explains which agent.** An agent that speaks exactly once per trajectory has F = 1. Watch an agent that is called rarely, when things go badly or well.
# - **It explains a part of the size.** F ≤ N − 1: eight trajectories inflate a norm by at most √7 ≈ 2.6. The published collapse (norms above 80, then NaN) cannot come from F alone. Larger norms come from few rows. Larger ratios also come from an own baseline that gives no gradient.
# - **It says nothing about benefit.** Large norms do little harm under Adam and clipping. An offset in every advantage can do harm.
# - **A spike is no verdict.** It may be a guess that is reinforced, as here, or the only useful row of the batch. Open it before you clip it.
# - **What we did not look at:** models above 0.3 million parameters, low precision, long completions.

# %% [markdown]
# ## Your turn
#
# **05.3** (10 minutes, hard) *Large norms.* Design a problem of eight trajectories in which the F of a **critic** is above 3. The critic's rewards must not be all the same, so that its own baseline still gives a gradient.

# %%
### BEGIN SOLUTION
rewards, called = [1, 1, 1, 1, 1, 1, 1, 0], [6, 7]
### STARTER
# rewards = [1, 1, 1, 1, 0, 0, 0, 0]  # <- of the eight trajectories, each from 0 to 1
# called = [0, 1, 2, 4, 5]  # <- the trajectories in which the critic speaks
### END SOLUTION
lab.course.check("05.3", rewards, called)

# %% [markdown]
# **05.4** (12 minutes, hard) *Silent harm.* Now design the harm that no norm shows: F at most 1, and signal at most 0.1. The critic's own rewards must not be all the same.

# %%
### BEGIN SOLUTION
rewards, called = [1, 1, 1, 0.2, 0.2, 0.2, 0.2, 0], [3, 4, 5, 6, 7]
### STARTER
# rewards = [1, 1, 1, 1, 0, 0, 0, 0]  # <- each from 0 to 1
# called = [0, 1, 2, 4, 5]  # <- the trajectories in which the critic speaks
### END SOLUTION
lab.course.check("05.4", rewards, called)

# %% [markdown]
# **05.5** (15 minutes, medium) *Build it.* Find the token that makes the spike. A completion has one advantage $A$. Its gradient is the sum over its tokens of $-A \nabla \log p$. Return a list: for each token of the completion, the norm of its own part over all weights of the model.


# %%
def token_norms(model, prompt_ids, completion_ids, advantage):
    ### BEGIN SOLUTION
    ids, norms = torch.tensor([[*prompt_ids, *completion_ids]]), []
    for place, token in enumerate(completion_ids):
        logits = model(ids).logits[0, len(prompt_ids) - 1 + place].float()
        model.zero_grad()
        (-advantage * logits.log_softmax(-1)[token]).backward()
        norms.append(torch.nn.utils.get_total_norm([weight.grad for weight in model.parameters()]).item())
    return norms
    ### STARTER
    # pass  # your code here
    ### END SOLUTION


lab.course.check("05.5", token_norms)

# %% [markdown]
# ## To remember
#
# - F says how large, signal says how useful. F ≤ N − 1.
# - Few rows make a large norm under any baseline. A ratio of norms is also large if the own baseline gives almost no gradient.
# - Ladder: large and harmful. `math`: large and harmless. `paid_help`: harmful and not large.
#
# Dr. MAS, [arXiv 2602.08847](https://arxiv.org/abs/2602.08847), equations 4 to 6 and the lemma on gradient norms; GRPO, [arXiv 2402.03300](https://arxiv.org/abs/2402.03300), section 4.1. How would a run go on under the other baseline? `lab.train(env, team, "dr_mas", steps, run="other", fork="mine")` begins with the steps and weights of the run `mine`, and changes one thing.
#
# Next: `06_at_grpo`.
